//! The condition: holders of a lock wait until somebody notifies them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Layout;
use crate::engine::{Engine, Woken};
use crate::error::{Error, Result};
use crate::guards::{Guard, WriteGuard};
use crate::keys::Keys;
use crate::kinds::Kind;
use crate::locks::handle::Handle;
use crate::wire::Order;

/// A condition variable, shared by all processes that share the server: holders of a lock wait for it until they are
/// notified.
///
/// It is to a lock of this crate what [`std::sync::Condvar`] is to a mutex. A holder finds that it cannot continue, for
/// example because a buffer is empty. [`Guard::wait`] releases its lock and waits in one step, and holds the lock again
/// when it returns. A caller that changes what others wait for calls [`notify_one`](Self::notify_one) or
/// [`notify_all`](Self::notify_all), usually while it holds the lock. Other callers may hold the lock between the
/// notification and the return of the waiter, so the waiter has to check again. This is the rule of Mesa (Butler
/// Lampson and David Redell, *Experience with processes and monitors in Mesa*, 1980).
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// # use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
/// let client = parklock::Client::connect(&url).await?;
/// let (lock, not_empty) = (client.lock("doc:buffer"), client.condition("doc:buffer:not-empty"));
/// let items = AtomicU32::new(0); // in practice a list in a database that the lock protects
/// let consumer = async {
///     let mut guard = lock.lock().await?;
///     while items.load(SeqCst) == 0 {
///         guard = guard.wait(&not_empty).await?;
///     }
///     items.fetch_sub(1, SeqCst);
///     guard.unlock().await
/// };
/// let producer = async {
///     let guard = lock.lock().await?;
///     not_empty.notify_one().await?;
///     items.fetch_add(1, SeqCst); // nobody looks before the lock is released
///     guard.unlock().await
/// };
/// tokio::try_join!(consumer, producer)?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # Guarantees
/// - **No notification is lost between the release and the wait.** A waiter enters the line of the condition before its
///   lock is released. So any caller that gets the lock after it can notify it.
/// - **A notification goes to a live waiter.** The waiters stand in line in the order in which they came. A waiter
///   whose process has died delays a notification by at most one [`Config::waiter_ttl`](crate::Config::waiter_ttl).
///   Then the notification goes to the next waiter.
/// - **A notification is used up when its waiter has held the lock again, and releases it.** If the process dies,
///   panics or loses the lock before that, the notification goes to the next waiter. So no waiter sleeps forever
///   because another one died before it acted on its notification.
/// - **A condition remembers nothing.** If nobody waits, a notification has no effect.
/// - **A wait can end spuriously**, as with `Condvar`. This happens when a waiter may have missed a notification: it
///   was silent for longer than `waiter_ttl`, an answer to it was lost, the server lost the line, or another primary has
///   the line now, which may not know of the notification. The waiter then returns rather than wait forever. So wait in a loop that checks, or use
///   [`Guard::wait_while`].
/// - **After a wait, the lock has a new token.** The token is greater, since other callers may have held the lock
///   meanwhile.
///
/// # Processes that die
/// Under the lock, notify first, and then change what others wait for. The waiter cannot look before the lock is
/// released. If the process dies in between, the waiter wakes, finds no change, and waits again. In the other order,
/// the change would be there, and nobody would be notified.
///
/// # Which guards can wait
/// The guards of [`Lock`](crate::Lock), fair or not, and of [`ReentrantLock`](crate::ReentrantLock), and the
/// [`WriteGuard`] of [`RwLock`](crate::RwLock) and [`ReentrantRwLock`](crate::ReentrantRwLock). Guards of readers and
/// of permits cannot. One condition belongs to one lock; a lock may have many conditions. A guard and the condition that
/// it waits for are of one [`Client`](crate::Client) or its clones. Any client of the server may notify.
///
/// [`Layout::Redisson`] has no conditions: `RLock.newCondition()` throws an exception, so no Java process could ever
/// notify. Every call returns [`Error::Unsupported`].
#[derive(Clone)]
#[must_use = "a handle does nothing until it is asked for something"]
pub struct Condition {
    handle: Handle,
}

