//! The proof of holding a lock.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;
use tracing::field::Empty;

use crate::engine::{self, AcquireOptions, Ended, Engine, Hold, Notice, Woken};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::token::FencingToken;

/// The proof that a lock is held, that an [`RwLock`](crate::RwLock) is held to read or to write, or that permits of a
/// [`Semaphore`](crate::Semaphore) are.
///
/// It owns all that it needs and can be sent anywhere. A dropped guard gives the lock back in the background: the
/// drop never blocks and never panics, not even outside of a runtime. [`unlock`](Self::unlock) does the same and
/// reports the outcome.
///
/// # What a guard cannot promise
/// A lease is a promise about time. If this process is stopped for longer than its lease, another holder may
/// have the lock when it wakes, and nothing tells the code in between: check
/// [`is_valid`](Self::is_valid) before what matters, and let the protected resource check the
/// [`token`](Self::token).
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
    /// The notification after which it has the lock. It is used up when the lock is given back.
    notice: Option<Notice>,
    span: tracing::Span,
}

impl Guard {
    /// Gets the lock, or `None` if it was not free before the patience ran out.
    pub(crate) async fn acquire(
        engine: &Arc<Engine>,
        keys: &Arc<Keys>,
        options: AcquireOptions,
    ) -> Result<Option<Self>> {
        let span = tracing::debug_span!(
            "lock.acquire",
            "db.system.name" = "redis",
            "lock.kind" = keys.kind.word(),
            "lock.name" = ?keys.name(),
            "error.type" = Empty,
        );
        let asked = keys.meters.asks(options.patience.is_none());
        let mut asking = pin!(engine::acquire(engine, keys, options).instrument(span));
        let acquired = asking.as_mut().await;
        asked.came_to(acquired.as_ref().map(Option::is_some));
        if let Err(error) = &acquired {
            asking.span().record("error.type", error.word());
        }
        Ok(acquired?.map(|hold| Self::new(Arc::clone(engine), hold)))
    }

    /// Gets another kind of hold of the same lock. It needs no room while this hold lasts.
    pub(crate) async fn acquire_within(
        &self,
        keys: &Arc<Keys>,
        options: AcquireOptions,
    ) -> Result<Option<Self>> {
        Self::acquire(&self.engine, keys, options.within(Some(&self.hold.now()))).await
    }

    pub(crate) fn new(engine: Arc<Engine>, hold: Hold) -> Self {
        let span = tracing::debug_span!(
            "lock.hold",
            "lock.kind" = hold.tenure.keys.kind.word(),
            "lock.name" = &*hold.name(),
            "lock.token" = %hold.token(),
        );
        span.in_scope(|| tracing::debug!("granted"));
        Self { hold, engine, left: false, notice: None, span }
    }

    /// Gives the lock back, waits for the condition, and takes the lock again.
    pub(crate) async fn wait_at(
        mut self,
        condition: &Arc<Keys>,
        limit: Option<Duration>,
    ) -> Result<(Self, Woken)> {
        // From here on the engine has the hold.
        let (engine, hold) = (Arc::clone(&self.engine), self.hold.now().into_owned());
        self.left = true;
        self.span.in_scope(|| tracing::debug!(condition = ?condition.name(), "waits"));
        let former = self.notice.take();
        let (hold, woken, notice) =
            engine::wait_at(&engine, hold, former, condition, limit).await?;
        let mut guard = Self::new(engine, hold);
        guard.notice = notice;
        Ok((guard, woken))
    }

    /// Runs the work while the lock is held, and then unlocks. If the lock is lost first, the work is
    /// dropped.
    pub(crate) async fn run<T, F>(self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let (lost, work) = (self.ended(), work(self.hold()));
        while_held(lost, work, self.unlock()).await
    }

