//! How a tenure ends without a release: at its deadline, when Redis says that it is gone, when the client is closed. It wakes
//! all guards that wait for the end.

use std::sync::MutexGuard;

use crate::engine::compact_instant::CompactInstant;
use crate::engine::debts::Debt;
use crate::engine::entry::Stay;
use crate::engine::entry::tenure::{State, Tenure};
use crate::engine::grant::{Ended, Loss};
use crate::kinds::Holders;

impl Tenure {
    /// The lock is not ours any more. Returns the debt, to be kept until nothing remains to be done.
    pub(crate) fn lose(&self, why: Loss) -> Option<Debt> {
        self.end_lost(why);
        let mut state = self.state();
        // A released tenure keeps its debt until the release is answered.
        if state.ended == Some(Ended::Lost) { state.debt.take() } else { None }
    }

    /// Past its deadline the lock is lost, even if the server still has it.
    pub(super) fn expire(&self) {
        drop(self.state_at(CompactInstant::now()));
    }

    /// Whether it is not over, nor past its deadline.
    pub(crate) fn lasts(&self) -> bool {
        self.state_at(CompactInstant::now()).ended.is_none()
    }

    /// The state at this time: [expired](Self::expire) if its deadline has passed.
    pub(super) fn state_at(&self, now: CompactInstant) -> MutexGuard<'_, State> {
        let state = self.state();
        if state.ended.is_some() || !state.lifetime.is_expired(now) {
            return state;
        }
        drop(state);
        self.end_lost(Loss::Deadline);
        self.state()
    }

    fn end_lost(&self, why: Loss) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        let stay = state.stay.take();
        self.ends_as_lost(state, why);
        match stay {
            // Before anybody is told: a caller of this client that tries then waits for the release, and is not refused.
            Some(stay) if why == Loss::Deadline => stay.sweep(self),
            stay => drop(stay),
        }
        self.changed.notify_waiters();
    }

    fn ends_as_lost(&self, mut state: MutexGuard<'_, State>, why: Loss) {
        state.ended = Some(Ended::Lost);
        let (token, is_held) = (self.token(state.hand_overs), state.holds > 0);
        let holds = state.counted.end_all();
        drop(state);
        holds.lost(why.word());
        if is_held && self.keys.row.holders != Holders::Notified {
            tracing::error!(name = ?self.keys.name(), %token, why = why.reason(), "lock lost");
        }
    }

    /// Ends the tenure of a closed client, and notifies its guards. Returns the permit, to be given up with the lock,
    /// or `None` if there is nothing to release.
    pub(crate) fn close(&self) -> Option<Option<Stay>> {
        let mut state = self.state();
        if state.is_unswept() {
            return Some(None);
        }
        if state.ended.is_some() {
            return None;
        }
        let stay = state.release();
        self.ends_as_lost(state, Loss::Closed);
        self.changed.notify_waiters();
        Some(stay)
    }
}
