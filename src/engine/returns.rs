//! The names that this client is releasing in the background. No caller has them any more, but Redis has not answered
//! yet. The releaser (`releaser.rs`) does the work. `ghost.rs` says who gives back a grant that comes for a
//! dropped caller.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::keys::Keys;

/// The names that a client is releasing.
#[derive(Default)]
pub(crate) struct Returns {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// By channel: all kinds of one name that can block each other share a channel.
    under_way: HashMap<Box<str>, BTreeSet<u64>>,
}

impl Returns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Records a return, until the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, keys: &Keys) -> Returning {
        let channel = keys.channel.clone();
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.under_way.entry(channel.clone()).or_default().insert(number);
        drop(state);
        Returning { returns: Arc::clone(self), channel, number }
    }

    pub(crate) fn is_under_way(&self, keys: &Keys) -> bool {
        self.state().under_way.contains_key(&keys.channel)
    }

    /// Waits until each return that has begun by now has its first answer, or has failed once. It does not wait for
    /// returns that begin later: other callers may release again and again.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub(crate) async fn ended(&self, keys: &Keys) {
        let begun = self.state().begun;
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Listen first, check second: so a return that ends in between is not missed.
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

/// A return in progress.
pub(crate) struct Returning {
    returns: Arc<Returns>,
    channel: Box<str>,
    number: u64,
}

impl Drop for Returning {
    fn drop(&mut self) {
        let mut state = self.returns.state();
        if let Some(numbers) = state.under_way.get_mut(&self.channel) {
            numbers.remove(&self.number);
            if numbers.is_empty() {
                state.under_way.remove(&self.channel);
            }
        }
        drop(state);
        self.returns.ended.notify_waiters();
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
    async fn returns_that_have_begun_are_waited_for_and_later_ones_are_not() {
        let returns = Arc::new(Returns::default());
        let (first, other) = (returns.begin(&keys("a")), returns.begin(&keys("b")));
        let (names, waits) = (keys("a"), Arc::clone(&returns));
        let waiting = tokio::spawn(async move { waits.ended(&names).await });
        tokio::task::yield_now().await;
        let later = returns.begin(&keys("a"));
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        assert!(returns.is_under_way(&keys("a")) && returns.is_under_way(&keys("b")));
        drop((later, other));
        assert!(returns.ended(&keys("a")).now_or_never().is_some());
        assert!(returns.state().under_way.is_empty());
    }
}
