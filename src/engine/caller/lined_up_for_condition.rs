//! The waiter of a condition tells the holder of the lock that it stands in line: only then may the holder release the
//! lock. Both are parts of one call (`engine/holding/condition.rs`).
//!
//! A notification is an event: once it is forgotten, nothing that the waiter could ask says that it has happened. A
//! failover forgets one if the replica had only the line. So a waiter whose line is at another primary now returns as if
//! it had been notified.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::SetOnce;

/// Whether a waiter stands in the line of its condition.
#[derive(Default)]
pub(crate) struct LinedUp {
    /// The primary that was last asked, by its number; 0: not known.
    asked: AtomicU64,
    /// The primary of its line, once it stands there.
    entered: SetOnce<u64>,
}

impl LinedUp {
    pub(super) fn tell(&self) {
        // If this fails, it stands there already.
        let _ = self.entered.set(self.asked.load(Ordering::Relaxed));
    }

    /// The waiter is about to ask. The request may still go to a later primary than this one: then the waiter returns
    /// without a need, which it may.
    pub(super) fn asks(&self, primary: Option<u64>) {
        self.asked.store(primary.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether the line was at another primary when the waiter entered it.
    pub(super) fn may_be_forgotten(&self, primary: Option<u64>) -> bool {
        let entered = self.entered.get();
        entered.zip(primary).is_some_and(|(entered, primary)| primary != *entered)
    }

    pub(super) fn is_so(&self) -> bool {
        self.entered.initialized()
    }

    /// Waits until the waiter stands in line.
    pub(crate) async fn wait(&self) {
        self.entered.wait().await;
    }
}
