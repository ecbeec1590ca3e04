//! What each script is asked: its KEYS and its ARGV, as the header of its file says.

use crate::scripts::{self as s, Dialect, Script};
use crate::words;
use fastrand::Rng;

/// `keys | argv`, see [`words::fill`].
type Shape = (&'static Script, &'static str);

const LINE: &str = "tokens holders queue notes | floor kind capacity channel client patience";
const LOCK: &str = "tokens lock line line_notes | floor lock 1 channel client patience";
const FAIR: &str = "tokens fair fair_queue deadlines | floor kind 1 channel message patience";
const RW: &str = "tokens rw unused readers | floor rw 1000000 channel client patience";
const SEMAPHORE: &str =
    "tokens free leases permits | floor skind capacity channel message patience";
const CONDITION: &str = "tokens notified waiters waiter_notes requests \
                         | floor condition 1073741824 channel client patience";
const LATCH: &str = "tokens latch line line_notes requests | floor latch 1 channel client patience";
const REDISSON_LATCH: &str = "tokens latch requests | floor latch 1 channel message patience";

/// Scripts whose KEYS and ARGV begin as those of their family do, and what follows.
fn families() -> Vec<(&'static Script, &'static str, &'static str)> {
    vec![
        (&s::LINE_STATUS, LINE, ""),
        (&s::LINE_FORCE_UNLOCK, LINE, ""),
        (&s::LINE_RESIZE, LINE, "capacity"),
        (&s::CONDITION_TAKEN, CONDITION, "field"),
        (&s::CONDITION_NOTIFY, CONDITION, "request keep whom"),
        (&s::CONDITION_STATUS, CONDITION, ""),
        (&s::CONDITION_FORCE_UNLOCK, CONDITION, ""),
        (&s::LOCK_FORCE_UNLOCK, LOCK, ""),
        (&s::REDISSON_FAIR_ACQUIRE, FAIR, "field 1 lease manner beneath place secret"),
        (&s::REDISSON_FAIR_RELEASE, FAIR, "field"),
        (&s::REDISSON_FAIR_RENEW, FAIR, "field lease"),
        (&s::REDISSON_FAIR_FORCE_UNLOCK, FAIR, ""),
        (&s::REDISSON_READ_ACQUIRE, RW, "field 1 lease manner beneath place secret"),
        (&s::REDISSON_READ_RELEASE, RW, "field"),
        (&s::REDISSON_READ_RENEW, RW, "field lease"),
        (&s::REDISSON_WRITE_ACQUIRE, RW, "field 1000000 lease manner beneath place secret"),
        (&s::REDISSON_WRITE_RELEASE, RW, "field"),
        (&s::REDISSON_RW_STATUS, RW, ""),
        (&s::REDISSON_RW_FORCE_UNLOCK, RW, ""),
        (&s::REDISSON_SEMAPHORE_ACQUIRE, SEMAPHORE, "field part lease manner beneath place secret"),
        (&s::REDISSON_SEMAPHORE_RELEASE, SEMAPHORE, "field"),
        (&s::REDISSON_SEMAPHORE_RENEW, SEMAPHORE, "field lease"),
        (&s::REDISSON_SEMAPHORE_STATUS, SEMAPHORE, ""),
        (&s::REDISSON_SEMAPHORE_FORCE_UNLOCK, SEMAPHORE, ""),
        (&s::REDISSON_SEMAPHORE_RESIZE, SEMAPHORE, "capacity"),
        (&s::LATCH_ACQUIRE, LATCH, ""),
        (&s::LATCH_RELEASE, LATCH, ""),
        (&s::LATCH_STATUS, LATCH, ""),
        (&s::LATCH_ORDER, LATCH, "request keep order count lease"),
        (&s::REDISSON_LATCH_ACQUIRE, REDISSON_LATCH, ""),
        (&s::REDISSON_LATCH_STATUS, REDISSON_LATCH, ""),
        (&s::REDISSON_LATCH_ORDER, REDISSON_LATCH, "request keep order count lease"),
    ]
}

