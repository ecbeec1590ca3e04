//! What a holder does with its tenure: hold it once more, keep it longer, leave it.
//!
//! 1. The count in memory is the truth; Redis is told of it, in order, and heals with the next word.
//! 2. A hold that is left has left, whatever becomes of the request; only the last one asks Redis
//!    for anything.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::config::checked_lease;
use crate::engine::entry::{Entry, Stay, Turn, Visit};
use crate::engine::job::{Job, Outcome};
use crate::engine::stint::Stint;
use crate::engine::tenure::{Ended, Lease, Left, Tenure};
use crate::engine::turn::Look;
use crate::engine::unsaid::Unsaid;
use crate::engine::wait::Patience;
use crate::engine::{Engine, PAUSE};
use crate::error::{Error, Result, said};
use crate::keys::{Keys, TenureId};
use crate::wire::{Fault, Renewal};

/// Holds of one owner: more is a recursion that does not end.
const MOST_HOLDS: u32 = 65_535;

impl Engine {
    /// Holds a tenure once more; `false` if it has just been given back.
    ///
    /// # Cancel safety
    /// A dropped future has not added a hold.
    pub(crate) async fn nest(
        &self,
        stint: &Stint,
        lease: Lease,
        patience: Patience,
    ) -> Result<bool> {
        let limit = match patience {
            Patience::None => self.config.response(),
            Patience::For(limit) => limit.min(self.config.riding_out()),
            Patience::Endless => self.config.riding_out(),
        };
        match timeout(limit, self.nest_again(stint, lease, patience)).await {
            Ok(nested) => nested,
            Err(_) if stint.ended() == Some(Ended::Lost) => Err(Error::Lost),
            Err(_) => Err(Error::Unavailable {
                source: said(format!("no answer within the limit of {limit:?}")),
            }),
        }
    }

    async fn nest_again(&self, stint: &Stint, lease: Lease, patience: Patience) -> Result<bool> {
        loop {
            match self.nest_once(stint, lease).await {
                Ok(entered) => return entered,
                Err(_) if stint.ended() == Some(Ended::Lost) => return Err(Error::Lost),
                Err(fault) if fault.is_passing() && !matches!(patience, Patience::None) => {
                    tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
                }
                Err(fault) => return Err(self.commands.explained(fault, &stint.tenure.keys).await),
            }
        }
    }

    async fn nest_once(&self, stint: &Stint, lease: Lease) -> Result<Result<bool>, Fault> {
        let tenure = &stint.tenure;
        let holds = match (stint.ended(), tenure.holds()) {
            (Some(Ended::Lost), _) => return Ok(Err(Error::Lost)),
            (Some(Ended::Released), _) => return Ok(Ok(false)),
            (None, MOST_HOLDS..) => return Ok(Err(Error::TooManyHolds { limit: MOST_HOLDS })),
            (None, holds) => holds + 1,
        };
        let (length, max_hold) = (self.lease(lease), self.rhythm.max_hold);
        let (ttl, sent) = (tenure.for_nested(lease, length, max_hold), Instant::now());
        // The request may run although its answer does not arrive.
        let unsaid = Unsaid::new(self, Job::count(tenure));
        let written = self.write_count(tenure, holds, ttl).await?;
        if !written {
            unsaid.said();
            return Ok(self.gone(stint).map(|()| false));
        }
        if !tenure.prolong(sent, ttl) {
            unsaid.said();
            return Ok(if stint.ended() == Some(Ended::Lost) {
                Err(Error::Lost)
            } else {
                Ok(false)
            });
        }
        if lease == Lease::Watched && tenure.watch() {
            self.timetable.hasten(tenure);
        }
        let entered = tenure.enter(stint.turn);
        if entered == Some(holds) {
            unsaid.said();
        }
        // The last hold may have been left while we asked.
        Ok(Ok(entered.is_some()))
    }

    async fn write_count(&self, tenure: &Tenure, holds: u32, ttl: Duration) -> Outcome {
        let mut connection = self.commands.connection()?;
        connection.count(&tenure.keys, tenure.id, holds, ttl).await
    }

