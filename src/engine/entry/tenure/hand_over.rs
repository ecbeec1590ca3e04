//! How a tenure goes from holder to holder within its client: the last holder leaves it, and the next one picks it up,
//! within a budget. Otherwise it ends, and the client gives it back. `side_by_side.rs` knows the reads and permits that
//! are idle, and which read may be joined; `caller/pick_up.rs` takes one, or joins.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::compact_instant::CompactInstant;
use crate::core::budget::Budget;
use crate::engine::entry::tenure::{Ending, State, Tenure};
use crate::engine::entry::{EntryPermit, Stay, Visit};
use crate::engine::grant::{Holder, Lease};
use crate::wakers::wake_all;

/// The outcome for a holder that leaves.
pub(crate) enum Left {
    /// Other holds of the same owner remain.
    Nested,
    /// Other holds remain, of callers that have joined.
    Others,
    /// The last hold ended, and the next holder waits: the tenure is idle until that holder takes the permit.
    HandedOn(EntryPermit),
    /// The last hold ended, and another caller of this client may take up the idle tenure.
    Idle(Visit),
    /// The last hold ended, and the client keeps the idle tenure. The permit is to be passed on.
    Kept(EntryPermit),
    /// The last hold ended: the lock has to be released, and then the permit passed on.
    Last(Ending),
    /// The lock was already lost.
    Lost,
}

/// The outcome for a caller that would take up an idle tenure.
pub(crate) enum PickUp {
    /// The caller now holds it, after this many hand-overs.
    Held(u16),
    /// It may not be handed on. It has ended, and has to be released.
    Ended(Ending),
    /// Another caller has it, or it is over.
    Nothing,
}

impl Tenure {
    /// Takes one off the hold count. When the last holder leaves a tenure that was not lost, the tenure is handed on if
    /// a caller waits for it. Otherwise its client keeps it or leaves it idle, if that is allowed, or releases it.
    pub(crate) fn leave(&self, hand_over: u16, budget: Budget) -> Left {
        self.leave_with(hand_over, 1, budget).1
    }

    /// Same as [`leave`](Self::leave), but ends up to so many holds at once. Returns how many there were, too.
    pub(crate) fn leave_with(&self, hand_over: u16, holds: u32, budget: Budget) -> (u32, Left) {
        let now = CompactInstant::now();
        let mut state = self.state_at(now);
        // If all holds of this owner ended at once, another holder of this client may have the tenure by now.
        if state.ended(hand_over).is_some() {
            return (0, Left::Lost);
        }
        let holds = holds.min(state.holds);
        state.holds -= holds;
        if let Some(read) = &mut state.shared_read {
            read.remove(&hand_over);
        }
        let is_last = state.holds == 0 || state.shared_read.is_some();
        let _ended = is_last.then(|| state.counted.end(hand_over));
        let left = match state.stay.take() {
            stay if state.holds > 0 => {
                state.stay = stay;
                if state.shared_read.is_none() {
                    return (holds, Left::Nested);
                }
                Left::Others
            }
            Some(Stay::Permit(permit)) => self.left_with_permit(&mut state, permit, budget, now),
            stay => {
                let idle =
                    stay.as_ref().and_then(|stay| self.stays_idle(&state, stay, budget, now));
                state.stay = stay;
                match idle {
                    Some(visit) => {
                        state.since = now;
                        Left::Idle(visit)
                    }
                    None => Left::Last(state.release(self, now)),
                }
            }
        };
        drop(state);
        wake_all(&self.changed);
        (holds, left)
    }

