//! A job that one process of a fleet does in each interval.

use std::convert::Infallible;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::engine::{Engine, Hold, Keepers};
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::guards::Guard;
use crate::kinds::Kind;
use crate::locks::Lock;
use crate::log;
use crate::pause::jittered;
use crate::wire::Claim;

/// From the shortest lease to a year.
const PERIODS: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(366 * 24 * 60 * 60);

/// The processes of a fleet check at slightly different times whether the interval is over. The first one claims the
/// next interval, and the others see that without contending for the lock. So an interval may begin late, by at most
/// this time.
const SPREAD: Duration = Duration::from_millis(100);

/// The pause after a transient failure.
const AGAIN: Duration = Duration::from_secs(1);

/// A job that one process of a fleet does in each interval: cron for many servers, of which one does the work.
///
/// Each run claims its period. In any span of one period, at most one run in the whole fleet has its claim. The server
/// measures the period, from claim to claim. The processes' own clocks are not used, so they may differ by any amount.
///
/// A run begins when its process has read the answer to its claim, and only while it holds the lock of that name: usually
/// at once, but up to one response timeout later, or up to a lease later if the process was stopped. So two runs may begin
/// closer to each other than a period, by that time. If the answer is lost, the client claims again, and the period begins
/// again. A run may take longer than the period: then the next run waits for its end.
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
///         println!("one process of the fleet sends the reports, with token {}", hold.token());
///     }).await
/// });
/// # job.abort();
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # What counts as a run
/// A run that has begun has used its interval, however it ends: if the work fails, its process dies, or its lock is
/// lost, no process tries again before the interval is over. The work is done *at most once* in each interval. A job
/// that must not be skipped has to retry itself.
///
/// # What it cannot promise
/// Two runs may overlap just as two holders of a [`Lock`] may: if a process is stopped for longer than its lease, and
/// the interval is over too, another run begins. If Redis loses the mark of the interval (a restart without its data, a
/// failover to a replica that does not have it), the job may run again. Where that does damage, let the resource
/// compare [`Hold::token`].
///
/// # Coming from ShedLock
/// `lockAtLeastFor` is the period. For `lockAtMostFor` there are two settings: [`at_most`](Self::at_most) for work that
/// takes too long, and [`Config::watchdog_timeout`](crate::Config::watchdog_timeout) for a process that dies. For your
/// own schedule, such as a cron expression, call [`run_if_due`](Self::run_if_due) at each scheduled time, with a period
/// slightly shorter than the interval of your schedule. A daily schedule in local time has a day of 23 hours when the clocks change: choose
/// 22 hours there.
///
/// # A period that changes
/// If processes of a fleet give one name different periods, as they do during a deployment, the shortest counts: a process whose
/// period is shorter than what is left of the interval cuts the interval down to it.
#[derive(Clone)]
#[must_use = "nothing is done until it is run"]
pub struct Every {
    lock: Lock,
    period: Duration,
    at_most: Option<Duration>,
}

impl Every {
    pub(crate) fn new(engine: Arc<Engine>, name: String, period: Duration) -> Self {
        Self {
            lock: Lock::new(engine, Kind::Lock, name).kept_by(Keepers::None),
            period,
            at_most: None,
        }
    }

    /// Drops work that takes longer than this, at its next `await`. Default: no limit. Any limit is allowed.
    pub fn at_most(self, limit: Duration) -> Self {
        Self { at_most: Some(limit), ..self }
    }

