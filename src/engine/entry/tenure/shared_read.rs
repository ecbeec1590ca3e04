//! A read that several callers share: how a caller joins it, and which of its holds have not ended. Each hold ends
//! separately. `entry/side_by_side.rs` says which read may be joined, and `caller/pick_up.rs` who joins.

use crate::engine::compact_instant::CompactInstant;
use crate::engine::entry::tenure::Tenure;
use crate::engine::entry::tenure::hand_off_budget::Budget;

/// The holds of one tenure that have not ended, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct SharedRead {
    /// A bit for each hold.
    inside: Vec<u64>,
}

impl SharedRead {
    pub(crate) fn enter(&mut self, hold: u16) {
        let (word, bit) = place(hold);
        if self.inside.len() <= word {
            self.inside.resize(word + 1, 0);
        }
        self.inside[word] |= bit;
    }

    pub(crate) fn leave(&mut self, hold: u16) {
        let (word, bit) = place(hold);
        if let Some(there) = self.inside.get_mut(word) {
            *there &= !bit;
        }
    }

    pub(crate) fn has(&self, hold: u16) -> bool {
        let (word, bit) = place(hold);
        self.inside.get(word).is_some_and(|there| there & bit != 0)
    }
}

impl Tenure {
    /// A caller joins the read of another caller of its client. Returns the number of its hold, or `None` if the caller
    /// has to ask Redis.
    pub(crate) fn join(&self, budget: Budget) -> Option<u16> {
        let now = CompactInstant::now();
        let mut state = self.state_at(now);
        let is_held = state.ended.is_none() && state.holds > 0 && state.holder.wish.owner.is_none();
        if !is_held || !state.allows(self.budget(budget), self.age_of_report(now, false), now) {
            return None;
        }
        if state.shared_read.is_none() {
            let mut read = SharedRead::default();
            read.enter(state.hand_overs);
            state.shared_read = Some(Box::new(read));
        }
        Some(state.next_hold(&self.keys))
    }
}

fn place(hold: u16) -> (usize, u64) {
    (usize::from(hold / 64), 1 << (hold % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_that_joined_leaves_for_itself() {
        let mut read = SharedRead::default();
        for hold in [0, 63, 64, 1023] {
            assert!(!read.has(hold));
            read.enter(hold);
            assert!(read.has(hold));
        }
        read.leave(64);
        read.leave(65);
        let inside = [0, 63, 64, 65, 1023].map(|hold| read.has(hold));
        assert_eq!(inside, [true, true, false, false, true]);
    }
}
