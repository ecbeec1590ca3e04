//! The work of the caller that has the permit. It lies in the entry of the lock, where the client can cancel it.
//!
//! A contender whose future is not polled would keep the permit, an answer that it does not read, or a grant that it
//! does not take. An `unlock()` would keep the permit after its release was answered. So such a future has two parts.
//! The caller has the outer one. The inner one does everything that needs the permit, and lies here. The outer one
//! polls the inner one.
//!
//! 1. The lookout can drop the work that lies here: a silent contender is cancelled, as if its caller had dropped its
//!    future. So it gives up what every cancelled contender gives up: the permit, its place in line, and what its request
//!    may have been granted. A release continues in the background. A contender keeps its place instead, as long as it
//!    only waits in line, and no other caller of its client waits at this name. (Each caller of a fair lock keeps its own.)
//! 2. A poll takes the work out of here, and puts it back when it is pending. So nobody drops the work during a poll,
//!    and nobody polls it after it was dropped. A tenure begins within a poll: before the work is dropped, or never.
//! 3. A number distinguishes the work of one contender from the work of the next. A caller that comes too late finds
//!    another number, touches nothing, and queues again.
//!
//! 4. The timers of the work are those of its caller's runtime, which may not run: its thread is blocked, or nobody drives it. So
//!    work that sleeps says until when, and the lookout wakes it if nothing has woken it by then. Work that says nothing should
//!    be polled soon: it waits for an answer, or pauses. The lookout wakes it after some looks. To be woken once too often costs
//!    work nothing.
//!
//! The lookout drops only work that was woken and not polled since.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use crate::engine::compact_instant::{CompactInstant, SharedInstant};
use crate::engine::entry::queue::{LOOKS, Look};

/// The work of a contender.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The place for the work of the one contender of an entry.
pub(crate) struct Contest<T> {
    state: Mutex<State<T>>,
    /// Whether the work was woken, and not polled since.
    woken: AtomicBool,
    /// Until when the work sleeps, if it has said so.
    asleep: SharedInstant,
    /// How many polls are in progress. A poll that has passed the permit on may end after the next work is polled.
    polls: AtomicU32,
    /// The waker of the caller that polls it.
    caller: AtomicWaker,
}

/// The state of a caller's work.
pub(crate) enum Part<T> {
    /// The work has not been polled yet.
    New(Work<T>),
    /// The work has this number.
    Begun(u64),
    Over,
}

struct State<T> {
    number: u64,
    /// The work, if there is any; taken out while it is polled.
    work: Option<Work<T>>,
    looks: u32,
    /// Whether these looks found the work woken. Looks at work that waits for an answer say nothing about its caller.
    found_woken: bool,
}

impl<T> Default for Contest<T> {
    fn default() -> Self {
        let state = State { number: 0, work: None, looks: 0, found_woken: false };
        Self {
            state: Mutex::new(state),
            woken: AtomicBool::new(false),
            asleep: SharedInstant::default(),
            polls: AtomicU32::new(0),
            caller: AtomicWaker::new(),
        }
    }
}

