//! The read-write lock: each guard is its own owner.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Hold, Patience};
use crate::error::{Error, Result};
use crate::guards::{Guard, WriteGuard};
use crate::locks::reentrant_rw_lock::ReentrantRwLock;
use crate::locks::rw_handle::RwHandle;
use crate::owner::Owner;

/// A lock that many readers or one writer hold at a time, across all processes that share the server.
///
/// As with `tokio::sync::RwLock`, **each guard is its own owner**. Of two futures that one task polls side by side, the
/// second waits until the first has unlocked. A task that asks to write while it reads waits for itself. For nested
/// calls, use [`reentrant`](Self::reentrant); the two forms exclude each other.
///
/// A reader that dies does not end other readers' holds. All callers wait in one line, first come, first served, with one
/// exception: readers that waited while a writer held the lock go before the next writer. So a writer waits only for the
/// readers that came before it, and a reader for at most one writer; neither can starve.
///
/// In the line, one caller stands for all readers of its client: when it is let in, all readers of this client that wait at
/// that time read with it, a thousand at most. A reader with a lease of its own, or of an owner that nests, has a place of
/// its own. One caller stands for all writers of its client too. The client hands the lock from writer to writer within
/// [`Config::hand_off`](crate::Config::hand_off); then the next one goes to the end of the line. (In
/// [`Layout::Redisson`](crate::Layout::Redisson) there is no line: the fastest caller gets the lock, and a steady
/// stream of readers can starve a writer.)
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let prices = client.rw_lock("doc:prices");
/// let writing = prices.write().await?;
/// // ... change them ...
/// let reading = writing.downgrade().await?; // from here on others may read, but not write
/// // ... check them ...
/// reading.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// Two futures of one task take turns:
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let (stock, written) = (client.rw_lock("doc:stock"), std::cell::Cell::new(0));
/// let add_one = async || {
///     let guard = stock.write().await?;
///     let before = written.get();
///     tokio::task::yield_now().await; // the other future runs, and waits for the lock
///     written.set(before + 1);
///     guard.unlock().await
/// };
/// tokio::try_join!(add_one(), add_one())?;
/// assert_eq!(written.get(), 2);
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked"]
pub struct RwLock {
    handle: RwHandle,
}

impl RwLock {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        Self { handle: RwHandle::new(engine, name) }
    }

    /// The same lock, for nested calls: the owner is the current Tokio task, or outside a task the current thread.
    /// [`ReentrantRwLock`] has an example.
    pub fn reentrant(self) -> ReentrantRwLock {
        ReentrantRwLock::new(self.handle, None)
    }

    /// The same lock, for nested calls by this owner, from any task. [`Owner`] has an example with a
    /// [`ReentrantLock`](crate::ReentrantLock).
    pub fn owned_by(self, owner: &Owner) -> ReentrantRwLock {
        self.reentrant().owned_by(owner)
    }

    /// Holds the lock for a fixed time, between 10 ms and 24 h, instead of renewing it: see
    /// [`Lock::lease`](crate::Lock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease) }
    }

    /// Waits for a read lock: until no writer holds the lock, and no earlier writer waits.
    ///
    /// # Cancel safety
    /// Same as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// Same as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn read(&self) -> Result<Guard> {
        self.handle.read(None, Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Takes a read lock in one attempt, if no writer holds the lock and no waiter ahead may still take it. Returns
    /// `None` otherwise.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.handle.read(None, Patience::None).await
    }

    /// Waits for a read lock, but not longer than `limit`. Returns `None` if it was not available in time.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_read_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.read(None, Patience::limited(limit)).await
    }

    /// Waits for the write lock: until no reader or writer holds the lock, and no earlier caller waits.
    ///
    /// # Cancel safety
    /// Same as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn write(&self) -> Result<WriteGuard> {
        self.handle.write(None, Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Takes the write lock in one attempt, if nobody holds the lock and no waiter ahead may still take it. Returns
    /// `None` otherwise.
    ///
    /// # Cancel safety
    /// Same as [`write`](Self::write).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        self.handle.write(None, Patience::None).await
    }

    /// Waits for the write lock, but not longer than `limit`. Returns `None` if it was not available in time.
    ///
    /// # Cancel safety
    /// Same as [`write`](Self::write).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_write_for(&self, limit: Duration) -> Result<Option<WriteGuard>> {
        self.handle.write(None, Patience::limited(limit)).await
    }

    /// Runs `work` under a read lock, and then unlocks: see [`Lock::run`](crate::Lock::run). `work` must not lock this
    /// lock again: it would wait for itself.
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

    /// Runs `work` under the write lock, and then unlocks: see [`Lock::run`](crate::Lock::run). `work` must not lock
    /// this lock again: it would wait for itself.
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
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.write.described(f.debug_struct("RwLock"))
    }
}
