//! The proof of holding a lock. It learns of a loss from its tenure (`engine/entry/tenure.rs`).

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::Instrument;
use tracing::field::Empty;

use crate::core::tenure::Ended;
use crate::engine::{self, AcquireOptions, Caller, Engine, Hold, Notice, Woken};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::log;
use crate::token::FencingToken;

/// The proof that a lock is held, that an [`RwLock`](crate::RwLock) is held to read or to write, or that permits of a
/// [`Semaphore`](crate::Semaphore) are held.
///
/// A guard owns everything that it needs, and is `Send` and `'static`. A dropped guard releases the lock in the
/// background: the drop never blocks and never panics, even outside a runtime. [`unlock`](Self::unlock) does the same
/// and reports the outcome.
///
/// # What a guard cannot promise
/// If this process is stopped for longer than its lease, another holder may have the lock when it resumes. So check
/// [`is_valid`](Self::is_valid) before each critical step, and let the protected resource check the [`token`](Self::token):
/// see `docs/loss.md`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let guard = client.lock("doc:guard").lock().await?;
/// tokio::select! {
///     () = async { /* rewrite the ledger, with guard.token() */ } => guard.unlock().await?,
///     _ = guard.ended() => eprintln!("stop: somebody else may be writing"),
/// }
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    hold: Hold,
    engine: Arc<Engine>,
    left: bool,
    /// The notification after which it got the lock back. Unlocking uses it up. Boxed: few guards have one.
    notice: Option<Box<Notice>>,
    span: tracing::Span,
}

impl Guard {
    /// Gets the lock, or `None` if it was not free before the patience ran out.
    ///
    /// The caller is borrowed: an `async fn` would keep it twice.
    pub(crate) async fn acquire(caller: &mut Caller, keys: &Arc<Keys>) -> Result<Option<Self>> {
        let span = tracing::debug_span!(
            "lock.acquire",
            "db.system.name" = "redis",
            "lock.kind" = keys.kind.word(),
            "lock.name" = &*keys.name(),
            "lock.namespace" = keys.namespace(),
            "error.type" = Empty,
        );
        let asked = keys.meters.asks(caller.options.patience.is_none());
        let engine = Arc::clone(&caller.engine);
        let owned = |hold| Self::owning(engine, hold);
        // The hold has a guard before the span closes, and the guard a name: the value of a block is lost if a subscriber panics when the
        // block ends.
        let acquired;
        {
            let asking = caller.acquire(keys).map(|acquired| acquired.map(|hold| hold.map(owned)));
            let mut asking = pin!(asking.instrument(span));
            acquired = asking.as_mut().await;
            if let Err(error) = &acquired {
                asking.span().record("error.type", error.word());
            }
        }
        asked.came_to(acquired.as_ref().map(Option::is_some));
        acquired.map(|guard| guard.map(Self::granted))
    }

    /// Gets a second hold, of another kind, of the same lock. It needs no room while this hold lasts.
    pub(crate) async fn acquire_within(
        &self,
        keys: &Arc<Keys>,
        options: AcquireOptions,
    ) -> Result<Option<Self>> {
        let options = options.within(Some(&self.hold.now()));
        Self::acquire(&mut Caller::new(&self.engine, options), keys).await
    }

    /// The guard of this hold, before the grant is logged.
    pub(crate) fn owning(engine: Arc<Engine>, hold: Hold) -> Self {
        Self { hold, engine, left: false, notice: None, span: tracing::Span::none() }
    }

    /// Tells the subscriber.
    pub(crate) fn granted(mut self) -> Self {
        let hold = &self.hold;
        self.span = tracing::debug_span!(
            "lock.hold",
            "lock.kind" = hold.tenure.keys.kind.word(),
            "lock.name" = &*hold.name(),
            "lock.namespace" = hold.tenure.keys.namespace(),
            "lock.token" = %hold.token(),
        );
        log::debug!(in self.span, "granted");
        self
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Releases the lock, waits for the condition, and takes the lock again.
    pub(crate) async fn wait_at(
        mut self,
        condition: &Arc<Keys>,
        limit: Option<Duration>,
    ) -> Result<(Self, Woken)> {
        // From here on the engine owns the hold.
        let (engine, hold) = (Arc::clone(&self.engine), self.hold.now().into_owned());
        self.left = true;
        log::debug!(in self.span, condition = ?condition.name(), "waits");
        let former = self.notice.take().map(|notice| *notice);
        let (hold, woken, notice) =
            engine::wait_at(&engine, hold, former, condition, limit).await?;
        let mut guard = Self::owning(engine, hold);
        guard.notice = notice.map(Box::new);
        // Its span closes now, and the new guard has a name: see `acquire`.
        drop(self);
        Ok((guard.granted(), woken))
    }

    /// Waits until the hold has ended. The error says that it was lost.
    fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        let (ended, hold) = (self.ended(), self.hold());
        async move {
            ended.await;
            hold.lost()
        }
    }

