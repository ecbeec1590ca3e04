//! How a tenure ends, and what is left to be done then. It is released, or it is lost: at its deadline, when Redis says that it is gone,
//! or when the client is closed. What is left to be done is taken out in one step, so it is done once. The transition that ends the tenure
//! does that. A tenure may also reach its deadline on the way to its next holder: then whoever finds it next does that. A loss wakes
//! all guards that wait for the end.

use std::sync::{Arc, MutexGuard};

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::tenure::Ended;
use crate::core::wheel::TimerSlot;
use crate::engine::debts::Debt;
use crate::engine::entry::tenure::{State, Tenure};
use crate::engine::entry::{Remains, Stay};
use crate::engine::grant::Loss;
use crate::keys::{Keys, TenureId};
use crate::kinds::Holders;
use crate::log;

/// What is left of a tenure that has ended: the server may still have the lock, and this client owes its release.
#[must_use = "the lock may have to be released"]
pub(crate) struct Ending {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    /// The permit or the seat, to be given up when the release is answered.
    pub(crate) stay: Option<Stay>,
    pub(crate) debt: Debt,
    /// The callers that it was handed over to, and that still stand in the server's line.
    pub(crate) served: Box<[TenureId]>,
    /// Until when the client believed in it.
    pub(crate) deadline: Instant,
    /// When the server has freed the lock by itself. After an unanswered renewal, it may keep the lock for longer than this client
    /// believes.
    pub(crate) until: Instant,
    /// Its place in the timetable.
    pub(crate) slot: Option<TimerSlot>,
}

impl Ending {
    /// The lease is over, but the server may still have the lock: has it released, and keeps the permit or the seat until the server
    /// has answered.
    pub(super) fn sweep(mut self) {
        let Some(stay) = &mut self.stay else { return };
        stay.leaving();
        let table = Arc::clone(&stay.visit().entry.table);
        table.give_back(Remains::Tenure(self));
    }
}

impl Tenure {
    /// The lock is not ours any more: the next caller may ask at once. Returns what is left to be done.
    pub(crate) fn lose(&self, why: Loss) -> Option<Ending> {
        self.end_lost(why, |ending| drop(ending.stay.take()))
    }

    /// Ends the tenure of a closed client, which is about to release it. Returns what is left to be done.
    pub(crate) fn close(&self) -> Option<Ending> {
        self.end_lost(Loss::Closed, |ending| ending.stay.iter_mut().for_each(Stay::leaving))
    }

    /// Ends it as lost, and does this before its guards are told.
    fn end_lost(&self, why: Loss, then: impl FnOnce(&mut Ending)) -> Option<Ending> {
        let (now, mut state) = (CompactInstant::now(), self.state());
        if state.is_unswept() {
            return Some(state.ending(self, now));
        }
        if !state.tenure.lose() {
            return None;
        }
        let mut ending = state.ending(self, now);
        self.tell_of_loss(state, why);
        then(&mut ending);
        self.changed.notify_waiters();
        Some(ending)
    }

    /// Past its deadline the lock is lost, even if the server still has it.
    pub(super) fn expire(&self) {
        drop(self.state_at(CompactInstant::now()));
    }

    /// Whether it is not over, nor past its deadline.
    pub(crate) fn lasts(&self) -> bool {
        self.state_at(CompactInstant::now()).tenure.ended.is_none()
    }

    /// The state at this time: lost, if its deadline has passed.
    pub(super) fn state_at(&self, now: CompactInstant) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if !state.tenure.expire(now) {
            return state;
        }
        // Without a permit or a seat, it is on its way to its next holder: then the watchdog sweeps it.
        let ending = state.stay.is_some().then(|| state.ending(self, now));
        self.tell_of_loss(state, Loss::Deadline);
        // Before anybody is told: a caller of this client that tries then waits for the release, and is not refused.
        ending.into_iter().for_each(Ending::sweep);
        self.changed.notify_waiters();
        self.state()
    }

    /// Unlocks the state of a tenure that was just lost, and then counts and logs the loss.
    fn tell_of_loss(&self, mut state: MutexGuard<'_, State>, why: Loss) {
        let (token, is_held) = (self.token(state.tenure.hand_overs), state.tenure.holds() > 0);
        let holds = state.counted.end_all();
        drop(state);
        holds.lost(why.word());
        if is_held && self.keys.row.holders != Holders::Notified {
            log::error!(name = ?self.keys.name(), %token, why = why.reason(), "lock lost");
        }
    }
}

impl State {
    /// What is left of a tenure that has just ended as released.
    pub(super) fn released(&mut self, tenure: &Tenure, now: CompactInstant) -> Ending {
        let mut ending = self.ending(tenure, now);
        ending.stay.iter_mut().for_each(Stay::leaving);
        ending
    }

    /// What is left of it, now that it has ended. It must be taken once.
    pub(super) fn ending(&mut self, tenure: &Tenure, now: CompactInstant) -> Ending {
        let now = now.instant();
        Ending {
            keys: Arc::clone(&tenure.keys),
            id: tenure.id,
            stay: self.stay.take(),
            debt: self.debt.take().expect("a tenure ends once"),
            served: std::mem::take(&mut self.tenure.served).into_boxed_slice(),
            deadline: self.believed_until(),
            until: self.tenure.lifetime.asked_until().max(now + tenure.lease),
            slot: self.slot,
        }
    }

    /// Whether its lease is over, and the server may still have the lock.
    pub(super) fn is_unswept(&self) -> bool {
        self.tenure.ended == Some(Ended::Lost) && self.debt.is_some()
    }
}
