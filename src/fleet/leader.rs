//! The leader, as any process can see it.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::Result;
use crate::locks::Lock;
use crate::log;
use crate::token::FencingToken;

/// How often an observer asks by default.
const STEP: Duration = Duration::from_secs(2);

/// Without this, an observer of a server that refuses connections would ask all the time.
const SHORTEST_STEP: Duration = Duration::from_millis(10);

/// Limits the interval, so that adding it to a time does not overflow.
const LONGEST_STEP: Duration = Duration::from_secs(24 * 60 * 60);

/// The current leader: the answer of [`Election::leader`](crate::Election::leader) and of [`Observer::next`], which has
/// an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The token of its term.
    pub token: FencingToken,
    /// What it calls itself: see [`Election::identity`](crate::Election::identity).
    pub identity: String,
}

impl Leader {
    /// The current leader of the election that has this lock.
    pub(crate) async fn of(lock: &Lock) -> Result<Option<Self>> {
        let told = lock.handle.engine.leader(lock.handle.keys()?).await?;
        Ok(told.map(|(token, identity)| Self { token, identity }))
    }
}

/// Reports who leads, whenever that changes: see [`Election::observe`](crate::Election::observe).
///
/// It is a snapshot every few seconds: it misses a leader whose term begins and ends between two requests.
pub struct Observer {
    lock: Lock,
    step: Duration,
    ask_at: Instant,
    told: Option<Option<Leader>>,
}

impl Observer {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock, step: STEP, ask_at: Instant::now(), told: None }
    }

    /// How often to ask Redis. Default 2 s; less than 10 ms counts as 10 ms, more than 24 h as 24 h. Each query is one request.
    #[must_use]
    pub fn every(self, step: Duration) -> Self {
        Self { step, ..self }
    }

    /// Waits until the leader differs from the one last reported. `None` means that nobody leads, or that the leader
    /// has not announced itself yet. The first call returns as soon as Redis has answered. If Redis does not answer,
    /// the observer keeps asking.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use std::time::Duration;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let leadership = client.election("doc:observer").identity("host-7").campaign().await?;
    ///
    /// let mut observer = client.election("doc:observer").observe().every(Duration::from_millis(100));
    /// let leader = loop {
    ///     if let Some(leader) = observer.next().await? {
    ///         break leader;
    ///     }
    /// };
    /// assert_eq!((&*leader.identity, leader.token), ("host-7", leadership.token()));
    /// leadership.step_down().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// The next call returns any change that this one did not.
    ///
    /// # Errors
    /// Same as [`Election::leader`](crate::Election::leader), except [`Error::Unavailable`](crate::Error::Unavailable)
    /// and [`Error::Indeterminate`](crate::Error::Indeterminate), after which it asks again.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            sleep_until(self.ask_at).await;
            let answer = Leader::of(&self.lock).await;
            self.ask_at = Instant::now() + self.step.clamp(SHORTEST_STEP, LONGEST_STEP);
            match answer {
                Err(error) if error.is_transient() => {
                    log::debug!(%error, "could not ask who leads: the observer tries again");
                }
                Err(error) => return Err(error),
                Ok(leader) if self.told.as_ref() == Some(&leader) => {}
                Ok(leader) => {
                    self.told = Some(leader.clone());
                    return Ok(leader);
                }
            }
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("told", &self.told).finish_non_exhaustive()
    }
}
