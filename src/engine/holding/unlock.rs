//! How a holder leaves: it hands the lock to the next caller of its client, or asks Redis to free it.
//!
//! 1. A hold ends when its holder leaves, even if the request fails. Only the last holder asks Redis to free the lock.
//! 2. A release belongs to the client once it is sent. If it gets no answer, `releaser.rs` repeats it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::entry::tenure::{At, Ending, Left, LookAt};
use crate::engine::entry::{EntryPermit, Hold, OwnerHolds, Tenure};
use crate::engine::grant::Loss;
use crate::engine::holding::UnansweredCount;
use crate::engine::releaser::{FirstAttempt, Job};
use crate::engine::shared::Engine;
use crate::error::{Error, Result};
use crate::log;
use crate::pause::within;
use crate::token::FencingToken;
use crate::wire::Fault;
use futures_util::future::{Either, ready};

impl Engine {
    /// Leaves a tenure, and returns the outcome. If Redis does not answer the first attempt, waits for the releaser, but
    /// not longer than `patience`.
    ///
    /// # Cancel safety
    /// The hold ends at once. If the future is dropped, the rest goes on in the background.
    ///
    /// Not an `async fn`: its future would have space for what remains twice.
    pub(crate) fn leave(
        self: &Arc<Self>,
        hold: &Hold,
        patience: Duration,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        match self.end_one(hold) {
            Some((hold, left)) => Either::Left(self.left(&hold, left, patience)),
            None => Either::Right(ready(Ok(()))),
        }
    }

