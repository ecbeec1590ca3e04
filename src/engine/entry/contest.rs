//! The work of the caller that has the permit. It lies in the entry of the lock, where the client can cancel it.
//!
//! A contender whose future is not polled would keep the permit, an answer that it does not read, or a grant that it
//! does not take. So such a future has two parts. The caller has the outer one. The inner one does everything that
//! needs the permit, and lies here. The outer one polls the inner one.
//!
//! 1. The lookout can drop the work that lies here: a silent contender is cancelled, as if its caller had dropped its
//!    future. So it gives up what every cancelled contender gives up: the permit, its place in line, and what its request
//!    may have been granted. A contender keeps its place instead, as long as it only waits in line, and no other caller
//!    of its client waits at this name. (Each caller of a fair lock keeps its own.)
//! 2. A poll takes the work out of here, and puts it back when it is pending. So nobody drops the work during a poll,
//!    and nobody polls it after it was dropped. A tenure begins within a poll: before the work is dropped, or never. The
//!    state of the entry is locked before and after a poll, and never during one: the work locks it too.
//! 3. A number distinguishes the work of one contender from the work of the next. A caller that comes too late finds
//!    another number, touches nothing, and queues again.
//! 4. The timers of the work are those of its caller's runtime, which may not run: its thread is blocked, or nobody drives it. So
//!    work that sleeps says until when, and the lookout wakes it if nothing has woken it by then. Work that says nothing should
//!    be polled soon: it waits for an answer, or pauses. The lookout wakes it after some looks. To be woken once too often costs
//!    work nothing.
//!
//! The lookout drops only work that was woken and not polled since.

use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::queue::{LOOKS, Look};
use crate::engine::entry::{Contested, Entry};

/// The work of a contender.
pub(crate) type Work = Pin<Box<dyn Future<Output = Contested> + Send>>;

/// The place for the work of the one contender of an entry. Plain state.
#[derive(Default)]
pub(crate) struct Contest {
    number: u64,
    /// The work, if there is any; taken out while it is polled.
    work: Option<Work>,
    /// The caller that polls it.
    caller: Option<Waker>,
    /// When that caller came.
    came: Option<CompactInstant>,
    /// Whether the work was woken, and not polled since.
    woken: bool,
    /// Until when the work sleeps, if it has said so.
    asleep: Option<CompactInstant>,
    /// How many polls are in progress. A poll that has passed the permit on may end after the next work is polled.
    polls: u32,
    looks: u32,
    /// Whether these looks found the work woken. Looks at work that waits for an answer say nothing about its caller.
    found_woken: bool,
}

/// The state of a caller's work.
pub(crate) enum Part {
    /// The work has not been polled yet. Its caller came at this time.
    New(Work, CompactInstant),
    /// The work has this number.
    Begun(u64),
    Over,
}

/// Polls the work of a caller, which wakes this waker; `None` if it was dropped because its caller was silent.
///
/// Work that is done at its first poll is never stored.
pub(crate) fn poll(
    entry: &Arc<Entry>,
    part: &mut Part,
    waker: &Waker,
    context: &Context<'_>,
) -> Poll<Option<Contested>> {
    let mut caller = Some(context.waker().clone());
    let begun = entry.state().contest.take_out(part, &mut caller);
    // The waker of the poll before. A simple executor may keep a sleeping task alive by its waker alone.
    drop(caller);
    let Some((number, mut work)) = begun else { return Poll::Ready(None) };
    let in_poll = InPoll(entry);
    if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(waker)) {
        return Poll::Ready(Some(done));
    }
    *part = Part::Begun(in_poll.put_back(number, work));
    Poll::Pending
}

impl Contest {
    /// When the caller came whose work is here, if there is work, or a poll of it.
    pub(crate) fn came(&self) -> Option<CompactInstant> {
        self.came.filter(|_| self.work.is_some() || self.polls > 0)
    }

    /// Takes the work out for a poll by this caller. Its number is `None` if it was never here.
    fn take_out(
        &mut self,
        part: &mut Part,
        caller: &mut Option<Waker>,
    ) -> Option<(Option<u64>, Work)> {
        let taken = match std::mem::replace(part, Part::Over) {
            Part::New(work, came) => {
                self.came = Some(came);
                (None, work)
            }
            Part::Begun(number) => (Some(number), self.take(number)?),
            Part::Over => return None,
        };
        std::mem::swap(&mut self.caller, caller);
        self.polls += 1;
        // Clear the mark before the poll: a wake-up during the poll is for the next one.
        self.woken = false;
        Some(taken)
    }

    fn take(&mut self, number: u64) -> Option<Work> {
        if self.number == number { self.work.take() } else { None }
    }

