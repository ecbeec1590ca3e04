//! The election of a leader: one process of a fleet leads, and another takes over when the leader fails.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::engine::{Engine, Keepers, RETRY_PAUSE};
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::fleet::changes::{Candidacy, Changes};
use crate::fleet::leader::{Leader, Observer};
use crate::fleet::leadership::Leadership;
use crate::fleet::term::Term;
use crate::guards::{Guard, worked};
use crate::kinds::Kind;
use crate::locks::Lock;
use crate::pause::jittered;

/// The longest identity of a leader, in bytes.
const LONGEST_IDENTITY: usize = 1024;

/// One candidate of an election: at most one process of the fleet leads at a time.
///
/// The leader holds the lock of that name, which the watchdog renews. When it steps down, the candidate that has waited
/// longest leads next, without polling. When the leader dies, the next one leads once its lease expires
/// ([`Config::watchdog_timeout`](crate::Config::watchdog_timeout), 30 s by default). A [`Lock`] and an election of the
/// same name exclude each other.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let election = client.election("doc:scheduler").identity("host-7");
/// let done = election.run(|term| async move {
///     // Whatever only the leader may do. The work is dropped when the leadership is lost, and starts again later.
///     format!("scheduled under token {}", term.token())
/// }).await?;
/// # let _ = done;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// # What leading cannot promise
/// A leader learns *in time* that it no longer leads: [`margin`](Self::margin) before its lease expires, measured from
/// before the renewal was sent. But a process that is stopped cannot learn it. When it resumes, it continues with the
/// next line, and another process may lead by then. So what the leader writes should carry [`Term::token`], and the
/// resource should reject a token smaller than the greatest that it has seen: see
/// [`FencingToken`](crate::FencingToken).
///
/// # Clones
/// Clones are the same candidate: [`is_leader`](Self::is_leader) and [`changes`](Self::changes) refer to a term that
/// any of them has won. Two calls of [`Client::election`](crate::Client::election) make two candidates, even within one
/// process.
#[derive(Clone)]
#[must_use = "a candidate does nothing until it campaigns"]
pub struct Election {
    lock: Lock,
    who: Arc<str>,
    margin: Duration,
    candidacy: Candidacy,
}

