//! How a tenure goes from holder to holder within its client: the last holder leaves it, and the next one picks it up,
//! within a budget. Otherwise it ends, and the client gives it back. `side_by_side.rs` knows the reads and permits that
//! are idle, and which read may be joined; `caller/pick_up.rs` takes one, or joins.

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::budget::{Budget, Idle};
use crate::core::tenure::{Heir, Heirs, PickUp, Remaining};
use crate::engine::entry::tenure::{Ending, State, Tenure};
use crate::engine::entry::{EntryPermit, Stay, Visit};
use crate::engine::grant::{Holder, Lease};

/// The outcome for a holder that leaves.
pub(crate) enum Left {
    /// Other holds of the same owner remain.
    Nested,
    /// Other holds remain, of callers that have joined.
    Others,
    /// The last hold ended, and the next holder waits: the tenure is idle until that holder takes the permit.
    HandedOn(EntryPermit, LookAt),
    /// The last hold ended, and another caller of this client may take up the idle tenure.
    Idle(Visit, LookAt),
    /// The last hold ended, and the client keeps the idle tenure. The permit is to be passed on.
    Kept(EntryPermit, LookAt),
    /// The last hold ended: the lock has to be released, and then the permit passed on.
    Last(Ending),
    /// The lock was already lost.
    Lost,
}

/// When the watchdog has to look at an idle tenure; `None`: it looks by then anyway.
pub(crate) type LookAt = Option<Instant>;

impl Tenure {
    /// Takes one off the hold count. When the last holder leaves a tenure that was not lost, the tenure is handed over if
    /// a caller waits for it. Otherwise its client keeps it or leaves it idle, if that is allowed, or releases it.
    pub(crate) fn leave(&self, hand_over: u16, budget: Budget, idle: Idle) -> Left {
        self.leave_with(hand_over, 1, budget, idle).1
    }

    /// Same as [`leave`](Self::leave), but ends up to so many holds at once. Returns how many there were, too.
    pub(crate) fn leave_with(
        &self,
        hand_over: u16,
        holds: u32,
        budget: Budget,
        idle: Idle,
    ) -> (u32, Left) {
        let now = CompactInstant::now();
        let mut state = self.state_at(now);
        let (holds, remaining) = state.tenure.leave(hand_over, holds);
        let is_last = matches!(remaining, Remaining::Others | Remaining::Nobody);
        let _ended = is_last.then(|| state.counted.end(hand_over));
        let left = match remaining {
            Remaining::Lost => return (holds, Left::Lost),
            Remaining::Nested => return (holds, Left::Nested),
            Remaining::Others => Left::Others,
            Remaining::Nobody => self.left_by_all(&mut state, (budget, idle), now),
        };
        drop(state);
        self.changed.notify_waiters();
        (holds, left)
    }

    /// The last holder has left.
    fn left_by_all(
        &self,
        state: &mut State,
        (budget, idle): (Budget, Idle),
        now: CompactInstant,
    ) -> Left {
        let stay = match state.stay.take() {
            Some(Stay::Permit(permit)) => {
                return self.left_with_permit(state, permit, (budget, idle), now);
            }
            stay => stay,
        };
        let visit = stay.as_ref().and_then(|stay| self.stays_idle(state, stay, budget, now));
        state.stay = stay;
        if let Some(visit) = visit {
            state.tenure.idles(now);
            return Left::Idle(visit, state.look_when_idle(idle.pickup));
        }
        state.tenure.retire(false);
        Left::Last(state.released(self, now))
    }