    /// The server has the tenure no more. That is a loss, unless it was given back meanwhile.
    fn gone(&self, stint: &Stint) -> Result<()> {
        stint.tenure.lose("the server has it no more");
        self.timetable.leave(stint.tenure.place());
        if let Some(job) = Job::tell_of_loss(&stint.tenure) {
            self.later(job);
        }
        match stint.ended() {
            Some(Ended::Released) => Ok(()),
            _ => Err(Error::Lost),
        }
    }

    /// Leaves a tenure, and hears what became of it.
    ///
    /// # Cancel safety
    /// The hold is left when the future is first polled; dropping it leaves the rest to the
    /// background.
    pub(crate) async fn leave(&self, stint: &Stint) -> Result<()> {
        match stint.tenure.leave(stint.turn, self.budget) {
            Left::Lost => Err(Error::Lost),
            Left::Nested => self.tell_count(stint).await,
            Left::Others => Ok(()),
            Left::Rests(visit) => {
                self.leave_to_others(&stint.tenure, &visit);
                Ok(())
            }
            Left::HandedOn(turn) => {
                self.hand_on(&stint.tenure, turn);
                Ok(())
            }
            Left::Last(turn, place) => {
                self.timetable.leave(place);
                self.give_back(Job::release(&stint.tenure, turn)).await
            }
        }
    }

    /// Leaves a tenure without waiting for anything, outside of a runtime too.
    pub(crate) fn abandon(&self, stint: &Stint) {
        match stint.tenure.leave(stint.turn, self.budget) {
            Left::Lost | Left::Others => {}
            Left::Rests(visit) => self.leave_to_others(&stint.tenure, &visit),
            Left::Nested => self.later(Job::count(&stint.tenure)),
            Left::HandedOn(turn) => self.hand_on(&stint.tenure, turn),
            Left::Last(turn, place) => {
                self.timetable.leave(place);
                self.later(Job::release(&stint.tenure, turn));
            }
        }
    }

    /// Gives the turn to the next in the queue, to which the tenure is left.
    fn hand_on(&self, tenure: &Arc<Tenure>, turn: Turn) {
        self.have_watched(tenure);
        self.look_after(&turn.pass_on());
    }

    /// Leaves the tenure to whoever of this client takes it up first: the contender, if there is one.
    fn leave_to_others(&self, tenure: &Arc<Tenure>, visit: &Visit) {
        self.have_watched(tenure);
        visit.entry.gate.open();
        self.look_after(visit);
    }

    /// If the future of the next holder is not being polled, nobody but the watchdog will notice.
    fn have_watched(&self, tenure: &Arc<Tenure>) {
        let claim = Instant::now() + self.rhythm.claim;
        if !tenure.is_looked_at_by(claim) && !self.timetable.enter(tenure, claim) {
            // The client is closed, and nobody will take it up.
            self.retire(tenure, None);
        }
    }

    /// Gives back what was left for those who waited, if nobody does any more.
    pub(crate) fn look_after(&self, visit: &Visit) {
        let entry = &visit.entry;
        if entry.is_awaited() {
            return;
        }
        // With the turn: a contender that lines up meanwhile would not be told that it was driven out.
        let turn = visit.try_turn();
        if turn.is_none() && !entry.is_closed() {
            return;
        }
        if !entry.is_awaited() {
            if let Some(id) = entry.leave_line() {
                self.leave_line(&entry.keys, id);
            }
            self.give_back_former(entry);
        }
        if let Some(tenure) = entry.tenure() {
            return self.retire(&tenure, turn);
        }
        // First the turn: who leaves something meanwhile takes whoever has it for a contender that is to have it.
        drop(turn);
        entry.forgotten().iter().for_each(|tenure| self.retire(tenure, None));
    }

    /// Looks whether everybody at an entry has come who was told something; whether to look again. Whoever does not
    /// come is passed over or cancelled, so that it stops nobody.
    pub(crate) fn look_at(&self, entry: &Arc<Entry>) -> bool {
        let Some(visit) = self.table.visit_again(entry) else { return false };
        let called = entry.look_for_called();
        if called == Look::Silent {
            tracing::debug!(name = ?entry.keys.name(), "passed over: called, and not polled");
            // What was left for those who do not come is left for nobody, if they were the last.
            self.look_after(&visit);
        }
        let (contender, work) = entry.look_for_contender();
        if work.is_some() {
            tracing::debug!(name = ?entry.keys.name(), "cancelled: told something, and not polled");
            visit.forget_contender();
            // As if its caller had dropped its future. The turn goes on with it.
            drop(work);
        }
        (called, contender) != (Look::Well, Look::Well)
    }

