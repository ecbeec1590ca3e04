//! The condition: holders of a lock wait until somebody notifies them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Layout;
use crate::engine::{Engine, Woken};
use crate::error::{Error, Result};
use crate::guards::{Guard, WriteGuard};
use crate::keys::Keys;
use crate::kinds::Kind;
use crate::locks::handle::Handle;
use crate::wire::Order;

/// A condition that the holders of a lock wait for, until somebody notifies them, in all processes that share the server.
///
/// It is to a lock of this crate what [`std::sync::Condvar`] is to a mutex. A holder finds that it cannot go on, for example
/// because a buffer is empty. [`Guard::wait`] gives its lock back and waits in one step, and has the lock again when it returns.
/// Whoever changes something that others wait for calls [`notify_one`](Self::notify_one) or
/// [`notify_all`](Self::notify_all), usually while it holds the lock.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// # use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
/// let client = parklock::Client::connect(&url).await?;
/// let (lock, not_empty) = (client.lock("doc:buffer"), client.condition("doc:buffer:not-empty"));
/// let items = AtomicU32::new(0); // in truth a list in a database that the lock protects
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
///     items.fetch_add(1, SeqCst); // nobody looks before the lock is given back
///     guard.unlock().await
/// };
/// tokio::try_join!(consumer, producer)?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # What is promised
/// - **No notification is lost between the two.** A waiter stands in the line of the condition before its lock is given back. So
///   whoever gets the lock after it can notify it.
/// - **A notification goes to a waiter that lives.** The waiters stand in line in the order in which they came. A waiter
///   whose process has died holds up a notification for at most one
///   [`Config::waiter_ttl`](crate::Config::waiter_ttl). Then it goes to the next waiter.
/// - **A notification is used up when its waiter has had the lock again, and gives it back.** If the process dies before that,
///   wherever it is, or panics, or loses the lock, the notification goes to the next waiter. So nobody sleeps because somebody else has
///   died with what it was to do.
/// - **A condition remembers nothing.** If nobody waits, a notification has no effect.
/// - **A wait can end without a reason**, as with `Condvar`. That happens when a waiter may have missed a notification: it was
///   silent for longer than `waiter_ttl`, an answer to it was lost, or the server has lost the line, as a replica may have
///   that takes over. Then it looks for itself rather than wait for ever. So wait in a loop that checks, or with
///   [`Guard::wait_while`].
/// - **A wait is a new turn of the lock.** The token is a new and greater one, since others have had the lock meanwhile.
///
/// # Processes that die
/// Notify first, and then change what others wait for, both under the lock: the waiter cannot look before the lock is given
/// back. If the process dies in between, the waiter looks in vain, and waits again. In the other order, what was changed would
/// be there, and nobody would know.
///
/// # Which guards can wait
/// Those of [`Lock`](crate::Lock), fair or not, and of [`ReentrantLock`](crate::ReentrantLock), and the
/// [`WriteGuard`] of [`RwLock`](crate::RwLock) and [`ReentrantRwLock`](crate::ReentrantRwLock). Readers and permits
/// are no turn of a lock. One condition is for the holders of one lock; a lock may have many conditions.
///
/// In [`Layout::Redisson`] there is no condition: `RLock.newCondition()` throws an exception, so no process in Java could ever
/// notify. Every call reports [`Error::Unsupported`].
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
        let unsupported = || Error::Unsupported { reason };
        Self { handle: if is_there { handle } else { handle.failing(unsupported()) } }
    }

    /// Wakes the waiter that has waited for longest, if there is one.
    ///
    /// If an answer is lost, the client repeats the request. The server carries it out once all the same.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have notified a waiter.
    ///
    /// # Errors
    /// If Redis did not answer within [`Config::ride_out`](crate::Config::ride_out): [`Error::Indeterminate`] if the request
    /// may have run, and [`Error::Unavailable`] if it cannot have run. [`Error::Conflict`] if the name is used for another
    /// kind. [`Error::Unsupported`] in Redisson's layout. Otherwise as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled.
    pub async fn notify_one(&self) -> Result<()> {
        self.handle.order(Order::NotifyOne).await.map(drop)
    }

    /// Wakes all waiters. They get the lock again one after the other.
    ///
    /// # Cancel safety
    /// As [`notify_one`](Self::notify_one).
    ///
    /// # Errors
    /// As [`notify_one`](Self::notify_one).
    pub async fn notify_all(&self) -> Result<()> {
        self.handle.order(Order::NotifyAll).await.map(drop)
    }

    fn keys(&self) -> Result<&Arc<Keys>> {
        self.handle.keys()
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.described(f.debug_struct("Condition"))
    }
}