impl Condition {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        let is_there = engine.config.layout != Layout::Redisson;
        let handle = Handle::new(engine, Kind::Condition, name);
        let reason = "Redisson has no conditions, so they do not exist in its layout";
        let unsupported = Error::Unsupported { reason };
        Self { handle: if is_there { handle } else { handle.failing(unsupported) } }
    }

    /// Wakes the waiter that has waited longest, if there is one.
    ///
    /// If an answer is lost, the client repeats the request. The server still carries it out only once.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have notified a waiter.
    ///
    /// # Errors
    /// If Redis did not answer within [`Config::ride_out`](crate::Config::ride_out): [`Error::Indeterminate`] if the
    /// request may have run, and [`Error::Unavailable`] if it cannot have run. [`Error::Conflict`] if the name is used
    /// for another kind. [`Error::Unsupported`] in Redisson's layout. Otherwise as for
    /// [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn notify_one(&self) -> Result<()> {
        self.handle.order(Order::NotifyOne).await.map(drop)
    }

    /// Wakes all callers that wait now. They get the lock again one after the other.
    ///
    /// # Cancel safety
    /// Same as [`notify_one`](Self::notify_one).
    ///
    /// # Errors
    /// Same as [`notify_one`](Self::notify_one).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn notify_all(&self) -> Result<()> {
        self.handle.order(Order::NotifyAll).await.map(drop)
    }

    /// The keys, if the holder of this guard can wait for the condition.
    fn keys_for(&self, guard: &Guard) -> Result<&Arc<Keys>> {
        let keys = self.handle.keys()?;
        // The condition of another client may lie on another server, where the client of the guard would wait forever.
        if !self.handle.engine.is_of_same_client(guard.engine()) {
            return Err(Error::Unsupported { reason: "the condition is of another client" });
        }
        Ok(keys)
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.described(f.debug_struct("Condition"))
    }
}

/// Waiting for a [`Condition`].
impl Guard {
    /// Releases the lock, whatever its [`hold_count`](Self::hold_count), and waits for the condition, in one step.
    /// Returns the guard when the lock is held again, with the same hold count and a greater [`token`](Self::token).
    ///
    /// A wait can end spuriously: see [`Condition`]. So call it in a loop, or use [`wait_while`](Self::wait_while). It
    /// costs four requests without contention: to line up, to release the lock, to take it again, and to use up the
    /// notification.
    ///
    /// If the owner of a re-entrant lock has several guards, this applies to all of them: during the wait they are not
    /// valid, and afterwards they are valid again, with the new token. If one of them is released during the wait, its
    /// hold does not come back. Their [`ended`](Self::ended) futures stay pending. If the wait fails, all of these
    /// guards have lost the lock.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released and the guard is gone. A notification that had arrived goes to
    /// the next waiter. Other guards of the owner have lost the lock, unless the future is dropped before it released
    /// the lock: in that case only the hold of this guard is released.
    ///
    /// A future that is not polled keeps the lock until it learns that it stands in the condition's line. If it is not
    /// polled for [`Config::pickup_timeout`](crate::Config::pickup_timeout) after it was notified, its notification
    /// goes to the next waiter. A notification that it has read stays with it until it holds the lock again.
    ///
    /// # Errors
    /// After every error the lock is no longer held, and the guard is gone. [`Error::Lost`] if the lock was lost before
    /// it could be released, or while another guard of this owner is already waiting. In both cases this call did not
    /// wait. [`Error::Unavailable`] or [`Error::Indeterminate`] if Redis does not answer for longer than
    /// [`Config::ride_out`](crate::Config::ride_out). [`Error::Unsupported`] if this guard cannot wait: it is the guard
    /// of a reader or a permit; or its owner has another hold within it (a read within a write), which would
    /// remain; or the condition is of another client; or the layout is Redisson's. [`Error::Conflict`] if the name of
    /// the condition is used for another kind. [`Error::TooManyWaiters`] if too many callers of this client already
    /// wait. Otherwise as for [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn wait(self, condition: &Condition) -> Result<Self> {
        let keys = condition.keys_for(&self)?;
        Ok(self.wait_at(keys, None).await?.0)
    }

    /// Same as [`wait`](Self::wait), but waits for the notification no longer than `limit`. Taking the lock again
    /// afterwards can take longer: the limit does not apply to it. Returns the guard, and whether the limit was
    /// reached.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::Woken;
    /// use std::time::Duration;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let (lock, changed) = (client.lock("doc:wait_for"), client.condition("doc:wait_for:changed"));
    /// let guard = lock.lock().await?;
    /// let (guard, woken) = guard.wait_for(&changed, Duration::from_millis(50)).await?;
    /// assert_eq!(woken, Woken::TimedOut); // nobody has notified it, and the lock is held again
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Same as [`wait`](Self::wait).
    ///
    /// # Errors
    /// Same as [`wait`](Self::wait).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn wait_for(self, condition: &Condition, limit: Duration) -> Result<(Self, Woken)> {
        let keys = condition.keys_for(&self)?;
        self.wait_at(keys, Some(limit)).await
    }

    /// Waits while `is_to_wait` returns `true`. It is called once before the first wait, and again after each wait,
    /// always while the lock is held.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// # let client = parklock::Client::connect(&url).await?;
    /// # let (lock, not_full) = (client.lock("doc:full"), client.condition("doc:full:not-full"));
    /// # async fn is_full() -> bool { false }
    /// let guard = lock.lock().await?;
    /// let guard = guard.wait_while(&not_full, || async { Ok::<_, parklock::Error>(is_full().await) }).await?;
    /// // ... there is room, and the lock is held ...
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Same as [`wait`](Self::wait).
    ///
    /// # Errors
    /// Same as [`wait`](Self::wait), and any error of `is_to_wait`; in that case the lock is released.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled. If `is_to_wait` panics, the call panics too, and the client releases
    /// the lock in the background.
    pub async fn wait_while<E, F>(
        mut self,
        condition: &Condition,
        mut is_to_wait: impl FnMut() -> F,
    ) -> Result<Self, E>
    where
        E: From<Error>,
        F: Future<Output = Result<bool, E>>,
    {
        while is_to_wait().await? {
            self = self.wait(condition).await?;
        }
        Ok(self)
    }

    /// Same as [`wait_while`](Self::wait_while), with a limit for the whole call. When `limit` is over since the call
    /// began, and `is_to_wait` still returns `true`, the call returns [`Woken::TimedOut`]. It first takes the lock again,
    /// which can take longer: see [`wait_for`](Self::wait_for).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// # let client = parklock::Client::connect(&url).await?;
    /// # let (lock, not_full) = (client.lock("doc:busy"), client.condition("doc:busy:not-full"));
    /// # async fn is_full() -> bool { true }
    /// use parklock::Woken;
    /// use std::time::Duration;
    ///
    /// let guard = lock.lock().await?;
    /// let full = || async { Ok::<_, parklock::Error>(is_full().await) };
    /// let (guard, woken) = guard.wait_while_for(&not_full, Duration::from_millis(50), full).await?;
    /// if woken == Woken::TimedOut {
    ///     // ... it is still full, and the lock is held ...
    /// }
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Same as [`wait`](Self::wait).
    ///
    /// # Errors
    /// Same as [`wait_while`](Self::wait_while).
    ///
    /// # Panics
    /// Same as [`wait_while`](Self::wait_while).
    pub async fn wait_while_for<E, F>(
        mut self,
        condition: &Condition,
        limit: Duration,
        mut is_to_wait: impl FnMut() -> F,
    ) -> Result<(Self, Woken), E>
    where
        E: From<Error>,
        F: Future<Output = Result<bool, E>>,
    {
        let started = Instant::now();
        while is_to_wait().await? {
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok((self, Woken::TimedOut));
            }
            (self, _) = self.wait_for(condition, left).await?;
        }
        Ok((self, Woken::Notified))
    }
}