    /// Runs `work` while the lock is held, and then unlocks. If the lock is lost first, drops `work`.
    pub(crate) async fn run<T, F>(self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let (lost, work) = (self.lost(), work(self.hold()));
        while_held(lost, work, self.finish()).await
    }

    /// A view of this hold that does not keep the lock: for a task that only checks it or needs its token, and for a test of what takes
    /// a [`Hold`](crate::Hold).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.lock("doc:view").lock().await?;
    /// let hold = guard.hold();
    /// assert!(hold.is_valid() && hold.token() == guard.token());
    /// guard.unlock().await?;
    /// assert!(!hold.is_valid());
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Releases the lock, and reports the outcome.
    ///
    /// Unlocking a nested hold only decrements the hold count; the last one releases the lock and wakes a waiter.
    ///
    /// # What `Ok` means
    /// The lease had not expired when this call began, and this guard has given the lock up:
    /// - Usually, Redis has found our hold and removed it.
    /// - If another caller of this client waits for the lock, that caller may get it without a request to Redis (see
    ///   [`Config::hand_off`](crate::Config::hand_off)). The lease had not expired at that time. The client does not
    ///   ask whether somebody removed the key by force: if so, the next holder learns of it.
    /// - The client may keep the lock idle for its next caller (see [`Config::keep`](crate::Config::keep)), which needs no
    ///   request either.
    /// - Readers of one client share a read lock, and the last of them releases it. A permit may stay with the client
    ///   for a short time, for its next caller, while another permit is being released. In both cases `unlock` sends
    ///   nothing. If no caller takes the permit, the client releases it in the background.
    /// - If an answer was lost, the client repeats the release. If that finds nothing before the lease ends, the client
    ///   assumes that its first release ran. It cannot rule out that the key was removed by force (`DEL`, `force_unlock`)
    ///   or forgotten by a failover.
    ///
    /// # Cancel safety
    /// From the first poll on, the client releases the lock in any case; if the future is dropped, in the background.
    /// Dropping the future before its first poll is the same as dropping the guard.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) if the lock was not ours any more; nothing was changed. Also if the lease
    /// expired before any answer came and the lock was then gone: you may have held it until the end, but the client
    /// cannot know.
    ///
    /// [`Error::Indeterminate`](crate::Error::Indeterminate) if Redis did not confirm the release within
    /// [`Config::ride_out`](crate::Config::ride_out), or before [`Client::close`](crate::Client::close) ran out of
    /// time. The lock expires with its lease at the latest. Until then the client repeats the release in the
    /// background, unless it was closed.
    ///
    /// [`Error::Permission`](crate::Error::Permission) if Redis no longer lets this user release locks.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled. The client then releases the lock in the background.
    pub async fn unlock(mut self) -> Result<()> {
        let patience = self.engine.config.riding_out();
        let left = self.leave(patience).await;
        self.has_left(left)
    }

