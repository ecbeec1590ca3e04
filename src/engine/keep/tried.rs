//! The locks that callers of other clients have just tried in vain. Such a caller stands in no line, and asks once more after a
//! pause. This client may take the lock again within that pause, but must not keep it: otherwise it could refuse every
//! call.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::compact_instant::CompactInstant;
use crate::engine::keep::SECOND_TRY_PAUSE;

/// Names share these slots by their hash, so that the list never grows. If one of two names in a slot was tried, the
/// client does not keep the lock of the other one for a moment either.
const SLOTS: usize = 256;

/// When another client last tried the names of each slot.
pub(crate) struct Tried {
    last: Mutex<Box<[Option<CompactInstant>; SLOTS]>>,
}

impl Default for Tried {
    fn default() -> Self {
        Self { last: Mutex::new(Box::new([None; SLOTS])) }
    }
}

impl Tried {
    /// Another client has tried the lock of this channel.
    pub(crate) fn note(&self, channel: &str, now: Instant) {
        self.last()[slot(channel)] = Some(now.into());
    }

    /// Whether the second request of a caller that has tried this lock may be on its way.
    pub(crate) fn is_expected_again(&self, channel: &str, now: Instant) -> bool {
        self.last()[slot(channel)].is_some_and(|last| now < last.instant() + longest())
    }

    fn last(&self) -> MutexGuard<'_, Box<[Option<CompactInstant>; SLOTS]>> {
        self.last.lock().expect("no panic under this lock")
    }
}

/// The longest pause of the caller, and five times as long for its requests: a caller may be far away.
fn longest() -> Duration {
    *SECOND_TRY_PAUSE.end() * 6
}

fn slot(channel: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    channel.hash(&mut hasher);
    (hasher.finish() % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_tried_is_expected_again_for_a_moment() {
        let (tried, now) = (Tried::default(), Instant::now());
        assert!(!tried.is_expected_again("a", now));
        tried.note("a", now);
        assert!(tried.is_expected_again("a", now + longest() / 2));
        assert!(!tried.is_expected_again("a", now + longest()));
    }

    #[test]
    fn few_names_share_a_slot() {
        let slots: std::collections::BTreeSet<_> =
            (0..SLOTS).map(|number| slot(&format!("lock_channel:{{{number}}}"))).collect();
        assert!(slots.len() > SLOTS / 2, "{}", slots.len());
    }
}
