//! The queue of the callers of one client that want one lock: first come, first served. It has one *permit*, which goes from
//! caller to caller. (A semaphore's permits are something else: `locks/semaphore.rs`.)
//!
//! Plain state, which lies in the state of an entry. Whoever changes it wakes the callers that a method returns, when that
//! state is no longer locked.
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
//! woken, and has not come yet. (One that has just joined has none either, and is polled at once.) While the permit is free, no caller
//! has a waker: all of them were woken.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::error::{Error, Result};

/// How many looks of the lookout a called caller has before it is silent. Together they take one `pickup_timeout`, or
/// 20 ms if that is longer.
pub(crate) const LOOKS: u32 = 4;

/// The callers of one client that wait for one lock, and its permit.
#[derive(Default)]
pub(crate) struct Queue {
    closed: bool,
    whose: Whose,
    tickets: u64,
    /// Ordered by ticket.
    callers: VecDeque<QueuedCaller>,
    /// Callers that wait and are not known to be silent.
    waiting: usize,
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
    came: CompactInstant,
    waker: Option<Waker>,
    silent: bool,
}

/// The callers that wait at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callers {
    /// How many of them are not known to be silent.
    pub(crate) waiting: usize,
    /// No ticket of theirs is greater.
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
    /// Takes the permit if it is free. Returns the ticket of its caller.
    pub(crate) fn try_take(&mut self) -> Option<u64> {
        if self.closed || self.whose != Whose::Open {
            return None;
        }
        self.whose = Whose::Taken;
        Some(self.ticket())
    }

    /// A caller that came at this time waits from now on, and is polled at once. Returns its ticket. `again`: the ticket with which it
    /// had the permit before. So it stands ahead of all callers that came later.
    pub(crate) fn join(&mut self, again: Option<u64>, came: Instant) -> u64 {
        let ticket = again.unwrap_or_else(|| self.ticket());
        let caller = QueuedCaller { ticket, came: came.into(), waker: None, silent: false };
        self.callers.insert(self.find(ticket), caller);
        self.waiting += 1;
        ticket
    }

    /// A caller that has joined takes the permit, and leaves the queue with that, or waits for it. `has_budget`: whether Tokio lets the
    /// task of this caller go on. `former` becomes the waker of the poll before, to be dropped.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn poll(
        &mut self,
        ticket: u64,
        waker: &Waker,
        has_budget: bool,
        former: &mut Option<Waker>,
    ) -> Poll<Result<()>> {
        if self.closed {
            return Poll::Ready(Err(Error::Closed));
        }
        let at = self.find(ticket);
        let caller = &mut self.callers[at];
        self.waiting += usize::from(std::mem::take(&mut caller.silent));
        let may_take = self.whose == Whose::Open || self.whose == Whose::Called(ticket);
        // A caller that may take the permit, but has no budget, counts as woken: its task is polled again. The lookout
        // notices if it is not.
        let own = (!may_take).then(|| waker.clone());
        *former = std::mem::replace(&mut caller.waker, own);
        if !may_take || !has_budget {
            return Poll::Pending;
        }
        self.callers.remove(at);
        self.waiting -= 1;
        (self.whose, self.looks) = (Whose::Taken, 0);
        Poll::Ready(Ok(()))
    }

    /// Gives the permit up, and calls the next caller. Returns that caller, and whether the lookout has to check that a caller
    /// comes.
    pub(crate) fn pass_on(&mut self) -> (Option<Waker>, bool) {
        let next = self.call_next();
        // Callers may also have been woken before, when the permit was open. The lookout forgot them as soon as another
        // caller took the permit. So it has to look for them again, or they count as waiting for as long as they live.
        (next, self.callers.iter().any(QueuedCaller::is_late))
    }

    /// A caller that has joined, and has not taken the permit, no longer waits. Returns the one that was called in its place, and its
    /// own waker, to be dropped.
    pub(crate) fn leave(&mut self, ticket: u64) -> (Option<Waker>, Option<Waker>) {
        let at = self.find(ticket);
        let left = self.callers.remove(at);
        if left.as_ref().is_some_and(|caller| !caller.silent) {
            self.waiting -= 1;
        }
        // If the leaving caller was called, it has to call the next one.
        let next = if self.whose == Whose::Called(ticket) { self.call_next() } else { None };
        (next, left.and_then(|caller| caller.waker))
    }

    /// Callers that wait and are not known to be silent.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// When the first of them came.
    pub(crate) fn first_came(&self) -> Option<CompactInstant> {
        self.callers.iter().find(|caller| !caller.silent).map(|caller| caller.came)
    }

    /// The callers that wait now.
    pub(crate) fn callers(&self) -> Callers {
        Callers { waiting: self.waiting, last_ticket: self.tickets }
    }

    /// Whether the permit is free: the next caller that is polled may take it.
    pub(crate) fn is_permit_free(&self) -> bool {
        self.whose == Whose::Open
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Rejects all waiting callers, now and from now on. Returns them.
    #[must_use]
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.take_wakers()
    }

    /// Checks whether the called caller has come. If it has not come for [`LOOKS`] looks, opens the permit. Returns the
    /// callers to wake.
    pub(crate) fn look(&mut self) -> (Look, Vec<Waker>) {
        let is_late = match self.whose {
            Whose::Called(_) => true,
            Whose::Open => self.callers.iter().any(QueuedCaller::is_late),
            Whose::Taken => false,
        };
        if !is_late || self.closed {
            return (Look::Well, Vec::new());
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return (Look::Late, Vec::new());
        }
        (self.whose, self.looks) = (Whose::Open, 0);
        let late = self.callers.iter_mut().filter(|caller| caller.is_late());
        let silent = late.map(|caller| caller.silent = true).count();
        self.waiting -= silent;
        (Look::Silent, self.take_wakers())
    }

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

