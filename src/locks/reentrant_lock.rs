//! The re-entrant lock: its owner may take it again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Hold, Patience};
use crate::error::Result;
use crate::guards::Guard;
use crate::kinds::Kind;
use crate::locks::handle::Handle;
use crate::owner::{Owner, OwnerId};

/// A lock that its owner may take again through any handle of its name and client, and must release as often. It is
/// Redisson's `RLock`. To another client, even in the same task, the lock is held by somebody else.
///
/// **In a handler of HTTP/1.1, the Tokio task is the connection.** A guard that outlives its request, in a field or a
/// detached future, lets the next request of that connection nest: both are inside. In handlers use
/// [`Lock`](crate::Lock), or an [`Owner`] for each request.
///
/// **The owner is the current Tokio task**, or outside a task the current thread. So futures that one task polls side
/// by side (`join!`, `select!`, `FuturesUnordered`) are one owner. If one of them holds the lock, another one nests at
/// once: **both are inside**. If both ask before either holds the lock, one waits until the other unlocks. If the guard
/// of the other is kept until both have finished, this is a deadlock. Use [`Lock`](crate::Lock) for them, or give each
/// its own [`Owner`] with [`owned_by`](Self::owned_by).
///
/// A nested hold costs one round trip and never waits. The guards may be dropped in any order and on any task; dropping
/// the last one releases the lock. If a nested hold has no fixed lease, the watchdog renews the whole lock from then
/// on, even if the outer hold has a fixed lease.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let outer = client.reentrant_lock("doc:reentrant").lock().await?;
/// let inner = client.reentrant_lock("doc:reentrant").lock().await?;
/// assert_eq!(outer.token(), inner.token());
/// assert_eq!(outer.hold_count(), 2);
/// inner.unlock().await?;
/// outer.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked"]
pub struct ReentrantLock {
    handle: Handle,
    owner: Option<OwnerId>,
}

impl ReentrantLock {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        Self { handle: Handle::new(engine, Kind::Lock, name), owner: None }
    }

    /// Holds the lock for a fixed time, between 10 ms and 24 h, instead of renewing it.
    ///
    /// When the time is over, the lock is lost, unless [`Guard::extend`] or a nested hold extended it. The first call that
    /// asks for the lock reports an invalid lease.
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease), ..self }
    }

    /// Locks for `owner` instead of the current task. [`Owner`] has an example.
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Waits for the lock. An owner that already holds it gets another hold at once.
    ///
    /// # Cancel safety
    /// Same as [`Lock::lock`](crate::Lock::lock). A dropped nested call adds no hold.
    ///
    /// # Errors
    /// Same as [`Lock::lock`](crate::Lock::lock). In a nested call, [`Error::Lost`](crate::Error::Lost) if the owner's
    /// lock turns out to be lost, and [`Error::TooManyHolds`](crate::Error::TooManyHolds) beyond 65,535 holds.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn lock(&self) -> Result<Guard> {
        self.handle.lock(self.owner()).await
    }

    /// Takes the lock in one attempt: if its owner already holds it, or if it is free and no waiter ahead may still
    /// take it. Returns `None` otherwise, also if another call of this client is asking Redis for it at this moment.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`](crate::Lock::try_lock) and [`lock`](Self::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.handle.acquire(self.owner(), Patience::None).await
    }

    /// Waits for the lock, but not longer than `limit`. Returns `None` if the lock was not free in time. A limit of
    /// zero is [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`lock`](Self::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.acquire(self.owner(), Patience::limited(limit)).await
    }

    /// Whether the lock is held: see [`Lock::is_locked`](crate::Lock::is_locked).
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
        self.handle.is_locked().await
    }

    /// How long the lock stays held: see [`Lock::ttl`](crate::Lock::ttl).
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::ttl`](crate::Lock::ttl).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn ttl(&self) -> Result<Option<Duration>> {
        self.handle.ttl().await
    }

    /// Takes the lock away from its owner, who loses all holds: see [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Cancel safety
    /// Same as [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Errors
    /// Same as [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn force_unlock(&self) -> Result<bool> {
        self.handle.force_unlock().await
    }

    /// Locks, runs `work`, and unlocks: see [`Lock::run`](crate::Lock::run). `work` may take the lock again as the same
    /// owner.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases its hold in the background.
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock), and [`Error::Lost`](crate::Error::Lost) if the lock was lost before
    /// the work was done.
    ///
    /// # Panics
    /// Same as [`Lock::run`](crate::Lock::run).
    pub async fn run<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.lock().await?.run(work).await
    }

    fn owner(&self) -> Option<OwnerId> {
        Some(self.owner.unwrap_or_else(OwnerId::current))
    }
}

impl fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.described(f.debug_struct("ReentrantLock"))
    }
}
