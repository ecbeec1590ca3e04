//! Which caller of the same client stands right behind a caller in the server's line. Only a fair lock has this: each of its
//! callers stands in the line, and the server says so to a caller that has lined up right behind another one of its client.
//! No newcomer comes between the two, since each of them goes to the end. So the holder may hand the lock on to that caller, and
//! the order stays exact. Only a caller of another client that had a place between them before, and lost it, may get it back.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::keys::TenureId;

/// The entry of that caller, by its id.
#[derive(Debug, Default)]
pub(super) struct Behind(AtomicU64);

/// Nobody is known. An id is stored as one more than its number.
const NOBODY: u64 = 0;

const MOVED: u64 = u64::MAX;

impl Behind {
    pub(super) fn get(&self) -> Option<TenureId> {
        match self.0.load(Ordering::Acquire) {
            NOBODY | MOVED => None,
            id => Some(TenureId(id - 1)),
        }
    }

    /// This caller has lined up right behind.
    pub(super) fn set(&self, TenureId(id): TenureId) {
        let _ = self.0.compare_exchange(NOBODY, id + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The caller goes on under another owner field, perhaps at another place. Its former owner field may still stand in the
    /// line, or a late request may put it at the end of the line. So the caller that counted as right behind may stand behind
    /// the former owner field alone. Callers of other clients may stand between the two places, and a hand-over would
    /// overtake them.
    pub(super) fn moves(&self) {
        self.0.store(MOVED, Ordering::Release);
    }

    pub(super) fn has_moved(&self) -> bool {
        self.0.load(Ordering::Acquire) == MOVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_caller_that_lines_up_behind_is_known_until_the_one_ahead_moves() {
        let behind = Behind::default();
        assert_eq!(behind.get(), None);
        behind.set(TenureId(0));
        behind.set(TenureId(7));
        assert_eq!((behind.get(), behind.has_moved()), (Some(TenureId(0)), false));
        behind.moves();
        behind.set(TenureId(7));
        assert_eq!((behind.get(), behind.has_moved()), (None, true));
    }
}
