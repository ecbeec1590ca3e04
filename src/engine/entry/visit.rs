//! A caller's visit of an entry: it keeps the entry in the table. A caller that waits for the permit is in the queue of the
//! entry.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop::poll_proceed;
use tokio::time::Instant;

use crate::core::lock::{Begun, Shown};
use crate::core::waiting::Next;
use crate::engine::entry::contest::{Contesting, Work};
use crate::engine::entry::table::Remains;
use crate::engine::entry::{Entry, EntryPermit, Seat, State, Stay, Tenure};
use crate::engine::grant::{Beginning, Grant, Lease};
use crate::error::Result;
use crate::kinds::Holders;
use crate::log;

/// Keeps an entry in the table.
pub(crate) struct Visit {
    pub(crate) entry: Arc<Entry>,
}

impl Visit {
    /// The permit, if it is free.
    pub(crate) fn try_permit(&self) -> Option<EntryPermit> {
        let number = self.entry.state().queue.try_take()?;
        Some(EntryPermit::new(self.clone(), number))
    }

    /// What its contender does next, which asks for this lease.
    pub(crate) fn next(&self, listening: bool, lease: Duration) -> Next {
        let rules = self.entry.table.rules_for(lease);
        let speaks = self.entry.table.is_speaker(&self.entry);
        let deaf = (!listening).then(|| self.entry.table.waiting_ahead(&self.entry));
        match &self.entry.state().waiting {
            Some(waiting) => waiting.next(Instant::now(), deaf, speaks, waiting.rules(rules)),
            None => Next::Ask,
        }
    }

    /// Begins a tenure. `permit`: that of the contender; a caller that has asked beside the contender has none.
    pub(crate) fn begin(&self, beginning: Beginning, permit: Option<EntryPermit>) -> Arc<Tenure> {
        let Beginning { grant: Grant { id, sent, awaited, .. }, holder, .. } = beginning;
        let (entry, is_watched) = (&self.entry, holder.wish.lease == Lease::Watched);
        let (holders, ends_wait) = (entry.keys.row.holders, permit.is_some());
        // Unless the tenure has the permit, the next caller of this client may ask at once, or join this tenure. So the permit is passed
        // on only when the tenure can be found.
        let (stay, passed_on) = match permit {
            permit if entry.has_seats() => (Some(Stay::Seat(Seat::new(self.clone(), id))), permit),
            permit if holders == Holders::Nobody => (None, permit),
            permit => (permit.map(EntryPermit::into_stay), None),
        };
        let tenure = Tenure::begin(&entry.keys, stay, beginning);
        let begun = Begun {
            tenure: Arc::clone(&tenure),
            sent,
            awaited: awaited || !is_watched,
            is_joined: is_watched && holders == Holders::Readers,
            ends_wait,
        };
        let Shown { ghosts, has_left_line, was_lost } =
            entry.change(|state, after| state.begin(Instant::now(), begun, after));
        if has_left_line {
            self.stop_speaking();
        }
        if was_lost {
            tenure.doubt();
        }
        entry.table.give_back_all(ghosts);
        passed_on.into_iter().for_each(EntryPermit::pass_on);
        tenure
    }

