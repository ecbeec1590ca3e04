//! When two answers are the same.
//!
//! They are, if they are equal. One thing only is tolerated: where the real server writes the time in microseconds, it
//! reads its clock a little later than we were told. Both numbers lie within the step then.

use parklock_simulated_server::{Content, Entry};

use crate::frame::Frame;

/// From before a step to after it, by the real server's clock in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub begin: u64,
    pub end: u64,
}

impl Window {
    /// Grants are numbered on from the time: a few more may follow.
    const COUNTED_ON: u64 = 64;

    fn holds(self, stamp: u64) -> bool {
        (self.begin - 1..=self.end + Self::COUNTED_ON).contains(&stamp)
    }
}

/// How two answers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    Equal,
    /// Equal, but for stamps in microseconds.
    Stamped,
    Different,
}

/// Both are stamps of one of these steps.
fn both_within(windows: &[Window], left: u64, right: u64) -> bool {
    windows.iter().any(|window| window.holds(left) && window.holds(right))
}

pub fn texts(windows: &[Window], left: &[u8], right: &[u8]) -> Likeness {
    if left == right {
        return Likeness::Equal;
    }
    let (mut left, mut right) = (runs(left), runs(right));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Likeness::Stamped,
            (Some(left), Some(right)) if left == right => {}
            (Some(left), Some(right)) => {
                let stamp = |run: &[u8]| {
                    std::str::from_utf8(run).ok().filter(|run| run.len() == 16)?.parse().ok()
                };
                let stamps = stamp(left).zip(stamp(right));
                if !stamps.is_some_and(|(left, right)| both_within(windows, left, right)) {
                    return Likeness::Different;
                }
            }
            _ => return Likeness::Different,
        }
    }
}

/// The text in pieces of digits alone and of none.
fn runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.chunk_by(|left, right| left.is_ascii_digit() == right.is_ascii_digit())
}

pub fn frames(windows: &[Window], left: &[Frame], right: &[Frame]) -> Likeness {
    if left.len() != right.len() {
        return Likeness::Different;
    }
    let each = left.iter().zip(right).map(|(left, right)| frame(windows, left, right));
    each.max().unwrap_or(Likeness::Equal)
}

fn frame(windows: &[Window], left: &Frame, right: &Frame) -> Likeness {
    if left.kind != right.kind {
        return Likeness::Different;
    }
    texts(windows, &left.text, &right.text).max(frames(windows, &left.items, &right.items))
}

/// The keys of both sides, each in order.
pub fn key_spaces(windows: &[Window], left: &[Entry], right: &[Entry]) -> Likeness {
    if left.len() != right.len() {
        return Likeness::Different;
    }
    left.iter()
        .zip(right)
        .map(|(left, right)| entries(windows, left, right))
        .max()
        .unwrap_or(Likeness::Equal)
}

pub fn entries(windows: &[Window], left: &Entry, right: &Entry) -> Likeness {
    // The real server's TTLs are read by a script: beyond 2^53, Lua rounds them.
    let exact = left.pttl.max(right.pttl) < 1 << 53;
    let ttls = if exact {
        left.pttl == right.pttl
    } else {
        left.pttl as f64 / right.pttl as f64 - 1.0 < 1e-12
    };
    if (left.database, &left.key) != (right.database, &right.key) || !ttls {
        return Likeness::Different;
    }
    let all = |pairs: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
        pairs.map(|(left, right)| texts(windows, left, right)).max().unwrap_or(Likeness::Equal)
    };
    match (&left.content, &right.content) {
        (Content::Text(left), Content::Text(right)) => texts(windows, left, right),
        (Content::List(left), Content::List(right)) if left.len() == right.len() => {
            all(&mut left.iter().zip(right))
        }
        (Content::Hash(left), Content::Hash(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right);
            all(&mut pairs.flat_map(|(left, right)| [(&left.0, &right.0), (&left.1, &right.1)]))
        }
        (Content::Zset(left), Content::Zset(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right);
            let scores = pairs.clone().map(|(left, right)| score(windows, left.1, right.1));
            let scores = scores.max().unwrap_or(Likeness::Equal);
            scores.max(all(&mut pairs.map(|(left, right)| (&left.0, &right.0))))
        }
        _ => Likeness::Different,
    }
}

fn score(windows: &[Window], left: f64, right: f64) -> Likeness {
    if left == right {
        return Likeness::Equal;
    }
    let stamps = both_within(windows, left as u64, right as u64);
    if stamps { Likeness::Stamped } else { Likeness::Different }
}
