//! What a holder can do with its tenure: hold it again, and extend it. `unlock.rs` is how it leaves.
//!
//! The hold count in memory is authoritative. The client writes it to Redis, in order. If Redis missed a count, the
//! next one corrects that.

mod condition;
mod unlock;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::config::checked_lease;
use crate::core::tenure::Ended;
use crate::engine::caller::Patience;
use crate::engine::entry::{Hold, Tenure};
use crate::engine::grant::Lease;
use crate::engine::releaser::Job;
use crate::engine::shared::{Engine, RETRY_PAUSE};
use crate::error::{Error, Result};
use crate::pause::jittered;
use crate::wire::{Fault, Renewal};

pub use condition::Woken;
pub(crate) use condition::{Notice, wait_at};

/// The most holds of one owner. More of them indicate endless recursion.
const MOST_HOLDS: u32 = 65_535;

impl Engine {
    /// Adds a hold to a tenure. Returns the new hold, or `None` if the tenure has just been released. The caller has spent so much of
    /// its patience.
    ///
    /// # Cancel safety
    /// A dropped future has not added a hold.
    pub(crate) async fn nest(
        &self,
        hold: &Hold,
        lease: Lease,
        (patience, spent): (Patience, Duration),
    ) -> Result<Option<Hold>> {
        // A nested call waits for nobody. So `ride_out` and the time of one answer limit the whole call.
        let response = self.config.response();
        let longest = self.config.riding_out() + response;
        let limit = match patience {
            Patience::None => response,
            Patience::For(limit) => limit.min(longest),
            Patience::Endless => longest,
        };
        let until = Instant::now() + self.config.riding_out();
        let nesting = async {
            // A connection that has just broken returns within milliseconds.
            let _ = self.connected(&hold.tenure.keys).await;
            loop {
                let fault = match self.nest_once(hold, lease).await {
                    Ok(entered) => return entered,
                    Err(_) if hold.outcome() == Some(Ended::Lost) => return Err(hold.lost()),
                    Err(fault) => fault,
                };
                if patience.is_none() || !fault.is_passing() {
                    return Err(self.commands.explained(fault, &hold.tenure.keys).await);
                }
                // The limit allows one answer more. So it does not cut the call off before this error, which names the fault.
                if Instant::now() >= until {
                    return Err(fault.into_outage());
                }
                sleep(jittered(RETRY_PAUSE)).await;
            }
        };
        match timeout(limit.saturating_sub(spent), nesting).await {
            Ok(nested) => nested,
            Err(_) if hold.outcome() == Some(Ended::Lost) => Err(hold.lost()),
            Err(_) => Err(Error::unanswered(limit)),
        }
    }

    async fn nest_once(&self, hold: &Hold, lease: Lease) -> Result<Result<Option<Hold>>, Fault> {
        let tenure = &hold.tenure;
        let holds = match (hold.outcome(), tenure.holds()) {
            (Some(Ended::Lost), _) => return Ok(Err(hold.lost())),
            (Some(Ended::Released), _) => return Ok(Ok(None)),
            (None, MOST_HOLDS..) => {
                return Ok(Err(Error::TooManyHolds {
                    name: hold.name().into_owned(),
                    limit: MOST_HOLDS,
                }));
            }
            (None, holds) => holds + 1,
        };
        let (length, max_hold) = (self.lease(lease), self.rhythm.max_hold);
        let (ttl, sent) = (tenure.for_nested(lease, length, max_hold), Instant::now());
        let tellings = tenure.tellings();
        // The request may run although its answer never arrives.
        let unanswered = UnansweredCount::new(self, tenure);
        let mut connection = self.commands.acknowledged(&tenure.keys)?;
        let written = connection.count(&tenure.keys, tenure.id, holds, ttl).await?;
        if !written {
            unanswered.confirmed();
            return Ok(self.gone(hold).map(|()| None));
        }
        if !tenure.prolong(sent, ttl) {
            unanswered.confirmed();
            return Ok(if hold.outcome() == Some(Ended::Lost) {
                Err(hold.lost())
            } else {
                Ok(None)
            });
        }
        self.outbox.timetable.track_soon(tenure);
        if lease == Lease::Watched && tenure.with(|tenure| tenure.watch(Instant::now(), max_hold)) {
            self.outbox.timetable.hasten(tenure);
        }
        let entered = tenure.enter(hold.hand_over);
        // Another holder of this owner may be leaving, and a background job may still repeat an attempt that failed. Their
        // requests have read the count before this hold began, and may have arrived after ours. In that case the drop of
        // `unanswered` has the count written once more.
        let counted = entered.as_ref().map(|(_, count)| *count);
        if counted == Some(holds) && tellings.is_some() && tellings == tenure.tellings() {
            unanswered.confirmed();
        }
        // The last hold may have ended during the request.
        Ok(Ok(entered.map(|(hold, _)| hold)))
    }

