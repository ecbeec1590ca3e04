//! The proof of holding a lock to write.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{AcquireOptions, Woken};
use crate::error::{Error, Result};
use crate::guards::guard::Guard;
use crate::keys::Keys;

/// The proof that an [`RwLock`](crate::RwLock) or a [`ReentrantRwLock`](crate::ReentrantRwLock) is
/// held to write: a [`Guard`] that can become one to read.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct WriteGuard {
    guard: Guard,
    /// The keys and options with which its owner would read.
    read: (Arc<Keys>, AcquireOptions),
}

impl WriteGuard {
    pub(crate) fn new(guard: Guard, read: (Arc<Keys>, AcquireOptions)) -> Self {
        Self { guard, read }
    }

    /// Gives the lock back, and reports the outcome.
    ///
    /// # Cancel safety
    /// As [`Guard::unlock`].
    ///
    /// # Errors
    /// As [`Guard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        self.guard.unlock().await
    }

    /// Goes on reading instead of writing. Nobody else writes in between. From then on other readers are let in.
    ///
    /// If the owner of a [`ReentrantRwLock`](crate::ReentrantRwLock) has locked it to write more than
    /// once, the lock stays locked to write until the other guards are given back too.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is given back in the background.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) if the lock was not ours any more. Otherwise as
    /// [`RwLock::read`](crate::RwLock::read) and [`Guard::unlock`]; then the lock is given back.
    pub async fn downgrade(self) -> Result<Guard> {
        // Within the write hold, the read needs no room and waits for nobody. The owner holds both for a moment, so
        // that no other writer can enter in between.
        let (keys, options) = &self.read;
        let reading = tokio::select! {
            // If the write is lost, others may hold the lock, and the read would wait for them.
            biased;
            _ = self.guard.ended() => return Err(Error::Lost),
            reading = self.guard.acquire_within(keys, *options) => reading,
        };
        let reading = match reading {
            // Only a read that is not within a write has to wait. So the server has lost the write.
            Err(Error::TooManyWaiters { .. }) => return Err(Error::Lost),
            reading => reading?,
        };
        self.guard.unlock().await?;
        reading.ok_or(Error::Closed)
    }

    pub(crate) async fn wait_at(
        self,
        condition: &Arc<Keys>,
        limit: Option<Duration>,
    ) -> Result<(Self, Woken)> {
        let Self { guard, read } = self;
        let (guard, woken) = guard.wait_at(condition, limit).await?;
        Ok((Self { guard, read }, woken))
    }

    /// The same hold as a plain guard, which has no `downgrade`.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