impl Election {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        Self {
            who: engine.client.as_str().into(),
            margin: engine.config.watchdog_timeout / 6,
            candidacy: Candidacy::default(),
            lock: Lock::new(engine, Kind::Lock, name).kept_by(Keepers::None),
        }
    }

    /// What this candidate calls itself when it leads, for [`leader`](Self::leader) and [`observe`](Self::observe): for
    /// example its host and process. At most 1 KiB. Default: the random id of its client.
    pub fn identity(self, who: impl AsRef<str>) -> Self {
        Self { who: who.as_ref().into(), ..self }
    }

    /// A leader that cannot renew its lease stops this long before the lease ends. Default: a sixth of
    /// [`Config::watchdog_timeout`](crate::Config::watchdog_timeout), 5 s. Allowed: up to half of it.
    ///
    /// The work needs this time to stop: `run` drops it at its next `await`, and requests in flight arrive meanwhile. So
    /// nobody else leads before that time has passed, even if Redis can be reached again sooner. A longer margin is
    /// safer, but a leader then stops for a shorter outage of Redis.
    pub fn margin(self, margin: Duration) -> Self {
        Self { margin, ..self }
    }

    /// Waits until this candidate leads.
    ///
    /// If it leads already, the call waits for the end of that term, like any other candidate. A task that keeps the
    /// [`Leadership`] and calls this waits for itself, forever. [`is_leader`](Self::is_leader) says whether it leads.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate. If it is elected after all, it steps down in the background. If the
    /// future has the lock and is not polled, it keeps the lock.
    ///
    /// # Errors
    /// Same as [`Lock::lock`], and [`Error::Config`] if the [`margin`](Self::margin) or the
    /// [`identity`](Self::identity) is too long.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn campaign(&self) -> Result<Leadership> {
        self.check()?;
        loop {
            let guard = self.lock.lock().await?;
            // This candidate may have waited for long. So it does not give the lock up because one answer is missing.
            match self.begin(guard, true).await {
                Err(Error::Lost { .. }) => {}
                begun => return begun,
            }
        }
    }

    /// Becomes the leader if nobody leads, in one attempt. Returns `None` if another candidate leads or is about to, or if
    /// this candidate leads already.
    ///
    /// # Cancel safety
    /// Same as [`campaign`](Self::campaign).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`] and [`campaign`](Self::campaign), and [`Error::Lost`] if this candidate had the lock and
    /// lost it before its term could begin.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.check()?;
        let Some(guard) = self.lock.try_lock().await? else { return Ok(None) };
        self.begin(guard, false).await.map(Some)
    }

    /// Runs `work` while this candidate leads, until the work is done.
    ///
    /// It campaigns, and calls `work` with the [`Term`]. If the term ends first, the work is dropped at its next
    /// `await`. When the lock is released, the candidate campaigns again. So `work` may be called many times, each time
    /// with a greater token.
    /// While Redis is unavailable, it keeps trying. When the work returns, the leader steps down.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and the leader steps down in the background.
    ///
    /// # Errors
    /// Same as [`campaign`](Self::campaign), except [`Error::Unavailable`] and [`Error::Indeterminate`], after which it
    /// tries again. [`Error::Lost`] if the leadership was already lost when the work returned: another leader may have
    /// worked at the same time.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled. If `work` panics, the call panics too, and the leader steps down in
    /// the background.
    pub async fn run<T, F>(&self, mut work: impl FnMut(Term) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let mut failures = Failures::of_lock("campaign", &self.lock.name());
        loop {
            let leadership = match self.campaign_again(&mut failures).await {
                Ok(leadership) => leadership,
                Err(error) if error.is_transient() => {
                    failures.fails(&error);
                    sleep(jittered(RETRY_PAUSE)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (over, work) = (leadership.ended(), work(leadership.term()));
            let output = tokio::select! {
                // If the end is already known, do not poll the work again.
                biased;
                () = over => {
                    // The work has stopped. Its requests that are in flight may still need the margin.
                    let _ = leadership.given_back().await;
                    continue;
                }
                output = work => output,
            };
            return worked(output, leadership.finish(self.engine().config.response()).await);
        }
    }

    /// Whether this candidate leads now, as far as clocks can tell: see [`Term::is_leader`]. It sends no request.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// The term of this candidate, if it is the leader.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.candidacy.term()
    }

    /// Reports when this candidate begins to lead, and when it stops, from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::new(&self.candidacy)
    }

    /// The current leader in any process; `None` if nobody leads, or the leader has not announced itself yet.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`].
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        Leader::of(&self.lock).await
    }

    /// Reports who leads, whenever that changes. The observer asks Redis every two seconds, or as often as
    /// [`Observer::every`] says: an observer stands in no line, so no message wakes it.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer::new(self.lock.clone())
    }

    /// Campaigns. If it could not before, it says so as soon as it can: another candidate may lead for days.
    async fn campaign_again(&self, failures: &mut Failures) -> Result<Leadership> {
        let mut campaign = pin!(self.campaign());
        if failures.is_failing() {
            let config = &self.engine().config;
            // While Redis is away, a call fails after this time. If it has not, it stands in line.
            let fails_within = config.riding_out() + config.response() * 2;
            let ended = timeout(fails_within, &mut campaign).await;
            if !matches!(ended, Ok(Err(_))) {
                failures.succeeds();
            }
            if let Ok(ended) = ended {
                return ended;
            }
        }
        campaign.await
    }

    /// Begins a term, when it has asked for the whole lease. Until a grant by message is confirmed, its lease may be shorter
    /// than the margin. `surely`: it rides out failures.
    async fn begin(&self, guard: Guard, surely: bool) -> Result<Leadership> {
        loop {
            if surely {
                guard.extend_surely(self.lease()).await?;
            } else {
                guard.extend(self.lease()).await?;
            }
            // If the answer took so long that the lease is about to expire, ask again.
            if guard.rest_of_lease() > self.margin {
                let candidate = (&self.candidacy, self.margin, &self.who);
                return Ok(Leadership::begin(self.engine(), guard, candidate));
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
        self.engine().config.watchdog_timeout
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.lock.handle.engine
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