    /// A view of this hold. It does not keep the lock.
    pub(crate) fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Gives the lock back, and reports the outcome.
    ///
    /// A nested hold only counts down; the last one frees the lock and wakes a waiter.
    ///
    /// # What `Ok` means
    /// By its lease, the lock was ours until this call. It is not ours any more:
    /// - In most cases Redis has found our hold and removed it.
    /// - If another caller of this client waits for the lock, it may get the lock without a request
    ///   to Redis (see [`Config::hand_off`](crate::Config::hand_off)). The lease was not over then. The client does
    ///   not ask whether somebody removed the key by force: the next holder is told of that.
    /// - Readers of one client share a read lock, and the last one of them gives it back. A permit may
    ///   stay with the client for a short time, for its next caller, while another permit is on its way back to Redis. In
    ///   both cases `unlock` sends nothing. If no caller takes the permit up, the client gives it back in the background.
    /// - If the first answer was lost and a repetition finds nothing while the lease is not over, the
    ///   first request has removed it. Only one thing looks the same: somebody removed the key by force (`DEL`,
    ///   `force_unlock`, a failover that forgot it) since the last answer that reached this client.
    ///
    /// # Cancel safety
    /// From the first poll on, the client gives the lock back whatever happens; if the future is dropped, it does so
    /// in the background. A future that is dropped before its first poll is a dropped guard.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) if the lock was not ours any more; nothing was touched. Also if no answer
    /// came before the lease was over, and the lock was gone after that: the hold may have lasted to the end, but the
    /// client cannot know.
    /// [`Error::Indeterminate`](crate::Error::Indeterminate) if Redis did not confirm the release
    /// within [`Config::ride_out`](crate::Config::ride_out), or before
    /// [`Client::close`](crate::Client::close) ran out of time. The lease ends the lock at the latest. Until then the
    /// client repeats the release in the background, unless it was closed.
    /// [`Error::Permission`](crate::Error::Permission) if Redis does not let this user release locks any more.
    pub async fn unlock(mut self) -> Result<()> {
        self.left = true;
        let left = self.engine.leave(&self.hold).await;
        if let Some(notice) = self.notice.take()
            && !matches!(left, Err(Error::Lost))
        {
            notice.taken();
        }
        left?;
        self.span.in_scope(|| tracing::debug!("released"));
        Ok(())
    }

    /// The number of this hold, for the protected resource to compare. A nested hold has the number of
    /// the outer one.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Whether the lock is still ours, as far as clocks can tell.
    ///
    /// It compares the time with the deadline of the last confirmed lease, so it is right even if no task of this
    /// process could run for a while. It turns `false` early enough, as long as the clocks of this machine and of the
    /// server run at the same speed within one in a hundred. No check can rule out a pause between itself and the
    /// next line.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// How long the lock stays ours if no renewal is confirmed from now on. Zero if it is lost or given back.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves when the lock is no longer held: given back, or lost.
    ///
    /// It resolves at once when the server says that the lock is gone, and at the deadline at the latest. The future
    /// is independent of the guard, and must be polled in a Tokio runtime.
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.hold.ended()
    }

    /// Makes the lease at least this long from now. It is never shortened.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have extended the lease in Redis.
    ///
    /// # Errors
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if it is not between 10 ms and 24 h.
    /// [`Error::Lost`](crate::Error::Lost) if the lock is not ours any more.
    /// [`Error::Unavailable`](crate::Error::Unavailable) or
    /// [`Error::Indeterminate`](crate::Error::Indeterminate) if Redis did not answer; the old
    /// deadline stands.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.engine.extend(&self.hold.now(), lease).await
    }

    /// How many holds its owner has of this lock: more than one only for a
    /// [`ReentrantLock`](crate::ReentrantLock) or a [`ReentrantRwLock`](crate::ReentrantRwLock), where
    /// reading and writing are counted apart. It is not the number of permits of a [`Semaphore`](crate::Semaphore).
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.hold.count()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.left {
            // A holder that has lost the lock, or panics, may not have done what it was notified for.
            if let Some(notice) = self.notice.take()
                && self.is_valid()
                && !std::thread::panicking()
            {
                notice.taken();
            }
            self.engine.abandon(&self.hold);
            self.span.in_scope(|| tracing::debug!("dropped"));
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.described(f.debug_struct("Guard"))
    }
}

/// Runs `work` until it is done or the lock is lost, then unlocks. Until it is polled, the future that
/// unlocks keeps the guard.
pub(crate) async fn while_held<T>(
    lost: impl Future<Output = Ended>,
    work: impl Future<Output = T>,
    unlock: impl Future<Output = Result<()>>,
) -> Result<T> {
    let output = tokio::select! {
        // A loss that has already been told comes before another step of the work.
        biased;
        _ = lost => return Err(Error::Lost),
        output = work => output,
    };
    match unlock.await {
        Err(Error::Lost) => Err(Error::Lost),
        // The work was done in time, even if the release fails.
        _ => Ok(output),
    }
}
