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

use crate::core::contest::Progress;
use crate::engine::entry::{Contested, Entry};

/// The work of a contender.
pub(crate) type Work = Pin<Box<dyn Future<Output = Contested> + Send>>;

/// The caller's side of a contest. Its output is `None` if the work was dropped because its caller was silent.
#[must_use = "the work is dropped with it"]
pub(crate) struct Contesting<'a> {
    entry: &'a Arc<Entry>,
    /// The waker for the work.
    waker: Waker,
    progress: Progress<Work>,
}

impl<'a> Contesting<'a> {
    /// Work of a caller that came at this time, which has the permit.
    pub(super) fn new(entry: &'a Arc<Entry>, work: Work, came: Instant) -> Self {
        let waker = Waker::from(Arc::clone(entry));
        Self { entry, waker, progress: Progress::New(work, came.into()) }
    }
}

impl Future for Contesting<'_> {
    type Output = Option<Contested>;

    /// Work that is done at its first poll is never stored.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Contested>> {
        let Self { entry, waker, progress } = &mut *self;
        let mut caller = Some(context.waker().clone());
        let begun = entry.state().contest.take_out(progress, &mut caller);
        // The waker of the poll before. A simple executor may keep a sleeping task alive by its waker alone.
        drop(caller);
        let Some((number, mut work)) = begun else { return Poll::Ready(None) };
        let in_poll = InPoll(entry);
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(waker)) {
            return Poll::Ready(Some(done));
        }
        *progress = Progress::Begun(in_poll.put_back(number, work));
        Poll::Pending
    }
}

impl Drop for Contesting<'_> {
    fn drop(&mut self) {
        if !matches!(self.progress, Progress::Over) {
            // A statement of its own: the drop of work locks the state, and passes the permit on.
            let _left = self.entry.state().contest.end(&mut self.progress);
        }
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
            state.look_out(after);
            state.contest.put_back(number, work)
        })
    }
}

