//! The proof of holding a lock to write.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::rw_lock::RwLock;

/// An [`RwLock`] that is held to write: a [`Guard`] that can become one to read.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct WriteGuard {
    guard: Guard,
    lock: RwLock,
}

impl WriteGuard {
    pub(crate) fn new(guard: Guard, lock: RwLock) -> Self {
        Self { guard, lock }
    }

    /// Gives the lock back, and tells how it went.
    ///
    /// # Cancel safety
    /// As [`Guard::unlock`].
    ///
    /// # Errors
    /// As [`Guard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        self.guard.unlock().await
    }

    /// Goes on reading instead of writing: nobody else writes in between, and the readers that wait
    /// may read too from then on.
    ///
    /// If the lock was locked for writing more than once, it stays so until the others are given back.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the lock, in the background.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) if the lock was not ours any more. Otherwise as
    /// [`RwLock::read`] and [`Guard::unlock`]; then the lock is given back.
    pub async fn downgrade(self) -> Result<Guard> {
        let reading = tokio::select! {
            // It may have been granted to others, for whom the reading would wait.
            biased;
            _ = self.guard.lost() => return Err(Error::Lost),
            reading = self.lock.read() => reading?,
        };
        self.guard.unlock().await?;
        Ok(reading)
    }

    /// The same hold as a plain guard, which cannot become one to read.
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
