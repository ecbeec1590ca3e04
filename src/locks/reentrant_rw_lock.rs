//! The re-entrant read-write lock: its owner may lock it again.

use std::fmt;
use std::time::Duration;

use crate::engine::{Hold, Patience};
use crate::error::{Error, Result};
use crate::guards::{Guard, WriteGuard};
use crate::locks::rw_handle::RwHandle;
use crate::owner::{Owner, OwnerId};

/// A read-write lock that its owner may lock again through any handle of its name and client, and must unlock as often.
/// It is to [`RwLock`](crate::RwLock) what [`ReentrantLock`](crate::ReentrantLock) is to [`Lock`](crate::Lock).
/// [`RwLock::reentrant`](crate::RwLock::reentrant) and [`RwLock::owned_by`](crate::RwLock::owned_by) make it. It is
/// Redisson's `RReadWriteLock`.
///
/// **The owner is the current Tokio task**, or outside a task the current thread. So futures that one task polls side
/// by side (`join!`, `select!`, `FuturesUnordered`) are one owner: two that write may be inside at the same time. Use
/// [`RwLock`](crate::RwLock) for them, or give each its own [`Owner`] with [`owned_by`](Self::owned_by).
///
/// In a handler of HTTP/1.1 the task is the connection, as [`ReentrantLock`](crate::ReentrantLock) says.
///
/// # Nested calls
/// An owner may
/// - read again while it reads, even if a writer waits, and write again while it writes;
/// - read while it writes; when it then stops writing, it continues to read ([`WriteGuard::downgrade`] does both in one
///   step);
/// - not begin to write while it reads: it would wait for itself, so it gets an [`Error::Upgrade`].
///
/// A nested call never waits for others, with one exception: if two futures of one owner ask before either holds the
/// lock, and at least one of them asks to write, one waits until the other unlocks.
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
/// assert!(matches!(prices.write().await, Err(Error::Upgrade { .. })));
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

    /// Locks for `owner` instead of the current task. [`Owner`] has an example with a
    /// [`ReentrantLock`](crate::ReentrantLock).
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Holds the lock for a fixed time, between 10 ms and 24 h, instead of renewing it: see
    /// [`ReentrantLock::lease`](crate::ReentrantLock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease), ..self }
    }

    /// Waits for a read lock: until no writer holds the lock, and no earlier writer waits.
    ///
    /// # Cancel safety
    /// Same as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// Same as [`Lock::lock`](crate::Lock::lock). In a nested call, [`Error::Lost`] if the owner's lock turns out to be
    /// lost, and [`Error::TooManyHolds`] beyond 65,535 holds.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn read(&self) -> Result<Guard> {
        self.handle.read(self.owner(), Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Takes a read lock in one attempt: if its owner already holds the lock, or if no writer holds it and no waiter
    /// ahead may still take it. Returns `None` otherwise.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`](crate::Lock::try_lock) and [`read`](Self::read).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.handle.read(self.owner(), Patience::None).await
    }

    /// Waits for a read lock, but not longer than `limit`. Returns `None` if it was not available in time.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`read`](Self::read).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_read_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.read(self.owner(), Patience::limited(limit)).await
    }

    /// Waits for the write lock: until no reader or writer holds the lock, and no earlier caller waits.
    ///
    /// # Cancel safety
    /// Same as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// Same as [`read`](Self::read), and [`Error::Upgrade`] if the owner holds the lock to read.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn write(&self) -> Result<WriteGuard> {
        self.handle.write(self.owner(), Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Takes the write lock in one attempt: if its owner already writes, or if nobody holds the lock and no waiter
    /// ahead may still take it. Returns `None` otherwise.
    ///
    /// # Cancel safety
    /// Same as [`write`](Self::write).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`](crate::Lock::try_lock) and [`write`](Self::write).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        self.handle.write(self.owner(), Patience::None).await
    }

    /// Waits for the write lock, but not longer than `limit`. Returns `None` if it was not available in time.
    ///
    /// # Cancel safety
    /// Same as [`write`](Self::write).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`write`](Self::write).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_write_for(&self, limit: Duration) -> Result<Option<WriteGuard>> {
        self.handle.write(self.owner(), Patience::limited(limit)).await
    }

    /// Runs `work` under a read lock, and then unlocks: see [`Lock::run`](crate::Lock::run). `work` may read again as
    /// the same owner.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Errors
    /// Same as [`read`](Self::read), and [`Error::Lost`] if the lock was lost before the work was done.
    ///
    /// # Panics
    /// Same as [`Lock::run`](crate::Lock::run).
    pub async fn run_read<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.read().await?.run(work).await
    }

    /// Runs `work` under the write lock, and then unlocks: see [`Lock::run`](crate::Lock::run). `work` may lock again
    /// as the same owner.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Errors
    /// Same as [`write`](Self::write), and [`Error::Lost`] if the lock was lost before the work was done.
    ///
    /// # Panics
    /// Same as [`Lock::run`](crate::Lock::run).
    pub async fn run_write<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.write().await?.into_guard().run(work).await
    }

    /// Whether the lock is held, to read or to write, as of the server's answer.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn is_locked(&self) -> Result<bool> {
        self.handle.write.is_locked().await
    }

    /// Whether a writer holds the lock, as of the server's answer.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn is_write_locked(&self) -> Result<bool> {
        self.handle.is_write_locked().await
    }

    /// How long the lock stays held if nobody renews or releases it: until the last lease expires. See
    /// [`Lock::ttl`](crate::Lock::ttl).
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn ttl(&self) -> Result<Option<Duration>> {
        self.handle.write.ttl().await
    }

    /// Takes the lock away from all its readers and writers: see [`Lock::force_unlock`](crate::Lock::force_unlock).
    /// Returns whether there were any.
    ///
    /// # Cancel safety
    /// Same as [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn force_unlock(&self) -> Result<bool> {
        self.handle.write.force_unlock().await
    }

    fn owner(&self) -> Option<OwnerId> {
        Some(self.owner.unwrap_or_else(OwnerId::current))
    }
}

impl fmt::Debug for ReentrantRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.write.described(f.debug_struct("ReentrantRwLock"))
    }
}
