//! The holds of a read that several callers share: each of them ends separately.

/// The holds of one tenure that have not ended, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Company {
    /// A bit for each hold.
    inside: Vec<u64>,
}

impl Company {
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

fn place(hold: u16) -> (usize, u64) {
    (usize::from(hold / 64), 1 << (hold % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_that_joined_leaves_for_itself() {
        let mut company = Company::default();
        for hold in [0, 63, 64, 1023] {
            assert!(!company.has(hold));
            company.enter(hold);
            assert!(company.has(hold));
        }
        company.leave(64);
        company.leave(65);
        let inside = [0, 63, 64, 65, 1023].map(|hold| company.has(hold));
        assert_eq!(inside, [true, true, false, false, true]);
    }
}
