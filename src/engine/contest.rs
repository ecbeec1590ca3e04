//! The work of the caller that has the turn, kept where the client can end it: in the entry of the lock.
//!
//! A contender whose future is not polled keeps the turn, an answer that it does not read, a grant that it does not
//! take. So its future is in two parts. The outer one is the caller's. The inner one does all that needs the turn,
//! and lies here; the outer one polls it.
//!
//! 1. What lies here can be dropped by the lookout, and that is all that ever happens to a silent contender: it
//!    is cancelled, as if its caller had dropped it. Whatever a cancelled contender gives back, this one gives back:
//!    the turn, its place in line, what its request may have been granted.
//! 2. A poll takes the work out of here, and puts it back when it is pending. So nobody drops it during a poll, and
//!    nobody polls it after it was dropped: a tenure begins within a poll, hence before the work is dropped or never.
//! 3. A number tells the work of one contender from that of the next. A caller that comes too late finds another
//!    number, touches nothing, and queues again.
//!
//! Only work that was woken and not polled since is dropped. One that nothing has happened to is parked, and sleeps as
//! long as it likes.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures_util::task::AtomicWaker;

use crate::engine::turn::{LOOKS, Look};

/// What a contender does.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Where the work of the one contender of an entry lies.
pub(crate) struct Contest<T> {
    state: Mutex<State<T>>,
    /// It was woken, and not polled since.
    woken: AtomicBool,
    /// Who polls it.
    caller: AtomicWaker,
}

struct State<T> {
    number: u64,
    /// None while it is polled, and when there is none.
    work: Option<Work<T>>,
    looks: u32,
}

impl<T> Default for Contest<T> {
    fn default() -> Self {
        let state = State { number: 0, work: None, looks: 0 };
        Self { state: Mutex::new(state), woken: AtomicBool::new(false), caller: AtomicWaker::new() }
    }
}