    /// The last holder of a tenure with a permit has left.
    fn left_with_permit(
        &self,
        state: &mut State,
        permit: EntryPermit,
        budget: Budget,
        now: CompactInstant,
    ) -> Left {
        let row = self.keys.row;
        let (is_awaited, may_keep) = permit.heirs();
        // The next caller in the queue may find that the budget is used up, and offers the tenure to Redis. A caller that
        // waits separately stands in the server's line already, so nothing is left for it then.
        let has_budget = |state: &State| {
            let held = self.age_of_report(now, false);
            !row.line.is_of_callers() || state.allows(self.budget(budget.in_line()), held, now)
        };
        let may_pass = !state.is_shelter();
        if may_pass && row.holders.is_handed_on() && is_awaited && has_budget(state) {
            state.since = now;
            return Left::HandedOn(permit);
        }
        // Only if the next holder may have it without asking Redis.
        if may_pass && may_keep && state.is_believed_for(self.budget(budget), now) {
            (state.stay, state.since) = (Some(Stay::Kept(permit.visit().clone())), now);
            return Left::Kept(permit);
        }
        state.stay = Some(Stay::Permit(permit));
        Left::Last(state.release(self, now))
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
        if state.holder.wish.owner.is_some() || !state.lifetime.is_watched() {
            return None;
        }
        let mut lock = seat.visit.entry.state();
        let is_wanted = lock.is_wanted();
        let shared = lock.side_by_side.as_mut()?;
        let age = self.age_of_report(now, shared.is_fresh(now.instant(), budget.time));
        // Callers still have to come that were already waiting at the grant.
        let is_expected = shared.is_expected(self.id);
        let budget = self.budget(if is_expected { budget.unwanted() } else { budget });
        let stays = state.allows(budget, age, now)
            && shared.stay_idle(self.id, state.holder.wish.permits, is_wanted);
        stays.then(|| seat.visit.clone())
    }

    /// How old the server's report is that no waiter stands in line: zero if it is fresh, or else as old as the grant.
    fn age_of_report(&self, now: CompactInstant, is_fresh: bool) -> Duration {
        if is_fresh { Duration::ZERO } else { now.saturating_duration_since(self.granted) }
    }

    /// A grant by message has a short lease. If the reserve were longer than a third of it, such a tenure would never be
    /// handed on.
    fn budget(&self, budget: Budget) -> Budget {
        Budget { reserve: budget.reserve.min(self.lease / 3), ..budget }
    }

    /// A caller takes up an idle tenure, if the budget allows it. Otherwise the tenure ends. `permit`: that of a caller whose
    /// tenure has it. It is taken only with the tenure.
    pub(crate) fn pick_up(
        &self,
        permit: &mut Option<EntryPermit>,
        holder: Holder,
        budget: Budget,
        is_fresh: bool,
    ) -> PickUp {
        let now = CompactInstant::now();
        let mut state = self.state_at(now);
        if state.ended.is_some() || state.holds > 0 {
            return PickUp::Nothing;
        }
        let age = self.age_of_report(now, is_fresh);
        if holder.wish.lease != Lease::Watched || !state.allows(self.budget(budget), age, now) {
            return PickUp::Ended(state.release(self, now));
        }
        (state.since, state.holder) = (now, holder);
        let kept = permit.take().and_then(|permit| state.stay.replace(Stay::Permit(permit)));
        let hand_over = state.next_hold(&self.keys);
        drop(state);
        drop(kept);
        PickUp::Held(hand_over)
    }

    /// A caller joins the read of another caller of its client. Returns the number of its hold, or `None` if the caller
    /// has to ask Redis.
    pub(crate) fn join(&self, budget: Budget) -> Option<u16> {
        let now = CompactInstant::now();
        let mut state = self.state_at(now);
        let is_held = state.ended.is_none() && state.holds > 0 && state.holder.wish.owner.is_none();
        if !is_held || !state.allows(self.budget(budget), self.age_of_report(now, false), now) {
            return None;
        }
        let first = state.hand_overs;
        state.shared_read.get_or_insert_with(|| Box::new(BTreeSet::from([first])));
        Some(state.next_hold(&self.keys))
    }

    /// Ends an idle tenure that no caller waits for.
    pub(crate) fn retire(&self) -> Option<Ending> {
        self.retire_if(|state| state.holds == 0)
    }

    /// Ends a tenure that its client keeps idle.
    pub(crate) fn retire_kept(&self) -> Option<Ending> {
        self.retire_if(State::is_kept)
    }

    fn retire_if(&self, is_idle: impl FnOnce(&State) -> bool) -> Option<Ending> {
        let mut state = self.state();
        let retires = state.ended.is_none() && is_idle(&state);
        retires.then(|| state.release(self, CompactInstant::now()))
    }
}

impl State {
    fn is_believed_for(&self, budget: Budget, now: CompactInstant) -> bool {
        self.lifetime.allows(budget, now) && !self.is_suspended(now)
    }

    /// Whether the next holder may have it without asking Redis.
    pub(crate) fn allows(&self, budget: Budget, held: Duration, now: CompactInstant) -> bool {
        budget.allows(u32::from(self.hand_overs), held) && self.is_believed_for(budget, now)
    }
}
