//! Errors. Each says what the caller may believe now.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The result of a call to this crate: its error is an [`Error`], unless another type is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The underlying error, kept for [`std::error::Error::source`].
pub(crate) type Source = Arc<dyn std::error::Error + Send + Sync>;

/// What went wrong, and what the caller may believe now.
///
/// A busy lock is not an error: `try_lock` and `try_lock_for` return `None`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// use parklock::Error;
///
/// let client = parklock::Client::connect(&url).await?;
/// match client.lock("doc:error").try_lock().await {
///     Ok(Some(guard)) => guard.unlock().await?,
///     Ok(None) => println!("busy"),
///     Err(Error::TooManyWaiters { .. }) => println!("this process is overloaded"),
///     Err(error) if error.is_transient() => println!("Redis does not answer: try again later"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller held the lock and no longer does: its lease expired, somebody took the lock away, the server forgot it,
    /// or the client was closed.
    ///
    /// Work that the caller has done since then may have overlapped with another holder's work, unless the protected
    /// resource compares [`FencingToken`](crate::FencingToken)s. The next holder's lock is not affected.
    #[error("the lock {name:?} was lost")]
    Lost {
        /// The name of the lock. For several locks at once, the first that is known to be lost.
        name: String,
    },

    /// Redis did not answer: the request may have run.
    ///
    /// The caller does not hold the lock. If the request did take it, the client releases it in the background; at the
    /// latest, the lock expires with its lease.
    #[error("redis did not answer, the request may have run and is being cleaned up: {source}")]
    Indeterminate {
        /// The underlying failure.
        source: Source,
    },

    /// Redis cannot be reached, or refuses for now (it is loading, out of memory, a replica, ...). The caller does not
    /// hold the lock. A later try may succeed.
    ///
    /// After `Unavailable`, no request of this call can still take the lock, with two exceptions, in which the client
    /// releases the lock in the background:
    /// 1. The call has waited out an outage ([`Config::ride_out`](crate::Config::ride_out)), and one of its requests was
    ///    not answered, or it stood in line.
    /// 2. With [`Config::replicas`](crate::Config::replicas), too few replicas have acknowledged a request.
    #[error("redis is not available: {source}")]
    Unavailable {
        /// The underlying failure.
        source: Source,
    },

    /// Redis refuses: the password is wrong, or the user may not run a command or access a key. Retrying does not help.
    #[error("redis denies permission: {source}")]
    Permission {
        /// What the server said.
        source: Source,
    },

    /// A key of this name holds a value of another type, or other callers use the name for another kind of lock or with
    /// another number of permits. Nothing was granted, and the key is unchanged.
    #[error(
        "the caller asked for a {asked}, but the key {key:?} holds a {kind}{}: a name has one kind at a time",
        if kind == "hash" { ", as a plain lock does" } else { "" }
    )]
    Conflict {
        /// The key in Redis.
        key: String,
        /// The type of that key, as Redis calls it, or the kind that other callers use the name for, such as `fair lock`
        /// or `semaphore of 3 permits`.
        kind: String,
        /// The kind that this caller uses the name for.
        asked: String,
    },

    /// The name is empty or longer than 1 KiB. With [`Layout::Redisson`](crate::Layout::Redisson), the name may also be
    /// one of parklock's own keys (`lock:grants`, `lock_notes:..` and the like), or, in a cluster, its keys may lie in
    /// several slots.
    #[error("invalid lock name: {reason}")]
    InvalidName {
        /// What is wrong with it.
        reason: &'static str,
    },

    /// The lease, or the extension of a lease, is not between 10 ms and 24 h.
    #[error("invalid lease of {lease:?}: it must be between 10 ms and 24 h")]
    InvalidLease {
        /// The lease that was asked for.
        lease: Duration,
    },

    /// Zero permits, or more than the semaphore has.
    #[error("invalid number of permits: {asked}; it must be from 1 to {of}")]
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

    /// The latch does not exist: it was never set, it was deleted, or its lease expired. Redis does not know whether it
    /// ever reached zero.
    #[error("the latch {name:?} does not exist")]
    Unset {
        /// The name of the latch.
        name: String,
    },

    /// The owner of a [`ReentrantRwLock`](crate::ReentrantRwLock) holds it to read and asked to write. It would wait
    /// for itself: release the read lock first.
    #[error("the owner that reads {name:?} cannot begin to write: release the read lock first")]
    Upgrade {
        /// The name of the lock.
        name: String,
    },

    /// A [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock) cannot be built from this list of locks.
    #[error("invalid list of locks: {reason}")]
    InvalidLocks {
        /// What is wrong with the list.
        reason: &'static str,
    },

    /// A setting is invalid, or the URL cannot be parsed.
    #[error("invalid configuration: {reason}")]
    Config {
        /// The invalid setting, or the relation between settings that does not hold.
        reason: String,
    },

    /// [`Config::max_waiters`](crate::Config::max_waiters) callers are already waiting in this client.
    #[error(
        "{limit} {} for locks in this client already, the limit of Config::max_waiters",
        if *limit == 1 { "caller waits" } else { "callers wait" }
    )]
    TooManyWaiters {
        /// The limit that was reached.
        limit: usize,
    },

    /// One owner holds a re-entrant lock too many times.
    #[error("one owner holds the lock {name:?} {limit} times already")]
    TooManyHolds {
        /// The name of the lock.
        name: String,
        /// The limit that was reached.
        limit: u32,
    },

    /// The work of an [`Every`](crate::Every) took longer than [`Every::at_most`](crate::Every::at_most). The work was
    /// dropped and the lock released. The interval counts as used.
    #[error("the work of the job {name:?} took longer than its limit of {limit:?}")]
    TooLong {
        /// The name of the job.
        name: String,
        /// The limit that was reached.
        limit: Duration,
    },

    /// This guard, this condition or this layout does not support the call.
    #[error("unsupported: {reason}")]
    Unsupported {
        /// What is not supported.
        reason: &'static str,
    },

    /// The client is closed, or the runtime that it was connected on has ended.
    #[error("the client is closed")]
    Closed,
}