    /// No other caller's work can be here: pending work has the permit, and the caller that had the permit before has
    /// dropped its own work.
    fn put_back(&mut self, number: Option<u64>, work: Work) -> u64 {
        debug_assert!(self.work.is_none(), "two contend for one entry");
        self.number = number.unwrap_or(self.number + 1);
        (self.work, self.looks, self.found_woken) = (Some(work), 0, false);
        self.number
    }

    /// A caller has left: takes its work out, if that is still here. The drop of the work passes the permit on.
    #[must_use]
    pub(crate) fn end(&mut self, part: &mut Part) -> Option<Work> {
        match std::mem::replace(part, Part::Over) {
            Part::Begun(number) => self.take(number),
            Part::New(..) | Part::Over => None,
        }
    }

    /// There is an event for the work. Returns the caller to wake.
    #[must_use]
    pub(crate) fn wake(&mut self) -> Option<Waker> {
        self.woken = true;
        self.caller.take()
    }

    /// The work sleeps until this time, or until an event; `None`: no longer.
    pub(crate) fn sleeps_until(&mut self, until: Option<Instant>) {
        self.asleep = until.map(CompactInstant::from);
    }

    /// When the lookout has to look at work that sleeps and was not woken.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        let is_here = !self.woken && self.work.is_some();
        self.asleep.filter(|_| is_here).map(CompactInstant::instant)
    }

    /// Whether the work was woken, and not polled since.
    pub(crate) fn is_late(&self) -> bool {
        self.woken && self.work.is_some()
    }

    fn sleeps(&self, now: Instant) -> bool {
        self.asleep.is_some_and(|until| until > now.into())
    }

    /// Checks whether the work was polled since it was woken. Returns the caller to wake, if the work should have been polled
    /// by now.
    pub(crate) fn look(&mut self, now: Instant) -> (Look, Option<Waker>) {
        if self.work.is_none() {
            // If this look falls into a poll, so may the wake-up, and the poll puts the work back. So the next look
            // decides. Without a poll, the work is done.
            let is_polled = self.woken && self.polls > 0;
            return (if is_polled { Look::Late } else { Look::Well }, None);
        }
        if !self.woken && self.sleeps(now) {
            return (Look::Well, None);
        }
        // Each poll restarts the count, and so does the wake-up: from then on the caller has all its looks.
        if self.found_woken != self.woken {
            (self.looks, self.found_woken) = (0, self.woken);
        }
        self.looks = self.looks.saturating_add(1);
        if self.woken {
            return (if self.looks < LOOKS { Look::Late } else { Look::Silent }, None);
        }
        let has_overslept = self.asleep.is_some();
        if has_overslept || self.looks >= LOOKS {
            self.looks = 0;
            return (Look::Late, self.wake());
        }
        (Look::Late, None)
    }

    /// Takes out work that was just found silent, unless it was polled since. The caller has to drop it.
    pub(crate) fn take_silent(&mut self) -> Option<Work> {
        if self.looks < LOOKS { None } else { self.work.take() }
    }
}

/// A poll, until it is over: when the work is done, or was put back.
struct InPoll<'a>(&'a Arc<Entry>);

impl InPoll<'_> {
    /// Ends the poll, and puts the work back in the same step.
    fn put_back(self, number: Option<u64>, work: Work) -> u64 {
        let entry = ManuallyDrop::new(self).0;
        entry.change(|state, after| {
            // The work may never be woken: the lookout has to see for how long it sleeps.
            state.watch(after);
            state.contest.polls -= 1;
            state.contest.put_back(number, work)
        })
    }
}

