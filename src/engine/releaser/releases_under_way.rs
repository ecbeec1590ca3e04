//! The names that this client is releasing: no caller has them any more, but Redis has not answered yet. A caller that only
//! tries waits for that answer, since this client itself is nobody else. `unlock.rs` and `releaser.rs` do the work.
//! `ghost.rs` says who gives back a grant that comes for a dropped caller. For a caller that shared a batch, the release
//! is recorded here when the caller goes. It is sent when the batch is answered.

use std::array::from_fn;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::keys::{Keys, TenureId};

/// Names share these slots by their hash, so that threads that release different locks seldom wait for each other.
const SLOTS: usize = 64;

/// The names that a client is releasing.
pub(crate) struct ReleasesUnderWay {
    slots: [Arc<Slot>; SLOTS],
}

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// In the order in which they began.
    under_way: VecDeque<(u64, Arc<Keys>)>,
    /// The releases that begin when a request is answered whose caller has gone, by the owner field of that request.
    expected: BTreeMap<TenureId, u64>,
}

impl Default for ReleasesUnderWay {
    fn default() -> Self {
        Self { slots: from_fn(|_| Arc::default()) }
    }
}

impl State {
    fn begin(&mut self, keys: &Arc<Keys>) -> u64 {
        self.begun += 1;
        self.under_way.push_back((self.begun, Arc::clone(keys)));
        self.begun
    }

    /// The first release of this name. All kinds of one name that can block each other share a channel.
    fn first(&self, keys: &Keys) -> Option<u64> {
        let first = self.under_way.iter().find(|(_, other)| other.channel == keys.channel);
        first.map(|(number, _)| *number)
    }
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }
}

impl ReleasesUnderWay {
    fn slot(&self, keys: &Keys) -> &Arc<Slot> {
        let mut hasher = DefaultHasher::new();
        keys.channel.hash(&mut hasher);
        &self.slots[(hasher.finish() % SLOTS as u64) as usize]
    }

    /// Records a release, until the value is dropped.
    pub(crate) fn begin(&self, keys: &Arc<Keys>) -> ReleaseUnderWay {
        let slot = self.slot(keys);
        let number = slot.state().begin(keys);
        ReleaseUnderWay { slot: Arc::clone(slot), number }
    }

    /// The caller of this request has gone. Records the release of what the request may be granted, until
    /// [`expected`](Self::expected).
    pub(crate) fn expect(&self, keys: &Arc<Keys>, id: TenureId) {
        let mut state = self.slot(keys).state();
        let number = state.begin(keys);
        state.expected.insert(id, number);
    }

    /// The record of such a release: its request was answered, or is never sent.
    pub(crate) fn expected(&self, keys: &Keys, id: TenureId) -> Option<ReleaseUnderWay> {
        let slot = self.slot(keys);
        let number = slot.state().expected.remove(&id)?;
        Some(ReleaseUnderWay { slot: Arc::clone(slot), number })
    }

    pub(crate) fn is_under_way(&self, keys: &Keys) -> bool {
        self.slot(keys).state().first(keys).is_some()
    }

    /// Waits until each release that has begun by now has its first answer, or is given up. It does not wait for releases that
    /// begin later: other callers may release again and again.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub(crate) async fn ended(&self, keys: &Keys) {
        let slot = self.slot(keys);
        let begun = slot.state().begun;
        loop {
            let ended = slot.ended.notified();
            tokio::pin!(ended);
            // Listen first, check second: so a release that ends in between is not missed.
            ended.as_mut().enable();
            let first = slot.state().first(keys);
            if first.is_none_or(|first| first > begun) {
                return;
            }
            ended.await;
        }
    }
}

/// A release in progress.
pub(crate) struct ReleaseUnderWay {
    slot: Arc<Slot>,
    number: u64,
}

impl Drop for ReleaseUnderWay {
    fn drop(&mut self) {
        let mut state = self.slot.state();
        let at = state.under_way.partition_point(|(number, _)| *number < self.number);
        let ended = state.under_way.remove(at);
        drop(state);
        drop(ended);
        self.slot.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::config::Layout;
    use crate::kinds::Kind;

    fn keys(name: &str) -> Arc<Keys> {
        Arc::new(Keys::new(Layout::Native, Kind::Lock, name.to_owned()).unwrap())
    }

    #[tokio::test]
    async fn releases_that_have_begun_are_waited_for_and_later_ones_are_not() {
        let releases = Arc::new(ReleasesUnderWay::default());
        let (first, other) = (releases.begin(&keys("a")), releases.begin(&keys("b")));
        let (names, waits) = (keys("a"), Arc::clone(&releases));
        let waiting = tokio::spawn(async move { waits.ended(&names).await });
        tokio::task::yield_now().await;
        let later = releases.begin(&keys("a"));
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        assert!(releases.is_under_way(&keys("a")) && releases.is_under_way(&keys("b")));
        drop((later, other));
        assert!(releases.ended(&keys("a")).now_or_never().is_some());
        assert!(releases.slots.iter().all(|slot| slot.state().under_way.is_empty()));
    }

    #[test]
    fn a_release_that_is_expected_is_under_way_until_its_job_ends() {
        let releases = Arc::new(ReleasesUnderWay::default());
        releases.expect(&keys("a"), TenureId(1));
        assert!(releases.expected(&keys("a"), TenureId(2)).is_none());
        assert!(releases.ended(&keys("a")).now_or_never().is_none());
        let job = releases.expected(&keys("a"), TenureId(1));
        assert!(releases.ended(&keys("a")).now_or_never().is_none());
        drop(job);
        assert!(releases.ended(&keys("a")).now_or_never().is_some());
        assert!(releases.expected(&keys("a"), TenureId(1)).is_none());
    }
}
