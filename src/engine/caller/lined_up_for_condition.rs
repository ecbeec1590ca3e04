//! The waiter of a condition tells the holder of the lock that it stands in line: only then may the holder release the
//! lock. Both are parts of one call (`engine/holding/condition.rs`).

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether a waiter stands in the line of its condition.
#[derive(Default)]
pub(crate) struct LinedUp {
    stands: AtomicBool,
    told: Notify,
}

impl LinedUp {
    pub(super) fn tell(&self) {
        self.stands.store(true, Ordering::Release);
        self.told.notify_one();
    }

    pub(super) fn is_so(&self) -> bool {
        self.stands.load(Ordering::Acquire)
    }

    /// Waits until the waiter stands in line. Only one caller waits for that.
    pub(crate) async fn wait(&self) {
        while !self.is_so() {
            self.told.notified().await;
        }
    }
}
