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

/// Numbers in Lua are exact up to this.
const MOST: u64 = (1 << 53) - 1;

/// A count that callers count down to zero, while others wait for zero, across all processes that share the server.
///
/// A latch is set once, and may be set again when it is open. Set it again only after every waiter has returned: a
/// waiter that has not noticed the opening by then waits for the next one. A latch has a lease of 24 h unless
/// [`lease`](Self::lease) says otherwise. When the lease expires, the latch is gone, whether it was open or closed. It
/// is Redisson's `RCountDownLatch`, which is Java's `CountDownLatch` across processes.
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
/// loaded.wait().await?; // open: returns at once
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # A missing latch
/// If the latch was never set, was deleted, or its lease expired, every caller that waits for it or counts it down gets
/// [`Error::Unset`] at once, including callers that were already waiting. A missing latch never counts as open.
///
/// In [`Layout::Redisson`](crate::Layout::Redisson) a missing latch counts as open, since Redisson deletes a latch when
/// it opens. There, all waiters pass when somebody deletes the latch, and when its lease expires (a latch set by Java
/// has no lease). Counting down a missing latch returns 0.
#[derive(Clone)]
#[must_use = "a handle does nothing until it is asked for something"]
pub struct CountDownLatch {
    handle: Handle,
}

impl CountDownLatch {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        Self { handle: Handle::new(engine, Kind::Latch, name).lease(longest_lease()) }
    }

    /// How long the latch exists after it is set through this handle: 10 ms to 24 h. Default 24 h. [`set`](Self::set)
    /// reports an invalid lease.
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease) }
    }

    /// Sets the count. If the latch is set and not open yet, returns `false` and changes nothing. A latch with a count
    /// of 0 is open.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have set the latch.
    ///
    /// # Errors
    /// [`Error::InvalidCount`] if the count is 2^53 or more. [`Error::InvalidLease`]. [`Error::Conflict`] if the name
    /// is used for another kind. If Redis did not answer within [`Config::ride_out`](crate::Config::ride_out):
    /// [`Error::Indeterminate`] if the request may have run, and [`Error::Unavailable`] if it cannot have run.
    /// Otherwise as for [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn set(&self, count: u64) -> Result<bool> {
        if count > MOST {
            return Err(Error::InvalidCount { count });
        }
        let ttl = self.handle.checked_lease()?;
        Ok(self.handle.order(Order::Set { count, ttl }).await? == 1)
    }

    /// Counts down by one, and returns the remaining count, which never goes below zero.
    ///
    /// If an answer is lost, the client repeats the request. The server still counts it only once. The answer to a
    /// repeated request is the count at that time. So several callers may get 0: it does not mean that this call was
    /// the last one.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have counted. To be sure, call it in a separate task.
    ///
    /// # Errors
    /// [`Error::Unset`] if the latch does not exist. Otherwise as for [`set`](Self::set).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
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
    /// [`Error::Unset`] if the latch does not exist, or disappears before it opens. Otherwise as for
    /// [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn wait(&self) -> Result<()> {
        match self.handle.pass(Patience::Endless).await? {
            true => Ok(()),
            false => Err(Error::Closed),
        }
    }

    /// Waits until the latch is open, but not longer than `limit`. Returns whether it is open. With a limit of zero, it
    /// checks once.
    ///
    /// # Cancel safety
    /// Same as [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`Error::Unset`] as for [`wait`](Self::wait). Otherwise as for
    /// [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn wait_for(&self, limit: Duration) -> Result<bool> {
        if limit.is_zero() {
            // While another caller of this client asks, an attempt would not even begin. A query always gets an answer.
            return self.is_open().await;
        }
        self.handle.pass(Patience::For(limit)).await
    }

    /// The remaining count: 0 if the latch is open, and `None` if it does not exist. In
    /// [`Layout::Redisson`](crate::Layout::Redisson), an open latch does not exist.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn count(&self) -> Result<Option<u64>> {
        let status = self.handle.status().await?;
        Ok((status.ttl != -2).then(|| u64::try_from(status.used).unwrap_or(0)))
    }

    /// Deletes the latch, whether it is open or not. Returns whether it existed. All callers that wait for it return:
    /// see [above](Self#a-missing-latch).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::Error;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let migrated = client.count_down_latch("doc:migrated");
    /// migrated.set(1).await?;
    /// assert!(migrated.delete().await?);
    /// assert_eq!(migrated.count().await?, None);
    /// assert!(matches!(migrated.wait().await, Err(Error::Unset { .. }))); // gone is not open
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// A dropped future may or may not have deleted the latch.
    ///
    /// # Errors
    /// Same as [`set`](Self::set).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn delete(&self) -> Result<bool> {
        Ok(self.handle.order(Order::Delete).await? == 1)
    }

    async fn is_open(&self) -> Result<bool> {
        match self.count().await? {
            Some(left) => Ok(left == 0),
            None if self.handle.is_open_if_absent() => Ok(true),
            None => Err(Error::Unset { name: self.handle.full_name().0.into_owned() }),
        }
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.described(f.debug_struct("CountDownLatch"))
    }
}