    /// Gives an idle tenure back, and then the turn.
    pub(crate) fn retire(&self, tenure: &Tenure, turn: Option<Turn>) {
        if let Some((stay, place)) = tenure.retire() {
            self.timetable.leave(place);
            self.later(Job::release(tenure, stay.or(turn.map(Stay::Turn))));
        }
    }

    /// Gives back what rests at this name, and waits until what was given back by now is free for others.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn settle(&self, keys: &Keys) {
        for entry in self.table.all_of(&keys.channel) {
            let ahead = entry.ahead();
            let spare = entry.shared().map_or_else(Vec::new, |shared| shared.spare(ahead));
            spare.iter().for_each(|tenure| self.retire(tenure, None));
        }
        self.returns.ended(keys).await;
    }

    /// Gives up a place in the line.
    pub(crate) fn leave_line(&self, keys: &Arc<Keys>, id: TenureId) {
        self.later(Job::leave_line(keys, id, self.debts.tidying()));
    }

    async fn tell_count(&self, stint: &Stint) -> Result<()> {
        let tenure = &stint.tenure;
        let unsaid = Unsaid::new(self, Job::count(tenure));
        let holds = tenure.holds();
        if stint.ended().is_some() {
            // Others have left meanwhile, the last of them for all.
            unsaid.said();
            return Ok(());
        }
        match self.write_count(tenure, holds, tenure.at_least(Duration::ZERO)).await {
            Ok(true) if tenure.holds() == holds => unsaid.said(),
            Ok(false) => {
                unsaid.said();
                return self.gone(stint);
            }
            // It is left all the same; Redis is told what is true in the background.
            _ => {}
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
        let Some(outcome) = unsaid.later(&fault) else { return Err(fault.into_unconfirmed()) };
        match timeout(self.config.riding_out(), outcome).await {
            Ok(Ok(Ok(true))) => Ok(()),
            Ok(Ok(Ok(false))) => Err(Error::Lost),
            Ok(Ok(Err(fault))) => Err(fault.into_unconfirmed()),
            // The client was closed, and its patience or ours is over.
            Ok(Err(_)) | Err(_) => Err(fault.into_unconfirmed()),
        }
    }

    async fn release_once(&self, unsaid: &Unsaid<'_>) -> Outcome {
        let Some(job) = unsaid.job() else { return Err(Fault::Closed) };
        let (releases, request) = (&self.requests.releases, job.request());
        let mut _in_the_air = None;
        if request.keys.lies_as_plain() {
            _in_the_air = releases.take_off();
            if _in_the_air.is_none() {
                return releases.join(request).await?.answer.result;
            }
        }
        let answers = self.commands.connection()?.release(&[request]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(Fault::late("no answer for this lock")))
    }

    /// Keeps a tenure at least so long from now.
    pub(crate) async fn extend(&self, stint: &Stint, lease: Duration) -> Result<()> {
        let (tenure, lease) = (&stint.tenure, checked_lease(lease)?);
        if stint.remaining().is_zero() {
            return Err(Error::Lost);
        }
        let (ttl, sent) = (tenure.at_least(lease), Instant::now());
        match self.renew_once(tenure, ttl).await {
            Ok(true) if tenure.prolong(sent, ttl) => Ok(()),
            Ok(true) => Err(Error::Lost),
            Ok(false) => self.gone(stint),
            Err(fault) => Err(self.commands.explained(fault, &tenure.keys).await),
        }
    }

    async fn renew_once(&self, tenure: &Tenure, ttl: Duration) -> Outcome {
        let Tenure { keys, id, .. } = tenure;
        let answers = self.commands.connection()?.renew(&[Renewal { keys, id: *id, ttl }]).await?;
        answers.into_iter().next().unwrap_or(Ok(false))
    }
}
