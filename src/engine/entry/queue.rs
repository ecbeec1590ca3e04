//! The queue of the callers of one client that want one lock: first come, first served. It has one *permit*, which goes from
//! caller to caller. (A semaphore's permits are something else: `locks/semaphore.rs`.)
//!
//! 1. Only a poll takes the permit. A caller that gives it up *calls* the next caller, and wakes it. The permit belongs
//!    to nobody until that caller is polled. So a caller that is never polled never has the permit.
//! 2. If a called caller does not come, the lookout finds it *silent* after some looks. Then the permit is free: all
//!    waiting callers are woken, and the first one that is polled takes it. So any number of silent callers cost that
//!    time only once.
//! 3. A caller keeps its ticket, and so its place, until it takes the permit or leaves. A silent caller is not called
//!    again before it is polled again. Until then it does not count as waiting.
//!
//! A waker stands in the queue from a poll of its caller until that caller is called. So a caller without a waker was
//! woken, and has not come yet. While the permit is free, no caller has a waker: all of them were woken.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::poll_proceed;

use crate::wire::Fault;

/// How many looks of the lookout a called caller has before it is silent. Together they take one `pickup_timeout`, or
/// 20 ms if that is longer.
pub(crate) const LOOKS: u32 = 4;

/// The callers of one client that wait for one lock, and its permit.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Callers that wait and are not known to be silent.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    closed: bool,
    whose: Whose,
    tickets: u64,
    /// Ordered by ticket.
    callers: VecDeque<QueuedCaller>,
    /// Looks since a caller was called, or since the permit was opened.
    looks: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Whose {
    /// The next caller that is polled takes it.
    #[default]
    Open,
    /// Only the caller with this ticket may take it.
    Called(u64),
    Taken,
}

struct QueuedCaller {
    ticket: u64,
    waker: Option<Waker>,
    silent: bool,
}

/// The place of a caller in the queue.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    number: Option<NonZeroU64>,
    queued: bool,
}

impl Ticket {
    /// The ticket of a caller that had the permit before. It stands ahead of all callers that came later.
    pub(crate) fn again(number: u64) -> Self {
        Self { number: NonZeroU64::new(number), queued: false }
    }
}

/// The callers that wait at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callers {
    /// How many of them are not known to be silent.
    pub(crate) waiting: usize,
    /// The greatest ticket that one of them can have. A caller that comes at this moment may be missing from
    /// one of the two numbers.
    pub(crate) last_ticket: u64,
}

/// What the lookout finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Every called caller has come.
    Well,
    /// A caller has not come yet.
    Late,
    /// A caller has just been found silent.
    Silent,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Takes the permit if it is free. Returns the ticket of its caller.
    pub(crate) fn try_take(&self) -> Option<u64> {
        let mut state = self.state();
        if state.closed || state.whose != Whose::Open {
            return None;
        }
        let number = state.ticket();
        state.whose = Whose::Taken;
        Some(number)
    }

    /// Takes the permit, or waits for it. Returns the ticket of its caller.
    ///
    /// # Errors
    /// [`Fault::Closed`].
    pub(crate) fn poll(
        &self,
        ticket: &mut Ticket,
        context: &mut Context<'_>,
    ) -> Poll<Result<u64, Fault>> {
        // A task that has used up its budget takes no permit now. But the caller enters the queue: it counts as
        // waiting, so the permit has to be offered to it, and the lookout has to notice if it is never polled again.
        let coop = poll_proceed(context);
        let mut state = self.state();
        if state.closed {
            return Poll::Ready(Err(Fault::Closed));
        }
        let number = ticket.number.map_or_else(|| state.ticket(), NonZeroU64::get);
        ticket.number = NonZeroU64::new(number);
        let at = state.find(number);
        if ticket.queued && std::mem::take(&mut state.callers[at].silent) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        // This runs under the mutex: if two callers come for a free permit, the second one finds it taken.
        let may_take = state.whose == Whose::Open || state.whose == Whose::Called(number);
        if let (Poll::Ready(coop), true) = (coop, may_take) {
            if std::mem::take(&mut ticket.queued) {
                state.callers.remove(at);
            }
            (state.whose, state.looks) = (Whose::Taken, 0);
            coop.made_progress();
            return Poll::Ready(Ok(number));
        }
        // A caller that may take the permit, but has no budget, counts as woken: its task is polled again.
        let waker = (!may_take).then(|| context.waker().clone());
        if ticket.queued {
            state.callers[at].waker = waker;
        } else {
            state.callers.insert(at, QueuedCaller { ticket: number, waker, silent: false });
            ticket.queued = true;
        }
        Poll::Pending
    }

    /// Gives the permit up, and calls the next caller. Returns whether the lookout has to check that a caller comes.
    pub(crate) fn pass_on(&self) -> bool {
        let mut state = self.state();
        let next = state.call_next();
        // Callers may also have been woken before, when the permit was open. The lookout forgot them as soon as another
        // caller took the permit. So it has to look for them again, or they count as waiting for as long as they live.
        let is_late = state.callers.iter().any(QueuedCaller::is_late);
        drop(state);
        next.into_iter().for_each(Waker::wake);
        is_late
    }

    /// Counts one more waiting caller.
    pub(crate) fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// A caller no longer waits. Returns whether another one was called in its place.
    pub(crate) fn leave(&self, ticket: &Ticket) -> bool {
        let Some(number) = ticket.number.filter(|_| ticket.queued).map(NonZeroU64::get) else {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return false;
        };
        let mut state = self.state();
        let at = state.find(number);
        let left = state.callers.remove(at);
        if left.as_ref().is_some_and(|caller| !caller.silent) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        // If the leaving caller was called, it has to call the next one.
        let next = if state.whose == Whose::Called(number) { state.call_next() } else { None };
        drop(state);
        drop(left);
        next.map(Waker::wake).is_some()
    }

    /// Callers that wait and are not known to be silent.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The callers that wait now.
    pub(crate) fn callers(&self) -> Callers {
        let waiting = self.waiting();
        Callers { waiting, last_ticket: self.state().tickets }
    }

    /// Whether the permit is free: the next caller that is polled may take it.
    pub(crate) fn is_permit_free(&self) -> bool {
        self.state().whose == Whose::Open
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Rejects all waiting callers, now and from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Checks whether the called caller has come. If it has not come for [`LOOKS`] looks, opens the permit.
    pub(crate) fn look(&self) -> Look {
        let mut state = self.state();
        let is_late = match state.whose {
            Whose::Called(_) => true,
            Whose::Open => state.callers.iter().any(QueuedCaller::is_late),
            Whose::Taken => false,
        };
        if !is_late || state.closed {
            return Look::Well;
        }
        state.looks += 1;
        if state.looks < LOOKS {
            return Look::Late;
        }
        (state.whose, state.looks) = (Whose::Open, 0);
        let late = state.callers.iter_mut().filter(|caller| caller.is_late());
        let silent = late.map(|caller| caller.silent = true).count();
        self.waiting.fetch_sub(silent, Ordering::SeqCst);
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Look::Silent
    }
}

