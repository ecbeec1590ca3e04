//! Errors, each of which says what the caller may believe now.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The result of a call to this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error below one of ours, kept for [`std::error::Error::source`].
pub(crate) type Source = Arc<dyn std::error::Error + Send + Sync>;

/// What went wrong, and what the caller may believe now.
///
/// A busy lock is not an error: `try_lock` and `try_lock_for` answer `None`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller had the lock and has it no more: its lease ran out, or somebody took it away.
    ///
    /// Work that the caller did since then may have run beside the work of another holder, unless the protected
    /// resource compares [`FencingToken`](crate::FencingToken)s. The next holder's lock was not touched.
    #[error("the lock was lost")]
    Lost,

    /// Redis did not answer: the request may have run.
    ///
    /// The caller does not have the lock. If the request took it after all, the client gives it back in the
    /// background; at the latest, its lease ends it.
    #[error("redis did not answer, the request may have run and is being cleaned up: {source}")]
    Indeterminate {
        /// The failure below this error.
        source: Source,
    },

    /// Redis cannot be reached, or refuses for now (it is loading, out of memory, a replica, ...). The caller does not have
    /// the lock, and the client gives back what a request may have taken. A later try may succeed. `Indeterminate` differs
    /// in one thing: there a request may still have an effect after the answer. With
    /// [`Config::replicas`](crate::Config::replicas), so may one that too few replicas have acknowledged, until it is given
    /// back.
    #[error("redis is not available: {source}")]
    Unavailable {
        /// The failure below this error.
        source: Source,
    },

    /// Redis refuses: the password is wrong, or the user may not run a command or touch a key. A later try does not
    /// help.
    #[error("redis denies permission: {source}")]
    Permission {
        /// What the server said.
        source: Source,
    },

    /// A key of this name holds a value of another type, or others use the name as another kind or with another number of
    /// permits. The key was left as it is.
    #[error("the key {key:?} holds a {kind}, not what was asked for")]
    Conflict {
        /// The key in Redis.
        key: String,
        /// The type of that key, as Redis calls it, or the kind that others use the name for.
        kind: String,
    },

    /// The name is empty or longer than 1 KiB. With [`Layout::Redisson`](crate::Layout::Redisson), it may also be one of
    /// parklock's own keys (`lock:grants`, `lock_notes:..` and the like), or in a cluster have keys in several slots.
    #[error("invalid lock name: {reason}")]
    InvalidName {
        /// What is wrong with it.
        reason: &'static str,
    },

    /// The lease, or its extension, is not between 10 ms and 24 h.
    #[error("invalid lease of {lease:?}: it must be between 10 ms and 24 h")]
    InvalidLease {
        /// The lease that was asked for.
        lease: Duration,
    },

    /// Zero permits, or more than the semaphore has.
    #[error("invalid number of permits: {asked} of {of}")]
    InvalidPermits {
        /// How many were asked for.
        asked: u32,
        /// How many there are.
        of: u32,
    },

    /// The count is 2^53 or more, which a latch cannot hold.
    #[error("invalid count of {count}: it must be less than 2^53")]
    InvalidCount {
        /// The count that was asked for.
        count: u64,
    },

    /// The latch does not exist: it was never set, or somebody deleted it, or its lease is over. Redis does not know
    /// whether it was ever counted down to zero.
    #[error("the latch is not set, or not any more")]
    Unset,

    /// The owner of a [`ReentrantRwLock`](crate::ReentrantRwLock) reads, and asked to write. It would
    /// wait for itself: release the read lock first.
    #[error("a read lock cannot be upgraded to a write lock: release it first")]
    Upgrade,

    /// A [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock) cannot be made of this list of locks.
    #[error("invalid list of locks: {reason}")]
    InvalidLocks {
        /// What is wrong with the list.
        reason: &'static str,
    },

    /// A setting cannot work, or a URL cannot be understood.
    #[error("invalid configuration: {reason}")]
    Config {
        /// The setting or relation that does not hold.
        reason: String,
    },

    /// [`Config::max_waiters`](crate::Config::max_waiters) callers wait in this client already.
    #[error("{limit} callers wait for locks in this client already")]
    TooManyWaiters {
        /// The limit that was reached.
        limit: usize,
    },

    /// One owner has locked a re-entrant lock too often without unlocking it.
    #[error("the lock is held {limit} times by one owner already")]
    TooManyHolds {
        /// The limit that was reached.
        limit: u32,
    },

    /// The work of an [`Every`](crate::Every) took longer than [`Every::at_most`](crate::Every::at_most). It was dropped, and
    /// the lock was given back. The interval counts as used.
    #[error("the work took longer than its limit of {limit:?}")]
    TooLong {
        /// The limit that was reached.
        limit: Duration,
    },

    /// What was asked for does not exist for this guard, or in this layout.
    #[error("unsupported: {reason}")]
    Unsupported {
        /// What does not exist.
        reason: &'static str,
    },

    /// The client was closed, or the runtime that it was connected on has ended.
    #[error("the client is closed")]
    Closed,
}

impl Error {
    pub(crate) fn config(reason: impl Into<String>) -> Self {
        Self::Config { reason: reason.into() }
    }

    /// A limit of time that ran out before any answer.
    pub(crate) fn unanswered(limit: impl fmt::Debug) -> Self {
        Self::Unavailable { source: said(format!("no answer within the limit of {limit:?}")) }
    }

    /// A limit of time that ran out while a request was on its way.
    pub(crate) fn cut_off(limit: impl fmt::Debug) -> Self {
        Self::Indeterminate { source: said(format!("no answer within the limit of {limit:?}")) }
    }

    /// What traces call it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Indeterminate { .. } => "indeterminate",
            Self::Unavailable { .. } => "unavailable",
            Self::Permission { .. } => "permission",
            Self::Conflict { .. } => "conflict",
            Self::InvalidName { .. } => "invalid_name",
            Self::InvalidLease { .. } => "invalid_lease",
            Self::InvalidPermits { .. } => "invalid_permits",
            Self::InvalidCount { .. } => "invalid_count",
            Self::Unset => "unset",
            Self::Upgrade => "upgrade",
            Self::InvalidLocks { .. } => "invalid_locks",
            Self::Config { .. } => "config",
            Self::TooManyWaiters { .. } => "too_many_waiters",
            Self::TooManyHolds { .. } => "too_many_holds",
            Self::TooLong { .. } => "too_long",
            Self::Unsupported { .. } => "unsupported",
            Self::Closed => "closed",
        }
    }

    /// Whether a later try may help.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Indeterminate { .. })
    }
}

/// A failure that no other library reported, in our own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Said(pub(crate) String);

/// Our own words as the source of an error.
pub(crate) fn said(words: impl Into<String>) -> Source {
    Arc::new(Said(words.into()))
}
