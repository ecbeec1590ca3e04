//! The count-down latch: callers wait until a number has been counted down to zero.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::longest_lease;
use crate::engine::{Engine, Patience};
use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::locks::handle::Handle;
use crate::wire::Order;

/// The numbers of Lua are exact up to here.
const MOST: u64 = (1 << 53) - 1;

/// A number that callers count down to zero, while others wait for zero, in all processes that share the server.
///
/// A latch is set once, and can be set again when it is open. Set it again only after every waiter has returned: a
/// waiter that has not looked by then waits for the next opening. A latch has a lease, 24 h unless
/// [`lease`](Self::lease) says otherwise. When the lease is over, the latch is gone, whether it was open or closed.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// # parklock::Client::connect(&url).await?.count_down_latch("doc:loaded").delete().await?;
/// let client = parklock::Client::connect(&url).await?;
/// let loaded = client.count_down_latch("doc:loaded");
/// assert!(loaded.set(2).await?);
/// assert_eq!(loaded.count_down().await?, 1);
/// assert!(!loaded.wait_for(std::time::Duration::from_millis(20)).await?);
/// assert_eq!(loaded.count_down().await?, 0);
/// loaded.wait().await?; // open: it does not wait
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # A latch that is not there
/// If the latch was never set, or was deleted, or its lease is over, every caller that waits for it or counts it down
/// gets [`Error::Unset`] at once. That includes callers that were waiting before. A missing latch never counts as
/// open.
///
/// In [`Layout::Redisson`](crate::Layout::Redisson) a missing latch counts as open, since Redisson deletes a latch when
/// it opens. There, all waiters pass when somebody deletes the latch, and when its lease ends (a latch that Java has
/// set has no lease). Counting down a missing latch returns 0.
#[derive(Clone)]
#[must_use = "a handle does nothing until it is asked for something"]
pub struct CountDownLatch {
    handle: Handle,
}

impl CountDownLatch {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        Self { handle: Handle::new(engine, Kind::Latch, name).lease(longest_lease()) }
    }

    /// How long the latch exists after it was set through this handle: 10 ms to 24 h, which is the default.
    /// [`set`](Self::set) reports an invalid lease.
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease) }
    }

    /// Sets the count. Returns `false`, and changes nothing, if the latch is set and not open yet. A latch with a
    /// count of 0 is open.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have set the latch.
    ///
    /// # Errors
    /// [`Error::InvalidCount`] if the count is 2^53 or more, [`Error::InvalidLease`].
    /// [`Error::Conflict`] if the name is used for another kind. If Redis did not answer within
    /// [`Config::ride_out`](crate::Config::ride_out): [`Error::Indeterminate`] if the request may have run, and
    /// [`Error::Unavailable`] if it cannot have run. Otherwise as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled, as every call of a latch.
    pub async fn set(&self, count: u64) -> Result<bool> {
        if count > MOST {
            return Err(Error::InvalidCount { count });
        }
        let ttl = self.handle.checked_lease()?;
        Ok(self.handle.order(Order::Set { count, ttl }).await? == 1)
    }

    /// Counts down by one, and returns how much is left. The count does not go below zero.
    ///
    /// If an answer is lost, the client repeats the request. The server counts it once all the same.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have counted. If that must not be in doubt, call it in a task of its own.
    ///
    /// # Errors
    /// [`Error::Unset`] if the latch does not exist. Otherwise as [`set`](Self::set).
    pub async fn count_down(&self) -> Result<u64> {
        let left = self.handle.order(Order::CountDown).await?;
        Ok(u64::try_from(left).unwrap_or(0))
    }

    /// Waits until the latch is open.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Unset`] if the latch does not exist, or is gone before it opens. Otherwise as
    /// [`Lock::lock`](crate::Lock::lock).
    pub async fn wait(&self) -> Result<()> {
        match self.handle.pass(Patience::Endless).await? {
            true => Ok(()),
            false => Err(Error::Closed),
        }
    }

    /// Waits until the latch is open, but not longer than this. Returns whether it is open. With a limit of zero it
    /// looks once.
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`Error::Unset`] as [`wait`](Self::wait); otherwise as
    /// [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    pub async fn wait_for(&self, limit: Duration) -> Result<bool> {
        if limit.is_zero() {
            // An attempt would not even begin while another caller of this client asks. A question always gets an
            // answer.
            return self.is_open().await;
        }
        self.handle.pass(Patience::For(limit)).await
    }

    /// How much is left to count: 0 if the latch is open, and `None` if it does not exist. In
    /// [`Layout::Redisson`](crate::Layout::Redisson), an open latch does not exist.
    ///
    /// # Cancel safety
    /// It only asks, and may be dropped at any time.
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn count(&self) -> Result<Option<u64>> {
        let status = self.handle.status().await?;
        Ok((status.ttl != -2).then(|| u64::try_from(status.used).unwrap_or(0)))
    }

    /// Deletes the latch, whether it is open or not. Returns whether it existed. All callers that wait for it return:
    /// see [above](Self#a-latch-that-is-not-there).
    ///
    /// # Cancel safety
    /// A dropped future may or may not have deleted the latch.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub async fn delete(&self) -> Result<bool> {
        Ok(self.handle.order(Order::Delete).await? == 1)
    }

    async fn is_open(&self) -> Result<bool> {
        match self.count().await? {
            Some(left) => Ok(left == 0),
            None if self.handle.is_open_if_absent() => Ok(true),
            None => Err(Error::Unset),
        }
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.described(f.debug_struct("CountDownLatch"))
    }
}
