//! How a tenure is lost: at its deadline, when Redis says that it is gone, when the client is closed. That wakes all guards that wait
//! for the end.

use std::sync::MutexGuard;

use crate::compact_instant::CompactInstant;
use crate::engine::entry::Stay;
use crate::engine::entry::tenure::{Ending, State, Tenure};
use crate::engine::grant::{Ended, Loss};
use crate::kinds::Holders;

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
        if state.ended.is_some() {
            return None;
        }
        state.ended = Some(Ended::Lost);
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
        self.state_at(CompactInstant::now()).ended.is_none()
    }

    /// The state at this time: lost, if its deadline has passed.
    pub(super) fn state_at(&self, now: CompactInstant) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if state.ended.is_some() || !state.lifetime.is_expired(now) {
            return state;
        }
        state.ended = Some(Ended::Lost);
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
        let (token, is_held) = (self.token(state.hand_overs), state.holds > 0);
        let holds = state.counted.end_all();
        drop(state);
        holds.lost(why.word());
        if is_held && self.keys.row.holders != Holders::Notified {
            tracing::error!(name = ?self.keys.name(), %token, why = why.reason(), "lock lost");
        }
    }
}