    /// Ends one hold, in its current tenure. Returns the hold that has ended there, and the outcome. `None`: another
    /// guard of its owner waits for a condition, and will not bring this hold back.
    fn end_one<'a>(&self, hold: &'a Hold) -> Option<(Cow<'a, Hold>, Left)> {
        loop {
            let now = hold.now();
            if hold.owner_holds.as_ref().is_some_and(|owner_holds| owner_holds.leave_away()) {
                return None;
            }
            let left = now.tenure.leave(now.hand_over, self.budget, self.rhythm.idle);
            // The other guard may have begun or ended its wait just now.
            let is_away = |owner_holds: &Arc<OwnerHolds>| matches!(owner_holds.at(), At::Away(_));
            let has_moved = hold.owner_holds.as_ref().is_some_and(is_away) || !hold.now().is(&now);
            if !has_moved || !matches!(left, Left::Lost) {
                return Some((now, left));
            }
        }
    }

    /// Does the remaining work for a hold that has ended.
    ///
    /// Not an `async fn`: its future would have space for the job, and once more for the request that the job becomes.
    pub(crate) fn left(
        self: &Arc<Self>,
        hold: &Hold,
        left: Left,
        patience: Duration,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        if matches!(left, Left::Nested) {
            let told = Box::pin(Arc::clone(self).tell_count(hold.clone()));
            return Either::Right(Either::Left(told));
        }
        match self.job_after(hold, left) {
            Ok(None) => Either::Left(ready(Ok(()))),
            Err(error) => Either::Left(ready(Err(error))),
            Ok(Some(job)) => {
                Either::Right(Either::Right(self.give_back(job, (patience, hold.token()))))
            }
        }
    }

    /// Leaves a tenure without waiting. It also works outside a runtime.
    pub(crate) fn abandon(&self, hold: &Hold) {
        let Some((hold, left)) = self.end_one(hold) else { return };
        if let Ok(Some(job)) = self.job_after(&hold, left) {
            self.outbox.put(job);
        }
    }

    /// Leaves the tenure to whoever has it next. Returns the job that remains, if the server has to be told.
    ///
    /// # Errors
    /// [`Error::Lost`].
    fn job_after(&self, hold: &Hold, left: Left) -> Result<Option<Job>> {
        let tenure = &hold.tenure;
        match left {
            Left::Lost => {
                self.leave_places(tenure);
                return Err(hold.lost());
            }
            Left::Nested => return Ok(Some(Job::count(tenure))),
            Left::Last(ending) => return Ok(Some(self.outbox.job(ending))),
            Left::HandedOn(permit, look) => return Ok(self.hand_on(tenure, permit, look)),
            Left::Others => {}
            Left::Idle(visit, look) => {
                self.have_looked_at(tenure, look);
                // The first caller of this client takes it up: the contender, if there is one.
                visit.entry.gate.open();
                visit.look_after();
            }
            Left::Kept(permit, look) => {
                self.have_looked_at(tenure, look);
                // A caller may have joined the queue meanwhile. It gets the permit now, and finds the tenure.
                drop(permit);
            }
        }
        Ok(None)
    }

    /// Passes the permit on to the next caller in the queue, which then takes up the tenure. Returns the job that releases
    /// the tenure, if there is no such caller any more.
    fn hand_on(&self, tenure: &Arc<Tenure>, permit: EntryPermit, look: LookAt) -> Option<Job> {
        if tenure.keys.row.line.is_of_callers() {
            return self.hand_on_in_line(tenure, permit, look);
        }
        self.have_looked_at(tenure, look);
        permit.pass_on();
        None
    }

    /// Leaves the tenure to the caller right behind in the line, which has a permit of its own.
    fn hand_on_in_line(
        &self,
        tenure: &Arc<Tenure>,
        permit: EntryPermit,
        look: LookAt,
    ) -> Option<Job> {
        let Some(next) = self.table.one_behind(permit.entry()) else {
            let Some(ending) = tenure.retire() else {
                // It was lost meanwhile.
                self.leave_places(tenure);
                return None;
            };
            return Some(self.outbox.job(Ending { stay: Some(permit.into_stay()), ..ending }));
        };
        self.have_looked_at(tenure, look);
        next.entry.show(tenure);
        next.entry.gate.open();
        // That caller may have gone before it could see the tenure.
        next.look_after();
        None
    }

    /// Gives up the places of the callers that this lost tenure was handed over to: no release takes them out of the line.
    fn leave_places(&self, tenure: &Tenure) {
        let served = tenure.with(|tenure| std::mem::take(&mut tenure.served));
        served.into_iter().for_each(|id| self.outbox.leave_line(&tenure.keys, id));
    }

    /// Has the watchdog look at an idle tenure: if no caller takes it up, nothing else notices.
    fn have_looked_at(&self, tenure: &Arc<Tenure>, look: LookAt) {
        if let Some(look_at) = look
            && !self.outbox.timetable.enter(tenure, look_at)
        {
            // The client is closed, and no caller will take the tenure up.
            self.table.retire(tenure, None);
        }
    }

    async fn tell_count(self: Arc<Self>, hold: Hold) -> Result<()> {
        let tenure = &hold.tenure;
        let unanswered = UnansweredCount::new(&self, tenure);
        let holds = tenure.holds();
        if hold.outcome().is_some() {
            // Other holders have left meanwhile, and the last of them has released the tenure.
            unanswered.confirmed();
            return Ok(());
        }
        let written = async {
            let mut connection = self.commands.behind_acknowledged(&tenure.keys)?;
            let ttl = tenure.at_least(Duration::ZERO);
            connection.count(&tenure.keys, tenure.id, holds, ttl).await
        };
        match written.await {
            Ok(true) if tenure.has_told(holds) => {
                unanswered.confirmed();
                self.outbox.timetable.track_soon(tenure);
            }
            Ok(false) => {
                unanswered.confirmed();
                return self.gone(&hold);
            }
            // The hold has ended nevertheless. The background job writes the count.
            _ => {}
        }
        Ok(())
    }

    /// Does the job of a release, and returns its outcome.
    ///
    /// Not an `async fn`: the release is on its way when this returns, and does not depend on a caller that polls.
    fn give_back(
        self: &Arc<Self>,
        job: Job,
        (patience, token): (Duration, FencingToken),
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let keys = Arc::clone(&job.keys);
        let (mut job, first) = job.telling();
        job.begins(&self.outbox.releases);
        self.job_requests.put(job);
        async move {
            let outcome = match first.await {
                Ok(FirstAttempt::Settled(outcome)) => outcome,
                Ok(FirstAttempt::Failed(fault @ Fault::Permission(..), _)) => Err(fault),
                Ok(FirstAttempt::Failed(fault, outcome)) => {
                    // Boxed: few unlocks fail, and each caller has space for this one.
                    let outcome = Box::pin(within(patience, outcome)).await;
                    // Otherwise the client was closed, or the time limit of this call or of the releaser is over.
                    outcome.and_then(std::result::Result::ok).unwrap_or(Err(fault))
                }
                Err(_) => Err(Fault::late("the release is not confirmed")),
            };
            match outcome {
                Ok(true) => Ok(()),
                Ok(false) => {
                    keys.meters.lost(Loss::Gone.word());
                    log::error!(name = ?keys.name(), %token, why = Loss::Gone.reason(), "lock lost");
                    Err(Error::lost(keys.name()))
                }
                Err(fault) => Err(fault.into_unconfirmed()),
            }
        }
    }
}
