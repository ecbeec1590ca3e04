//! How the background tells Redis the hold count of a tenure: one request at a time, until Redis has the latest count.

use crate::engine::tenure::{State, Stay, Tenure};

/// The state of the background job that writes the hold count to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    No,
    Once,
    /// The holder has written a count meanwhile, which may arrive later: write once more after this.
    Again,
}

impl<S: Stay> Tenure<S> {
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
        let done = state.holds.max(1) == holds && state.telling != Telling::Again;
        if done {
            state.stop_telling();
        } else {
            state.telling = Telling::Once;
        }
        done
    }

    /// The background has stopped writing the hold count.
    pub(crate) fn stop_telling(&self) {
        self.state().stop_telling();
    }

    /// How many times a background job for the hold count has ended; `None` while one runs. If the value is the same
    /// before the caller writes a hold and after the hold has begun, no background job has written an older count after
    /// it.
    pub(crate) fn tellings(&self) -> Option<u8> {
        let state = self.state();
        (state.telling == Telling::No).then_some(state.tellings)
    }
}

impl<S: Stay> State<S> {
    fn stop_telling(&mut self) {
        (self.telling, self.tellings) = (Telling::No, self.tellings.wrapping_add(1));
    }
}