    /// The server no longer has the tenure. That is a loss, unless the tenure was released meanwhile.
    pub(crate) fn gone(&self, hold: &Hold) -> Result<()> {
        self.outbox.gone(&hold.tenure);
        match hold.outcome() {
            Some(Ended::Released) => Ok(()),
            _ => Err(hold.lost()),
        }
    }

    /// Extends a tenure to at least this long from now.
    pub(crate) async fn extend(&self, hold: &Hold, lease: Duration) -> Result<()> {
        let (tenure, lease) = (&hold.tenure, checked_lease(lease)?);
        let Tenure { keys, id, .. } = &**tenure;
        let is_lost = || hold.rest_of_lease().is_zero();
        if is_lost() {
            return Err(hold.lost());
        }
        // First, since what is asked for counts from the request.
        let _ = self.connected(keys).await;
        if is_lost() {
            return Err(hold.lost());
        }
        let (ttl, sent) = (tenure.at_least(lease), Instant::now());
        let renewed = async {
            let renewal = Renewal { keys, id: *id, ttl, count: None };
            let answers = self.commands.acknowledged(keys)?.renew(&[renewal]).await?;
            answers.into_iter().next().unwrap_or(Ok(false))
        };
        match renewed.await {
            // Meanwhile another guard of the owner may have left, and the tenure may have another holder.
            Ok(true) if tenure.prolong(sent, ttl) && hold.outcome().is_none() => {
                self.outbox.timetable.track_soon(tenure);
                Ok(())
            }
            Ok(true) => Err(hold.lost()),
            // Even if another caller has released it meanwhile, this one does not have it.
            Ok(false) => self.gone(hold).and(Err(hold.lost())),
            Err(fault) => Err(self.commands.explained(fault, keys).await),
        }
    }

    /// Same as [`extend`](Self::extend), but rides out failures, as long as the hold is valid.
    pub(crate) async fn extend_surely(&self, hold: &Hold, lease: Duration) -> Result<()> {
        let until = Instant::now() + self.config.riding_out();
        loop {
            match self.extend(hold, lease).await {
                Err(error) if error.is_transient() && Instant::now() < until => {
                    sleep(jittered(RETRY_PAUSE)).await;
                }
                extended => return extended,
            }
        }
    }
}

/// A request in flight that writes how often a re-entrant lock is held. If this is dropped before the request is known to have
/// arrived, the releaser repeats it in the background (`releaser.rs`).
struct UnansweredCount<'a> {
    engine: &'a Engine,
    job: Option<Job>,
}

impl<'a> UnansweredCount<'a> {
    fn new(engine: &'a Engine, tenure: &Arc<Tenure>) -> Self {
        Self { engine, job: Some(Job::count(tenure)) }
    }

    /// The request has arrived.
    fn confirmed(mut self) {
        self.job = None;
    }
}

impl Drop for UnansweredCount<'_> {
    fn drop(&mut self) {
        if let Some(mut job) = self.job.take() {
            job.may_have_run();
            self.engine.outbox.put(job);
        }
    }
}