impl Drop for InPoll<'_> {
    fn drop(&mut self) {
        let _caller = self.0.state().contest.end_poll();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::task::Wake;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::core::contest;
    use crate::core::queue::{LOOKS, Look};
    use crate::error::Error;

    type Contest = contest::Contest<Work>;

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
    }

    /// Polls it. Returns the name in the outcome.
    fn poll(caller: &mut Contesting<'_>) -> Poll<Option<String>> {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(caller).poll(&mut context).map(|done| match done? {
            Err(Error::Lost { name }) => Some(name),
            _ => panic!("an outcome of no test"),
        })
    }

    /// A caller that has just come.
    fn new(contest: &Shared, work: Work) -> Contesting<'_> {
        Contesting::new(&contest.0, work, Instant::now())
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
        let mut caller = new(&contest, Box::pin(ready(done("a"))));
        assert_eq!(poll(&mut caller), Poll::Ready(Some("a".to_owned())));
        assert_eq!(poll(&mut caller), Poll::Ready(None));
    }

    #[test]
    fn work_that_was_woken_and_is_not_polled_is_dropped() {
        let (contest, (work, seen)) = (Shared::default(), endless());
        let mut caller = new(&contest, work);
        assert_eq!(poll(&mut caller), Poll::Pending);
        contest.wake();
        assert_eq!(looks(&contest), [Look::Late, Look::Late, Look::Late, Look::Silent]);
        drop(contest.take_silent().unwrap());
        assert_eq!(Arc::strong_count(&seen), 1);
        assert_eq!(poll(&mut caller), Poll::Ready(None), "it finds that it was cancelled");
    }

    /// Its timer belongs to a runtime that does not run.
    #[test]
    fn work_that_has_overslept_is_woken_and_then_dropped() {
        let (contest, now) = (Shared::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        let sleeper = Arc::new(contest);
        let sleeps = Arc::clone(&sleeper);
        let mut caller = new(
            &sleeper,
            Box::pin(async move {
                sleeps.contest(|contest| contest.sleeps_until(Some(until)));
                pending().await
            }),
        );
        assert_eq!(poll(&mut caller), Poll::Pending);
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
        let mut caller = new(
            &contest,
            Box::pin(async move {
                sleeps.contest(|contest| contest.sleeps_until(Some(until)));
                pending().await
            }),
        );
        for _ in 0..3 {
            assert_eq!(poll(&mut caller), Poll::Pending);
            assert_eq!(contest.look_at(), Some(until));
        }
        drop(caller);
        assert_eq!((contest.look_at(), contest.look(until)), (None, Look::Well));
    }

    /// It waits for an answer whose time limit passes on a runtime that does not run.
    #[test]
    fn work_that_does_not_say_until_when_it_sleeps_is_woken_and_then_dropped() {
        let (contest, (work, _seen)) = (Shared::default(), endless());
        let mut caller = new(&contest, work);
        for _ in 0..2 {
            assert_eq!(poll(&mut caller), Poll::Pending);
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
        let mut caller = new(&contest, work);
        assert_eq!(poll(&mut caller), Poll::Pending);
        assert_eq!([(); 3].map(|()| look(&contest)), [Look::Late; 3]);
        contest.wake();
        assert_eq!(looks(&contest), [Look::Late, Look::Late, Look::Late, Look::Silent]);
    }

    #[test]
    fn work_that_is_polled_in_time_is_not_dropped() {
        let (contest, (work, seen)) = (Shared::default(), endless());
        let mut caller = new(&contest, work);
        assert_eq!(poll(&mut caller), Poll::Pending);
        for _ in 0..3 {
            contest.wake();
            assert_eq!([(); 3].map(|()| look(&contest)), [Look::Late; 3]);
            assert_eq!(poll(&mut caller), Poll::Pending);
        }
        contest.wake();
        assert_eq!(looks(&contest).last(), Some(&Look::Silent));
        assert_eq!(poll(&mut caller), Poll::Pending, "between the look and the drop");
        assert!(contest.take_silent().is_none());
        drop(caller);
        assert_eq!(Arc::strong_count(&seen), 1);
    }

    /// The last poll, which may begin a tenure.
    #[test]
    fn work_is_not_dropped_while_it_is_polled() {
        let contest = Arc::new(Shared::default());
        let looks_on = Arc::clone(&contest);
        let mut caller = new(
            &contest,
            Box::pin(poll_fn(move |_| {
                looks_on.wake();
                for _ in 0..2 * LOOKS {
                    assert_eq!(look(&looks_on), Look::Late, "the next look decides");
                    assert!(looks_on.take_silent().is_none());
                }
                Poll::Ready(done("b"))
            })),
        );
        assert_eq!(poll(&mut caller), Poll::Ready(Some("b".to_owned())));
        assert_eq!(look(&contest), Look::Well, "it has come");
    }

    /// The look falls into the poll, and the wake-up too.
    #[test]
    fn work_that_is_woken_while_it_is_polled_is_looked_for_again() {
        for polls_before in [0, 1] {
            let contest = Arc::new(Shared::default());
            let (looks_on, mut polls) = (Arc::clone(&contest), 0);
            let mut caller = new(
                &contest,
                Box::pin(poll_fn(move |_| {
                    polls += 1;
                    if polls > polls_before {
                        assert_eq!(look(&looks_on), Look::Well, "nothing has happened to it");
                        looks_on.wake();
                        assert_eq!(look(&looks_on), Look::Late, "the next look decides");
                    }
                    Poll::Pending
                })),
            );
            for _ in 0..=polls_before {
                assert_eq!(poll(&mut caller), Poll::Pending);
            }
            assert_eq!(looks(&contest).last(), Some(&Look::Silent));
            assert!(contest.take_silent().is_some());
        }
    }

    #[test]
    fn a_caller_that_was_cancelled_touches_nothing_of_the_next_one() {
        for comes in [true, false] {
            let (contest, first) = (Shared::default(), endless().0);
            let mut former = new(&contest, first);
            assert_eq!(poll(&mut former), Poll::Pending);
            contest.wake();
            looks(&contest);
            drop(contest.take_silent());
            let (work, seen) = endless();
            let mut caller = new(&contest, work);
            assert_eq!(poll(&mut caller), Poll::Pending);
            if comes {
                assert_eq!(poll(&mut former), Poll::Ready(None));
            }
            drop(former);
            assert_eq!(Arc::strong_count(&seen), 2);
            assert_eq!(poll(&mut caller), Poll::Pending);
            drop(caller);
            assert_eq!(Arc::strong_count(&seen), 1);
        }
    }

    /// Its waker keeps the memory of its whole task.
    #[test]
    fn the_waker_of_a_caller_that_has_left_is_dropped() {
        struct Caller;
        impl Wake for Caller {
            fn wake(self: Arc<Self>) {}
        }
        let (contest, caller) = (Shared::default(), Arc::new(Caller));
        let waker = Waker::from(Arc::clone(&caller));
        let mut context = Context::from_waker(&waker);
        let mut first = new(&contest, Box::pin(ready(done("a"))));
        assert!(Pin::new(&mut first).poll(&mut context).is_ready());
        assert_eq!(Arc::strong_count(&caller), 2, "its work is done");
        let mut second = new(&contest, endless().0);
        assert!(Pin::new(&mut second).poll(&mut context).is_pending());
        assert_eq!(Arc::strong_count(&caller), 3);
        drop(second);
        assert_eq!(Arc::strong_count(&caller), 2, "it was dropped");
    }
}
