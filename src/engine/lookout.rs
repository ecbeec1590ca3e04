//! The lookout: sees to it that a caller whose future is not polled stops nobody.
//!
//! 1. Whoever is told something (that its turn has come, an answer, a message) has its entry watched. The lookout looks
//!    a few times within one `pickup_timeout` whether the caller has come, and forgets the entry when it has. So a
//!    caller that sleeps costs nothing, and one that comes in time costs one look.
//! 2. The first request of a contender is on the straight path of a lock that is free, and is only counted, among those
//!    that began between the same two looks. If one takes long, the lookout goes through the table to find whose it is.
//! 3. It counts looks, and reads no clock: when the whole process stood still, the callers have as many looks to come
//!    as ever.
//! 4. To find a caller silent that is only slow does no harm: it is cancelled, and comes again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// The entries `E` of a client at which a caller was told something.
pub(crate) struct Lookout<E> {
    watched: Mutex<Vec<Arc<E>>>,
    fresh: Fresh,
    asleep: AtomicBool,
    first: Notify,
}

/// The contenders that have had no answer yet, by the looks since they began.
#[derive(Default)]
struct Fresh {
    looks: AtomicUsize,
    begun: [AtomicUsize; AGES],
}

/// As old as the last of these, a contender counts as new again: it was found before.
const AGES: usize = 4;

/// So many looks the answer to a first request may take before the lookout wonders why.
const LONG: usize = 2;

/// Among which a contender without an answer is counted, until it has one; 0: it is not.
#[derive(Default)]
pub(crate) struct Age(AtomicUsize);

impl Fresh {
    fn begin(&self, age: &Age) {
        let now = self.looks.load(Ordering::Relaxed) % AGES;
        self.begun[now].fetch_add(1, Ordering::SeqCst);
        // The contender before this one may not have gone yet.
        self.forget(age.0.swap(now + 1, Ordering::SeqCst));
    }

    fn end(&self, age: &Age) {
        // It has one long since, mostly: this is on the way of each hand-over.
        if age.0.load(Ordering::SeqCst) > 0 {
            self.forget(age.0.swap(0, Ordering::SeqCst));
        }
    }

    fn forget(&self, age: usize) {
        if let Some(begun) = age.checked_sub(1) {
            self.begun[begun].fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn is_empty(&self) -> bool {
        self.begun.iter().all(|begun| begun.load(Ordering::SeqCst) == 0)
    }

    /// One look more; whether a first request takes long.
    fn look(&self) -> bool {
        let now = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = |age: usize| &self.begun[now.wrapping_sub(age) % AGES];
        (LONG..AGES).any(|age| begun(age).load(Ordering::SeqCst) > 0)
    }
}

/// Whether an entry is watched.
#[derive(Default)]
pub(crate) struct Watched(AtomicBool);

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
    /// It is about to be looked at: what it is told from now on is for the next look.
    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl<E> Lookout<E> {
    /// Has an entry looked at. This is on the way of each hand-over: an entry that is watched already costs no lock.
    pub(crate) fn watch(&self, Watched(watched): &Watched, entry: &Arc<E>) {
        if watched.load(Ordering::SeqCst) || watched.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut all = self.watched.lock().expect("no panic under this lock");
        let is_first = all.is_empty();
        all.push(Arc::clone(entry));
        drop(all);
        if is_first {
            self.rouse();
        }
    }

    /// A contender begins, and has no answer yet.
    pub(crate) fn begin(&self, age: &Age) {
        self.fresh.begin(age);
        self.rouse();
    }

    /// It has one, or has gone.
    pub(crate) fn end(&self, age: &Age) {
        self.fresh.end(age);
    }

    fn rouse(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.first.notify_one();
        }
    }

    /// Sleeps as long as there is nothing to look at.
    async fn sleep(&self) {
        // First it is asleep, then it looks: what comes in between wakes it.
        self.asleep.store(true, Ordering::SeqCst);
        if self.is_idle() {
            self.first.notified().await;
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        let watched = self.watched.lock().expect("no panic under this lock");
        watched.is_empty() && self.fresh.is_empty()
    }

    /// Sleeps until there is something to look at, and then so long; all that is watched by then, and whether a first
    /// request takes long.
    pub(crate) async fn next(&self, pause: Duration) -> (Vec<Arc<E>>, bool) {
        self.sleep().await;
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
}