    /// Runs forever. In each interval it runs `work`, unless another process has claimed that interval. The first
    /// interval begins at once, unless another process has begun one.
    ///
    /// If the lock is lost before a run, a warning is logged, and the job tries again. If the lock is lost during a run, or the run takes longer than [`at_most`](Self::at_most), the work is dropped
    /// at its next `await`, a warning is logged, and the job waits for the next interval. While Redis is unavailable,
    /// it keeps trying.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and releases the lock in the background. The interval counts as used. If the
    /// future has the lock and is not polled, it keeps the lock.
    ///
    /// # Errors
    /// It returns only with an error: [`Error::Config`] if the period is not between 10 ms and 366 days,
    /// [`Error::Closed`] when the client is closed, and otherwise as for [`Lock::lock`], except [`Error::Unavailable`]
    /// and [`Error::Indeterminate`], after which it tries again.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled. If `work` panics, so does the call, and the job ends in this process.
    /// The client releases the lock in the background, and the interval counts as used.
    pub async fn run<F>(&self, mut work: impl FnMut(Hold) -> F) -> Result<Infallible>
    where
        F: Future<Output = ()>,
    {
        self.check()?;
        let mut failures = Failures::of_lock("run the job", &self.lock.name());
        loop {
            match self.turn(&mut work, &mut failures).await {
                Ok(left) => sleep(left).await,
                // A release may have found the loss, after the work.
                Err(error @ Error::Lost { .. }) => {
                    log::warn!(name = &*self.lock.name(), %error, "a job lost its lock: its work was dropped, unless it was done");
                }
                Err(error @ Error::TooLong { .. }) => {
                    log::warn!(name = &*self.lock.name(), %error, "the work of a job was dropped");
                }
                Err(error) if error.is_transient() => {
                    failures.fails(&error);
                    sleep(jittered(AGAIN)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs `work` now, if no run has begun within the last period and none is in progress. Otherwise returns `None`.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use std::time::Duration;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let invoices = client.every("doc:invoices", Duration::from_secs(3600));
    /// // At each time of your own schedule, in each process of the fleet:
    /// if let Some(sent) = invoices.run_if_due(|_| async { 42 }).await? {
    ///     println!("this process has sent {sent} invoices");
    /// }
    /// assert!(invoices.run_if_due(|_| async {}).await?.is_none()); // the interval is used
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Same as [`run`](Self::run).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`]. [`Error::Config`] if the period is not between 10 ms and 366 days. [`Error::Lost`] if
    /// the lock was lost before the work was done, and [`Error::TooLong`] if the work took longer than
    /// [`at_most`](Self::at_most). In both cases the interval counts as used, if the work had begun.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled. If `work` panics, so does the call. The client releases the lock in
    /// the background, and the interval counts as used.
    pub async fn run_if_due<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<Option<T>>
    where
        F: Future<Output = T>,
    {
        self.check()?;
        if self.left().await?.is_some() {
            return Ok(None);
        }
        let Some(guard) = self.lock.try_lock().await? else { return Ok(None) };
        match self.claim(&guard).await? {
            Some(_) => Ok(None),
            None => self.work_under(guard, work).await.map(Some),
        }
    }

    /// Waits for an earlier run, and runs `work` if this process claims the interval. Returns how long to wait before
    /// the next check.
    async fn turn<F>(
        &self,
        work: impl FnOnce(Hold) -> F,
        failures: &mut Failures,
    ) -> Result<Duration>
    where
        F: Future<Output = ()>,
    {
        // Most processes end here, after one request, without contending for the lock.
        if let Some(left) = self.left().await? {
            failures.succeeds();
            return Ok(self.spread(left));
        }
        // Nothing has succeeded yet if the interval is free: a server may answer, and refuse to grant.
        let guard = self.lock.lock().await?;
        let claimed = match self.claim(&guard).await {
            Err(Error::Lost { name }) => {
                log::warn!(name, "a job lost its lock before its run: it tries again");
                return Ok(jittered(AGAIN));
            }
            claimed => claimed?,
        };
        // Before the work, which may take long.
        failures.succeeds();
        match claimed {
            Some(left) => Ok(self.spread(left)),
            None => self.work_under(guard, work).await.map(|()| Duration::ZERO),
        }
    }

    /// How long the claim of the current interval lasts. `None` if there is none, or if it lasts for longer than a period: then
    /// the period has become shorter, and only a claim may say so to Redis.
    async fn left(&self) -> Result<Option<Duration>> {
        let left = self.lock.handle.engine.interval_left(self.lock.handle.keys()?).await?;
        Ok(Some(left).filter(|left| !left.is_zero() && *left <= self.period))
    }

    /// Claims the interval. If another run has claimed it, returns how long that claim lasts.
    async fn claim(&self, guard: &Guard) -> Result<Option<Duration>> {
        match self.lock.handle.engine.claim(&guard.hold(), self.period).await? {
            Claim::Ours => Ok(None),
            Claim::Taken(left) => Ok(Some(left)),
            Claim::Gone => Err(guard.hold().lost()),
        }
    }

    async fn work_under<T, F>(&self, guard: Guard, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let Some(limit) = self.at_most else { return guard.run(work).await };
        let limited = |hold| timeout(limit, work(hold));
        let name = guard.hold().name().into_owned();
        guard.run(limited).await?.map_err(|_| Error::TooLong { name, limit })
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