impl QueuedCaller {
    /// Whether the caller was woken, and has not come yet.
    fn is_late(&self) -> bool {
        self.waker.is_none() && !self.silent
    }
}

impl State {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// The index at which a caller with this ticket stands, or would stand.
    fn find(&self, ticket: u64) -> usize {
        match self.callers.front() {
            Some(first) if first.ticket < ticket => {
                self.callers.partition_point(|caller| caller.ticket < ticket)
            }
            _ => 0,
        }
    }

    /// Calls the next caller that has a waker. A caller without one was woken before and did not come: it may be
    /// silent.
    fn call_next(&mut self) -> Option<Waker> {
        let next = self.callers.iter_mut().find(|caller| caller.waker.is_some());
        let Some(next) = next else {
            self.whose = Whose::Open;
            return None;
        };
        (self.whose, self.looks) = (Whose::Called(next.ticket), 0);
        next.waker.take()
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        self.callers.iter_mut().filter_map(|caller| caller.waker.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller whose future the test polls by hand.
    struct Hand<'a> {
        queue: &'a Queue,
        ticket: Ticket,
    }

    impl<'a> Hand<'a> {
        /// A caller that waits.
        fn waits(queue: &'a Queue) -> Self {
            queue.wait();
            let mut hand = Self { queue, ticket: Ticket::default() };
            assert!(!hand.comes());
            hand
        }

        /// Polls it. Returns whether it takes the permit.
        fn comes(&mut self) -> bool {
            let mut context = Context::from_waker(Waker::noop());
            match self.queue.poll(&mut self.ticket, &mut context) {
                Poll::Ready(taken) => taken.is_ok(),
                Poll::Pending => false,
            }
        }
    }

    impl Drop for Hand<'_> {
        fn drop(&mut self) {
            self.queue.leave(&self.ticket);
        }
    }

    /// Does this in a task that has used up its budget.
    async fn without_budget(mut does: impl FnMut()) {
        std::future::poll_fn(|context| {
            while let Poll::Ready(coop) = poll_proceed(context) {
                coop.made_progress();
            }
            does();
            Poll::Ready(())
        })
        .await;
    }

    fn taken() -> Queue {
        let queue = Queue::default();
        queue.try_take().unwrap();
        queue
    }

    /// Looks until the lookout finds something other than a late caller.
    fn looks(queue: &Queue) -> (u32, Look) {
        for look in 1.. {
            match queue.look() {
                Look::Late => {}
                found => return (look, found),
            }
        }
        unreachable!()
    }

    #[tokio::test]
    async fn a_caller_whose_task_has_no_budget_left_is_found_silent_too() {
        let queue = taken();
        queue.wait();
        let mut hand = Hand { queue: &queue, ticket: Ticket::default() };
        without_budget(|| assert!(!hand.comes())).await;
        assert!(queue.pass_on(), "it is called");
        assert_eq!(looks(&queue).1, Look::Silent);
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test]
    async fn a_caller_without_budget_takes_an_open_permit_when_it_is_polled_again() {
        let queue = Queue::default();
        queue.wait();
        let mut hand = Hand { queue: &queue, ticket: Ticket::default() };
        without_budget(|| assert!(!hand.comes())).await;
        assert!(queue.is_permit_free());
        tokio::task::yield_now().await;
        assert!(hand.comes(), "it is polled again");
    }

