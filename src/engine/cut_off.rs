//! The callers of a client that wait for a connection. Without a pause, all of them would ask at the moment of its return.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// After a reconnect, the requests of all callers that waited for it are spread over some time. Each adds this much to it.
const SPREAD: Duration = Duration::from_micros(50);

/// The callers that wait for a connection.
#[derive(Default)]
pub(crate) struct CutOff(AtomicU32);

impl CutOff {
    /// Counts a caller, until the value is dropped.
    pub(crate) fn wait(&self) -> Waits<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Waits(&self.0)
    }
}

/// A caller that waits for a connection.
pub(crate) struct Waits<'a>(&'a AtomicU32);

impl Waits<'_> {
    /// For how long the caller pauses now that the connection is back: for a random time, which grows with the number of
    /// callers that wait for it.
    pub(crate) fn pause(&self) -> Duration {
        SPREAD.saturating_mul(self.0.load(Ordering::Relaxed)).mul_f64(fastrand::f64())
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_callers_that_wait_for_a_connection_are_spread() {
        const CALLERS: u32 = 2_000;
        let cut_off = CutOff::default();
        let waits: Vec<_> = (0..CALLERS).map(|_| cut_off.wait()).collect();
        let longest = waits.iter().map(Waits::pause).max().unwrap();
        assert!(longest > SPREAD * CALLERS / 2 && longest <= SPREAD * CALLERS, "{longest:?}");
        drop(waits);
        assert!(cut_off.wait().pause() <= SPREAD, "the others have gone");
    }
}
