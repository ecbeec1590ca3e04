//! How a client closes: it gives up its places in line and its tenures, and waits for its tasks to end. The releaser ends
//! last: when the client owes nothing more (`debts.rs`), or when the releaser's patience is over (`releaser.rs`).

use crate::engine::core::Engine;

impl Engine {
    /// Rejects waiters, notifies guards of their loss, releases all locks, and waits for the client's tasks to end.
    pub(crate) async fn close(&self) {
        // This debt keeps the releaser running until it has received everything that ends here.
        let handing_over = self.debts.tidying();
        self.debts.close();
        for entry in self.table.close() {
            if let Some(id) = entry.leave_line() {
                self.leave_line(&entry.keys, id);
            }
            self.give_back_former(entry.take_held_back());
        }
        for tenure in self.timetable.close() {
            self.give_up(&tenure);
        }
        drop(handing_over);
        self.closing.cancel();
        self.tasks.wait().await;
    }
}