    #[test]
    fn the_permit_goes_to_waiting_callers_in_their_order() {
        let queue = taken();
        let mut hands = [(); 3].map(|()| Hand::waits(&queue));
        for at in 0..3 {
            assert!(queue.pass_on());
            assert!(queue.try_take().is_none(), "somebody was called");
            let came: Vec<_> = hands.iter_mut().skip(at).map(Hand::comes).collect();
            assert_eq!(came.iter().position(|came| *came), Some(0));
            assert_eq!(queue.look(), Look::Well);
        }
        assert!(!queue.pass_on());
        assert!(queue.is_permit_free());
    }

    #[test]
    fn a_caller_that_leaves_after_it_was_called_calls_the_next() {
        let queue = taken();
        let (first, mut second) = (Hand::waits(&queue), Hand::waits(&queue));
        assert!(queue.pass_on());
        drop(first);
        assert!(second.comes());
        drop(second);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_caller_that_is_called_and_does_not_come_is_skipped_and_keeps_its_place() {
        let queue = taken();
        let (mut silent, mut second) = (Hand::waits(&queue), Hand::waits(&queue));
        let mut third = Hand::waits(&queue);
        assert!(queue.pass_on());
        assert!(!second.comes(), "the first one was called");
        assert_eq!(looks(&queue), (LOOKS, Look::Silent));
        assert_eq!(queue.waiting(), 2);
        assert!(second.comes() && !third.comes() && !silent.comes());
        assert_eq!(queue.waiting(), 3, "the caller that takes the permit leaves later");
        assert!(queue.pass_on());
        assert!(!third.comes() && silent.comes());
    }

    #[test]
    fn all_late_callers_are_found_silent_at_once_and_not_called_again() {
        let queue = taken();
        let silent = [(); 3].map(|()| Hand::waits(&queue));
        let mut polled = Hand::waits(&queue);
        assert!(queue.pass_on());
        assert_eq!(looks(&queue), (LOOKS, Look::Silent));
        assert!(polled.comes());
        drop(polled);
        assert!(queue.pass_on(), "they have been woken, and have not come");
        assert!(queue.is_permit_free());
        assert_eq!(looks(&queue), (LOOKS, Look::Silent));
        assert_eq!(queue.waiting(), 0);
        assert_eq!(queue.look(), Look::Well);
        let newcomer = queue.try_take();
        assert!(newcomer.is_some(), "silent callers are in nobody's way");
        assert!(!queue.pass_on(), "nobody is expected any more");
        drop(silent);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_woken_caller_is_looked_for_again_after_another_one_took_the_permit() {
        let queue = taken();
        let (_silent, _late) = (Hand::waits(&queue), Hand::waits(&queue));
        let mut comes = Hand::waits(&queue);
        assert!(queue.pass_on());
        assert_eq!(looks(&queue), (LOOKS, Look::Silent));
        assert!(comes.comes(), "all were woken");
        assert_eq!(queue.look(), Look::Well, "the permit is taken");
        drop(comes);
        assert!(queue.pass_on(), "one was woken, and has not come");
        assert_eq!(looks(&queue), (LOOKS, Look::Silent));
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_caller_that_comes_in_time_is_not_silent() {
        let queue = taken();
        let mut late = Hand::waits(&queue);
        for _ in 0..3 {
            assert!(queue.pass_on());
            assert_eq!([(); LOOKS as usize - 1].map(|()| queue.look()), [Look::Late; 3]);
            assert!(late.comes());
            late = {
                drop(late);
                Hand::waits(&queue)
            };
        }
    }

    #[test]
    fn only_one_of_two_callers_takes_an_open_permit() {
        let queue = taken();
        let (_silent, mut one) = (Hand::waits(&queue), Hand::waits(&queue));
        assert!(queue.pass_on());
        assert_eq!(looks(&queue).1, Look::Silent);
        assert!(queue.try_take().is_some());
        assert!(!one.comes());
        assert!(queue.pass_on());
        assert!(one.comes());
    }

    #[test]
    fn a_caller_that_had_the_permit_queues_again_before_later_ones() {
        let queue = Queue::default();
        let number = queue.try_take().unwrap();
        let mut later = Hand::waits(&queue);
        queue.wait();
        let mut again = Hand { queue: &queue, ticket: Ticket::again(number) };
        assert!(!again.comes());
        assert!(queue.pass_on());
        assert!(!later.comes() && again.comes());
    }

    #[test]
    fn closing_sends_away_waiters_and_newcomers() {
        let queue = taken();
        let mut hand = Hand::waits(&queue);
        queue.close();
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(
            queue.poll(&mut hand.ticket, &mut context),
            Poll::Ready(Err(Fault::Closed))
        ));
        drop(hand);
        assert!(!queue.pass_on());
        assert!(queue.try_take().is_none());
        assert_eq!((queue.waiting(), queue.look()), (0, Look::Well));
    }
}
