//! Which caller of the same client stands right behind a caller in the server's line. Only a fair lock has this: each of its
//! callers stands in the line, and the server says so to a caller that has lined up right behind another one of its client.
//! Nobody can come between the two, since each newcomer goes to the end. So the holder may hand the lock on to that caller,
//! and the order stays exact.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::keys::TenureId;

/// The entry of that caller, by its id.
#[derive(Debug, Default)]
pub(super) struct Behind(AtomicU64);

/// Nobody is known. An id is stored as one more than its number.
const NOBODY: u64 = 0;

const FORBIDDEN: u64 = u64::MAX;

impl Behind {
    pub(super) fn get(&self) -> Option<TenureId> {
        match self.0.load(Ordering::Acquire) {
            NOBODY | FORBIDDEN => None,
            id => Some(TenureId(id - 1)),
        }
    }

    /// This caller has lined up right behind.
    pub(super) fn set(&self, TenureId(id): TenureId) {
        let _ = self.0.compare_exchange(NOBODY, id + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The caller goes on under another owner field. A late request may put its former owner field in line again, at the end:
    /// whoever lines up behind that does not stand right behind the caller.
    pub(super) fn forbid(&self) {
        let _ = self.0.compare_exchange(NOBODY, FORBIDDEN, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_caller_that_lines_up_behind_is_known_unless_that_is_forbidden() {
        let behind = Behind::default();
        assert_eq!(behind.get(), None);
        behind.set(TenureId(0));
        behind.set(TenureId(7));
        behind.forbid();
        assert_eq!(behind.get(), Some(TenureId(0)));
        let behind = Behind::default();
        behind.forbid();
        behind.set(TenureId(7));
        assert_eq!(behind.get(), None);
    }
}
