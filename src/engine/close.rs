//! How a client closes: it gives up its places in line and its tenures, and waits for its tasks to end. The releaser ends
//! last: when the client owes nothing more (`debts.rs`), or when the releaser's patience is over (`releaser.rs`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::engine::shared::Engine;
use crate::log;

/// How often a client that drains looks whether it is idle.
const LOOKS_APART: Duration = Duration::from_millis(10);

impl Engine {
    /// Waits until nobody holds anything, waits, asks or orders, but not longer than `limit`. Returns whether that is so.
    pub(crate) async fn idle_within(&self, limit: Duration) -> bool {
        let idle = async {
            while !self.is_idle() {
                sleep(LOOKS_APART).await;
            }
        };
        let is_idle = timeout(limit, idle).await.is_ok();
        if !is_idle {
            let waiting = self.waiters.load(Ordering::Relaxed);
            log::warn!(?limit, waiting, "the client is closed before all its callers have ended");
        }
        is_idle
    }

    /// Whether no caller asks, waits, orders or holds. `close` waits for what the client still releases.
    fn is_idle(&self) -> bool {
        self.calls.are_over(|| self.outbox.timetable.is_held())
    }

    /// Rejects waiters, notifies guards of their loss, releases all locks, and waits for the client's tasks to end.
    pub(crate) async fn close(&self) {
        // This debt keeps the releaser running until it has received everything that ends here.
        let handing_over = self.outbox.debts.tidying();
        self.outbox.debts.close();
        for entry in self.table.close() {
            if let Some(id) = entry.with(|lock| lock.leave_line()) {
                self.outbox.leave_line(&entry.keys, id);
            }
            self.table.give_back_all(entry.with(|lock| lock.take_held_back()));
        }
        for tenure in self.outbox.timetable.close() {
            self.give_up(&tenure);
        }
        drop(handing_over);
        self.closing.cancel();
        self.tasks.wait().await;
    }
}
