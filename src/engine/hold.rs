//! What a holder does with its tenure: hold it once more, keep it longer, leave it.
//!
//! 1. The count in memory is the truth; Redis is told of it, in order, and heals with the next word.
//! 2. A hold that is left has left, whatever becomes of the request; only the last one asks Redis
//!    for anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::checked_lease;
use crate::engine::park::Patience;
use crate::engine::releaser::{Job, Outcome};
use crate::engine::tenure::{Ended, Lease, Left, Tenure, deadline};
use crate::engine::{Engine, PAUSE};
use crate::error::{Error, Result};
use crate::wire::{Fault, Renewal};

/// Holds of one owner: more is a recursion that does not end.
const MOST_HOLDS: u32 = 65_535;

/// A word to Redis that may not have arrived. Dropped, it is said in the background.
struct Unsaid<'a> {
    engine: &'a Engine,
    job: Option<Job>,
}

impl<'a> Unsaid<'a> {
    fn new(engine: &'a Engine, job: Job) -> Self {
        Self { engine, job: Some(job) }
    }

    /// It has arrived.
    fn said(mut self) {
        self.job = None;
    }

    /// Leaves it to the background, and hears what comes of it.
    fn later(mut self) -> Option<oneshot::Receiver<Outcome>> {
        let (job, outcome) = self.job.take()?.telling();
        self.engine.later(job);
        Some(outcome)
    }
}

impl Drop for Unsaid<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.engine.later(job);
        }
    }
}

impl Engine {
    /// Holds a tenure once more; `false` if it has just been given back.
    ///
    /// # Cancel safety
    /// A dropped future has not added a hold.
    pub(crate) async fn nest(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        patience: Patience,
    ) -> Result<bool> {
        let _in_order = tenure.counting.lock().await;
        let give_up = self.give_up(patience).min(tenure.deadline());
        loop {
            match self.nest_once(tenure, lease).await {
                Err(fault) if fault.is_passing() && Instant::now() < give_up => {
                    tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
                }
                Err(fault) => return Err(self.commands.explained(fault, &tenure.keys.lock).await),
                Ok(entered) => return entered,
            }
        }
    }

    fn give_up(&self, patience: Patience) -> Instant {
        let now = Instant::now();
        match patience {
            Patience::None => now,
            Patience::For(limit) => now + limit.min(self.config.riding_out()),
            Patience::Endless => now + self.config.riding_out(),
        }
    }

    async fn nest_once(&self, tenure: &Arc<Tenure>, lease: Lease) -> Result<Result<bool>, Fault> {
        let holds = match (tenure.ended(), tenure.holds()) {
            (Some(Ended::Lost), _) => return Ok(Err(Error::Lost)),
            (Some(Ended::Released), _) => return Ok(Ok(false)),
            (None, MOST_HOLDS..) => return Ok(Err(Error::TooManyHolds { limit: MOST_HOLDS })),
            (None, holds) => holds + 1,
        };
        let (ttl, sent) = (self.lease(lease), Instant::now());
        // The request may run although its answer does not arrive.
        let unsaid = Unsaid::new(self, Job::count(tenure));
        let written = self.write_count(tenure, holds, ttl).await?;
        unsaid.said();
        if !written {
            return Ok(self.gone(tenure).map(|()| false));
        }
        tenure.prolong(deadline(sent, ttl));
        if lease == Lease::Watched && tenure.watch() {
            self.timetable.hasten(tenure);
        }
        // The last hold may have been left while we asked.
        Ok(Ok(tenure.enter()))
    }

    async fn write_count(&self, tenure: &Tenure, holds: u32, ttl: Duration) -> Outcome {
        let mut line = self.commands.line()?;
        line.count(&tenure.keys, &tenure.field, holds, ttl).await
    }

    /// The server has the tenure no more. That is a loss, unless it was given back meanwhile.
    fn gone(&self, tenure: &Tenure) -> Result<()> {
        tenure.lose("the server has it no more");
        match tenure.ended() {
            Some(Ended::Released) => Ok(()),
            _ => Err(Error::Lost),
        }
    }

    /// Leaves a tenure, and hears what became of it.
    ///
    /// # Cancel safety
    /// The hold is left when the future is first polled; dropping it leaves the rest to the
    /// background.
    pub(crate) async fn leave(&self, tenure: &Arc<Tenure>) -> Result<()> {
        match tenure.leave() {
            Left::Lost => Err(Error::Lost),
            Left::Nested => self.tell_count(tenure).await,
            Left::Last(turn, place) => {
                self.timetable.leave(place);
                self.give_back(Job::release(tenure, turn)).await
            }
        }
    }

    /// Leaves a tenure without waiting for anything, outside of a runtime too.
    pub(crate) fn abandon(&self, tenure: &Arc<Tenure>) {
        match tenure.leave() {
            Left::Lost => {}
            Left::Nested => self.later(Job::count(tenure)),
            Left::Last(turn, place) => {
                self.timetable.leave(place);
                self.later(Job::release(tenure, turn));
            }
        }
    }

    async fn tell_count(&self, tenure: &Arc<Tenure>) -> Result<()> {
        let unsaid = Unsaid::new(self, Job::count(tenure));
        let _in_order = tenure.counting.lock().await;
        match self.write_count(tenure, tenure.holds(), Duration::ZERO).await {
            Ok(true) => unsaid.said(),
            Ok(false) => {
                unsaid.said();
                return self.gone(tenure);
            }
            // It is left all the same; Redis is told in the background.
            Err(_) => {}
        }
        Ok(())
    }

    async fn give_back(&self, job: Job) -> Result<()> {
        let unsaid = Unsaid::new(self, job);
        let fault = match self.release_once(&unsaid).await {
            Ok(found) => {
                unsaid.said();
                return if found { Ok(()) } else { Err(Error::Lost) };
            }
            Err(Fault::Permission(source)) => return Err(Error::Permission { source }),
            Err(fault) => fault,
        };
        // It was ours when this began: whether the repetition finds it or not, it is released.
        let Some(outcome) = unsaid.later() else { return Ok(()) };
        match timeout(self.config.riding_out(), outcome).await {
            Ok(Ok(Ok(_))) => Ok(()),
            Ok(Ok(Err(fault))) => Err(fault.into_unconfirmed()),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(fault.into_unconfirmed()),
        }
    }

    async fn release_once(&self, unsaid: &Unsaid<'_>) -> Outcome {
        let Some(job) = &unsaid.job else { return Ok(true) };
        let answers = self.commands.line()?.release(&[job.request(&self.client)]).await?;
        answers.into_iter().next().unwrap_or(Ok(true))
    }

    /// Keeps a tenure at least so long from now.
    pub(crate) async fn extend(&self, tenure: &Arc<Tenure>, lease: Duration) -> Result<()> {
        let lease = checked_lease(lease)?;
        if !tenure.is_valid() {
            return Err(Error::Lost);
        }
        let sent = Instant::now();
        match self.renew_once(tenure, lease).await {
            Ok(true) => {
                tenure.prolong(deadline(sent, lease));
                Ok(())
            }
            Ok(false) => self.gone(tenure),
            Err(fault) => Err(self.commands.explained(fault, &tenure.keys.lock).await),
        }
    }

    async fn renew_once(&self, tenure: &Tenure, ttl: Duration) -> Outcome {
        let Tenure { keys, field, .. } = tenure;
        let answers = self.commands.line()?.renew(&[Renewal { keys, field, ttl }]).await?;
        answers.into_iter().next().unwrap_or(Ok(false))
    }
}
