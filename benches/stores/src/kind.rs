//! The kinds of servers that rows run on.

use private_servers::{Etcd, MariaDb, Persistence, Postgres, Program, Redis, ZooKeeper};

/// A server, with the setting that matters; or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    RedisSynced,
    /// Five that know nothing of each other.
    FiveRedis,
    Postgres,
    MariaDb,
    ZooKeeper,
    Etcd,
}

impl Kind {
    pub fn program(self) -> Box<dyn Program> {
        match self {
            Self::Redis | Self::FiveRedis => Box::new(Redis(Persistence::None)),
            Self::RedisSynced => Box::new(Redis(Persistence::Always)),
            Self::Postgres => Box::new(Postgres),
            Self::MariaDb => Box::new(MariaDb),
            Self::ZooKeeper => Box::new(ZooKeeper),
            Self::Etcd => Box::new(Etcd),
        }
    }

    /// How many servers a row of this kind needs.
    pub fn servers(self) -> usize {
        if self == Self::FiveRedis { 5 } else { 1 }
    }
}
