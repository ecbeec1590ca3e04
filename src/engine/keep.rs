//! The kept lock (`Config::keep`): after an unlock, a client keeps a plain lock for a while, held by no caller. Its next
//! caller gets it without a request. This file says whether a lock may be kept. `tenure/hand_over.rs` keeps it, and
//! `caller/pick_up.rs` takes it up. `listener.rs` hears that another client wants it, and `releaser/outbox.rs` gives it back then;
//! `unlock.rs` has the watchdog give it back when its time is over.
//!
//! 1. A client keeps a lock only if it would have heard that another client wants it: its channels were live before it sent
//!    the request, the answer said that nobody waits, and no message has come since.
//! 2. The first waiter in line, or a client that only tries, tells the keeper that it wants the lock
//!    (`lua/line/keeper.lua`). The keeper gives the lock back at once if no caller holds it, or else when its
//!    holder unlocks.
//! 3. A client that only tries asks once more after a pause. For 300 ms the keeper may take that lock again, but does not keep
//!    it ([`Tried`]).
//! 4. An idle tenure is renewed, and can be lost, like a held one. Its next holder checks its deadline.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::mutex::Mutex;
use crate::wire::Subscription;

/// The subscriptions by which a client hears that another one wants a lock.
pub(crate) type Ears = Vec<Subscription>;

/// Whether a client that is about to ask for the lock may keep what it is granted. It may if it hears everything from now on, and
/// no other client has just tried the lock. A connection that breaks later, and a message that arrives later, forbid it.
pub(crate) fn may_keep(ears: &Ears, is_tried: impl FnOnce() -> bool) -> bool {
    !is_tried() && ears.iter().all(Subscription::is_live)
}

/// How long a `try_lock` pauses before its second request.
const SECOND_TRY_PAUSE: RangeInclusive<Duration> =
    Duration::from_millis(2)..=Duration::from_millis(50);

/// How long another client usually needs to give an idle lock back: as long as the caller's own request took.
pub(crate) fn until_given_back(asked: Duration) -> Duration {
    asked.clamp(*SECOND_TRY_PAUSE.start(), *SECOND_TRY_PAUSE.end())
}

/// Names share these slots by their hash, so that the list never grows. If one of two names in a slot was tried, the
/// client does not keep the lock of the other one for a moment either.
const SLOTS: usize = 256;

/// When another client last tried the names of each slot, in vain. Such a caller stands in no line, and asks once more after a
/// pause. This client may take the lock again within that pause, but must not keep it: otherwise it could refuse every call.
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
        self.last.lock()[slot(channel)] = Some(now.into());
    }

    /// Whether the second request of a caller that has tried this lock may be on its way.
    pub(crate) fn is_expected_again(&self, channel: &str, now: Instant) -> bool {
        self.last.lock()[slot(channel)].is_some_and(|last| now < last.instant() + longest())
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

/// The place in a client's id, a UUID of version 8, that says whether the client keeps idle locks.
const PLACE: usize = 15;
const KEEPS: u8 = b'f';

/// This id, or one that differs in [`PLACE`]. Scripts send messages about kept locks to keepers only.
pub(crate) fn id_of(client: String, keeps: bool) -> String {
    let mut id = client.into_bytes();
    match id.get_mut(PLACE) {
        Some(place) if keeps => *place = KEEPS,
        Some(place) if *place == KEEPS => *place = b'0',
        _ => {}
    }
    String::from_utf8(id).expect("an id is ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_whether_its_client_keeps_locks() {
        for (random, plain) in [("8abc", "8abc"), ("8fbc", "80bc")] {
            let id = format!("01234567-89ab-{random}-8bcd-0123456789ab");
            let (keeper, other) = (id_of(id.clone(), true), id_of(id.clone(), false));
            assert_eq!(keeper, format!("01234567-89ab-8fbc-8bcd-0123456789ab"));
            assert_eq!(other, format!("01234567-89ab-{plain}-8bcd-0123456789ab"));
        }
    }

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