impl QueuedCaller {
    /// Whether the caller was woken, and has not come yet.
    fn is_late(&self) -> bool {
        self.waker.is_none() && !self.silent
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The queue of a test, which its callers share.
    #[derive(Default)]
    struct Shared(RefCell<Queue>);

    impl Shared {
        fn try_take(&self) -> Option<u64> {
            self.0.borrow_mut().try_take()
        }

        /// Returns whether the lookout has to look.
        fn pass_on(&self) -> bool {
            self.0.borrow_mut().pass_on().1
        }

        fn look(&self) -> Look {
            self.0.borrow_mut().look().0
        }

        fn waiting(&self) -> usize {
            self.0.borrow().waiting()
        }
    }

    /// A caller whose future the test polls by hand.
    struct Hand<'a> {
        queue: &'a Shared,
        /// `None`: it has taken the permit.
        ticket: Option<u64>,
    }

    impl<'a> Hand<'a> {
        fn new(queue: &'a Shared, again: Option<u64>) -> Self {
            let ticket = queue.0.borrow_mut().join(again, Instant::now());
            Self { queue, ticket: Some(ticket) }
        }

        /// A caller that waits.
        fn waits(queue: &'a Shared) -> Self {
            let mut hand = Self::new(queue, None);
            assert!(!hand.comes());
            hand
        }

        /// Polls it. Returns whether it takes the permit.
        fn comes(&mut self) -> bool {
            matches!(self.poll(true), Poll::Ready(Ok(_)))
        }

        fn poll(&mut self, has_budget: bool) -> Poll<Result<()>> {
            let (mut queue, ticket) = (self.queue.0.borrow_mut(), self.ticket.expect("it waits"));
            let polled = queue.poll(ticket, Waker::noop(), has_budget, &mut None);
            self.ticket.take_if(|_| matches!(polled, Poll::Ready(Ok(()))));
            polled
        }
    }

    impl Drop for Hand<'_> {
        fn drop(&mut self) {
            self.ticket.iter().for_each(|ticket| _ = self.queue.0.borrow_mut().leave(*ticket));
        }
    }

    fn taken() -> Shared {
        let queue = Shared::default();
        queue.try_take().unwrap();
        queue
    }

    /// Looks until the lookout finds something other than a late caller.
    fn looks(queue: &Shared) -> (u32, Look) {
        for look in 1.. {
            match queue.look() {
                Look::Late => {}
                found => return (look, found),
            }
        }
        unreachable!()
    }

    #[test]
    fn a_caller_whose_task_has_no_budget_left_is_found_silent_too() {
        let queue = taken();
        let mut hand = Hand::new(&queue, None);
        assert!(hand.poll(false).is_pending());
        assert!(queue.pass_on(), "it is called");
        assert_eq!(looks(&queue).1, Look::Silent);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_caller_without_budget_takes_an_open_permit_when_it_is_polled_again() {
        let queue = Shared::default();
        let mut hand = Hand::new(&queue, None);
        assert!(hand.poll(false).is_pending());
        assert!(queue.0.borrow().is_permit_free());
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
        assert!(queue.0.borrow().is_permit_free());
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
        assert_eq!(queue.waiting(), 2, "one of the three has the permit");
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
        assert!(queue.0.borrow().is_permit_free());
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
        let queue = Shared::default();
        let number = queue.try_take().unwrap();
        let mut later = Hand::waits(&queue);
        let mut again = Hand::new(&queue, Some(number));
        assert!(!again.comes());
        assert!(queue.pass_on());
        assert!(!later.comes() && again.comes());
    }

    #[test]
    fn closing_sends_away_waiters_and_newcomers() {
        let queue = taken();
        let mut hand = Hand::waits(&queue);
        assert_eq!(queue.0.borrow_mut().close().len(), 1, "it is woken");
        assert!(matches!(hand.poll(true), Poll::Ready(Err(Error::Closed))));
        drop(hand);
        assert!(!queue.pass_on());
        assert!(queue.try_take().is_none());
        assert_eq!((queue.waiting(), queue.look()), (0, Look::Well));
    }
}
