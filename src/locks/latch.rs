//! The count-down latch: many wait until so many have come.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::longest_lease;
use crate::engine::{Engine, Patience};
use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::locks::handle::Handle;
use crate::wire::Order;

/// Redis' scripts count in numbers that are exact up to here.
const MOST: u64 = (1 << 53) - 1;

/// A number that is counted down to zero, and that others wait for, in all processes that share the
/// server.
///
/// It is set once, and can be set again when it is open. Set it again only after every waiter has returned:
/// one that has not looked by then waits for the next opening. It has a lease, 24 h unless
/// [`lease`](Self::lease) says otherwise: closed or open, it is there no longer than that.
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
/// gets [`Error::Unset`] at once, also a caller that has waited before. A missing latch is never taken for open.
///
/// In [`Layout::Redisson`](crate::Layout::Redisson) a missing latch counts as open, since Redisson deletes a latch when
/// it opens. There, deleting a latch lets all waiters pass, and so does the end of its lease (a latch that
/// Java has set has none). Counting down a missing latch answers 0.
#[derive(Clone)]
#[must_use = "a handle does nothing until it is asked for something"]
pub struct CountDownLatch {
    handle: Handle,
}

impl CountDownLatch {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        Self { handle: Handle::new(engine, Kind::Latch, name).lease(longest_lease()) }
    }

    /// How long the latch is there when it is set through this handle: 10 ms to 24 h, which is the
    /// default. [`set`](Self::set) reports an invalid one.
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease) }
    }

    /// Sets the count. Returns `false`, and changes nothing, if the latch is set and not open yet. With
    /// a count of 0 it is open.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have set it.
    ///
    /// # Errors
    /// [`Error::InvalidCount`] if the count is 2^53 or more, [`Error::InvalidLease`].
    /// [`Error::Conflict`] if the name is another kind's. [`Error::Indeterminate`] if Redis did not
    /// answer within [`Config::ride_out`](crate::Config::ride_out), and [`Error::Unavailable`] if it
    /// was not there. Otherwise as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// As all of these, outside of a Tokio runtime with time enabled.
    pub async fn set(&self, count: u64) -> Result<bool> {
        if count > MOST {
            return Err(Error::InvalidCount { count });
        }
        let ttl = self.handle.checked_lease()?;
        Ok(self.handle.order(Order::Set { count, ttl }).await? == 1)
    }

    /// Counts down by one; how much is left. It does not go below zero.
    ///
    /// If an answer is lost, it is repeated, and counted once all the same.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have counted. What must not be in doubt belongs into a task of
    /// its own.
    ///
    /// # Errors
    /// [`Error::Unset`] if the latch is not there. Otherwise as [`set`](Self::set).
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
    /// [`Error::Unset`] if the latch is not there, or not any more. Otherwise as
    /// [`Lock::lock`](crate::Lock::lock).
    pub async fn wait(&self) -> Result<()> {
        match self.handle.pass(Patience::Endless).await? {
            true => Ok(()),
            false => Err(Error::Closed),
        }
    }

    /// Waits until the latch is open, but not longer than this; whether it is. Without any time, it
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
            // Others of this client may be asking, so that an attempt would not even begin.
            return self.is_open().await;
        }
        self.handle.pass(Patience::For(limit)).await
    }

    /// How much is left to count: 0 if the latch is open, and `None` if it is not there. In
    /// [`Layout::Redisson`](crate::Layout::Redisson), an open one is not there.
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

    /// Deletes the latch, whether it is open or not. Returns whether it was there. All callers that wait for it are
    /// answered: see [above](Self#a-latch-that-is-not-there).
    ///
    /// # Cancel safety
    /// A dropped future may or may not have deleted it.
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
