//! A sorted set: members by score, then by their bytes.

use std::cmp::Ordering;

/// Members with scores, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Zset(Vec<(Vec<u8>, f64)>);

fn order(left: (&[u8], f64), right: (&[u8], f64)) -> Ordering {
    let scores = left.1.partial_cmp(&right.1).unwrap_or(Ordering::Equal);
    scores.then_with(|| left.0.cmp(right.0))
}

impl Zset {
    fn place(&self, member: &[u8]) -> Option<usize> {
        self.0.iter().position(|(name, _)| name == member)
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.place(member).map(|place| self.0[place].1)
    }

    pub(crate) fn set(&mut self, member: &[u8], score: f64) {
        self.remove(member);
        let before =
            |(name, value): &(Vec<u8>, f64)| order((name, *value), (member, score)).is_lt();
        let place = self.0.partition_point(before);
        self.0.insert(place, (member.to_vec(), score));
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let place = self.place(member);
        place.map(|place| self.0.remove(place)).is_some()
    }

    pub(crate) fn remove_where(&mut self, mut out: impl FnMut(f64) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(|(_, score)| !out(*score));
        before - self.0.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn members(&self) -> &[(Vec<u8>, f64)] {
        &self.0
    }
}
