//! The gate at which a contender parks until it is notified. `queue.rs` says which caller of a client is the contender:
//! first come, first served.

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::meters;

/// The gate at which the contender parks until it is notified.
pub(crate) struct Gate {
    permits: Semaphore,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { permits: Semaphore::new(0) }
    }

    /// Lets the contender through, or the next one if there is none now. Two tasks that open the gate at once may store
    /// two openings. Then the contender asks once more than necessary.
    pub(crate) fn open(&self) {
        if self.permits.available_permits() == 0 {
            self.permits.add_permits(1);
        }
    }

    /// Parks until the gate is opened or the time is over.
    ///
    /// # Errors
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    /// An opening that a dropped future has not seen stays stored for the next contender.
    pub(crate) async fn pass(&self, until: Instant) -> Result<()> {
        match timeout_at(until, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit.forget(),
            Ok(Err(_)) => return Err(Error::Closed),
            Err(_) => meters::woken("ttl", || 1),
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn was_opened(&self) -> bool {
        self.permits.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok()
    }

    pub(crate) fn close(&self) {
        self.permits.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_banks_one_opening() {
        let (gate, start) = (Gate::new(), Instant::now());
        gate.open();
        gate.open();
        gate.pass(far()).await.unwrap();
        assert_eq!(Instant::now(), start);
        gate.pass(far()).await.unwrap();
        assert!(Instant::now() > start);
    }
}