impl<T> Contest<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Polls the work of a caller, which wakes this waker; `None` if it was dropped because its caller was silent.
    ///
    /// Work that is done at its first poll is never stored here.
    pub(crate) fn poll(
        &self,
        part: &mut Part<T>,
        waker: &Waker,
        context: &Context<'_>,
    ) -> Poll<Option<T>> {
        let (number, work) = match std::mem::replace(part, Part::Over) {
            Part::New(work) => (None, Some(work)),
            Part::Begun(number) => (Some(number), self.take(number)),
            Part::Over => (None, None),
        };
        let Some(mut work) = work else { return Poll::Ready(None) };
        self.caller.register(context.waker());
        let _polls = InPoll::new(&self.polls);
        // Clear the mark before the poll: a wake-up during the poll is for the next one.
        self.woken.store(false, Ordering::SeqCst);
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(waker)) {
            return Poll::Ready(Some(done));
        }
        *part = Part::Begun(self.put(number, work));
        Poll::Pending
    }

    fn take(&self, number: u64) -> Option<Work<T>> {
        let mut state = self.state();
        if state.number == number { state.work.take() } else { None }
    }

    /// No other caller's work can be here: pending work has the permit, and the caller that had the permit before has
    /// dropped its own work.
    fn put(&self, number: Option<u64>, work: Work<T>) -> u64 {
        let mut state = self.state();
        debug_assert!(state.work.is_none(), "two contend for one entry");
        state.number = number.unwrap_or(state.number + 1);
        (state.work, state.looks, state.found_woken) = (Some(work), 0, false);
        state.number
    }

    /// A caller has left: cancels its work, if that is still here.
    pub(crate) fn end(&self, part: &mut Part<T>) {
        if let Part::Begun(number) = std::mem::replace(part, Part::Over) {
            // Drop it without the lock: the drop passes the permit on, and the next caller may begin at once.
            drop(self.take(number));
        }
    }

    /// There is an event for the work.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.caller.wake();
    }

    /// The work sleeps until this time, or until an event, as long as the value lives.
    pub(crate) fn sleeps_until(&self, until: Instant) -> Asleep<'_> {
        self.asleep.set(until.into());
        Asleep(&self.asleep)
    }

    /// When the lookout has to look at work that sleeps and was not woken.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        let is_here = !self.woken.load(Ordering::SeqCst) && self.state().work.is_some();
        self.asleep.get().filter(|_| is_here).map(CompactInstant::instant)
    }

    /// Whether the work was woken, and not polled since.
    pub(crate) fn is_late(&self) -> bool {
        self.woken.load(Ordering::SeqCst) && self.state().work.is_some()
    }

    /// Whether the work should be polled soon, or should have been.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        (self.woken.load(Ordering::SeqCst) || !self.sleeps(now)) && self.state().work.is_some()
    }

    fn sleeps(&self, now: Instant) -> bool {
        self.asleep.get().is_some_and(|until| until > now.into())
    }

    /// Checks whether the work was polled since it was woken. Wakes it if it should have been polled by now.
    pub(crate) fn look(&self, now: Instant) -> Look {
        let mut state = self.state();
        let is_woken = self.woken.load(Ordering::SeqCst);
        if state.work.is_none() {
            // If this look falls into a poll, so may the wake-up, and the poll puts the work back. So the next look
            // decides. Without a poll, the work is done.
            let is_polled = is_woken && self.polls.load(Ordering::SeqCst) > 0;
            return if is_polled { Look::Late } else { Look::Well };
        }
        if !is_woken && self.sleeps(now) {
            return Look::Well;
        }
        // Each poll restarts the count, and so does the wake-up: from then on the caller has all its looks.
        if state.found_woken != is_woken {
            (state.looks, state.found_woken) = (0, is_woken);
        }
        state.looks = state.looks.saturating_add(1);
        if is_woken {
            return if state.looks < LOOKS { Look::Late } else { Look::Silent };
        }
        let has_overslept = self.asleep.get().is_some();
        if has_overslept || state.looks >= LOOKS {
            state.looks = 0;
            drop(state);
            self.wake();
        }
        Look::Late
    }

    /// Takes out work that was just found silent, unless it was polled since. The caller has to drop it.
    pub(crate) fn take_silent(&self) -> Option<Work<T>> {
        let mut state = self.state();
        if state.looks < LOOKS { None } else { state.work.take() }
    }
}

/// The work sleeps.
#[must_use = "the work sleeps as long as this lives"]
pub(crate) struct Asleep<'a>(&'a SharedInstant);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Counts a poll, until it is dropped: when the work is done, or after it was put back.
struct InPoll<'a>(&'a AtomicU32);

impl<'a> InPoll<'a> {
    fn new(polls: &'a AtomicU32) -> Self {
        polls.fetch_add(1, Ordering::SeqCst);
        Self(polls)
    }
}