    /// A caller that has just arrived.
    #[cfg(test)]
    pub(crate) fn wait(&self) -> InQueue<'_> {
        self.join(None, Instant::now()).0
    }

    /// A caller that came at this time joins the queue, until the value is dropped. `again`: the ticket with which it had the permit
    /// before. Returns the last tenure of this client, too.
    pub(crate) fn join(
        &self,
        again: Option<u64>,
        came: Instant,
    ) -> (InQueue<'_>, Option<Arc<Tenure>>) {
        let mut state = self.entry.state();
        let ticket = Some(state.queue.join(again, came));
        (InQueue { visit: self, ticket }, state.tenure.clone())
    }

    /// Gives back everything that was left for waiting callers, if no caller waits any more.
    pub(crate) fn look_after(&self) {
        let (entry, table) = (&self.entry, &self.entry.table);
        let Some(left) = entry.with(State::forsake) else { return };
        self.stop_speaking();
        left.place.into_iter().for_each(|id| table.give_back(Remains::Place(&entry.keys, id)));
        table.give_back_all(left.ghosts);
        let stay = left.permit.map(|number| EntryPermit::new(self.clone(), number).into_stay());
        if let Some(tenure) = &left.tenure {
            table.retire(tenure, stay);
        }
        left.idle.iter().for_each(|tenure| table.retire(tenure, None));
    }

    /// The contender no longer waits, or is not polled. Its entry may stay in the table for as long as somebody holds
    /// the lock, so another contender has to speak in its place: a far contender without a speaker sleeps until a
    /// message comes.
    pub(crate) fn stop_speaking(&self) {
        self.entry.table.stop_speaking(&self.entry);
    }

    /// Cancels a contender that is not polled, as if its caller had dropped its future: the drop passes the permit on.
    pub(crate) fn cancel(&self, work: Work) {
        log::debug!(name = ?self.entry.keys.name(), "a caller is cancelled: its time has come, but it is not polled");
        drop(work);
    }

    /// Cancels a contender that was found silent, and has kept its place because it blocked nobody. Returns whether there
    /// was one.
    pub(crate) fn cancel_silent(&self) -> bool {
        let silent = self.entry.state().contest.take_silent();
        silent.map(|work| self.cancel(work)).is_some()
    }

    /// Does the work of the contender, which came at this time. Returns `None` if the lookout cancelled it because its
    /// caller was not polled.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work.
    pub(crate) fn contest(&self, work: Work, came: Instant) -> Contesting<'_> {
        Contesting::new(&self.entry, work, came)
    }
}

impl Clone for Visit {
    fn clone(&self) -> Self {
        // While this visit exists, the entry is in the table: no shard needs to be locked.
        self.entry.visitors.fetch_add(1, Ordering::Relaxed);
        Self { entry: Arc::clone(&self.entry) }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.entry.visitors.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.entry.table.leave(&self.entry);
    }
}

/// One caller in the queue, until it has the permit. The last caller to leave without it gives back what was left for the queue.
#[must_use = "the caller leaves the queue with it"]
pub(crate) struct InQueue<'a> {
    visit: &'a Visit,
    /// `None`: it has taken the permit, or left.
    ticket: Option<u64>,
}

