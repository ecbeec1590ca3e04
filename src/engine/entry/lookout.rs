//! The lookout: which entries to look at, since their callers were notified. `unpolled.rs` looks, and skips or cancels a
//! caller whose future is not polled, so that it blocks nobody.
//!
//! 1. When a caller is notified (its turn has come, or an answer or a message has arrived), its entry is watched. The
//!    lookout checks a few times within one `pickup_timeout` whether the caller has come, and forgets the entry when it
//!    has. So a sleeping caller costs nothing, and a caller that comes in time costs one check.
//! 2. The first request of a contender is on the uncontended path of a free lock, so it is only counted, together with
//!    those that began between the same two looks. If one of them takes long, the lookout searches the table for its
//!    contender.
//! 3. The lookout counts looks, not time: after the whole process was stopped, the callers have as many looks left as
//!    before.
//! 4. A contender that sleeps has an alarm (`alarms.rs`): its own timer may belong to a runtime that does not run.
//! 5. A caller that is merely slow may be found silent. A caller that waits for the permit is skipped, and keeps its ticket. A
//!    contender that is cancelled queues again, before the callers of its client that came after it. It may lose its place in the
//!    server's line.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::engine::entry::Entry;

/// The entries of a client whose callers were notified.
#[derive(Default)]
pub(crate) struct Lookout {
    /// Weak: an entry that has gone needs no look, and an entry knows this lookout.
    watched: Mutex<Vec<Weak<Entry>>>,
    fresh: Fresh,
    asleep: AtomicBool,
    first: Notify,
}

/// Counts the contenders that have had no answer yet, by the number of looks since they began.
#[derive(Default)]
struct Fresh {
    looks: AtomicUsize,
    begun: [AtomicUsize; AGES],
}

/// The number of ages. An older contender counts as new again: if it was woken, the lookout has found it; if not, it is
/// looked for again.
const AGES: usize = 4;

/// The number of looks after which the lookout searches for the contender of a first request.
const LONG: usize = 2;

/// The age under which a contender is counted as long as it has no answer.
#[derive(Debug)]
#[must_use = "whoever begins a count has to end it"]
pub(crate) struct Age(usize);

impl Fresh {
    fn begin(&self) -> Age {
        let now = self.looks.load(Ordering::Relaxed) % AGES;
        self.begun[now].fetch_add(1, Ordering::SeqCst);
        Age(now)
    }

    fn end(&self, Age(age): Age) {
        self.begun[age].fetch_sub(1, Ordering::SeqCst);
    }

    fn is_empty(&self) -> bool {
        self.begun.iter().all(|begun| begun.load(Ordering::SeqCst) == 0)
    }

    /// Counts one more look. Returns whether a first request takes long.
    fn look(&self) -> bool {
        let now = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = |age: usize| &self.begun[now.wrapping_sub(age) % AGES];
        (LONG..AGES).any(|age| begun(age).load(Ordering::SeqCst) > 0)
    }
}

impl Lookout {
    /// Watches an entry, which is not watched yet.
    pub(crate) fn watch(&self, entry: &Arc<Entry>) {
        let mut all = self.watched.lock().expect("no panic under this lock");
        let is_first = all.is_empty();
        all.push(Arc::downgrade(entry));
        drop(all);
        if is_first {
            self.rouse();
        }
    }

    /// A contender begins. It has no answer yet.
    pub(crate) fn begin(&self) -> Age {
        let age = self.fresh.begin();
        self.rouse();
        age
    }

    /// The contender has an answer, or was cancelled, or its caller has left.
    pub(crate) fn end(&self, age: Age) {
        self.fresh.end(age);
    }

    fn rouse(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.first.notify_one();
        }
    }

    /// Sleeps as long as there is nothing to look at, and until the next alarm at most.
    pub(crate) async fn sleep(&self, alarm: Option<Instant>) {
        // Announce the sleep, and then check: an entry that arrives in between wakes it.
        self.asleep.store(true, Ordering::SeqCst);
        if self.is_idle() {
            let first = self.first.notified();
            match alarm {
                Some(at) => _ = timeout_at(at, first).await,
                None => first.await,
            }
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        let watched = self.watched.lock().expect("no panic under this lock");
        watched.is_empty() && self.fresh.is_empty()
    }

    /// Pauses. Returns all entries watched by then, and whether a first request takes long.
    pub(crate) async fn next(&self, pause: Duration) -> (Vec<Weak<Entry>>, bool) {
        sleep(pause).await;
        let takes_long = self.fresh.look();
        (std::mem::take(&mut *self.watched.lock().expect("no panic under this lock")), takes_long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_request_without_an_answer_takes_long_after_two_looks() {
        let fresh = Fresh::default();
        let slow = fresh.begin();
        for look in 1..=3 {
            let quick = fresh.begin();
            assert_eq!(fresh.look(), look >= LONG, "look {look}");
            fresh.end(quick);
        }
        fresh.end(slow);
        assert!(fresh.is_empty() && !fresh.look());
    }
}