impl Drop for InPoll<'_> {
    fn drop(&mut self) {
        self.0.state().contest.polls -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::time::Duration;

    use super::*;
    use crate::error::Error;

    /// A contest in its entry.
    struct Shared(Arc<Entry>);

    impl Default for Shared {
        fn default() -> Self {
            Self(Entry::unlisted())
        }
    }

    impl Shared {
        fn contest<R>(&self, change: impl FnOnce(&mut Contest) -> R) -> R {
            change(&mut self.0.state().contest)
        }

        fn wake(&self) {
            let _caller = self.contest(Contest::wake);
        }

        fn look(&self, now: Instant) -> Look {
            self.contest(|contest| contest.look(now)).0
        }

        fn look_at(&self) -> Option<Instant> {
            self.contest(|contest| contest.look_at())
        }

        fn is_late(&self) -> bool {
            self.contest(|contest| contest.is_late())
        }

        fn take_silent(&self) -> Option<Work> {
            self.contest(Contest::take_silent)
        }

        fn end(&self, part: &mut Part) {
            drop(self.contest(|contest| contest.end(part)));
        }
    }

    /// Polls it. Returns the name in the outcome.
    fn poll(contest: &Shared, part: &mut Part) -> Poll<Option<String>> {
        let context = Context::from_waker(Waker::noop());
        super::poll(&contest.0, part, Waker::noop(), &context).map(|done| match done? {
            Err(Error::Lost { name }) => Some(name),
            _ => panic!("an outcome of no test"),
        })
    }

    /// The part of a caller that has just come.
    fn new(work: Work) -> Part {
        Part::New(work, CompactInstant::now())
    }

    /// An outcome.
    fn done(name: &str) -> Contested {
        Err(Error::lost(name))
    }

    fn look(contest: &Shared) -> Look {
        contest.look(Instant::now())
    }

    fn looks(contest: &Shared) -> Vec<Look> {
        (0..LOOKS).map(|_| look(contest)).collect()
    }

    /// Work that never ends, and a probe for its drop.
    fn endless() -> (Work, Arc<()>) {
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
        let contest = Shared::default();
        let mut part = new(Box::pin(ready(done("a"))));
        assert_eq!(poll(&contest, &mut part), Poll::Ready(Some("a".to_owned())));
        assert_eq!(poll(&contest, &mut part), Poll::Ready(None));
    }

    #[test]
    fn work_that_was_woken_and_is_not_polled_is_dropped() {
        let (contest, (work, seen)) = (Shared::default(), endless());
        let mut part = new(work);
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
        let (contest, now) = (Shared::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        let sleeper = Arc::new(contest);
        let sleeps = Arc::clone(&sleeper);
        let mut part = new(Box::pin(async move {
            sleeps.contest(|contest| contest.sleeps_until(Some(until)));
            pending().await
        }));
        assert_eq!(poll(&sleeper, &mut part), Poll::Pending);
        assert_eq!([(); 9].map(|()| sleeper.look(now)), [Look::Well; 9]);
        assert_eq!(sleeper.look_at(), Some(until));
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
        let (contest, now) = (Arc::new(Shared::default()), Instant::now());
        let sleeps = Arc::clone(&contest);
        let until = now + Duration::from_secs(1);
        let mut part = new(Box::pin(async move {
            sleeps.contest(|contest| contest.sleeps_until(Some(until)));
            pending().await
        }));
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
        let (contest, (work, _seen)) = (Shared::default(), endless());
        let mut part = new(work);
        for _ in 0..2 {
            assert_eq!(poll(&contest, &mut part), Poll::Pending);
            assert_eq!(looks(&contest), [Look::Late; 4]);
            assert!(contest.is_late(), "it was woken");
        }
        assert_eq!(looks(&contest).last(), Some(&Look::Silent));
        assert!(contest.take_silent().is_some());
    }

    /// It has waited for an answer for some looks, and the answer has just come.
    #[test]
    fn work_that_is_woken_has_all_its_looks_from_then_on() {
        let (contest, (work, _seen)) = (Shared::default(), endless());
        let mut part = new(work);
        assert_eq!(poll(&contest, &mut part), Poll::Pending);
        assert_eq!([(); 3].map(|()| look(&contest)), [Look::Late; 3]);
        contest.wake();
        assert_eq!(looks(&contest), [Look::Late, Look::Late, Look::Late, Look::Silent]);
    }

    #[test]
    fn work_that_is_polled_in_time_is_not_dropped() {
        let (contest, (work, seen)) = (Shared::default(), endless());
        let mut part = new(work);
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
        let contest = Arc::new(Shared::default());
        let looks_on = Arc::clone(&contest);
        let mut part = new(Box::pin(poll_fn(move |_| {
            looks_on.wake();
            for _ in 0..2 * LOOKS {
                assert_eq!(look(&looks_on), Look::Late, "the next look decides");
                assert!(looks_on.take_silent().is_none());
            }
            Poll::Ready(done("b"))
        })));
        assert_eq!(poll(&contest, &mut part), Poll::Ready(Some("b".to_owned())));
        assert_eq!(look(&contest), Look::Well, "it has come");
    }

    /// The look falls into the poll, and the wake-up too.
    #[test]
    fn work_that_is_woken_while_it_is_polled_is_looked_for_again() {
        for polls_before in [0, 1] {
            let contest = Arc::new(Shared::default());
            let (looks_on, mut polls) = (Arc::clone(&contest), 0);
            let mut part = new(Box::pin(poll_fn(move |_| {
                polls += 1;
                if polls > polls_before {
                    assert_eq!(look(&looks_on), Look::Well, "nothing has happened to it");
                    looks_on.wake();
                    assert_eq!(look(&looks_on), Look::Late, "the next look decides");
                }
                Poll::Pending
            })));
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
            let (contest, first) = (Shared::default(), endless().0);
            let mut former = new(first);
            assert_eq!(poll(&contest, &mut former), Poll::Pending);
            contest.wake();
            looks(&contest);
            drop(contest.take_silent());
            let (work, seen) = endless();
            let mut part = new(work);
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
