//! What a caller gets within its client, without a request: an idle tenure that another caller has left, or a hold in a read
//! that another caller has.

use std::sync::Arc;

use tokio::time::Instant;

use crate::core::tenure::PickUp;
use crate::engine::caller::Caller;
use crate::engine::entry::tenure::Ending;
use crate::engine::entry::{Entry, EntryPermit, Hold, Tenure, Visit};
use crate::engine::shared::Engine;
use crate::keys::TenureId;
use crate::kinds::Holders;

/// What a caller gets with the permit.
pub(super) enum Coming {
    /// The lock.
    Held(Hold),
    /// The right to contend, and perhaps a tenure to offer.
    Permit(EntryPermit, Option<Offer>),
}

/// An ended tenure that the next acquire releases in the same step. If that acquire gets no answer, the drop releases
/// the tenure.
pub(super) struct Offer {
    engine: Arc<Engine>,
    /// Boxed: few callers have one, and each has space for it.
    ending: Option<Box<Ending>>,
}

impl Offer {
    pub(super) fn id(&self) -> Option<TenureId> {
        self.ending.as_ref().map(|ending| ending.id)
    }

    /// Redis has answered, so it no longer has the tenure.
    pub(super) fn answered(mut self) {
        drop(self.ending.take());
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.ending.take().into_iter().for_each(|ending| self.engine.outbox.release(*ending));
    }
}

impl Caller {
    /// Takes an idle tenure, or joins a read that another caller of this client holds. Returns `None` if there
    /// is no such tenure, or if it is reserved for waiting callers.
    pub(super) fn share_at_once(&self, visit: &Visit) -> Option<Hold> {
        let entry = &visit.entry;
        if entry.keys.row.holders == Holders::Readers {
            // A reader that joins takes nothing from callers that wait. But it goes behind those that wait for a writer, and
            // behind those for which a read is idle.
            let expected = entry.side_by_side(|shared| shared.expected()).unwrap_or(0);
            return if entry.with(|lock| lock.was_told_to_wait()) {
                None
            } else {
                self.share(visit, expected, None)
            };
        }
        if !entry.has_seats() {
            return None;
        }
        self.share(visit, entry.with(|lock| lock.ahead()), None)
    }

    /// Same as [`share_at_once`](Self::share_at_once), if more tenures are idle than are reserved for others. `ticket`: that of a
    /// caller with the permit.
    pub(super) fn share(
        &self,
        visit: &Visit,
        reserved: usize,
        ticket: Option<u64>,
    ) -> Option<Hold> {
        if !visit.entry.has_seats() || !self.options.is_like_others() {
            return None;
        }
        let (permits, budget) = (self.options.wish.permits, self.engine.budget);
        loop {
            let is_joined = visit.entry.keys.row.holders == Holders::Readers;
            let (is_fresh, has_waited, expected_by, taken, open) =
                visit.entry.side_by_side(|shared| {
                    let is_fresh = shared.is_fresh(Instant::now(), budget.time);
                    let has_waited = shared.has_waited(self.started);
                    let expected_by = shared.expects(ticket);
                    let taken = shared.take(permits, reserved);
                    let open = is_joined.then(|| shared.open(self.started)).flatten();
                    (is_fresh, has_waited, expected_by, taken, open)
                })?;
            let budget = if has_waited { budget.unwanted() } else { budget };
            let Some(tenure) = taken else {
                let read = open?;
                let hand_over = read.join(budget)?;
                comes_in(&visit.entry, expected_by);
                return Some(self.hold(read, hand_over));
            };
            match tenure.pick_up(&mut None, self.holder(), budget, is_fresh) {
                PickUp::Held(hand_over) => {
                    comes_in(&visit.entry, expected_by);
                    visit.entry.with(|lock| lock.note_holder(Instant::now().into()));
                    return Some(self.hold(tenure, hand_over));
                }
                PickUp::Nothing => {}
                PickUp::Ended(ending) => self.engine.outbox.release(ending),
            }
        }
    }

    /// Its hold of this tenure.
    fn hold(&self, tenure: Arc<Tenure>, hand_over: u16) -> Hold {
        Hold::new(tenure, hand_over, self.options.wish.owner)
    }

    /// Takes up the tenure that the last holder of this client has left, if there is one.
    pub(super) fn pick_up(&self, permit: EntryPermit) -> Coming {
        let entry = permit.entry();
        if entry.has_seats() {
            return match self.share(permit.visit(), 0, Some(permit.number())) {
                Some(hold) => {
                    permit.pass_on();
                    Coming::Held(hold)
                }
                None => Coming::Permit(permit, None),
            };
        }
        let Some((tenure, may_keep)) = entry.last_tenure(self.keeps(entry)) else {
            return Coming::Permit(permit, None);
        };
        let is_latch = entry.keys.row.holders == Holders::Nobody;
        if is_latch && tenure.with(|tenure| tenure.lifetime.confirmed() >= self.started) {
            // The latch was open when that was asked.
            permit.pass_on();
            return Coming::Held(self.hold(tenure, 0));
        }
        let budget = self.engine.budget;
        let waits_alone = entry.keys.row.line.is_of_callers();
        // If each caller waits separately, the holder that has left the tenure has checked the budget.
        let is_checked = may_keep || waits_alone;
        let budget = if is_checked { budget.unwanted() } else { budget };
        let in_line = waits_alone.then(|| permit.visit().clone());
        let mut permit = Some(permit);
        let picked_up = tenure.pick_up(&mut permit, self.holder(), budget, false);
        let permit = || permit.expect("it is taken only with the tenure");
        match picked_up {
            PickUp::Held(hand_over) => {
                in_line.iter().for_each(|visit| self.stays_in_line(visit, &tenure));
                self.engine.owned.enter(self.options.wish.owner, &tenure);
                Coming::Held(self.hold(tenure, hand_over))
            }
            PickUp::Nothing => Coming::Permit(permit(), None),
            PickUp::Ended(ending) => {
                self.engine.outbox.timetable.leave(&ending);
                // What it had is at most the visit of a kept tenure: the permit is this caller's.
                let ending = Some(Box::new(Ending { stay: None, ..ending }));
                let offer = Offer { engine: Arc::clone(&self.engine), ending };
                // An acquire would not take the callers out of the line that have had this tenure. A release does.
                Coming::Permit(permit(), Some(offer).filter(|_| in_line.is_none()))
            }
        }
    }

    /// The caller has taken up the tenure that the caller right ahead in the line has left to it. It still stands in the line:
    /// the release of the tenure takes it out.
    fn stays_in_line(&self, visit: &Visit, tenure: &Tenure) {
        let left = visit.entry.with(|lock| lock.leave_line());
        visit.stop_speaking();
        tenure.with(|tenure| tenure.served.extend(left));
        self.engine.table.give_back_all(visit.entry.with(|lock| lock.has_it(Instant::now())));
    }
}

/// One fewer of the callers is expected that were in the queue when this read was granted.
fn comes_in(entry: &Entry, expected_by: Option<TenureId>) {
    if let Some(read) = expected_by {
        entry.side_by_side(|shared| shared.has_come(read));
    }
}
