//! What is left to be done when a tenure has ended. The transition that ends it takes all of this out in one step, so it is done once.

use std::sync::Arc;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::wheel::TimerSlot;
use crate::engine::debts::Debt;
use crate::engine::entry::Stay;
use crate::engine::entry::tenure::{State, Tenure};
use crate::engine::grant::Ended;
use crate::keys::{Keys, TenureId};

/// What is left of a tenure that has ended: the server may still have the lock, and this client owes its release.
#[must_use = "the lock may have to be released"]
pub(crate) struct Ending {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    /// The permit or the seat, to be given up when the release is answered.
    pub(crate) stay: Option<Stay>,
    pub(crate) debt: Debt,
    /// The callers that it was handed on to, and that still stand in the server's line.
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
        table.release(self);
    }
}

impl State {
    /// Ends it as released.
    pub(super) fn release(&mut self, tenure: &Tenure, now: CompactInstant) -> Ending {
        self.ended = Some(Ended::Released);
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
            served: std::mem::take(&mut self.served).into_boxed_slice(),
            deadline: self.believed_until(),
            until: now + self.lifetime.at_least(tenure.lease, now),
            slot: self.slot,
        }
    }

    /// Whether its lease is over, and the server may still have the lock.
    pub(super) fn is_unswept(&self) -> bool {
        self.ended == Some(Ended::Lost) && self.debt.is_some()
    }
}
