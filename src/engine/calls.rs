//! The calls of a client that want a lock, or order something, each from its beginning to its end. A call may pause between two
//! attempts: then it owes nothing and is no waiter, but a client that drains serves it to its end. It is no debt, since `close` does
//! not wait for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The lower half is how many calls are under way, and the upper half how many have begun.
#[derive(Default)]
pub(crate) struct Calls(AtomicU64);

const ONE_BEGINS: u64 = (1 << 32) + 1;

impl Calls {
    /// Counts a call until it ends.
    pub(crate) fn begin(&self) -> Call<'_> {
        self.0.fetch_add(ONE_BEGINS, Ordering::Relaxed);
        Call(self)
    }

    /// Whether nobody holds anything and no call is under way. `is_held` says whether anybody holds something.
    ///
    /// Only a call begins a hold. A holder may begin a call during the look, and leave before the look finds it. So no call may
    /// begin meanwhile.
    pub(crate) fn are_over(&self, is_held: impl FnOnce() -> bool) -> bool {
        let before = self.0.load(Ordering::Acquire);
        before as u32 == 0 && !is_held() && self.0.load(Ordering::Acquire) == before
    }
}

/// A call that is counted.
pub(crate) struct Call<'a>(&'a Calls);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // Whoever sees that the call has ended sees its hold.
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_over_when_the_last_one_has_ended_and_nobody_holds() {
        let calls = Calls::default();
        let (one, other) = (calls.begin(), calls.begin());
        drop(one);
        assert!(!calls.are_over(|| false));
        drop(other);
        assert!(!calls.are_over(|| true));
        assert!(calls.are_over(|| false));
    }

    /// A holder asks for a second lock, and gives the first one back.
    #[test]
    fn calls_are_not_over_if_one_begins_during_the_look() {
        let calls = Calls::default();
        let mut begun = None;
        assert!(!calls.are_over(|| {
            begun = Some(calls.begin());
            false
        }));
        drop(begun);
        let begins_and_ends = || {
            drop(calls.begin());
            false
        };
        assert!(!calls.are_over(begins_and_ends), "what it took may be held");
        assert!(calls.are_over(|| false));
    }
}
