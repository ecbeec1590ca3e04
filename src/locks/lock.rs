//! The exclusive lock: each guard is its own owner.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Hold, Keepers, Patience};
use crate::error::Result;
use crate::guards::Guard;
use crate::kinds::Kind;
use crate::locks::handle::Handle;

/// A lock that one guard holds at a time, across all processes that share the server.
///
/// As with `tokio::sync::Mutex`, each guard is its own owner: a task that locks twice waits for itself. This is correct
/// under `join!`, `select!` and `for_each_concurrent`. For nested calls, use [`ReentrantLock`](crate::ReentrantLock). A
/// `Lock` and a `ReentrantLock` of the same name exclude each other.
///
/// A client serves its callers in the order in which they asked. A waiting caller parks until Redis wakes it. Near
/// the front of the line, its client sends a request now and then to show that it is alive. And one caller of each client
/// asks when the holder's lease or [`Config::max_park`](crate::Config::max_park) is over, in case a message was lost.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let guard = client.lock("doc:lock").lock().await?;
/// // ... the critical section ...
/// guard.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked"]
pub struct Lock {
    pub(crate) handle: Handle,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, kind: Kind, name: String) -> Self {
        Self { handle: Handle::new(engine, kind, name) }
    }

    /// A handle for a lock that only these clients may keep idle.
    pub(crate) fn kept_by(mut self, keepers: Keepers) -> Self {
        self.handle.keepers = keepers;
        self
    }

    /// Holds the lock for a fixed time, between 10 ms and 24 h, instead of renewing it.
    ///
    /// When the time is over, the lock is lost, unless [`Guard::extend`] extended it. The first call that asks for the lock
    /// reports an invalid lease.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use std::time::Duration;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let lock = client.lock("doc:lease").lease(Duration::from_secs(10));
    /// let guard = lock.lock().await?;
    /// assert!(lock.ttl().await?.is_some_and(|ttl| ttl <= Duration::from_secs(10)));
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease) }
    }

    /// Waits for the lock.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue. If Redis grants the lock after all, the client releases it
    /// in the background. For a time limit, use [`try_lock_for`](Self::try_lock_for) or `tokio::time::timeout`.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) if Redis did not answer for
    /// [`Config::ride_out`](crate::Config::ride_out). [`Error::Permission`](crate::Error::Permission) and
    /// [`Error::Conflict`](crate::Error::Conflict) at once. [`Error::InvalidName`](crate::Error::InvalidName) and
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) before any I/O.
    /// [`Error::TooManyWaiters`](crate::Error::TooManyWaiters) beyond
    /// [`Config::max_waiters`](crate::Config::max_waiters). [`Error::Closed`](crate::Error::Closed) once the client is
    /// closed.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn lock(&self) -> Result<Guard> {
        self.handle.lock(None).await
    }

    /// Takes the lock if it is free, in one attempt. Returns `None` if another caller holds it, if it is free but a waiter
    /// ahead may still take it, or if another call of this client is asking Redis for it at this moment, even if that call
    /// does not get it.
    ///
    /// In the last case, and if another caller of this client holds the lock or waits for it, the answer needs no I/O. If
    /// this client is still releasing the lock, the attempt waits for the answer to that release. If the client
    /// that has the lock may keep it idle ([`Config::keep`](crate::Config::keep)), the call asks a second time, up to
    /// 50 ms later.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let lock = client.lock("doc:try");
    /// let guard = lock.try_lock().await?.expect("nobody else holds it");
    /// assert!(lock.try_lock().await?.is_none());
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped and Redis grants the lock, the client releases it in the background.
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock), but at once instead of after `ride_out`:
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the request was not sent, or Redis does not answer the release
    /// of this client, and [`Error::Indeterminate`](crate::Error::Indeterminate) if Redis did not answer the request.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.handle.acquire(None, Patience::None).await
    }

    /// Waits for the lock, but not longer than `limit`. Returns `None` if the lock was not free in time. A limit of
    /// zero is [`try_lock`](Self::try_lock).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use std::time::Duration;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// match client.lock("doc:try_for").try_lock_for(Duration::from_secs(1)).await? {
    ///     Some(guard) => guard.unlock().await?,
    ///     None => println!("somebody else has held it for the whole second"),
    /// }
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock). If Redis did not answer within the limit, the caller cannot know whether the lock
    /// was free: [`Error::Indeterminate`](crate::Error::Indeterminate) if the request may have run (the client cleans
    /// up after it), [`Error::Unavailable`](crate::Error::Unavailable) if it was not sent.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.acquire(None, Patience::limited(limit)).await
    }

    /// Whether the lock is held, as of the server's answer.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable), [`Error::Indeterminate`](crate::Error::Indeterminate) or
    /// [`Error::Permission`](crate::Error::Permission) if Redis gave no answer.
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::Conflict`](crate::Error::Conflict) and
    /// [`Error::Closed`](crate::Error::Closed) as for [`lock`](Self::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn is_locked(&self) -> Result<bool> {
        self.handle.is_locked().await
    }

    /// How long the lock stays held if nobody renews or releases it. `None` if there is no such time: nobody holds the
    /// lock, or another program wrote its key without a TTL. [`is_locked`](Self::is_locked) distinguishes the two.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`is_locked`](Self::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn ttl(&self) -> Result<Option<Duration>> {
        self.handle.ttl().await
    }

    /// Takes the lock away from its holder. Returns whether there was one.
    ///
    /// This call is for operators. Redis usually tells the holder's client at once. Readers, holders of permits, and a
    /// client whose user has no rights to `CLIENT TRACKING` learn of the loss at the next renewal at the latest; with a
    /// fixed lease, at the deadline. The holder's work continues unprotected until then.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::{Client, Error};
    ///
    /// let (ours, operators) = (Client::connect(&url).await?, Client::connect(&url).await?);
    /// let guard = ours.lock("doc:force").lock().await?;
    /// assert!(operators.lock("doc:force").force_unlock().await?);
    /// assert!(!ours.lock("doc:force").is_locked().await?);
    /// assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped before Redis has answered, the lock may or may not have been taken away.
    ///
    /// # Errors
    /// Same as [`is_locked`](Self::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn force_unlock(&self) -> Result<bool> {
        self.handle.force_unlock().await
    }

    /// Locks, runs `work`, and unlocks. If the lock is lost first, `work` is dropped at its next `await`. Tasks that it
    /// has spawned continue.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let stock = client.lock("doc:run").run(|hold| async move {
    ///     format!("deducted under token {}", hold.token())
    /// }).await?;
    /// # let _ = stock;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock), and [`Error::Lost`](crate::Error::Lost) if the lock was lost before the work was
    /// done. If the work was done and only the release failed, the result is `Ok`. The result does not wait for more than
    /// one attempt to release: the client repeats it in the background, and the lock expires with its lease at the latest.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled. If `work` panics, the call panics too, and the client releases the
    /// lock in the background.
    pub async fn run<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.lock().await?.run(work).await
    }

    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.handle.full_name().0
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.described(f.debug_struct("Lock"))
    }
}
