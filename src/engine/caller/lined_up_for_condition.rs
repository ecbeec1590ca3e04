//! The waiter of a condition tells the holder of the lock that it stands in line: only then may the holder release the
//! lock. Both are parts of one call (`engine/holding/condition.rs`).
//!
//! A notification is an event: once it is forgotten, nothing that the waiter could ask says that it has happened. A
//! failover forgets one if the replica had only the line. So a waiter whose line is at another primary now returns as if
//! it had been notified.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Whether a waiter stands in the line of its condition.
#[derive(Default)]
pub(crate) struct LinedUp {
    stands: AtomicBool,
    /// The primary of its line, by its number; 0: not known.
    primary: AtomicU64,
    told: Notify,
}

impl LinedUp {
    pub(super) fn tell(&self) {
        self.stands.store(true, Ordering::Release);
        self.told.notify_one();
    }

    /// The waiter is about to ask. The request may still go to a later primary than this one: then the waiter returns
    /// without a need, which it may.
    pub(super) fn asks(&self, primary: Option<u64>) {
        if !self.is_so() {
            self.primary.store(primary.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Whether the line was at another primary when the waiter entered it.
    pub(super) fn may_be_forgotten(&self, primary: Option<u64>) -> bool {
        let entered = self.primary.load(Ordering::Relaxed);
        self.is_so() && primary.is_some_and(|primary| primary != entered)
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
