//! The re-entrant read-write lock: its owner may lock it again.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::engine::{Hold, Patience};
use crate::error::{Error, Result};
use crate::guards::{Guard, WriteGuard};
use crate::locks::rw_handle::RwHandle;
use crate::owner::{Owner, OwnerId};

/// An [`RwLock`](crate::RwLock) that its owner may lock again through any handle of its name, and gives
/// back as often: what [`ReentrantLock`](crate::ReentrantLock) is to [`Lock`](crate::Lock). It is made by
/// [`RwLock::reentrant`](crate::RwLock::reentrant) and
/// [`RwLock::owned_by`](crate::RwLock::owned_by), and is Redisson's `RReadWriteLock`.
///
/// **The owner is the current Tokio task**, or outside of a task the current thread. So futures that are
/// polled side by side in one task (`join!`, `select!`, `FuturesUnordered`) are one owner: two that write
/// may be inside together. Use [`RwLock`](crate::RwLock) for them, or give each an [`Owner`] of its own
/// with [`owned_by`](Self::owned_by).
///
/// # Nested calls
/// An owner may
/// - read again while it reads, even if a writer waits, and write again while it writes;
/// - read while it writes; when it then stops writing, it goes on reading
///   ([`WriteGuard::downgrade`] does both in one step);
/// - not begin to write while it reads: it would wait for itself, so it gets an [`Error::Upgrade`].
///
/// A nested call never waits for others. One exception: if two futures of one owner ask before either holds the lock,
/// and at least one of them asks to write, one waits until the other unlocks.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// use parklock::Error;
///
/// let client = parklock::Client::connect(&url).await?;
/// let prices = client.rw_lock("doc:nested_prices").reentrant();
/// let writing = prices.write().await?;
/// let reading = prices.read().await?; // the same task: it waits for nobody
/// writing.unlock().await?;
/// assert!(matches!(prices.write().await, Err(Error::Upgrade)));
/// reading.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked"]
pub struct ReentrantRwLock {
    handle: RwHandle,
    owner: Option<OwnerId>,
}

impl ReentrantRwLock {
    pub(crate) fn new(handle: RwHandle, owner: Option<OwnerId>) -> Self {
        Self { handle, owner }
    }

    /// Locks for this owner instead of the current task.
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Holds the lock for a fixed time instead of having it renewed: as
    /// [`ReentrantLock::lease`](crate::ReentrantLock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease), ..self }
    }

    /// Waits for a read lock: until no writer holds the lock, and no earlier writer waits.
    ///
    /// # Cancel safety
    /// As [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// As [`Lock::lock`](crate::Lock::lock). Nested, [`Error::Lost`] if the owner's lock turns out to
    /// be lost, and [`Error::TooManyHolds`] beyond 65,535 holds.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled.
    pub async fn read(&self) -> Result<Guard> {
        self.handle.read(self.owner(), Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Takes a read lock if that is possible now, in one attempt.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    ///
    /// # Errors
    /// As [`Lock::try_lock`](crate::Lock::try_lock) and [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.handle.read(self.owner(), Patience::None).await
    }

    /// Waits for a read lock, but not longer than this.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    ///
    /// # Errors
    /// As [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`read`](Self::read).
    pub async fn try_read_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.read(self.owner(), Patience::limited(limit)).await
    }

    /// Waits for the write lock: until no reader or writer holds the lock, and no earlier caller waits.
    ///
    /// # Cancel safety
    /// As [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Error::Upgrade`] if its owner reads.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled.
    pub async fn write(&self) -> Result<WriteGuard> {
        self.handle.write(self.owner(), Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Takes the write lock if that is possible now, in one attempt.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    ///
    /// # Errors
    /// As [`Lock::try_lock`](crate::Lock::try_lock) and [`write`](Self::write).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        self.handle.write(self.owner(), Patience::None).await
    }

    /// Waits for the write lock, but not longer than this.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    ///
    /// # Errors
    /// As [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`write`](Self::write).
    pub async fn try_write_for(&self, limit: Duration) -> Result<Option<WriteGuard>> {
        self.handle.write(self.owner(), Patience::limited(limit)).await
    }

    /// Runs some work under a read lock, and then unlocks: as [`Lock::run`](crate::Lock::run). The work may read
    /// again, as long as its owner is the same.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the lock back in the background.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Error::Lost`] if the lock was lost before the work was done.
    pub async fn run_read<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.read().await?.run(work).await
    }

    /// Runs some work under the write lock, and then unlocks: as [`Lock::run`](crate::Lock::run). The work may lock
    /// again, as long as its owner is the same.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the lock back in the background.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::Lost`] if the lock was lost before the work was done.
    pub async fn run_write<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.write().await?.into_guard().run(work).await
    }

    /// Whether the lock is held, to read or to write, at the time of the server's answer.
    ///
    /// # Cancel safety
    /// It only asks, and may be dropped at any time.
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn is_locked(&self) -> Result<bool> {
        self.handle.is_locked().await
    }

    /// Whether a writer holds the lock, at the time of the server's answer.
    ///
    /// # Cancel safety
    /// It only asks, and may be dropped at any time.
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn is_write_locked(&self) -> Result<bool> {
        self.handle.is_write_locked().await
    }

    /// How long the lock stays held if nobody renews it or gives it back: until the last lease ends. As
    /// [`Lock::ttl`](crate::Lock::ttl).
    ///
    /// # Cancel safety
    /// It only asks, and may be dropped at any time.
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn ttl(&self) -> Result<Option<Duration>> {
        self.handle.ttl().await
    }

    /// Takes the lock away from all of its readers and writers: as
    /// [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Cancel safety
    /// As [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn force_unlock(&self) -> Result<bool> {
        self.handle.force_unlock().await
    }

    fn owner(&self) -> Option<OwnerId> {
        Some(self.owner.unwrap_or_else(OwnerId::current))
    }
}

impl fmt::Debug for ReentrantRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.described(f.debug_struct("ReentrantRwLock"))
    }
}
