//! What the tool knows of one lock.

use std::time::Duration;

use crate::servers::Server;

/// A namespace, if there is one, and a name in it.
pub(crate) type FullName = (Option<String>, String);

/// How many holders of one lock the tool reads.
pub(crate) const MOST_HOLDERS: usize = 200;

/// What the tool knows of one lock.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    /// `lock`, `fair`, `fenced`, `rw`, `semaphore`, `condition`, `latch`, `free` if the key does not exist and its line does not say
    /// more, or the type of the key if another program wrote it.
    pub(crate) kind: String,
    /// Another program wrote the key. In Redisson's layout, such a key is no lock, and is left out.
    pub(crate) is_strange: bool,
    /// The first holders.
    pub(crate) holders: Vec<Holder>,
    /// How many holders there are.
    pub(crate) held_by: u64,
    /// How many permits are in use. For a latch: the remaining count. `capacity`: how many permits there are.
    pub(crate) used: Option<u64>,
    pub(crate) capacity: Option<u64>,
    /// How long until the last lease is over. `None`: the key has no TTL, or does not exist.
    pub(crate) ttl: Option<Duration>,
    /// How many callers or clients wait.
    pub(crate) waiting: u64,
    /// The first waiters, if the caller asked for them.
    pub(crate) line: Vec<Waiter>,
    /// How many clients listen to the lock's channel.
    pub(crate) listening: Option<u64>,
    /// The last token, if Redis knows it.
    pub(crate) token: Option<u64>,
    /// How long the interval lasts that a run of a job of this name has claimed.
    pub(crate) interval: Option<Duration>,
    /// The key of the holders.
    pub(crate) key: String,
    pub(crate) server: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Holder {
    /// `<client>:<number>`.
    pub(crate) owner: String,
    /// `read` or `write`.
    pub(crate) mode: Option<&'static str>,
    /// The hold count of a lock, the permits of a semaphore.
    pub(crate) count: u64,
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiter {
    pub(crate) owner: String,
    /// For how long it has waited.
    pub(crate) waited: Duration,
}

impl Lock {
    /// A lock of which only the type and the TTL of its key are known.
    pub(crate) fn outline(
        server: &Server,
        (namespace, name): &FullName,
        key: &str,
        kind: &str,
        pttl: i64,
    ) -> Self {
        let kind = match kind {
            "hash" => "lock",
            "string" => "latch",
            "none" => "free",
            other => other,
        };
        let (name, kind, key) = (name.clone(), kind.to_owned(), key.to_owned());
        Self {
            name,
            namespace: namespace.clone(),
            kind,
            ttl: millis(pttl),
            key,
            server: server.address.clone(),
            ..Self::default()
        }
    }

    pub(crate) fn full_name(&self) -> (&str, Option<&str>) {
        (&self.name, self.namespace.as_deref())
    }

    pub(crate) fn is_known(&self) -> bool {
        self.is_held() || self.waiting > 0 || self.is_strange || self.interval.is_some()
    }

    /// Whether somebody holds it. For a latch: whether it exists.
    pub(crate) fn is_held(&self) -> bool {
        self.held_by > 0 || self.kind == "latch"
    }

    /// The hold count, or how many permits are in use out of how many.
    pub(crate) fn count(&self) -> String {
        match (self.used, self.capacity) {
            (Some(used), Some(capacity)) => format!("{used}/{capacity}"),
            (Some(left), None) => left.to_string(),
            _ if self.kind == "rw" || self.holders.is_empty() => self.held_by.to_string(),
            _ => self.holders[0].count.to_string(),
        }
    }

    /// The kind; for `rw` also whether the holders read or write.
    pub(crate) fn kind_in_words(&self) -> String {
        match self.holders.first().and_then(|holder| holder.mode) {
            Some(mode) => format!("{} {mode}", self.kind),
            None => self.kind.clone(),
        }
    }
}

pub(crate) fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Whether the field of a hash is an owner: a client's id, which is a UUID, and a number, which may be negative for a thread of
/// Java. The id of a client with a session ends with `+` and its patience.
pub(crate) fn is_owner(field: &str) -> bool {
    let Some((client, rest)) = field.split_once(':') else { return false };
    let uuid = client.split_once('+').map_or(client, |(uuid, _)| uuid);
    let is_uuid = uuid.len() == 36 && uuid.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
    is_uuid && rest.strip_prefix('-').unwrap_or(rest).starts_with(|c: char| c.is_ascii_digit())
}
