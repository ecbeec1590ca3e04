//! The election of a leader: one process of a fleet leads, and another one takes over when it is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, PAUSE};
use crate::error::{Error, Result};
use crate::fleet::changes::Changes;
use crate::fleet::leader::{Leader, Observer, Office};
use crate::fleet::leadership::Leadership;
use crate::fleet::seat::Seat;
use crate::fleet::term::Term;
use crate::guards::Guard;
use crate::kinds::Kind;
use crate::locks::Lock;

/// What a leader may call itself, in bytes.
const LONGEST_IDENTITY: usize = 1024;

/// One candidate of an election: at most one process of the fleet leads at a time.
///
/// A leader holds the lock of that name, which the watchdog renews. When it steps down, the candidate that has waited
/// longest leads next, without a poll. When it dies, that happens once its lease is over
/// ([`Config::watchdog_timeout`](crate::Config::watchdog_timeout), 30 s by default). A [`Lock`] of the same name and the
/// election exclude each other.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let election = client.election("doc:scheduler").identity("host-7");
/// let done = election.run(|term| async move {
///     // Whatever only the leader may do. It is dropped when the leadership is lost, and begins anew with the next term.
///     format!("scheduled under token {}", term.token())
/// }).await?;
/// # let _ = done;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # What leading cannot promise
/// A leader is told *in time* that it leads no more: [`margin`](Self::margin) before its lease is over, counted from
/// before the renewal was sent. But a process that is stopped cannot be told. When it wakes, it goes on with the next
/// line, and another one may lead by then. So what the leader writes should carry [`Term::token`], and the resource
/// should refuse a smaller one than it has seen: see [`FencingToken`](crate::FencingToken).
///
/// # Clones
/// Clones are the same candidate: [`is_leader`](Self::is_leader) and [`changes`](Self::changes) speak of the term that any
/// of them has won. Two calls of [`Client::election`](crate::Client::election) make two candidates, also within one
/// process.
#[derive(Clone)]
#[must_use = "a candidate does nothing until it campaigns"]
pub struct Election {
    office: Office,
    lock: Lock,
    who: Arc<str>,
    margin: Duration,
    seat: Seat,
}

impl Election {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        let keys = engine.keys(Kind::Lock, name.clone()).map(Arc::new);
        Self {
            lock: Lock::new(Arc::clone(&engine), Kind::Lock, name),
            who: engine.client.as_str().into(),
            margin: engine.config.watchdog_timeout / 6,
            seat: Seat::default(),
            office: Office { engine, keys },
        }
    }

    /// What this candidate calls itself when it leads, for [`leader`](Self::leader) and [`observe`](Self::observe): such as
    /// its host and process. At most 1 KiB. Default: the random id of its client.
    pub fn identity(self, who: impl AsRef<str>) -> Self {
        Self { who: who.as_ref().into(), ..self }
    }

    /// How long before the end of its lease a leader that could not renew it stops. Default: a sixth of
    /// [`Config::watchdog_timeout`](crate::Config::watchdog_timeout), 5 s. At most half of it.
    ///
    /// The work needs this time to stop: `run` drops it at its next `await`, and requests that are on their way arrive
    /// meanwhile. Longer is safer, and makes a leader stop for a shorter outage of Redis.
    pub fn margin(self, margin: Duration) -> Self {
        Self { margin, ..self }
    }

    /// Waits until this candidate leads.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate. If it was elected after all, it steps down in the background.
    ///
    /// # Errors
    /// As [`Lock::lock`], and [`Error::Config`] if the [`margin`](Self::margin) or the [`identity`](Self::identity) is too
    /// long.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time enabled. The term ends when that runtime does.
    pub async fn campaign(&self) -> Result<Leadership> {
        self.check()?;
        loop {
            let guard = self.lock.lock().await?;
            if let Some(leadership) = self.elected(guard).await? {
                return Ok(leadership);
            }
        }
    }

    /// Leads if nobody else does, in one attempt.
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    ///
    /// # Errors
    /// As [`Lock::try_lock`], and as [`campaign`](Self::campaign).
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.check()?;
        match self.lock.try_lock().await? {
            Some(guard) => self.elected(guard).await,
            None => Ok(None),
        }
    }

    /// Works while this candidate leads, until the work is done.
    ///
    /// It campaigns, and calls `work` with the [`Term`]. If the term ends first, the work is dropped at its next `await`,
    /// and the candidate campaigns again. So `work` may be called many times, each time with a greater token. While Redis is
    /// not available, it goes on trying. When the work returns, the leader steps down.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and steps down in the background.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign), but neither [`Error::Unavailable`] nor [`Error::Indeterminate`], which pass.
    /// [`Error::Lost`] if the work returned when the leadership was lost already: another leader may have worked
    /// beside it.
    pub async fn run<T, F>(&self, mut work: impl FnMut(Term) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        loop {
            let leadership = match self.campaign().await {
                Ok(leadership) => leadership,
                Err(error) if error.is_passing() => {
                    tracing::warn!(%error, "a candidate campaigns again");
                    tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (over, work) = (leadership.ended(), work(leadership.term()));
            let output = tokio::select! {
                // An end that has already been told comes before another step of the work.
                biased;
                () = over => continue,
                output = work => output,
            };
            return match leadership.step_down().await {
                Err(Error::Lost) => Err(Error::Lost),
                // The work was done in time, even if the release fails.
                _ => Ok(output),
            };
        }
    }

    /// Whether this candidate leads now, as far as clocks can tell: see [`Term::is_leader`]. It asks nobody.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// The term of this candidate, if it leads now.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.seat.term()
    }

    /// Tells when this candidate begins to lead, and when it leads no more, from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::new(&self.seat)
    }

    /// Who leads, wherever it runs; `None` if nobody leads, or the leader has not said yet who it is.
    ///
    /// # Cancel safety
    /// It only asks, and may be dropped at any time.
    ///
    /// # Errors
    /// As [`Lock::is_locked`].
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.office.leader().await
    }

    /// Tells who leads, whenever that changes. It asks Redis every two seconds, or as often as
    /// [`Observer::every`] says: who only watches stands in no line, so nobody wakes it.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer::new(self.office.clone())
    }

    /// Begins a term, unless the lock is lost again already.
    async fn elected(&self, guard: Guard) -> Result<Option<Leadership>> {
        // A lock that a message granted has a shorter lease than the margin may be, until it is confirmed.
        match guard.extend(self.lease()).await {
            Err(Error::Lost) => Ok(None),
            Err(error) => Err(error),
            // The answer may have taken so long that the end is near.
            Ok(()) if guard.remaining() <= self.margin => Ok(None),
            Ok(()) => {
                let candidate = (&self.seat, self.margin, &self.who);
                Ok(Some(Leadership::begin(&self.office.engine, guard, candidate)))
            }
        }
    }

    fn check(&self) -> Result<()> {
        if self.margin > self.lease() / 2 {
            return Err(Error::config(
                "the margin of an election must be at most half of watchdog_timeout, \
                 or a leader would stop before its lock is renewed",
            ));
        }
        if self.who.len() > LONGEST_IDENTITY {
            return Err(Error::config("the identity of a candidate must be at most 1 KiB"));
        }
        Ok(())
    }

    fn lease(&self) -> Duration {
        self.office.engine.config.watchdog_timeout
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.lock.name())
            .field("identity", &self.who)
            .field("term", &self.term())
            .finish_non_exhaustive()
    }
}
