//! What happened, as one number, and on demand as lines.
//!
//! Every byte on the wire and its time goes into the hash: two runs with equal hashes had one history.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::clock;

/// How many lines are kept for the end of a run that failed.
const KEPT: usize = 400_000;

#[derive(Default)]
struct Trace {
    hash: u64,
    events: u64,
    keeps: bool,
    lines: VecDeque<String>,
}

thread_local! {
    static TRACE: RefCell<Trace> = RefCell::default();
}

/// From now on the lines are kept, which costs time.
pub fn keep() {
    TRACE.with_borrow_mut(|trace| trace.keeps = true);
}

/// Adds an event to the history.
pub fn mix(what: u64, bytes: &[u8]) {
    TRACE.with_borrow_mut(|trace| {
        trace.events += 1;
        let mut hash = step(step(trace.hash, clock::now()), what);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            hash = step(hash, u64::from_le_bytes(*word));
        }
        for byte in rest {
            hash = step(hash, u64::from(*byte));
        }
        trace.hash = step(hash, bytes.len() as u64);
    });
}

fn step(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// Keeps a line, if lines are kept.
pub fn line(what: impl FnOnce() -> String) {
    TRACE.with_borrow_mut(|trace| {
        if !trace.keeps {
            return;
        }
        if trace.lines.len() == KEPT {
            trace.lines.pop_front();
        }
        let now = clock::now();
        trace.lines.push_back(format!("{:>12.6}  {}", now as f64 / 1e9, what()));
    });
}

/// The hash of all that happened, and of how many events.
pub fn sum() -> (u64, u64) {
    TRACE.with_borrow(|trace| (trace.hash, trace.events))
}

/// The lines that were kept.
pub fn lines() -> Vec<String> {
    TRACE.with_borrow(|trace| trace.lines.iter().cloned().collect())
}