fn locks() -> Vec<Shape> {
    vec![
        (
            &s::LINE_ACQUIRE,
            "tokens holders queue notes \
             | floor kind capacity field lease waiter [part manner beneath place old]",
        ),
        (
            &s::CONDITION_ACQUIRE,
            "tokens notified waiters waiter_notes \
             | floor condition 1073741824 field lease waiter [1 manner beneath place old]",
        ),
        (
            &s::LOCK_ACQUIRE,
            "tokens lock line line_notes \
             | floor field lease waiter [1 manner beneath place old]",
        ),
        (&s::TAKE, "tokens (lock line)+ | floor (field lease)+"),
        (
            &s::LINE_ACQUIRE_EACH,
            "tokens (holders queue notes)+ | floor line_terms (field wish secret)+",
        ),
        (
            &s::LOCK_ACQUIRE_ALL,
            "tokens (lock line line_notes)+ | floor client patience (field lease channel)+",
        ),
        (&s::LOCK_RELEASE, "tokens (lock line line_notes)+ | terms (field)+"),
        (&s::LINE_RELEASE, "tokens (holders queue notes)+ | terms (named field)+"),
        (
            &s::CONDITION_RELEASE,
            "tokens (notified waiters waiter_notes)+ | terms (condition_named field)+",
        ),
        (&s::LOCK_RELEASE_ALONE, "lock | field channel message"),
        (&s::LINE_RELEASE_ALONE, "lock | field channel message"),
        (
            &s::RENEW,
            "(lock)+ (rw)+ (holders)+ | (field lease_and_count)+ (writer lease)+ (field lease_in_set)+",
        ),
        (
            &s::RENEW_IN_SESSION,
            "(lock)+ (holders)+ (line_notes)+ (notes)+ | (field lease_and_count)+ (field lease_in_set)+",
        ),
        (&s::STATUS, "lock |"),
        (&s::ANNOUNCE, "lock leader | field said keep"),
        (&s::LEADER, "lock leader |"),
        (&s::CLAIM, "lock interval | field value keep"),
        (&s::LEFT, "interval |"),
        (&s::REDISSON_LOCK_ACQUIRE, "tokens (lock)+ | floor (field lease)+"),
        (&s::REDISSON_FENCED_ACQUIRE, "fenced (lock)+ | floor (field lease)+"),
        (&s::REDISSON_LOCK_ACQUIRE_ALL, "tokens (lock)+ | floor (field lease)+"),
        (&s::REDISSON_LOCK_RELEASE, "(lock)+ | message (field channel)+"),
        (&s::REDISSON_LOCK_FORCE_UNLOCK, "lock | channel message"),
    ]
}

/// A script as the servers get it, and how it is asked.
pub struct Asked {
    pub text: Vec<u8>,
    pub hash: String,
    shape: String,
    /// How often it was answered, but for errors.
    pub answers: usize,
}

/// Every script of the library's table. Panics if one of them has no shape here.
pub fn all() -> Vec<Asked> {
    let families =
        families().into_iter().map(|(script, head, rest)| (script, format!("{head} {rest}")));
    let shapes: Vec<_> = locks()
        .into_iter()
        .map(|(script, shape)| (script, shape.to_owned()))
        .chain(families)
        .collect();
    let asked = s::ALL.iter().map(|script| {
        let text = script.text(Dialect::Plain);
        let shape = shapes.iter().find(|(known, _)| std::ptr::eq(*known, *script));
        let begin = text.lines().take(2).collect::<Vec<_>>().join("\n");
        let (_, shape) = shape
            .unwrap_or_else(|| panic!("a script has no shape in shapes.rs: {script:?}\n{begin}"));
        let hash = script.hash(Dialect::Plain).to_owned();
        Asked { text: text.into(), hash, shape: shape.clone(), answers: 0 }
    });
    asked.collect()
}

impl Asked {
    /// What it is for, by the first line of the file that is its own.
    pub fn title(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let own = text.rsplit("\n-- KEYS ").nth(1).unwrap_or(&text);
        own.lines().rev().find(|line| line.starts_with("-- ")).unwrap_or_default().to_owned()
    }

    /// The number of its keys, its keys and its arguments.
    pub fn words(&self, rng: &mut Rng, now: u64) -> Vec<Vec<u8>> {
        let (keys, argv) = self.shape.split_once('|').expect("a shape has two halves");
        let (family, times) = (rng.u8(1..=2), words::pick(rng, &[1, 1, 1, 2, 3]));
        let mut keys = words::fill(rng, keys, family, times, now);
        let mut argv = words::fill(rng, argv, family, times, now);
        if rng.bool() {
            words::spoil(rng, &mut argv, 0);
        }
        if rng.u8(..12) == 0 {
            let place = rng.usize(..keys.len());
            keys[place] = words::key(rng).into_bytes();
        }
        if rng.u8(..100) == 0 {
            words::spoil(rng, &mut keys, 0);
        }
        let count = if rng.u8(..200) == 0 {
            words::absurd(rng)
        } else {
            keys.len().to_string().into_bytes()
        };
        [vec![count], keys, argv].concat()
    }
}
