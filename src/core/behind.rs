//! Which caller of the same client stands right behind a caller in the server's line. Only a fair lock has this: each of its
//! callers stands in the line, and the server says so to a caller that has lined up right behind another one of its client.
//! No newcomer comes between the two, since each of them goes to the end. So the holder may hand the lock on to that caller, and
//! the order stays exact. Only a caller of another client that had a place between them before, and lost it, may get it back.

use crate::keys::TenureId;

/// What a caller knows of the one right behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Nobody is known.
    #[default]
    Nobody,
    /// The entry of that caller, by its id.
    Caller(TenureId),
    /// This caller goes on under another owner field, perhaps at another place. Its former owner field may still stand in the
    /// line, or a late request may put it at the end of the line. So the caller that counted as right behind may stand behind
    /// the former owner field alone. Callers of other clients may stand between the two places, and a hand-over would
    /// overtake them.
    Moved,
}

impl Behind {
    pub(crate) fn get(self) -> Option<TenureId> {
        if let Self::Caller(id) = self { Some(id) } else { None }
    }

    /// This caller has lined up right behind.
    pub(crate) fn set(&mut self, id: TenureId) {
        if *self == Self::Nobody {
            *self = Self::Caller(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_caller_that_lines_up_behind_is_known_until_the_one_ahead_moves() {
        let mut behind = Behind::default();
        assert_eq!(behind.get(), None);
        behind.set(TenureId(0));
        behind.set(TenureId(7));
        assert_eq!(behind, Behind::Caller(TenureId(0)));
        behind = Behind::Moved;
        behind.set(TenureId(7));
        assert_eq!((behind.get(), behind), (None, Behind::Moved));
    }
}
