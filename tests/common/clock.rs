//! The clock that all processes of one machine share.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds: what `Instant` reads on Linux too, but as a number that means the same to others.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("it begins at the start of the machine");
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect("a fraction of a second")
}