impl<T> Contest<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no panic under this lock")
    }

    /// The work of whoever has the turn now; its number. Nobody else's lies here: it had the turn, and dropped it last.
    pub(crate) fn begin(&self, work: Work<T>) -> u64 {
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        let before = state.work.replace(work);
        drop(state);
        drop(before);
        number
    }

    /// Polls the work of this number, which wakes this waker; `None` if it was dropped because its caller was silent.
    pub(crate) fn poll(
        &self,
        number: u64,
        waker: &Waker,
        context: &Context<'_>,
    ) -> Poll<Option<T>> {
        let Some(mut work) = self.take(number) else { return Poll::Ready(None) };
        self.caller.register(context.waker());
        // Before the work is polled: what wakes it meanwhile is for the next poll.
        self.woken.store(false, Ordering::SeqCst);
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(waker)) {
            return Poll::Ready(Some(done));
        }
        let mut state = self.state();
        if state.number == number {
            state.work = Some(work);
            return Poll::Pending;
        }
        // Pending work has the turn, and nobody else has begun any.
        drop(state);
        debug_assert!(false, "two contend for one entry");
        Poll::Ready(None)
    }

    fn take(&self, number: u64) -> Option<Work<T>> {
        let mut state = self.state();
        state.looks = 0;
        if state.number == number { state.work.take() } else { None }
    }

    /// The caller of this number has gone: its work is cancelled, if that still lies here.
    pub(crate) fn end(&self, number: u64) {
        // Whoever drops it passes the turn on, and the next one may begin at once: not under the lock.
        drop(self.take(number));
    }

    /// Something has happened to the work.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.caller.wake();
    }

    /// Whether it was woken, and not polled since.
    pub(crate) fn is_late(&self) -> bool {
        self.woken.load(Ordering::SeqCst) && self.state().work.is_some()
    }

    /// Looks whether the work was polled since it was woken.
    pub(crate) fn look(&self) -> Look {
        let mut state = self.state();
        // While it is polled there is none here, and each poll has the looks counted anew.
        if state.work.is_none() || !self.woken.load(Ordering::SeqCst) {
            return Look::Well;
        }
        state.looks += 1;
        if state.looks < LOOKS { Look::Late } else { Look::Silent }
    }

    /// The work that was just found silent, unless it was polled since: it is to be dropped.
    pub(crate) fn take_silent(&self) -> Option<Work<T>> {
        let mut state = self.state();
        if state.looks < LOOKS { None } else { state.work.take() }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::sync::Arc;

    use super::*;

    fn poll(contest: &Contest<u8>, number: u64) -> Poll<Option<u8>> {
        contest.poll(number, Waker::noop(), &Context::from_waker(Waker::noop()))
    }

    fn looks(contest: &Contest<u8>) -> Vec<Look> {
        (0..LOOKS).map(|_| contest.look()).collect()
    }

    /// Work that never ends, and somebody who sees when it is dropped.
    fn endless() -> (Work<u8>, Arc<()>) {
        let seen = Arc::new(());
        let kept = Arc::clone(&seen);
        let work = async move {
            let _kept = kept;
            pending().await
        };
        (Box::pin(work), seen)
    }

    #[test]
    fn work_is_polled_to_its_end() {
        let contest = Contest::default();
        let number = contest.begin(Box::pin(ready(7)));
        assert_eq!(poll(&contest, number), Poll::Ready(Some(7)));
        assert_eq!(poll(&contest, number), Poll::Ready(None));
    }

    #[test]
    fn work_that_was_woken_and_is_not_polled_is_dropped() {
        let (contest, (work, seen)) = (Contest::default(), endless());
        let number = contest.begin(work);
        assert_eq!(poll(&contest, number), Poll::Pending);
        assert_eq!(looks(&contest), [Look::Well; 4], "nothing has happened to it");
        contest.wake();
        assert_eq!(looks(&contest), [Look::Late, Look::Late, Look::Late, Look::Silent]);
        drop(contest.take_silent().unwrap());
        assert_eq!(Arc::strong_count(&seen), 1);
        assert_eq!(poll(&contest, number), Poll::Ready(None), "it finds that it was cancelled");
    }

    #[test]
    fn work_that_is_polled_in_time_is_not_dropped() {
        let (contest, (work, seen)) = (Contest::default(), endless());
        let number = contest.begin(work);
        for _ in 0..3 {
            contest.wake();
            assert_eq!([(); 3].map(|()| contest.look()), [Look::Late; 3]);
            assert_eq!(poll(&contest, number), Poll::Pending);
        }
        contest.wake();
        assert_eq!(looks(&contest).last(), Some(&Look::Silent));
        assert_eq!(poll(&contest, number), Poll::Pending, "between the look and the drop");
        assert!(contest.take_silent().is_none());
        contest.end(number);
        assert_eq!(Arc::strong_count(&seen), 1);
    }

    /// It begins a tenure, perhaps.
    #[test]
    fn work_is_not_dropped_while_it_is_polled() {
        let contest = Arc::new(Contest::default());
        let looks_on = Arc::clone(&contest);
        let number = contest.begin(Box::pin(poll_fn(move |_| {
            looks_on.wake();
            for _ in 0..2 * LOOKS {
                assert_eq!(looks_on.look(), Look::Well);
                assert!(looks_on.take_silent().is_none());
            }
            Poll::Ready(1)
        })));
        assert_eq!(poll(&contest, number), Poll::Ready(Some(1)));
    }

    #[test]
    fn a_caller_that_was_cancelled_touches_nothing_of_the_next_one() {
        let (contest, first) = (Contest::default(), endless().0);
        let former = contest.begin(first);
        contest.wake();
        looks(&contest);
        drop(contest.take_silent());
        let (work, seen) = endless();
        let number = contest.begin(work);
        assert_eq!(poll(&contest, former), Poll::Ready(None));
        contest.end(former);
        assert_eq!(Arc::strong_count(&seen), 2);
        assert_eq!(poll(&contest, number), Poll::Pending);
    }
}
