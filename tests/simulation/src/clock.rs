//! The time of the world, in nanoseconds since it began. Processes have clocks of their own, which may drift.

use std::cell::Cell;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

pub const MICRO: u64 = 1_000;
pub const MILLI: u64 = 1_000 * MICRO;
pub const SECOND: u64 = 1_000 * MILLI;

pub fn now() -> u64 {
    NOW.get()
}

pub fn set(now: u64) {
    NOW.set(now);
}
