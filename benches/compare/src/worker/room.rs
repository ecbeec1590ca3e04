//! Counts the callers inside of something with limited room, and how often there were too many.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::variants::Kind;

/// As many readers as one likes take less room than one writer.
const WHOLE: u64 = 1 << 32;

/// The room of one name.
#[derive(Debug)]
pub struct Room {
    size: u64,
    taken: AtomicU64,
    overfull: AtomicU64,
}

impl Room {
    /// For callers of these kinds, all of one name.
    pub fn of(kinds: &[Kind]) -> Self {
        let permits = kinds.iter().find_map(|kind| match kind {
            Kind::Permits(permits) => Some(u64::from(*permits)),
            _ => None,
        });
        let size = permits.unwrap_or(WHOLE);
        Self { size, taken: AtomicU64::new(0), overfull: AtomicU64::new(0) }
    }

    pub fn enter(&self, kind: Kind) {
        let room = self.room(kind);
        if self.taken.fetch_add(room, Relaxed) + room > self.size {
            self.overfull.fetch_add(1, Relaxed);
        }
    }

    pub fn leave(&self, kind: Kind) {
        self.taken.fetch_sub(self.room(kind), Relaxed);
    }

    /// How often somebody came in though there was no room.
    pub fn overfull(&self) -> u64 {
        self.overfull.load(Relaxed)
    }

    const fn room(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read | Kind::Permits(_) => 1,
            Kind::Lock | Kind::Fair | Kind::Write => self.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_beside_a_reader_is_seen() {
        let room = Room::of(&[Kind::Write, Kind::Read]);
        room.enter(Kind::Read);
        room.enter(Kind::Read);
        assert_eq!(room.overfull(), 0);
        room.enter(Kind::Write);
        assert_eq!(room.overfull(), 1);
    }

    #[test]
    fn one_more_than_there_are_permits_is_seen() {
        let room = Room::of(&[Kind::Permits(2)]);
        room.enter(Kind::Permits(2));
        room.enter(Kind::Permits(2));
        room.leave(Kind::Permits(2));
        room.enter(Kind::Permits(2));
        assert_eq!(room.overfull(), 0);
        room.enter(Kind::Permits(2));
        assert_eq!(room.overfull(), 1);
    }
}