impl Future for InQueue<'_> {
    type Output = Result<EntryPermit>;

    /// Takes the permit: first come, first served.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<EntryPermit>> {
        // A task that has used up its budget takes no permit now.
        let coop = poll_proceed(context);
        let ticket = self.ticket.expect("it has not taken the permit yet");
        let (entry, waker, mut former) = (&self.visit.entry, context.waker(), None);
        let has_budget = coop.is_ready();
        let polled = entry.state().queue.poll(ticket, waker, has_budget, &mut former);
        if polled.is_pending() && !has_budget {
            // If the permit is free, nobody calls this caller. Then only the lookout can notice that it is not polled again.
            entry.look_out();
        }
        ready!(polled)?;
        if let Poll::Ready(coop) = coop {
            coop.made_progress();
        }
        self.ticket = None;
        Poll::Ready(Ok(EntryPermit::new(self.visit.clone(), ticket)))
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (_own, is_awaited) = self
            .visit
            .entry
            .change(|state, after| (state.leave_queue(ticket, after), state.is_awaited()));
        if !is_awaited {
            self.visit.look_after();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::{Wake, Waker};

    use super::*;
    use crate::config::{Config, Layout};
    use crate::core::waiting::Event;
    use crate::engine::entry::Table;
    use crate::keys::Keys;
    use crate::kinds::Kind;
    use crate::mutex::Mutex;
    use crate::wakers::tests::panicking;

    /// A waker that looks, when it is dropped, whether the entry is locked: a simple executor may keep a sleeping task alive by
    /// its waker alone, and the task may wait for this entry.
    struct Looks {
        entry: Arc<Entry>,
        found_locked: Arc<AtomicBool>,
    }

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Looks {
        fn drop(&mut self) {
            self.found_locked.fetch_or(self.entry.state.is_locked(), Ordering::SeqCst);
        }
    }

    #[test]
    fn a_waker_is_dropped_when_the_entry_is_not_locked() {
        let table = Arc::new(Table::default());
        let (first, second) = (visit(&table), visit(&table));
        let found_locked = Arc::new(AtomicBool::new(false));
        let waker = || {
            let (entry, found_locked) = (Arc::clone(&first.entry), Arc::clone(&found_locked));
            Waker::from(Arc::new(Looks { entry, found_locked }))
        };
        let permit = first.try_permit().expect("it is free");
        let mut contesting =
            Box::pin(first.contest(Box::pin(std::future::pending()), Instant::now()));
        let mut queued = second.wait();
        for _ in 0..3 {
            assert!(contesting.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
            assert!(Pin::new(&mut queued).poll(&mut Context::from_waker(&waker())).is_pending());
        }
        drop(contesting);
        drop(permit);
        let taken = Pin::new(&mut queued).poll(&mut Context::from_waker(&waker()));
        assert!(matches!(taken, Poll::Ready(Ok(_))));
        drop((taken, queued));
        assert!(!found_locked.load(Ordering::SeqCst));
    }

    fn visit(table: &Arc<Table>) -> Visit {
        let keys = Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap();
        table.visit(&Arc::new(keys), 1).unwrap()
    }

    #[tokio::test]
    async fn a_caller_without_budget_is_looked_for_although_nobody_calls_it() {
        let table = Arc::new(Table::default());
        let visitor = visit(&table);
        let mut queued = visitor.wait();
        let polled = std::future::poll_fn(|context| {
            while let Poll::Ready(coop) = poll_proceed(context) {
                coop.made_progress();
            }
            Poll::Ready(Pin::new(&mut queued).poll(context).is_pending())
        });
        assert!(polled.await, "the permit is free, but its task has to let others run");
        assert!(visitor.entry.state().is_on_lookout);
    }

    #[test]
    fn a_permit_belongs_to_one_visitor_until_it_is_dropped() {
        let table = Arc::new(Table::default());
        let permit = visit(&table).try_permit().unwrap();
        assert!(visit(&table).try_permit().is_none());
        drop(permit);
        assert!(visit(&table).try_permit().is_some());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn the_last_caller_to_leave_the_queue_gives_back_what_was_left_for_it() {
        let places = Arc::new(Mutex::new(Vec::new()));
        let left = Arc::clone(&places);
        let gives_back = move |remains: Remains<'_>| match remains {
            Remains::Place(_, id) => left.lock().push(id),
            _ => panic!("only a place is left"),
        };
        let table = Arc::new(Table::new(&Config::default(), gives_back));
        let (first, second) = (visit(&table), visit(&table));
        let (id, ..) = first.entry.ask(Duration::MAX);
        let waits = Event::Waits { place: 7, near: true, sent: Instant::now(), again: None };
        assert!(first.entry.notes(waits));
        let (one, other) = (first.wait(), second.wait());
        drop(one);
        assert!(places.lock().is_empty(), "it is for the other one");
        drop(other);
        assert_eq!(*places.lock(), [id]);
        drop((first, second));
        assert_eq!(table.len(), 0);
    }

    /// An executor whose loop has ended may panic when it is woken.
    #[test]
    fn a_waker_that_panics_keeps_nobody_else_asleep() {
        #[derive(Default)]
        struct Called(AtomicBool);
        impl Wake for Called {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let table = Arc::new(Table::default());
        let (first, second) = (visit(&table), visit(&table));
        let permit = visit(&table).try_permit().unwrap();
        let (mut ended, mut other) = (first.wait(), second.wait());
        let called = Arc::new(Called::default());
        let wakers = [panicking(), Waker::from(Arc::clone(&called))];
        assert!(Pin::new(&mut ended).poll(&mut Context::from_waker(&wakers[0])).is_pending());
        assert!(Pin::new(&mut other).poll(&mut Context::from_waker(&wakers[1])).is_pending());
        drop(permit); // it is the turn of the first one
        drop(table.close());
        assert!(called.0.load(Ordering::SeqCst));
    }
}