/// Waiting for a [`Condition`].
impl Guard {
    /// Gives the lock back, whatever its [`hold_count`](Self::hold_count), and waits for the condition, in one step. Returns
    /// the guard when the lock is held again, as often as before, with a new and greater [`token`](Self::token).
    ///
    /// A wait can end without a reason: see [`Condition`]. So call it in a loop, or use [`wait_while`](Self::wait_while). It
    /// costs four requests if nobody is in the way: to line up, to give the lock back, to take it again, and to say that the
    /// notification is used up.
    ///
    /// If the owner of a re-entrant lock has more than one guard, all of them are in the same position as this one: meanwhile they
    /// are not valid, and afterwards they are again, with the new token. Those that are given back meanwhile are not taken
    /// again. What [`ended`](Self::ended) has returned to them goes on waiting. If the wait fails, they have lost the lock.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is given back, and the guard is gone. A notification that had come goes to the next
    /// waiter.
    ///
    /// # Errors
    /// On every error the lock is not held any more, and the guard is gone.
    /// [`Error::Lost`] if the lock was lost before it could be given back: then the guard did not wait.
    /// [`Error::Unavailable`] or [`Error::Indeterminate`] if Redis does not answer for longer than
    /// [`Config::ride_out`](crate::Config::ride_out).
    /// [`Error::Unsupported`] if this guard cannot wait: it is that of a reader or of a permit; or its owner has taken another
    /// hold within it (reads within a write), which would stay; or the layout is Redisson's.
    /// [`Error::Conflict`] if the name of the condition is used for another kind.
    /// [`Error::TooManyWaiters`] if too many callers of this client wait already.
    /// Otherwise as [`Lock::lock`](crate::Lock::lock).
    pub async fn wait(self, condition: &Condition) -> Result<Self> {
        Ok(self.wait_at(condition.keys()?, None).await?.0)
    }

    /// As [`wait`](Self::wait), but it waits for the notification no longer than this. Then it takes the lock again, which can
    /// take longer: the limit does not count for that. Returns the guard, and whether the time was over.
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn wait_for(self, condition: &Condition, limit: Duration) -> Result<(Self, Woken)> {
        self.wait_at(condition.keys()?, Some(limit)).await
    }

    /// Waits as long as `is_to_wait` says so: it is asked first of all, and again after each wait. The lock is held each time
    /// that it is asked.
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
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and whatever `is_to_wait` returns; then the lock is given back.
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
}

/// Waiting for a [`Condition`].
impl WriteGuard {
    /// As [`Guard::wait`].
    ///
    /// # Cancel safety
    /// As [`Guard::wait`].
    ///
    /// # Errors
    /// As [`Guard::wait`].
    pub async fn wait(self, condition: &Condition) -> Result<Self> {
        Ok(self.wait_at(condition.keys()?, None).await?.0)
    }

    /// As [`Guard::wait_for`].
    ///
    /// # Cancel safety
    /// As [`Guard::wait`].
    ///
    /// # Errors
    /// As [`Guard::wait`].
    pub async fn wait_for(self, condition: &Condition, limit: Duration) -> Result<(Self, Woken)> {
        self.wait_at(condition.keys()?, Some(limit)).await
    }
}