    /// Same as [`unlock`](Self::unlock), for a caller that has finished its work: it waits for one attempt only. If Redis
    /// does not answer that, the client goes on in the background.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let left = self.leave(Duration::ZERO).await;
        self.has_left(left)
    }

    /// Not an `async fn`: the future of `unlock` would have space for the guard twice.
    fn leave(&mut self, patience: Duration) -> impl Future<Output = Result<()>> + Send + use<> {
        self.left = true;
        self.engine.leave(&self.hold, patience)
    }

    fn has_left(mut self, left: Result<()>) -> Result<()> {
        if let Some(notice) = self.notice.take()
            && !matches!(left, Err(Error::Lost { .. }))
        {
            notice.taken();
        }
        left?;
        log::debug!(in self.span, "released");
        Ok(())
    }

    /// The fencing token of this hold, for the protected resource to compare. A nested hold has the token of the outer
    /// hold. The token of a reader or a permit can be compared with those of
    /// [exclusive holds only](FencingToken#readers-and-permits).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Whether the lock is still ours, as far as clocks can tell.
    ///
    /// It compares the current time with the deadline of the last confirmed lease, so it is correct even if no task of
    /// this process could run for a while. It turns `false` early enough if the clocks of this machine and of the
    /// server run at the same speed to within 1 %, which is the allowance of Redlock (redis.io, *Distributed locks with
    /// Redis*). No check can rule out a pause between the check and the next line.
    ///
    /// With [`Config::session`](crate::Config::session), it is `false` too while the hold is suspended, and `true` again if the
    /// server confirms the hold.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// How long the lock stays ours if no renewal is confirmed from now on. Zero if it is lost or released, and while it is
    /// suspended. With [`Config::session`](crate::Config::session), it is never longer than the grace.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// How long the lock lasts before it is lost. It may be suspended earlier.
    pub(crate) fn rest_of_lease(&self) -> Duration {
        self.hold.rest_of_lease()
    }

    /// Resolves when the lock is no longer held: released or lost.
    ///
    /// It resolves at once when the server reports that the lock is gone, and at the deadline at the latest. A hold that is suspended
    /// ([`Config::session`](crate::Config::session)) has not ended. The future is independent of the guard: it may outlive the guard, and run in another task.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::Ended;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.lock("doc:ended").lock().await?;
    /// let watching = tokio::spawn(guard.ended());
    /// guard.unlock().await?;
    /// assert_eq!(watching.await.unwrap(), Ended::Released); // or `Lost`
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// If the future is polled outside a Tokio runtime with time enabled before the hold has ended.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.hold.ended()
    }

    /// Extends the lease to at least `lease` from now, between 10 ms and 24 h. It never shortens the lease.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use std::time::Duration;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.lock("doc:extend").lease(Duration::from_secs(2)).lock().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease may or may not have been extended in Redis.
    ///
    /// # Errors
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `lease` is not between 10 ms and 24 h.
    /// [`Error::Lost`](crate::Error::Lost) if the lock is not ours any more.
    /// [`Error::Unavailable`](crate::Error::Unavailable) or [`Error::Indeterminate`](crate::Error::Indeterminate) if
    /// Redis did not answer; the old deadline remains. [`Error::Permission`](crate::Error::Permission) if Redis no
    /// longer lets this user renew locks.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.extending(lease).await
    }

    /// The same, without a borrow of the guard.
    pub(crate) fn extending(
        &self,
        lease: Duration,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let (engine, hold) = (Arc::clone(&self.engine), self.hold.now().into_owned());
        async move { engine.extend(&hold, lease).await }
    }

    /// Same as [`extend`](Self::extend), but rides out failures, as long as the lock is ours.
    pub(crate) async fn extend_surely(&self, lease: Duration) -> Result<()> {
        self.engine.extend_surely(&self.hold.now(), lease).await
    }

    /// How many holds the owner has of this lock. It can be more than one only for a
    /// [`ReentrantLock`](crate::ReentrantLock) or a [`ReentrantRwLock`](crate::ReentrantRwLock), which counts read and
    /// write holds separately. It is not the number of permits of a [`Semaphore`](crate::Semaphore).
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.hold.count()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A holder that has lost the lock, or panics, may not have done what it was notified for: then the notification
        // goes to the next waiter. If a future of `unlock` is dropped before its answer, the hold counts as released:
        // then the notification is used up.
        if let Some(notice) = self.notice.take()
            && (self.is_valid() || self.hold.now().outcome() == Some(Ended::Released))
            && !std::thread::panicking()
        {
            notice.taken();
        }
        if !self.left {
            self.engine.abandon(&self.hold);
            log::debug!(in self.span, "dropped");
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.described(f.debug_struct("Guard"))
    }
}

/// Runs `work` until it is done or the lock is lost, then unlocks with [`Guard::finish`]: while Redis is away, the output of
/// the work does not wait for it. Until it is polled, the future that unlocks keeps the guard.
pub(crate) async fn while_held<T>(
    lost: impl Future<Output = Error>,
    work: impl Future<Output = T>,
    unlock: impl Future<Output = Result<()>>,
) -> Result<T> {
    let output = tokio::select! {
        // If the loss is already known, do not poll the work again.
        biased;
        lost = lost => return Err(lost),
        output = work => output,
    };
    worked(output, unlock.await)
}

/// The result of work under a lock, by what came of the release.
pub(crate) fn worked<T>(output: T, released: Result<()>) -> Result<T> {
    match released {
        Err(lost @ Error::Lost { .. }) => Err(lost),
        // The work was done in time, even if the release fails.
        _ => Ok(output),
    }
}
