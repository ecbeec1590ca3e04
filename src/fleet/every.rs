//! A job that one process of a fleet does in each interval.

use std::convert::Infallible;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::engine::{Engine, Hold};
use crate::error::{Error, Result};
use crate::guards::Guard;
use crate::keys::Keys;
use crate::kinds::Kind;
use crate::locks::Lock;
use crate::wire::Claim;

/// From the shortest lease to a year.
const PERIODS: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(366 * 24 * 60 * 60);

/// The processes of a fleet look at slightly different times whether the interval is over. The first one claims the next
/// interval, and the others see that without contending for the lock. This is the most that an interval may be late by it.
const SPREAD: Duration = Duration::from_millis(100);

/// After a failure that may pass.
const AGAIN: Duration = Duration::from_secs(1);

/// A job that one process of a fleet does in each interval: cron for many servers, of which one does the work.
///
/// In any stretch of one period, at most one run begins, wherever that is. The server counts the period, from the claim
/// of one run to the claim of the next. No clock of the fleet is asked, so it does not matter how far they differ. A
/// run may take longer than the period: then the next one waits for its end, since each run holds the lock of that name.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// use std::time::Duration;
///
/// let client = parklock::Client::connect(&url).await?;
/// let reports = client.every("doc:reports", Duration::from_secs(3600)).at_most(Duration::from_secs(600));
/// let job = tokio::spawn(async move {
///     reports.run(|hold| async move {
///         println!("one process of all sends the reports, with token {}", hold.token());
///     }).await
/// });
/// # job.abort();
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # What counts as a run
/// A run that has begun has used its interval, whatever becomes of it: if the work fails, or its process dies, or its lock is
/// lost, nobody tries again before the interval is over. The work is *at most once* in each interval. A job
/// that must not be left out tries again itself.
///
/// # What it cannot promise
/// Two runs may overlap as two holders of a [`Lock`] may: if a process is stopped for longer than its lease, and the
/// interval is over too, another one begins. If Redis loses the mark of the interval (a restart without its data, a failover to
/// a replica that has not heard of it), the job may run again. Where that does damage, let the resource compare
/// [`Hold::token`].
///
/// # Coming from ShedLock
/// `lockAtLeastFor` is the period. `lockAtMostFor` is [`at_most`](Self::at_most) for work that takes too long, and
/// [`Config::watchdog_timeout`](crate::Config::watchdog_timeout) for a process that dies. For a schedule of your own, such
/// as a cron expression, call [`run_if_due`](Self::run_if_due) at each of its times, with a period that is a little shorter
/// than the time between two of them.
#[derive(Clone)]
#[must_use = "nothing is done until it is run"]
pub struct Every {
    engine: Arc<Engine>,
    keys: Result<Arc<Keys>>,
    lock: Lock,
    period: Duration,
    at_most: Option<Duration>,
}

impl Every {
    pub(crate) fn new(engine: Arc<Engine>, name: String, period: Duration) -> Self {
        Self {
            keys: engine.keys(Kind::Lock, name.clone()).map(Arc::new),
            lock: Lock::new(Arc::clone(&engine), Kind::Lock, name),
            period,
            at_most: None,
            engine,
        }
    }

    /// Drops work that takes longer than this. Default: the work may take as long as it does.
    pub fn at_most(self, limit: Duration) -> Self {
        Self { at_most: Some(limit), ..self }
    }

    /// Does the work in each interval in which no other process does it, for ever. The first interval begins at once, unless
    /// another process has begun one.
    ///
    /// If the lock is lost during a run, or the run takes longer than [`at_most`](Self::at_most), the work is dropped at its
    /// next `await`, a warning is logged, and the next interval comes. While Redis is not available, it goes on trying.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and gives the lock back in the background. The interval counts as used.
    ///
    /// # Errors
    /// It ends with an error alone: [`Error::Config`] if the period is not between 10 ms and 366 days,
    /// [`Error::Closed`] when the client is closed, and otherwise as [`Lock::lock`], but neither [`Error::Unavailable`] nor
    /// [`Error::Indeterminate`], which pass.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled.
    pub async fn run<F>(&self, mut work: impl FnMut(Hold) -> F) -> Result<Infallible>
    where
        F: Future<Output = ()>,
    {
        self.check()?;
        loop {
            match self.turn(&mut work).await {
                Ok(left) => sleep(left).await,
                Err(error @ (Error::Lost | Error::TooLong { .. })) => {
                    tracing::warn!(name = &*self.lock.name(), %error, "a run was dropped");
                }
                Err(error) if error.is_passing() => {
                    tracing::warn!(name = &*self.lock.name(), %error, "the run has to wait");
                    sleep(AGAIN.mul_f64(0.5 + fastrand::f64())).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Does the work now, if no run has begun within the last period and none goes on. Otherwise it returns `None`.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Errors
    /// As [`run`](Self::run), and as [`Lock::try_lock`]. [`Error::Lost`] if the lock was lost before the work was done, and
    /// [`Error::TooLong`] if the work took longer than [`at_most`](Self::at_most). In both cases the interval is used.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled.
    pub async fn run_if_due<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<Option<T>>
    where
        F: Future<Output = T>,
    {
        self.check()?;
        if !self.engine.interval_left(self.keys()?).await?.is_zero() {
            return Ok(None);
        }
        let Some(guard) = self.lock.try_lock().await? else { return Ok(None) };
        match self.claim(&guard).await? {
            Some(_) => Ok(None),
            None => self.work_under(guard, work).await.map(Some),
        }
    }

    /// Waits for an earlier run, and does the work if the interval is ours. Returns how long to wait before the next look.
    async fn turn<F>(&self, work: impl FnOnce(Hold) -> F) -> Result<Duration>
    where
        F: Future<Output = ()>,
    {
        // Most processes end here, with one request, and contend for nothing.
        let left = self.engine.interval_left(self.keys()?).await?;
        if !left.is_zero() {
            return Ok(self.spread(left));
        }
        let guard = self.lock.lock().await?;
        match self.claim(&guard).await? {
            Some(left) => Ok(self.spread(left)),
            None => self.work_under(guard, work).await.map(|()| Duration::ZERO),
        }
    }

    /// Claims the interval; otherwise how long that of another run lasts.
    async fn claim(&self, guard: &Guard) -> Result<Option<Duration>> {
        match self.engine.claim(&guard.hold(), self.period).await? {
            Claim::Ours => Ok(None),
            Claim::Taken(left) => Ok(Some(left)),
            Claim::Gone => Err(Error::Lost),
        }
    }

    async fn work_under<T, F>(&self, guard: Guard, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let Some(limit) = self.at_most else { return guard.run(work).await };
        let limited = |hold| timeout(limit, work(hold));
        guard.run(limited).await?.map_err(|_| Error::TooLong { limit })
    }

    fn spread(&self, left: Duration) -> Duration {
        left + SPREAD.min(self.period / 100).mul_f64(fastrand::f64())
    }

    fn check(&self) -> Result<()> {
        if PERIODS.contains(&self.period) {
            Ok(())
        } else {
            Err(Error::config("the period of a job must be between 10 ms and 366 days"))
        }
    }

    fn keys(&self) -> Result<&Arc<Keys>> {
        self.keys.as_ref().map_err(Clone::clone)
    }
}

impl fmt::Debug for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Every")
            .field("name", &self.lock.name())
            .field("period", &self.period)
            .field("at_most", &self.at_most)
            .finish()
    }
}
