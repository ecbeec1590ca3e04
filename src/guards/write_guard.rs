//! The proof of holding a lock to write.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::engine::AcquireOptions;
use crate::error::{Error, Result};
use crate::guards::guard::Guard;
use crate::keys::Keys;

/// The proof that an [`RwLock`](crate::RwLock) or a [`ReentrantRwLock`](crate::ReentrantRwLock) is held to write: a
/// [`Guard`] that can be downgraded to a read lock.
///
/// It dereferences to a [`Guard`], so it has all methods of a guard that take `&self`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let prices = client.rw_lock("doc:write_guard");
/// let writing = prices.write().await?;
/// println!("write the new prices under {}", writing.token());
/// let reading = writing.downgrade().await?;
/// assert!(prices.try_read().await?.is_some()); // others may read now
/// assert!(prices.try_write().await?.is_none()); // and not write
/// reading.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
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

    /// Releases the lock, and reports the outcome.
    ///
    /// # Cancel safety
    /// Same as [`Guard::unlock`].
    ///
    /// # Errors
    /// Same as [`Guard::unlock`].
    ///
    /// # Panics
    /// Same as [`Guard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        self.guard.unlock().await
    }

    /// Turns the write lock into a read lock. Nobody else writes in between. From then on other readers may enter.
    ///
    /// If the owner of a [`ReentrantRwLock`](crate::ReentrantRwLock) holds the write lock more than once, the lock
    /// stays write-locked until its other guards are released too.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released in the background. A future that is not polled before it has the
    /// read lock keeps the write lock.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) if the lock was not ours any more. Otherwise as for
    /// [`RwLock::read`](crate::RwLock::read) and [`Guard::unlock`]; in that case the lock is released.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn downgrade(self) -> Result<Guard> {
        // Within the write hold, the read needs no room and waits for nobody. The owner holds both for a moment, so
        // that no other writer can enter in between.
        let (keys, options) = &self.read;
        let reading = tokio::select! {
            // If the write is lost, others may hold the lock, and the read would wait for them.
            biased;
            _ = self.guard.ended() => return Err(self.guard.hold().lost()),
            reading = self.guard.acquire_within(keys, options.clone()) => reading,
        };
        let reading = match reading {
            // Only a read outside a write has to wait. So the server has lost the write.
            Err(Error::TooManyWaiters { .. }) => return Err(self.guard.hold().lost()),
            reading => reading?,
        };
        self.guard.unlock().await?;
        reading.ok_or(Error::Closed)
    }

    pub(crate) fn into_parts(self) -> (Guard, (Arc<Keys>, AcquireOptions)) {
        (self.guard, self.read)
    }

    /// The same hold as a plain guard, which has no `downgrade`.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

/// Same as [`WriteGuard::into_guard`].
impl From<WriteGuard> for Guard {
    fn from(guard: WriteGuard) -> Self {
        guard.into_guard()
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
