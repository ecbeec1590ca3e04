//! The kept lock (`Config::keep`): after an unlock, a client keeps a plain lock for a while, held by no caller. Its next
//! caller gets it without a request. This file says whether a lock may be kept. `tenure/hand_over.rs` keeps it,
//! `caller/pick_up.rs` takes it up, `listener.rs` hears the messages, and `unlock.rs` has the watchdog give it back when its time is over.
//!
//! 1. A client keeps a lock only if it would have heard that another client wants it: its channels were live before it sent
//!    the request, the answer said that nobody waits, and no message has come since.
//! 2. The first waiter in line, or a client that only tries, tells the keeper that it wants the lock
//!    (`lua/line/keeper.lua`). The keeper gives the lock back at once if no caller holds it, or else when its
//!    holder unlocks.
//! 3. A client that only tries asks once more after a pause. For 300 ms the keeper may take that lock again, but does not keep
//!    it (`tried.rs`).
//! 4. An idle tenure is renewed, and can be lost, like a held one. Its next holder checks its deadline.

mod tried;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::wire::Subscription;

pub(crate) use tried::Tried;

/// Whether a client may keep a lock that none of its callers holds.
pub(crate) struct Keep {
    subscriptions: Vec<Subscription>,
    is_allowed: bool,
}

impl Keep {
    pub(crate) fn new(subscriptions: Vec<Subscription>) -> Self {
        Self { subscriptions, is_allowed: false }
    }

    /// The client is about to ask for the lock. Whatever it is granted, it may keep, if it hears everything from now on, and
    /// if no other client has just tried the lock. A connection that breaks later, and a message that arrives later, forbid it.
    pub(crate) fn allow(&mut self, is_tried: impl FnOnce() -> bool) {
        self.is_allowed = !is_tried() && self.subscriptions.iter().all(Subscription::is_live);
    }

    /// Another client wants the lock, or this one does not hear it.
    pub(crate) fn forbid(&mut self) {
        self.is_allowed = false;
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.is_allowed
    }
}

/// How long a `try_lock` pauses before its second request.
pub(crate) const SECOND_TRY_PAUSE: RangeInclusive<Duration> =
    Duration::from_millis(2)..=Duration::from_millis(50);

/// How long another client usually needs to give an idle lock back: as long as the caller's own request took.
pub(crate) fn until_given_back(asked: Duration) -> Duration {
    asked.clamp(*SECOND_TRY_PAUSE.start(), *SECOND_TRY_PAUSE.end())
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
}
