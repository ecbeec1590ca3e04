//! Whether a background job has to write the hold count of a tenure to Redis. `holding.rs` and `unlock.rs` write the count
//! first. If no answer comes, or a guard is dropped, `releaser.rs` writes it: one job for each tenure, until Redis has the
//! latest count. The script is `lua/lock/renew.lua`.

use crate::engine::entry::tenure::{State, Tenure};

/// The state of the background job that writes the hold count to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    No,
    Once,
    /// The count has changed meanwhile, or its holder's own request may arrive later: write once more after this.
    Again,
}

impl Tenure {
    /// The hold count for Redis. An idle tenure counts as one: its next holder is about to begin.
    pub(crate) fn holds_to_tell(&self) -> u32 {
        self.holds().max(1)
    }

    /// Records that the background has to write the hold count. Returns whether that is new.
    pub(crate) fn will_tell(&self) -> bool {
        let mut state = self.state();
        let is_new = state.telling == Telling::No;
        state.telling = if is_new { Telling::Once } else { Telling::Again };
        is_new
    }

    /// Redis has written this hold count. Returns `false` if the count has changed meanwhile, and has to be written
    /// again.
    pub(crate) fn told(&self, holds: u32) -> bool {
        // Decide under one mutex: a hold that ends after this is written separately.
        let mut state = self.state();
        let done = state.tenure.holds().max(1) == holds && state.telling != Telling::Again;
        if done {
            state.stop_telling();
        } else {
            state.telling = Telling::Once;
        }
        done
    }

    /// A holder that has left has written this hold count. Returns whether it is still the count. A caller that nests at the
    /// same time has its own count written again, since the two requests may have run in either order.
    pub(crate) fn has_told(&self, holds: u32) -> bool {
        let mut state = self.state();
        state.tellings = state.tellings.wrapping_add(1);
        state.tenure.holds() == holds
    }

    /// The background has stopped writing the hold count.
    pub(crate) fn stop_telling(&self) {
        self.state().stop_telling();
    }

    /// How often the count was written, by holders that have left and by background jobs; `None` while a job runs. A caller that
    /// nests reads it before its request, and again after it has counted its hold. The same number twice means that the count
    /// was not written in between, so no older count has replaced the new one.
    pub(crate) fn tellings(&self) -> Option<u8> {
        let state = self.state();
        (state.telling == Telling::No).then_some(state.tellings)
    }
}

impl State {
    fn stop_telling(&mut self) {
        (self.telling, self.tellings) = (Telling::No, self.tellings.wrapping_add(1));
    }
}
