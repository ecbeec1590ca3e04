//! The names that this client is releasing: no caller has them any more, but Redis has not answered yet. A caller that only
//! tries waits for that answer, since this client itself is nobody else. `unlock.rs` and `releaser.rs` do the work.
//! `ghost.rs` says who gives back a grant that comes for a dropped caller. That release is recorded here when the caller
//! goes, and sent when the request is answered.

use std::array::from_fn;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::keys::{Keys, TenureId};
use crate::mutex::Mutex;
use crate::wakers::until;

/// Names share these buckets by their hash, so that threads that release different locks seldom wait for each other.
const BUCKETS: usize = 64;

/// The names that a client is releasing.
pub(crate) struct ReleasesUnderWay {
    buckets: [Arc<Bucket>; BUCKETS],
}

#[derive(Default)]
struct Bucket {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// In the order in which they began.
    under_way: VecDeque<UnderWay>,
    /// The releases that begin when a request is answered whose caller has gone, by the owner field of that request.
    expected: BTreeMap<TenureId, u64>,
}

/// A release that Redis has not answered.
struct UnderWay {
    number: u64,
    keys: Arc<Keys>,
    /// It failed, and is to be repeated.
    has_failed: bool,
}

impl Default for ReleasesUnderWay {
    fn default() -> Self {
        Self { buckets: from_fn(|_| Arc::default()) }
    }
}

impl State {
    fn begin(&mut self, keys: &Arc<Keys>) -> u64 {
        self.begun += 1;
        let (number, keys) = (self.begun, Arc::clone(keys));
        self.under_way.push_back(UnderWay { number, keys, has_failed: false });
        self.begun
    }

    /// The first release of this name that is like this. All kinds of one name that can block each other share a channel.
    fn first(&self, keys: &Keys, is_like: impl Fn(&UnderWay) -> bool) -> Option<u64> {
        let is_one = |one: &&UnderWay| one.keys.channel == keys.channel && is_like(one);
        self.under_way.iter().find(is_one).map(|one| one.number)
    }

    fn position(&self, number: u64) -> usize {
        self.under_way.partition_point(|one| one.number < number)
    }
}

impl ReleasesUnderWay {
    fn bucket(&self, keys: &Keys) -> &Arc<Bucket> {
        let mut hasher = DefaultHasher::new();
        keys.channel.hash(&mut hasher);
        &self.buckets[(hasher.finish() % BUCKETS as u64) as usize]
    }

    /// Records a release, until the value is dropped.
    pub(crate) fn begin(&self, keys: &Arc<Keys>) -> ReleaseUnderWay {
        let bucket = self.bucket(keys);
        let number = bucket.state.lock().begin(keys);
        ReleaseUnderWay { bucket: Arc::clone(bucket), number }
    }

    /// The caller of this request has gone. Records the release of what the request may be granted, until
    /// [`expected`](Self::expected).
    pub(crate) fn expect(&self, keys: &Arc<Keys>, id: TenureId) {
        let mut state = self.bucket(keys).state.lock();
        let number = state.begin(keys);
        state.expected.insert(id, number);
    }

    /// The record of such a release: its request was answered, or is never sent.
    pub(crate) fn expected(&self, keys: &Keys, id: TenureId) -> Option<ReleaseUnderWay> {
        let bucket = self.bucket(keys);
        let number = bucket.state.lock().expected.remove(&id)?;
        Some(ReleaseUnderWay { bucket: Arc::clone(bucket), number })
    }

    /// Whether a release of this name is under way that has not failed yet.
    pub(crate) fn is_under_way(&self, keys: &Keys) -> bool {
        self.bucket(keys).state.lock().first(keys, |one| !one.has_failed).is_some()
    }

    /// Whether a release of this name has failed, and is to be repeated: Redis may still have the lock.
    pub(crate) fn has_failed(&self, keys: &Keys) -> bool {
        self.bucket(keys).state.lock().first(keys, |one| one.has_failed).is_some()
    }

    /// Waits until each release that has begun by now has its first answer, or has failed once. It does not wait for
    /// releases that begin later: other callers may release again and again.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub(crate) async fn ended(&self, keys: &Keys) {
        self.wait(keys, |one| !one.has_failed).await;
    }

    /// Same as [`ended`](Self::ended), but also waits for the answers to those that have failed.
    pub(crate) async fn answered(&self, keys: &Keys) {
        self.wait(keys, |_| true).await;
    }

    async fn wait(&self, keys: &Keys, is_awaited: impl Fn(&UnderWay) -> bool) {
        let bucket = self.bucket(keys);
        let begun = bucket.state.lock().begun;
        let first = || bucket.state.lock().first(keys, &is_awaited);
        until(&bucket.ended, || first().is_none_or(|first| first > begun)).await;
    }
}

/// A release in progress.
pub(crate) struct ReleaseUnderWay {
    bucket: Arc<Bucket>,
    number: u64,
}

impl ReleaseUnderWay {
    /// It got no answer, and is to be repeated.
    pub(crate) fn failed(&self) {
        let mut state = self.bucket.state.lock();
        let at = state.position(self.number);
        state.under_way[at].has_failed = true;
        drop(state);
        self.bucket.ended.notify_waiters();
    }
}

impl Drop for ReleaseUnderWay {
    fn drop(&mut self) {
        let mut state = self.bucket.state.lock();
        let at = state.position(self.number);
        let ended = state.under_way.remove(at);
        drop(state);
        drop(ended);
        self.bucket.ended.notify_waiters();
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
        assert!(releases.buckets.iter().all(|bucket| bucket.state.lock().under_way.is_empty()));
    }

    #[test]
    fn a_release_that_has_failed_is_awaited_only_by_those_that_want_its_answer() {
        let releases = ReleasesUnderWay::default();
        let (first, other) = (releases.begin(&keys("a")), releases.begin(&keys("b")));
        assert!(!releases.has_failed(&keys("a")));
        first.failed();
        assert!(releases.has_failed(&keys("a")) && !releases.is_under_way(&keys("a")));
        assert!(releases.is_under_way(&keys("b")) && !releases.has_failed(&keys("b")));
        assert!(releases.ended(&keys("a")).now_or_never().is_some());
        assert!(releases.answered(&keys("a")).now_or_never().is_none());
        drop(first);
        assert!(releases.answered(&keys("a")).now_or_never().is_some());
        drop(other);
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