/// Waiting for a [`Condition`].
impl WriteGuard {
    /// Same as [`Guard::wait`].
    ///
    /// # Cancel safety
    /// Same as [`Guard::wait`].
    ///
    /// # Errors
    /// Same as [`Guard::wait`].
    ///
    /// # Panics
    /// Same as [`Guard::wait`].
    pub async fn wait(self, condition: &Condition) -> Result<Self> {
        let (guard, read) = self.into_parts();
        Ok(Self::new(guard.wait(condition).await?, read))
    }

    /// Same as [`Guard::wait_for`].
    ///
    /// # Cancel safety
    /// Same as [`Guard::wait`].
    ///
    /// # Errors
    /// Same as [`Guard::wait`].
    ///
    /// # Panics
    /// Same as [`Guard::wait`].
    pub async fn wait_for(self, condition: &Condition, limit: Duration) -> Result<(Self, Woken)> {
        let (guard, read) = self.into_parts();
        let (guard, woken) = guard.wait_for(condition, limit).await?;
        Ok((Self::new(guard, read), woken))
    }

    /// Same as [`Guard::wait_while`].
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// # let client = parklock::Client::connect(&url).await?;
    /// # let (prices, fetched) = (client.rw_lock("doc:prices"), client.condition("doc:prices:fetched"));
    /// # async fn are_missing() -> bool { false }
    /// let writing = prices.write().await?;
    /// let writing =
    ///     writing.wait_while(&fetched, || async { Ok::<_, parklock::Error>(are_missing().await) }).await?;
    /// // ... the prices have been fetched, and nobody else reads or writes ...
    /// writing.downgrade().await?.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Same as [`Guard::wait`].
    ///
    /// # Errors
    /// Same as [`Guard::wait_while`].
    ///
    /// # Panics
    /// Same as [`Guard::wait_while`].
    pub async fn wait_while<E, F>(
        self,
        condition: &Condition,
        is_to_wait: impl FnMut() -> F,
    ) -> Result<Self, E>
    where
        E: From<Error>,
        F: Future<Output = Result<bool, E>>,
    {
        let (guard, read) = self.into_parts();
        Ok(Self::new(guard.wait_while(condition, is_to_wait).await?, read))
    }

    /// Same as [`Guard::wait_while_for`].
    ///
    /// # Cancel safety
    /// Same as [`Guard::wait`].
    ///
    /// # Errors
    /// Same as [`Guard::wait_while`].
    ///
    /// # Panics
    /// Same as [`Guard::wait_while`].
    pub async fn wait_while_for<E, F>(
        self,
        condition: &Condition,
        limit: Duration,
        is_to_wait: impl FnMut() -> F,
    ) -> Result<(Self, Woken), E>
    where
        E: From<Error>,
        F: Future<Output = Result<bool, E>>,
    {
        let (guard, read) = self.into_parts();
        let (guard, woken) = guard.wait_while_for(condition, limit, is_to_wait).await?;
        Ok((Self::new(guard, read), woken))
    }
}
