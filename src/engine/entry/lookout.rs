//! The lookout: which entries to look at, since a caller should come there. `unpolled.rs` looks, and skips or cancels a
//! caller whose future is not polled, so that it blocks nobody.
//!
//! 1. An entry is here while its contender waits for an answer, and when a caller is notified: its turn has come, or an
//!    answer or a message has arrived. The lookout checks a few times within one `pickup_timeout` whether the caller has
//!    come, and forgets the entry when it has. So a sleeping caller costs nothing, and a caller that comes in time costs
//!    one check.
//! 2. The lookout counts looks, not time: after the whole process was stopped, the callers have as many looks left as
//!    before.
//! 3. A contender that sleeps has an alarm (`alarms.rs`): its own timer may belong to a runtime that does not run.
//! 4. A caller that is merely slow may be found silent. A caller that waits for the permit is skipped, and keeps its ticket. A
//!    contender that is cancelled queues again, before the callers of its client that came after it. It may lose its place in the
//!    server's line.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::engine::entry::Entry;
use crate::mutex::Mutex;
use crate::pause::in_time;

/// So many entries may lie here although they have gone.
const FEW: usize = 64;

/// The entries of a client whose callers have to be looked at.
#[derive(Default)]
pub(crate) struct Lookout {
    list: Mutex<List>,
    /// An entry has come, and none was here before.
    first: Notify,
}

/// The entries on the lookout.
#[derive(Default)]
struct List {
    /// Weak: an entry that has gone needs no look, and an entry knows this lookout.
    entries: Vec<Weak<Entry>>,
    /// With more entries than this, those that have gone are dropped: their memory stays as long as they are here.
    most: usize,
}

impl List {
    /// Adds an entry. Returns whether it is the only one.
    fn put(&mut self, entry: &Arc<Entry>) -> bool {
        if self.entries.len() >= self.most {
            self.entries.retain(|entry| entry.strong_count() > 0);
            self.most = FEW.max(self.entries.len() * 2);
        }
        self.entries.push(Arc::downgrade(entry));
        self.entries.len() == 1
    }
}

impl Lookout {
    /// Adds an entry, which is not here yet.
    pub(crate) fn add(&self, entry: &Arc<Entry>) {
        if self.list.lock().put(entry) {
            self.first.notify_one();
        }
    }

    /// Sleeps as long as there is nothing to look at, and until the next alarm at most.
    pub(crate) async fn sleep(&self, alarm: Option<Instant>) {
        // An entry that has come since the last look has left a word here.
        in_time(alarm, self.first.notified()).await;
    }

    /// Pauses. Returns all entries that are here by then.
    pub(crate) async fn next(&self, pause: Duration) -> Vec<Weak<Entry>> {
        sleep(pause).await;
        std::mem::take(&mut self.list.lock().entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layout;
    use crate::engine::entry::Table;
    use crate::keys::Keys;
    use crate::kinds::Kind;

    #[test]
    fn entries_that_have_gone_do_not_pile_up() {
        let (table, lookout) = (Arc::new(Table::default()), Lookout::default());
        let visit = |name: usize| {
            let keys = Keys::new(Layout::Native, Kind::Lock, name.to_string()).unwrap();
            table.visit(&Arc::new(keys), 1).unwrap()
        };
        let stays = visit(0);
        lookout.add(&stays.entry);
        for name in 1..1_000 {
            lookout.add(&visit(name).entry);
            assert!(lookout.list.lock().entries.len() <= FEW);
        }
        let there = lookout.list.lock().entries.iter().filter_map(Weak::upgrade).count();
        assert_eq!(there, 1);
    }
}
