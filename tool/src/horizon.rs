//! Until when the lock is valid, on the supervisor's clock.

use std::time::Duration;

use parklock::Guard;

use crate::clock::{Moment, awake, slept};

/// Until when the lock is valid, on the clock that the supervisor reads.
///
/// The library counts deadlines on a clock that stands still while the machine sleeps. The supervisor's clock does not.
/// So the keeper translates each deadline once, when it is new. It adds the sleep up to its previous check, not up to
/// now: if the machine slept while a renewal was in flight, that sleep does not count as time that is left.
pub(crate) struct Horizon {
    /// The last deadline, on the clock that stands still.
    until: Duration,
    slept: Duration,
}

impl Horizon {
    /// Two readings of one deadline differ by less than this.
    const SAME: Duration = Duration::from_millis(3);

    pub(crate) fn new() -> Self {
        Self { until: Duration::ZERO, slept: slept() }
    }

    /// The deadline, if it is a new one.
    pub(crate) fn look(&mut self, guard: &Guard) -> Option<Moment> {
        let slept_before = std::mem::replace(&mut self.slept, slept());
        // Read the clock first: then a late reading of the guard makes the deadline earlier, not later.
        let now = awake();
        let until = now + guard.remaining();
        if until <= self.until + Self::SAME {
            return None;
        }
        self.until = until;
        Some(Moment(until + slept_before))
    }
}
