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

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::engine::entry::alarms::Alarm;

/// The entries `E` of a client whose callers were notified.
pub(crate) struct Lookout<E> {
    /// Weak: an entry that has gone needs no look, and an entry knows this lookout.
    watched: Mutex<Vec<Weak<E>>>,
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

/// The age under which the contender of an entry is counted as long as it has no answer; 0: not counted. Each contender
/// that is counted adds [`NEXT`], so that no two have the same stamp.
#[derive(Default)]
pub(crate) struct Age(AtomicU32);

/// What is added for each contender. Smaller parts are the age.
const NEXT: u32 = 8;

/// The count of one contender. When its caller leaves, its entry may have counted the next contender already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp(u32);

impl Fresh {
    fn begin(&self, age: &Age) -> Stamp {
        let now = self.looks.load(Ordering::Relaxed) % AGES;
        self.begun[now].fetch_add(1, Ordering::SeqCst);
        // Only a contender with the permit begins, so no other one takes the same stamp.
        let before = age.0.load(Ordering::SeqCst);
        let stamp = (before - before % NEXT).wrapping_add(NEXT) + now as u32 + 1;
        // The previous contender may still be counted.
        self.forget(age.0.swap(stamp, Ordering::SeqCst));
        Stamp(stamp)
    }

    /// Ends the count of whatever contender is counted.
    fn end(&self, age: &Age) {
        // Usually it got its answer long ago. This runs in each hand-over, so it must be cheap.
        if !age.0.load(Ordering::SeqCst).is_multiple_of(NEXT) {
            self.forget(age.0.fetch_and(!(NEXT - 1), Ordering::SeqCst));
        }
    }

    /// Ends the count of this contender, unless it has ended.
    fn end_of(&self, age: &Age, Stamp(stamp): Stamp) {
        let ended = stamp - stamp % NEXT;
        if age.0.compare_exchange(stamp, ended, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.forget(stamp);
        }
    }

    fn forget(&self, stamp: u32) {
        if let Some(begun) = (stamp % NEXT).checked_sub(1) {
            self.begun[begun as usize].fetch_sub(1, Ordering::SeqCst);
        }
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

/// Whether an entry is watched.
#[derive(Default)]
pub(crate) struct Watched {
    is_so: AtomicBool,
    pub(crate) alarm: Alarm,
}

impl<E> Default for Lookout<E> {
    fn default() -> Self {
        Self {
            watched: Mutex::default(),
            fresh: Fresh::default(),
            asleep: AtomicBool::new(false),
            first: Notify::new(),
        }
    }
}

impl Watched {
    /// The lookout is about to look. A caller that is notified from now on is for the next look.
    pub(crate) fn end(&self) {
        self.is_so.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_so(&self) -> bool {
        self.is_so.load(Ordering::SeqCst)
    }
}

impl<E> Lookout<E> {
    /// Has the lookout watch an entry. This runs in each hand-over, so an entry that is already watched takes no mutex.
    pub(crate) fn watch(&self, watched: &Watched, entry: &Arc<E>) {
        if watched.is_so() || watched.is_so.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut all = self.watched.lock().expect("no panic under this lock");
        let is_first = all.is_empty();
        all.push(Arc::downgrade(entry));
        drop(all);
        if is_first {
            self.rouse();
        }
    }

    /// A contender begins. It has no answer yet.
    pub(crate) fn begin(&self, age: &Age) -> Stamp {
        let stamp = self.fresh.begin(age);
        self.rouse();
        stamp
    }

    /// The contender has an answer, or was cancelled.
    pub(crate) fn end(&self, age: &Age) {
        self.fresh.end(age);
    }

    /// The caller of this contender has left.
    pub(crate) fn end_of(&self, age: &Age, stamp: Stamp) {
        self.fresh.end_of(age, stamp);
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
    pub(crate) async fn next(&self, pause: Duration) -> (Vec<Weak<E>>, bool) {
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
        let (fresh, quick, slow) = (Fresh::default(), Age::default(), Age::default());
        fresh.begin(&slow);
        for look in 1..=3 {
            fresh.begin(&quick);
            assert_eq!(fresh.look(), look >= LONG, "look {look}");
            fresh.end(&quick);
        }
        fresh.end(&slow);
        fresh.end(&slow);
        assert!(fresh.is_empty() && !fresh.look());
    }

    #[test]
    fn a_contender_that_was_cancelled_does_not_end_the_count_of_the_next_one() {
        let (fresh, age) = (Fresh::default(), Age::default());
        let cancelled = fresh.begin(&age);
        fresh.end(&age);
        let next = fresh.begin(&age);
        fresh.end_of(&age, cancelled);
        assert!(!fresh.is_empty());
        fresh.end_of(&age, next);
        fresh.end_of(&age, next);
        assert!(fresh.is_empty());
    }
}