impl Error {
    pub(crate) fn lost(name: impl Into<String>) -> Self {
        Self::Lost { name: name.into() }
    }

    pub(crate) fn config(reason: impl Into<String>) -> Self {
        Self::Config { reason: reason.into() }
    }

    /// A time limit ended, and no request of the call can have taken the lock.
    pub(crate) fn unanswered(limit: impl fmt::Debug) -> Self {
        Self::Unavailable { source: said(format!("no answer within the limit of {limit:?}")) }
    }

    /// A time limit ended, and a request of the call may have taken the lock, or may yet do so.
    pub(crate) fn cut_off(limit: impl fmt::Debug) -> Self {
        Self::Indeterminate { source: said(format!("no answer within the limit of {limit:?}")) }
    }

    /// The error's name in traces.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "lost",
            Self::Indeterminate { .. } => "indeterminate",
            Self::Unavailable { .. } => "unavailable",
            Self::Permission { .. } => "permission",
            Self::Conflict { .. } => "conflict",
            Self::InvalidName { .. } => "invalid_name",
            Self::InvalidLease { .. } => "invalid_lease",
            Self::InvalidPermits { .. } => "invalid_permits",
            Self::InvalidCount { .. } => "invalid_count",
            Self::Unset { .. } => "unset",
            Self::Upgrade { .. } => "upgrade",
            Self::InvalidLocks { .. } => "invalid_locks",
            Self::Config { .. } => "config",
            Self::TooManyWaiters { .. } => "too_many_waiters",
            Self::TooManyHolds { .. } => "too_many_holds",
            Self::TooLong { .. } => "too_long",
            Self::Unsupported { .. } => "unsupported",
            Self::Closed => "closed",
        }
    }

    /// Whether the cause may go away by itself. This is so for [`Unavailable`](Self::Unavailable) and
    /// [`Indeterminate`](Self::Indeterminate): when Redis answers again, the same call may succeed.
    ///
    /// A call that may wait has already repeated its requests for [`Config::ride_out`](crate::Config::ride_out). So pause
    /// before you repeat the call. If a call that takes a lock fails, you have nothing to undo: if one of its requests did
    /// take the lock, the client releases it. Until then, a [`try_lock`](crate::Lock::try_lock) may find that lock still
    /// held.
    ///
    /// After `Indeterminate`, a call that changes something may already have taken effect, and each call is a new order. If
    /// you repeat it, it may take effect twice: a second [`count_down`](crate::CountDownLatch::count_down) counts once more,
    /// a second [`notify_one`](crate::Condition::notify_one) wakes one more waiter, and a second
    /// [`force_unlock`](crate::Lock::force_unlock) may take the lock from the next holder. A second
    /// [`set`](crate::CountDownLatch::set) may close a latch that has opened meanwhile, and a second
    /// [`set_permits`](crate::Semaphore::set_permits) may undo what another caller has set. A call that uses up its guard ([`unlock`](crate::Guard::unlock), [`wait`](crate::Guard::wait))
    /// cannot be repeated.
    ///
    /// After all other errors, something has to change: the program, its settings, or the server. That includes
    /// [`TooManyWaiters`](Self::TooManyWaiters): another call would only be one waiter more.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// # use std::time::Duration;
    /// # use tokio::time::sleep;
    /// let client = parklock::Client::connect(&url).await?;
    /// let lock = client.lock("doc:is_transient");
    /// let guard = loop {
    ///     match lock.lock().await {
    ///         Err(error) if error.is_transient() => {
    ///             eprintln!("not yet: {error}");
    ///             sleep(Duration::from_secs(1)).await;
    ///         }
    ///         locked => break locked?,
    ///     }
    /// };
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Indeterminate { .. })
    }
}

/// The same text: a `main` that returns the error prints this, and so do `unwrap` and `expect`. Their reader wants to know what
/// went wrong, and not how it is stored. The text contains that of the source.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A failure that parklock itself reports, with no underlying library error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

/// Makes a [`Said`] as the source of an error.
pub(crate) fn said(words: impl Into<String>) -> Source {
    Arc::new(Said(words.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_waits_and_several_wait() {
        let text = |limit| Error::TooManyWaiters { limit }.to_string();
        let limit = "for locks in this client already, the limit of Config::max_waiters";
        assert_eq!(text(1), format!("1 caller waits {limit}"));
        assert_eq!(text(2), format!("2 callers wait {limit}"));
    }

    #[test]
    fn what_main_prints_is_for_people() {
        let error = Error::Unavailable { source: said("redis://h: timed out") };
        assert_eq!(format!("{error:?}"), "redis is not available: redis://h: timed out");
        let returned: Result<()> = Err(Error::lost("orders"));
        assert_eq!(format!("{returned:?}"), r#"Err(the lock "orders" was lost)"#);
    }
}
