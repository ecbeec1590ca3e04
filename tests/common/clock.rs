//! The clock that all processes of one machine share.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds: what `Instant` reads on Linux too, but as a number that means the same to others.
pub fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// What a server's leases count on: somebody may set it, and it goes on while the machine is suspended.
pub fn wall() -> u64 {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("both begin before now");
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect("a fraction of a second")
}
