//! The names that this client is releasing in the background. No caller has them any more, but Redis has not answered
//! yet. The releaser (`releaser.rs`) does the work. `ghost.rs` says who gives back a grant that comes for a dropped
//! caller. For a caller that shared a batch, the release is recorded here when the caller goes. It is sent when the batch
//! is answered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::keys::{Keys, TenureId};

/// The names that a client is releasing.
#[derive(Default)]
pub(crate) struct ReleasesUnderWay {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// By channel: all kinds of one name that can block each other share a channel.
    under_way: HashMap<Box<str>, BTreeSet<u64>>,
    /// The releases that begin when a request is answered whose caller has gone, by the owner field of that request.
    expected: BTreeMap<TenureId, u64>,
}

impl State {
    fn begin(&mut self, keys: &Keys) -> u64 {
        self.begun += 1;
        self.under_way.entry(keys.channel.clone()).or_default().insert(self.begun);
        self.begun
    }
}

impl ReleasesUnderWay {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Records a release, until the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, keys: &Keys) -> ReleaseUnderWay {
        let number = self.state().begin(keys);
        self.numbered(keys, number)
    }

    /// The caller of this request has gone. Records the release of what the request may be granted, until
    /// [`expected`](Self::expected).
    pub(crate) fn expect(&self, keys: &Keys, id: TenureId) {
        let mut state = self.state();
        let number = state.begin(keys);
        state.expected.insert(id, number);
    }

    /// The record of such a release: its request was answered, or is never sent.
    pub(crate) fn expected(self: &Arc<Self>, keys: &Keys, id: TenureId) -> Option<ReleaseUnderWay> {
        let number = self.state().expected.remove(&id);
        number.map(|number| self.numbered(keys, number))
    }

    fn numbered(self: &Arc<Self>, keys: &Keys, number: u64) -> ReleaseUnderWay {
        ReleaseUnderWay { releases: Arc::clone(self), channel: keys.channel.clone(), number }
    }

    pub(crate) fn is_under_way(&self, keys: &Keys) -> bool {
        self.state().under_way.contains_key(&keys.channel)
    }

    /// Waits until each release that has begun by now has its first answer, or has failed once. It does not wait for
    /// releases that begin later: other callers may release again and again.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub(crate) async fn ended(&self, keys: &Keys) {
        let begun = self.state().begun;
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Listen first, check second: so a release that ends in between is not missed.
            ended.as_mut().enable();
            let first =
                self.state().under_way.get(&keys.channel).and_then(|all| all.first().copied());
            if first.is_none_or(|first| first > begun) {
                return;
            }
            ended.await;
        }
    }
}

/// A release in progress.
pub(crate) struct ReleaseUnderWay {
    releases: Arc<ReleasesUnderWay>,
    channel: Box<str>,
    number: u64,
}

impl Drop for ReleaseUnderWay {
    fn drop(&mut self) {
        let mut state = self.releases.state();
        if let Some(numbers) = state.under_way.get_mut(&self.channel) {
            numbers.remove(&self.number);
            if numbers.is_empty() {
                state.under_way.remove(&self.channel);
            }
        }
        drop(state);
        self.releases.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::config::Layout;
    use crate::kinds::Kind;

    fn keys(name: &str) -> Keys {
        Keys::new(Layout::Native, Kind::Lock, name.to_owned()).unwrap()
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
        assert!(releases.state().under_way.is_empty());
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