impl Drop for InPoll<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    fn poll(contest: &Contest<u8>, part: &mut Part<u8>) -> Poll<Option<u8>> {
        contest.poll(part, Waker::noop(), &Context::from_waker(Waker::noop()))
    }

    fn look(contest: &Contest<u8>) -> Look {
        contest.look(Instant::now())
    }

    fn looks(contest: &Contest<u8>) -> Vec<Look> {
        (0..LOOKS).map(|_| look(contest)).collect()
    }

    /// Work that never ends, and a probe for its drop.
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
        let mut part = Part::New(Box::pin(ready(7_u8)) as Work<u8>);
        assert_eq!(poll(&contest, &mut part), Poll::Ready(Some(7)));
        assert_eq!(poll(&contest, &mut part), Poll::Ready(None));
    }

    #[test]
    fn work_that_was_woken_and_is_not_polled_is_dropped() {
        let (contest, (work, seen)) = (Contest::default(), endless());
        let mut part = Part::New(work);
        assert_eq!(poll(&contest, &mut part), Poll::Pending);
        contest.wake();
        assert_eq!(looks(&contest), [Look::Late, Look::Late, Look::Late, Look::Silent]);
        drop(contest.take_silent().unwrap());
        assert_eq!(Arc::strong_count(&seen), 1);
        assert_eq!(poll(&contest, &mut part), Poll::Ready(None), "it finds that it was cancelled");
    }

    /// Its timer belongs to a runtime that does not run.
    #[test]
    fn work_that_has_overslept_is_woken_and_then_dropped() {
        let (contest, now) = (Contest::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        let sleeper = Arc::new(contest);
        let sleeps = Arc::clone(&sleeper);
        let mut part = Part::New(Box::pin(async move {
            let _asleep = sleeps.sleeps_until(until);
            pending().await
        }) as Work<u8>);
        assert_eq!(poll(&sleeper, &mut part), Poll::Pending);
        assert_eq!([(); 9].map(|()| sleeper.look(now)), [Look::Well; 9]);
        assert_eq!(sleeper.look_at(), Some(until));
        assert!(!sleeper.is_due(now) && sleeper.is_due(until));
        assert_eq!(sleeper.look(until), Look::Late);
        assert!(sleeper.is_late(), "it was woken");
        assert_eq!(sleeper.look_at(), None);
        let looks: Vec<_> = (0..LOOKS).map(|_| sleeper.look(until)).collect();
        assert_eq!(looks, [Look::Late, Look::Late, Look::Late, Look::Silent]);
        assert!(sleeper.take_silent().is_some());
    }

    /// It is polled once too often, and sleeps on.
    #[test]
    fn work_that_sleeps_and_is_polled_sleeps_until_the_same_time() {
        let (contest, now) = (Arc::new(Contest::default()), Instant::now());
        let sleeps = Arc::clone(&contest);
        let until = now + Duration::from_secs(1);
        let mut part = Part::New(Box::pin(async move {
            let _asleep = sleeps.sleeps_until(until);
            pending().await
        }) as Work<u8>);
        for _ in 0..3 {
            assert_eq!(poll(&contest, &mut part), Poll::Pending);
            assert_eq!(contest.look_at(), Some(until));
        }
        contest.end(&mut part);
        assert_eq!((contest.look_at(), contest.look(until)), (None, Look::Well));
    }

    /// It waits for an answer whose time limit passes on a runtime that does not run.
    #[test]
    fn work_that_does_not_say_until_when_it_sleeps_is_woken_and_then_dropped() {
        let (contest, (work, _seen)) = (Contest::default(), endless());
        let mut part = Part::New(work);
        for _ in 0..2 {
            assert_eq!(poll(&contest, &mut part), Poll::Pending);
            assert!(contest.is_due(Instant::now()));
            assert_eq!(looks(&contest), [Look::Late; 4]);
            assert!(contest.is_late(), "it was woken");
        }
        assert_eq!(looks(&contest).last(), Some(&Look::Silent));
        assert!(contest.take_silent().is_some());
    }

    /// It has waited for an answer for some looks, and the answer has just come.
    #[test]
    fn work_that_is_woken_has_all_its_looks_from_then_on() {
        let (contest, (work, _seen)) = (Contest::default(), endless());
        let mut part = Part::New(work);
        assert_eq!(poll(&contest, &mut part), Poll::Pending);
        assert_eq!([(); 3].map(|()| look(&contest)), [Look::Late; 3]);
        contest.wake();
        assert_eq!(looks(&contest), [Look::Late, Look::Late, Look::Late, Look::Silent]);
    }

    #[test]
    fn work_that_is_polled_in_time_is_not_dropped() {
        let (contest, (work, seen)) = (Contest::default(), endless());
        let mut part = Part::New(work);
        assert_eq!(poll(&contest, &mut part), Poll::Pending);
        for _ in 0..3 {
            contest.wake();
            assert_eq!([(); 3].map(|()| look(&contest)), [Look::Late; 3]);
            assert_eq!(poll(&contest, &mut part), Poll::Pending);
        }
        contest.wake();
        assert_eq!(looks(&contest).last(), Some(&Look::Silent));
        assert_eq!(poll(&contest, &mut part), Poll::Pending, "between the look and the drop");
        assert!(contest.take_silent().is_none());
        contest.end(&mut part);
        assert_eq!(Arc::strong_count(&seen), 1);
    }

    /// The last poll, which may begin a tenure.
    #[test]
    fn work_is_not_dropped_while_it_is_polled() {
        let contest = Arc::new(Contest::default());
        let looks_on = Arc::clone(&contest);
        let mut part = Part::New(Box::pin(poll_fn(move |_| {
            looks_on.wake();
            for _ in 0..2 * LOOKS {
                assert_eq!(look(&looks_on), Look::Late, "the next look decides");
                assert!(looks_on.take_silent().is_none());
            }
            Poll::Ready(1_u8)
        })) as Work<u8>);
        assert_eq!(poll(&contest, &mut part), Poll::Ready(Some(1)));
        assert_eq!(look(&contest), Look::Well, "it has come");
    }

    /// The look falls into the poll, and the wake-up too.
    #[test]
    fn work_that_is_woken_while_it_is_polled_is_looked_for_again() {
        for polls_before in [0, 1] {
            let contest = Arc::new(Contest::default());
            let (looks_on, mut polls) = (Arc::clone(&contest), 0);
            let mut part = Part::New(Box::pin(poll_fn(move |_| {
                polls += 1;
                if polls > polls_before {
                    assert_eq!(look(&looks_on), Look::Well, "nothing has happened to it");
                    looks_on.wake();
                    assert_eq!(look(&looks_on), Look::Late, "the next look decides");
                }
                Poll::Pending
            })) as Work<u8>);
            for _ in 0..=polls_before {
                assert_eq!(poll(&contest, &mut part), Poll::Pending);
            }
            assert_eq!(looks(&contest).last(), Some(&Look::Silent));
            assert!(contest.take_silent().is_some());
        }
    }

    #[test]
    fn a_caller_that_was_cancelled_touches_nothing_of_the_next_one() {
        for comes in [true, false] {
            let (contest, first) = (Contest::default(), endless().0);
            let mut former = Part::New(first);
            assert_eq!(poll(&contest, &mut former), Poll::Pending);
            contest.wake();
            looks(&contest);
            drop(contest.take_silent());
            let (work, seen) = endless();
            let mut part = Part::New(work);
            assert_eq!(poll(&contest, &mut part), Poll::Pending);
            if comes {
                assert_eq!(poll(&contest, &mut former), Poll::Ready(None));
            }
            contest.end(&mut former);
            assert_eq!(Arc::strong_count(&seen), 2);
            assert_eq!(poll(&contest, &mut part), Poll::Pending);
            contest.end(&mut part);
            assert_eq!(Arc::strong_count(&seen), 1);
        }
    }
}
