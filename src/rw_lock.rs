//! The lock that many may hold to read, or one to write.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Patience};
use crate::error::{Error, Result};
use crate::guard::{Guard, Hold};
use crate::handle::Handle;
use crate::keys::Kind;
use crate::owner::{Owner, OwnerId};
use crate::write_guard::WriteGuard;

/// A lock that any number of readers hold at once, or one writer alone, in all processes that share
/// the server.
///
/// Each reader has a lease of its own: the death of one ends its hold and no other's. Everybody waits
/// in one queue, first come, first served, with one exception: the readers that waited while somebody
/// wrote go before the next writer. So a writer waits for the readers that were in before it came, and
/// readers for one writer at the most; neither can starve. (In
/// [`Layout::Redisson`](crate::Layout::Redisson) there is no queue: whoever is quickest gets it, and
/// readers that keep coming can keep a writer out.)
///
/// # Who may nest
/// As with [`ReentrantLock`](crate::ReentrantLock) the owner is the current Tokio task, or an explicit
/// [`Owner`], with the same caution for futures that one task polls side by side: of two that ask before
/// either holds, and not both to read, one waits for the other. An owner may
/// - read again while it reads, even if a writer waits, and write again while it writes;
/// - read while it writes; when it then stops writing, it goes on reading
///   ([`WriteGuard::downgrade`] does both in one step);
/// - not begin to write while it reads: it would wait for itself, so that is an [`Error::Upgrade`].
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let prices = client.rw_lock("doc:prices");
/// let writing = prices.write().await?;
/// // ... change them ...
/// let reading = writing.downgrade().await?; // others may read from here on, nobody else write
/// // ... check them ...
/// reading.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked"]
pub struct RwLock {
    read: Handle,
    write: Handle,
    owner: Option<OwnerId>,
}

impl RwLock {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        let read = Handle::new(Arc::clone(&engine), Kind::Read, name.clone());
        Self { read, write: Handle::new(engine, Kind::Write, name), owner: None }
    }

    /// Holds the lock for a fixed time instead of having it renewed: as
    /// [`Lock::lease`](crate::Lock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { read: self.read.lease(lease), write: self.write.lease(lease), ..self }
    }

    /// Locks for this owner instead of the current task.
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Waits until it may read: until nobody writes, and no writer was there first.
    ///
    /// # Cancel safety
    /// As [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// As [`Lock::lock`](crate::Lock::lock). Nested, [`Error::Lost`] if the owner's hold turns out to
    /// be lost, and [`Error::TooManyHolds`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled.
    pub async fn read(&self) -> Result<Guard> {
        self.reading(Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Reads if that is possible now, in one attempt.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    ///
    /// # Errors
    /// As [`Lock::try_lock`](crate::Lock::try_lock) and [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.reading(Patience::None).await
    }

    /// Waits until it may read, but not longer than this.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    ///
    /// # Errors
    /// As [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`read`](Self::read).
    pub async fn try_read_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.reading(Patience::limited(limit)).await
    }

    /// Waits until it may write: until nobody reads or writes, and nobody was there first.
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
        self.writing(Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Writes if that is possible now, in one attempt.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    ///
    /// # Errors
    /// As [`Lock::try_lock`](crate::Lock::try_lock) and [`write`](Self::write).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        self.writing(Patience::None).await
    }

    /// Waits until it may write, but not longer than this.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    ///
    /// # Errors
    /// As [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`write`](Self::write).
    pub async fn try_write_for(&self, limit: Duration) -> Result<Option<WriteGuard>> {
        self.writing(Patience::limited(limit)).await
    }

    /// Does some work while it may read: as [`Lock::run`](crate::Lock::run).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Error::Lost`] if the hold was lost before the work was done.
    pub async fn run_read<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.read().await?.run(work).await
    }

    /// Does some work while it may write: as [`Lock::run`](crate::Lock::run). The work may
    /// [`read`](Self::read), but not [`downgrade`](WriteGuard::downgrade).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::Lost`] if the hold was lost before the work was done.
    pub async fn run_write<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.write().await?.into_guard().run(work).await
    }

    /// Whether anybody reads or writes, at the moment of the server's answer.
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self.ttl().await?.is_some())
    }

    /// Whether anybody writes, at the moment of the server's answer.
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn is_write_locked(&self) -> Result<bool> {
        let status = self.write.status().await?;
        Ok(status.ttl >= -1 && status.used >= status.capacity)
    }

    /// As [`Lock::ttl`](crate::Lock::ttl), of the one who holds it longest.
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn ttl(&self) -> Result<Option<Duration>> {
        self.write.ttl().await
    }

    /// Takes the lock away from all who hold it, to read or to write: as
    /// [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Errors
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    pub async fn force_unlock(&self) -> Result<bool> {
        self.write.force_unlock().await
    }

    async fn reading(&self, patience: Patience) -> Result<Option<Guard>> {
        let owner = self.owner();
        let within = self.write.held_by(owner)?;
        self.read.acquire_within(within, Some(owner), patience).await
    }

    async fn writing(&self, patience: Patience) -> Result<Option<WriteGuard>> {
        let owner = self.owner();
        if self.write.held_by(owner)?.is_none() && self.read.held_by(owner)?.is_some() {
            return Err(Error::Upgrade);
        }
        let guard = self.write.acquire(Some(owner), patience).await?;
        let lock = || Self { owner: Some(owner), ..self.clone() };
        Ok(guard.map(|guard| WriteGuard::new(guard, lock())))
    }

    fn owner(&self) -> OwnerId {
        self.owner.unwrap_or_else(OwnerId::current)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write.described(f.debug_struct("RwLock"))
    }
}