    /// The last holder of a tenure with a permit has left.
    fn left_with_permit(
        &self,
        state: &mut State,
        permit: EntryPermit,
        (budget, idle): (Budget, Idle),
        now: CompactInstant,
    ) -> Left {
        let (row, may_pass) = (self.keys.row, !state.is_shelter());
        let (is_awaited, may_keep) = permit.heirs();
        let heirs = Heirs {
            is_awaited: may_pass && row.holders.is_handed_on() && is_awaited,
            in_line: row.line.is_of_callers(),
            may_keep: may_pass && may_keep,
        };
        let is_believed = state.is_believed(now);
        match state.tenure.pass_on(now, heirs, budget, is_believed) {
            Heir::Next => Left::HandedOn(permit, state.look_when_idle(idle.pickup)),
            Heir::Client => {
                state.stay = Some(Stay::Kept(permit.visit().clone()));
                Left::Kept(permit, state.look_when_idle(idle.keep))
            }
            Heir::Nobody => {
                state.stay = Some(permit.into_stay());
                Left::Last(state.released(self, now))
            }
        }
    }

    /// Leaves a tenure with a seat idle for other callers of this client, if one waits for it or another release is in flight.
    fn stays_idle(
        &self,
        state: &State,
        stay: &Stay,
        budget: Budget,
        now: CompactInstant,
    ) -> Option<Visit> {
        let Stay::Seat(seat) = stay else { return None };
        if state.holder.wish.owner.is_some() || !state.tenure.lifetime.is_watched() {
            return None;
        }
        let mut lock = seat.visit.entry.state();
        let is_wanted = lock.is_wanted();
        let shared = lock.side_by_side.as_mut()?;
        let is_fresh = shared.is_fresh(now.instant(), budget.time);
        // Callers still have to come that were already waiting at the grant.
        let is_expected = shared.is_expected(self.id);
        let budget = if is_expected { budget.unwanted() } else { budget };
        let stays = state.tenure.allows(now, budget, is_fresh, state.is_believed(now))
            && shared.stay_idle(self.id, state.holder.wish.permits, is_wanted);
        stays.then(|| seat.visit.clone())
    }

    /// A caller takes up an idle tenure, if the budget allows it. Otherwise the tenure ends. `permit`: that of a caller whose
    /// tenure has it. It is taken only with the tenure.
    pub(crate) fn pick_up(
        &self,
        permit: &mut Option<EntryPermit>,
        holder: Holder,
        budget: Budget,
        is_fresh: bool,
    ) -> PickUp<Ending> {
        let now = CompactInstant::now();
        let mut state = self.state_at(now);
        let budget = (holder.wish.lease == Lease::Watched).then_some(budget);
        let is_believed = state.is_believed(now);
        let hold = match state.tenure.pick_up(now, budget, is_fresh, is_believed) {
            PickUp::Nothing => return PickUp::Nothing,
            PickUp::Ended(()) => return PickUp::Ended(state.released(self, now)),
            PickUp::Held(hold) => hold,
        };
        state.holder = holder;
        let kept = permit.take().and_then(|permit| state.stay.replace(permit.into_stay()));
        state.begins(&self.keys, hold);
        drop(state);
        drop(kept);
        PickUp::Held(hold)
    }

    /// A caller joins the read of another caller of its client. Returns the number of its hold, or `None` if the caller
    /// has to ask Redis.
    pub(crate) fn join(&self, budget: Budget) -> Option<u16> {
        let now = CompactInstant::now();
        let mut state = self.state_at(now);
        if state.holder.wish.owner.is_some() {
            return None;
        }
        let is_believed = state.is_believed(now);
        let hold = state.tenure.join(now, budget, is_believed)?;
        state.begins(&self.keys, hold);
        Some(hold)
    }

    /// Ends an idle tenure that no caller waits for.
    pub(crate) fn retire(&self) -> Option<Ending> {
        self.retire_if(false)
    }

    /// Ends a tenure that its client keeps idle.
    pub(crate) fn retire_kept(&self) -> Option<Ending> {
        self.retire_if(true)
    }

    fn retire_if(&self, kept: bool) -> Option<Ending> {
        let mut state = self.state();
        let retires = state.tenure.retire(kept);
        retires.then(|| state.released(self, CompactInstant::now()))
    }
}
