//! The rows of the tables: ways to lock.

use std::fmt;

use clap::ValueEnum;

use crate::kind::Kind;

/// A way to lock, on one kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Row {
    Parklock,
    /// The same, on a Redis that syncs each write before it answers.
    ParklockSynced,
    /// parklock's `RedLock`, over five Redis servers.
    ParklockRedlock,
    /// `SET NX PX`, and compare-and-delete: the floor of all ratios.
    SetNxPx,
    SetNxPxSynced,
    /// RedLock by its recipe, over five Redis servers.
    Redlock,
    /// The semantics of Tair's `incr` between 0 and 1, in Lua on Redis.
    BoundedIncr,
    /// The semantics of Tair's `put` with a version, in Lua on Redis.
    PutVersion,
    PgAdvisory,
    /// `SELECT .. FOR UPDATE`.
    PgForUpdate,
    /// A version column, compared and set.
    PgVersion,
    MariadbGetLock,
    MariadbForUpdate,
    MariadbVersion,
    /// Ephemeral sequential nodes; each waiter watches the one before it.
    Zookeeper,
    /// The lock service of etcd.
    Etcd,
}

impl Row {
    pub fn kind(self) -> Kind {
        match self {
            Self::Parklock | Self::SetNxPx | Self::BoundedIncr | Self::PutVersion => Kind::Redis,
            Self::ParklockSynced | Self::SetNxPxSynced => Kind::RedisSynced,
            Self::ParklockRedlock | Self::Redlock => Kind::FiveRedis,
            Self::PgAdvisory | Self::PgForUpdate | Self::PgVersion => Kind::Postgres,
            Self::MariadbGetLock | Self::MariadbForUpdate | Self::MariadbVersion => Kind::MariaDb,
            Self::Zookeeper => Kind::ZooKeeper,
            Self::Etcd => Kind::Etcd,
        }
    }

    /// Whether the lock is of a connection that can run a long statement meanwhile. A long script on Redis would hold up everybody.
    pub fn has_statements(self) -> bool {
        matches!(self.kind(), Kind::Postgres | Kind::MariaDb)
    }

    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}
