//! What a client knows of one lock: who has its turn, where its contender parks.
//!
//! 1. `turn` has one permit. It is with the contender, or with the tenure that it became, or free.
//! 2. `gate` banks at most one permit, and only the contender takes it.
//! 3. An entry is in the table exactly as long as somebody visits it.
//! 4. Where each caller waits for itself, each has an entry of its own, and its turn at once.
//! 5. A tenure that is idle (handed on, and not yet taken up) is always looked for after the turn
//!    was taken, and given back by whoever finds that nobody waits for it any more.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dashmap::DashMap;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::engine::job::Job;
use crate::engine::moment::Moment;
use crate::engine::tenure::Tenure;
use crate::keys::{Keys, Kind, TenureId};
use crate::wire::Fault;

/// The entries of a client: those of plain locks by lock, all others by their channel.
#[derive(Default)]
pub(crate) struct Table {
    locks: DashMap<ById, Arc<Entry>>,
    others: DashMap<Box<str>, BTreeMap<Spot, Arc<Entry>>>,
    closed: AtomicBool,
}

impl Table {
    /// The entry of a lock, which its callers share.
    ///
    /// # Errors
    /// [`Fault::Closed`] if the client was closed.
    pub(crate) fn visit(self: &Arc<Self>, keys: &Arc<Keys>) -> Result<Visit, Fault> {
        if !keys.is_plain() {
            return self.at(keys, keys.channel.clone(), Spot::Shared(keys.kind, keys.braced));
        }
        self.open(self.entered(keys))
    }

    /// An entry for one caller alone, which waits as this tenure to be.
    ///
    /// # Errors
    /// As [`visit`](Self::visit).
    pub(crate) fn place(
        self: &Arc<Self>,
        keys: &Arc<Keys>,
        channel: Box<str>,
        id: TenureId,
    ) -> Result<Visit, Fault> {
        self.at(keys, channel, Spot::Place(id))
    }

    fn at(
        self: &Arc<Self>,
        keys: &Arc<Keys>,
        channel: Box<str>,
        spot: Spot,
    ) -> Result<Visit, Fault> {
        let mut spots = self.others.entry(channel.clone()).or_default();
        let made = || Arc::new(Entry::at(Arc::clone(keys), channel, spot));
        let entry = Arc::clone(spots.entry(spot).or_insert_with(made));
        entry.visitors.fetch_add(1, Ordering::Relaxed);
        drop(spots);
        self.open(entry)
    }

    fn open(self: &Arc<Self>, entry: Arc<Entry>) -> Result<Visit, Fault> {
        let visit = Visit { table: Arc::clone(self), entry };
        // After the entry stands in the table: whoever closes it meanwhile will find it there.
        if self.closed.load(Ordering::SeqCst) { Err(Fault::Closed) } else { Ok(visit) }
    }

    fn entered(&self, keys: &Arc<Keys>) -> Arc<Entry> {
        if let Some(entry) = self.locks.get(keys.id()) {
            entry.visitors.fetch_add(1, Ordering::Relaxed);
            return Arc::clone(&entry);
        }
        let made = || Arc::new(Entry::new(Arc::clone(keys)));
        let entry = self.locks.entry(ById(Arc::clone(keys))).or_insert_with(made);
        entry.visitors.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&entry)
    }

    /// The entry of a plain lock. No reference into the table is kept.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Entry>> {
        self.locks.get(id).map(|entry| Arc::clone(&entry))
    }

    /// The entry of a caller that waits for itself, or holds.
    pub(crate) fn find_place(&self, channel: &str, id: TenureId) -> Option<Arc<Entry>> {
        self.others.get(channel)?.get(&Spot::Place(id)).map(Arc::clone)
    }

    /// All that hear a channel and are no plain locks.
    pub(crate) fn all_at(&self, channel: &str) -> Vec<Arc<Entry>> {
        let spots = self.others.get(channel);
        spots.map(|spots| spots.values().map(Arc::clone).collect()).unwrap_or_default()
    }

    /// Sends every waiter away, now and from now on. Those for which our client stood in a line.
    pub(crate) fn close(&self) -> Vec<Arc<Entry>> {
        self.closed.store(true, Ordering::SeqCst);
        let mut entries: Vec<_> = self.locks.iter().map(|entry| Arc::clone(&entry)).collect();
        self.others.iter().for_each(|spots| entries.extend(spots.values().cloned()));
        // The maps hash with random keys. Waiters are woken in one order, or no run of a simulation could be repeated.
        entries.sort_by(|a, b| a.order().cmp(&b.order()));
        entries.iter().for_each(|entry| entry.close());
        entries.retain(|entry| match entry.waits_as() {
            Some(_) => entry.tenure().is_none(),
            None => entry.line_up(false),
        });
        entries
    }

    pub(crate) fn len(&self) -> usize {
        self.locks.len() + self.others.len()
    }

    fn leave(&self, entry: &Arc<Entry>) {
        // Visitors come in under the lock of the table's shard: nobody does while this looks again.
        let unvisited = |there: &Arc<Entry>| {
            Arc::ptr_eq(there, entry) && there.visitors.load(Ordering::Acquire) == 0
        };
        let Some(place) = &entry.place else {
            self.locks.remove_if(entry.keys.id(), |_, there| unvisited(there));
            return;
        };
        self.others.remove_if_mut(&*place.channel, |_, spots| {
            if spots.get(&place.spot).is_some_and(unvisited) {
                spots.remove(&place.spot);
            }
            spots.is_empty()
        });
    }
}

/// Which of the entries at one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spot {
    /// That of a kind, for the name with or without braces of its own.
    Shared(Kind, bool),
    /// That of one caller.
    Place(TenureId),
}

/// Where an entry stands that is not a plain lock's.
struct Place {
    channel: Box<str>,
    spot: Spot,
    granted: Mutex<Option<Called>>,
    /// What its caller gives back of the names under which it had no answer, once it has one under this name.
    held_back: Mutex<Vec<Job>>,
}

/// A grant that a message brought. The secret is that of the sign of life for which it was made: without
/// it, anybody who may publish could have made it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) number: u64,
    pub(crate) secret: u64,
}

/// A lock as the table finds it: by what tells it from all others.
struct ById(Arc<Keys>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        self.0.id()
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for ById {}

/// One lock within one client.
pub(crate) struct Entry {
    pub(crate) keys: Arc<Keys>,
    turn: Semaphore,
    pub(crate) gate: Gate,
    tenure: Mutex<Option<Arc<Tenure>>>,
    /// Since when every attempt has failed.
    failing: Mutex<Option<Moment>>,
    /// When somebody was last known to have it.
    taken: Mutex<Option<Moment>>,
    /// Its contender waits: somebody else has it, or is to have it first.
    refused: AtomicBool,
    /// Callers in the queue for the turn.
    waiting: AtomicUsize,
    /// Our client stands in the lock's line in Redis.
    lined_up: AtomicBool,
    visitors: AtomicUsize,
    place: Option<Box<Place>>,
}

impl Entry {
    fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            turn: Semaphore::new(1),
            gate: Gate::new(),
            tenure: Mutex::default(),
            failing: Mutex::default(),
            taken: Mutex::default(),
            refused: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            lined_up: AtomicBool::new(false),
            visitors: AtomicUsize::new(0),
            place: None,
        }
    }

    fn at(keys: Arc<Keys>, channel: Box<str>, spot: Spot) -> Self {
        let (granted, held_back) = (Mutex::default(), Mutex::default());
        let place = Place { channel, spot, granted, held_back };
        Self { place: Some(Box::new(place)), ..Self::new(keys) }
    }

    /// Where its contender is told of anything.
    pub(crate) fn channel(&self) -> &str {
        self.place.as_ref().map_or(&self.keys.channel, |place| &place.channel)
    }

    /// The tenure as which its caller waits, if it waits for itself.
    pub(crate) fn waits_as(&self) -> Option<TenureId> {
        match self.place.as_deref()?.spot {
            Spot::Place(id) => Some(id),
            Spot::Shared(..) => None,
        }
    }

    /// Tells its contender of a grant.
    pub(crate) fn call(&self, called: Called) {
        if let Some(place) = &self.place {
            *place.granted.lock().expect("no panic under this lock") = Some(called);
            self.gate.open(false);
        }
    }

    /// The grant that its contender was told of, once.
    pub(crate) fn take_call(&self) -> Option<Called> {
        self.place.as_ref()?.granted.lock().expect("no panic under this lock").take()
    }

    /// Keeps jobs until [`take_held_back`](Self::take_held_back): whoever ends the wait has to take them.
    pub(crate) fn hold_back(&self, jobs: impl IntoIterator<Item = Job>) {
        if let Some(place) = &self.place {
            place.held_back.lock().expect("no panic under this lock").extend(jobs);
        }
    }

    pub(crate) fn take_held_back(&self) -> Vec<Job> {
        let Some(place) = &self.place else { return Vec::new() };
        std::mem::take(&mut *place.held_back.lock().expect("no panic under this lock"))
    }

    /// What tells it from all others, and puts them into one order.
    fn order(&self) -> (&str, &str, Option<TenureId>) {
        (self.channel(), self.keys.id(), self.waits_as())
    }

    fn close(&self) {
        self.turn.close();
        self.gate.close();
    }

    /// The last tenure that this client had; it may have ended.
    pub(crate) fn tenure(&self) -> Option<Arc<Tenure>> {
        self.tenure.lock().expect("no panic under this lock").clone()
    }

    /// Shows a tenure to those who nest in it, and to the next in the queue.
    pub(crate) fn show(&self, tenure: &Arc<Tenure>) {
        let shown = Some(Arc::clone(tenure));
        let before = std::mem::replace(&mut *self.tenure.lock().expect("no panic here"), shown);
        drop(before);
        self.take();
    }

    /// Whether nobody gets the turn any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.turn.is_closed()
    }

    /// Whether somebody of this client is in the queue.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// An attempt failed; since when they all do.
    pub(crate) fn failed(&self, now: Instant) -> Instant {
        let mut failing = self.failing.lock().expect("no panic under this lock");
        failing.get_or_insert(now.into()).instant()
    }

    /// An attempt was answered.
    pub(crate) fn answered(&self) {
        *self.failing.lock().expect("no panic under this lock") = None;
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing.lock().expect("no panic under this lock").is_some()
    }

    /// Takes note that its contender was refused.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::SeqCst);
    }

    /// Its contender waits no more.
    pub(crate) fn stop_contending(&self) {
        if self.refused.swap(false, Ordering::SeqCst) {
            self.take();
        }
    }

    /// Whether somebody is known to have it, or to have it next: a holder of this client, or one that has its
    /// contender wait.
    pub(crate) fn is_taken(&self) -> bool {
        self.refused.load(Ordering::SeqCst) || self.tenure().is_some_and(|t| !t.is_over())
    }

    /// Takes note that somebody has it now.
    pub(crate) fn take(&self) {
        *self.taken.lock().expect("no panic under this lock") = Some(Instant::now().into());
    }

    /// Whether somebody was known to have it then, or later.
    pub(crate) fn was_taken_since(&self, then: Instant) -> bool {
        let taken = *self.taken.lock().expect("no panic under this lock");
        taken.is_some_and(|taken| taken >= then.into())
    }

    /// Whether our client stands in the lock's line, or is about to.
    pub(crate) fn is_lined_up(&self) -> bool {
        self.lined_up.load(Ordering::SeqCst)
    }

    /// Takes note of whether our client stands in line; whether it did.
    pub(crate) fn line_up(&self, in_line: bool) -> bool {
        self.lined_up.swap(in_line, Ordering::SeqCst)
    }
}

/// Keeps an entry in the table.
pub(crate) struct Visit {
    table: Arc<Table>,
    pub(crate) entry: Arc<Entry>,
}

impl Visit {
    /// The turn, if nobody of this client has it.
    pub(crate) fn try_turn(&self) -> Option<Turn> {
        self.entry.turn.try_acquire().ok().map(|permit| self.turn_of(permit))
    }

    /// The turn, first come, first served.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub(crate) async fn turn(&self) -> Result<Turn, Fault> {
        let permit = self.entry.turn.acquire().await.map_err(|_| Fault::Closed)?;
        Ok(self.turn_of(permit))
    }

    fn turn_of(&self, permit: SemaphorePermit<'_>) -> Turn {
        permit.forget();
        Turn(self.clone())
    }

    /// Counts a caller into the queue, until the value is dropped.
    pub(crate) fn wait(&self) -> Waiting {
        self.entry.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(self.clone())
    }
}

impl Clone for Visit {
    fn clone(&self) -> Self {
        // It is in the table as long as this visit is: no shard needs to be locked.
        self.entry.visitors.fetch_add(1, Ordering::Relaxed);
        Self { table: Arc::clone(&self.table), entry: Arc::clone(&self.entry) }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.entry.visitors.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.table.leave(&self.entry);
    }
}

/// The right to contend for a lock, and then to hold it.
pub(crate) struct Turn(Visit);

impl Turn {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.0.entry
    }

    /// Passes the turn on, and stays to see to it that it arrives.
    pub(crate) fn pass_on(self) -> Visit {
        self.0.clone()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.entry().turn.add_permits(1);
    }
}

/// One caller in the queue.
pub(crate) struct Waiting(Visit);

impl Waiting {
    /// Leaves the queue; who was the last one in it looks after what was left for it.
    pub(crate) fn leave(self) -> Option<Visit> {
        let visit = self.0.clone();
        drop(self);
        (!visit.entry.is_awaited()).then_some(visit)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.entry.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a contender has heard at its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Nothing, until the time was over.
    Silence,
    /// It may be our turn.
    Ours,
    /// The lock was given back, and another client is to have it.
    Anothers,
}

/// Where the contender parks until an unlock message.
pub(crate) struct Gate {
    permits: Semaphore,
    /// Something was heard that was not for another client alone. It stays true whatever is heard
    /// after it.
    called: AtomicBool,
}

impl Gate {
    fn new() -> Self {
        Self { permits: Semaphore::new(0), called: AtomicBool::new(false) }
    }

    /// Lets the contender through, the next one if there is none. Two who open at once may bank
    /// two: the contender's `shut` takes both.
    pub(crate) fn open(&self, for_another: bool) {
        if !for_another {
            self.called.store(true, Ordering::Release);
        }
        if self.permits.available_permits() == 0 {
            self.permits.add_permits(1);
        }
    }

    /// Forgets what has been heard so far: the attempt that follows sees its effect.
    pub(crate) fn shut(&self) {
        self.permits.forget_permits(usize::MAX);
        self.called.store(false, Ordering::Release);
    }

    /// Parks until the gate is opened, or the time is over.
    ///
    /// # Cancel safety
    /// An opening that a dropped future has not seen stays banked for the next contender.
    pub(crate) async fn pass(&self, until: Instant) -> Result<Call, Fault> {
        match timeout_at(until, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit.forget(),
            Ok(Err(_)) => return Err(Fault::Closed),
            Err(_) => return Ok(Call::Silence),
        }
        let called = self.called.swap(false, Ordering::AcqRel);
        Ok(if called { Call::Ours } else { Call::Anothers })
    }

    fn close(&self) {
        self.permits.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Layout;
    use crate::keys::Kind;

    fn keys(name: &str) -> Arc<Keys> {
        Arc::new(Keys::new(Layout::Native, Kind::Lock, name.to_owned()).unwrap())
    }

    fn visit(table: &Arc<Table>) -> Visit {
        table.visit(&keys("a")).unwrap()
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn an_entry_leaves_with_its_last_visitor() {
        let table = Arc::new(Table::default());
        let first = visit(&table);
        let second = visit(&table);
        let third = second.clone();
        assert!(Arc::ptr_eq(&first.entry, &second.entry));
        drop((first, second));
        assert_eq!(table.len(), 1);
        drop(third);
        assert_eq!(table.len(), 0);
    }

    /// Where `Engine::held_by` looks for what an owner holds.
    #[test]
    fn exactly_the_plain_locks_are_found_by_their_name() {
        for layout in [Layout::Native, Layout::Redisson] {
            for kind in [Kind::Lock, Kind::Fenced, Kind::Fair, Kind::Read, Kind::Latch] {
                let table = Arc::new(Table::default());
                let keys = Arc::new(Keys::new(layout, kind, "a".to_owned()).unwrap());
                let visit = table.visit(&keys).unwrap();
                let found = table.find(keys.id()).is_some_and(|e| Arc::ptr_eq(&e, &visit.entry));
                assert_eq!(found, keys.is_plain(), "{kind:?} in {layout:?}");
            }
        }
    }

    #[test]
    fn a_turn_is_one_visitors_until_it_is_dropped() {
        let table = Arc::new(Table::default());
        let turn = visit(&table).try_turn().unwrap();
        assert!(visit(&table).try_turn().is_none());
        drop(turn);
        assert!(visit(&table).try_turn().is_some());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn the_last_one_to_leave_the_queue_looks_after_what_was_left_for_it() {
        let table = Arc::new(Table::default());
        let (first, second) = (visit(&table).wait(), visit(&table).wait());
        assert!(first.leave().is_none());
        assert!(second.leave().is_some());
        assert_eq!(table.len(), 0);
    }

    #[tokio::test]
    async fn a_closed_table_sends_waiters_away_and_takes_no_more() {
        let table = Arc::new(Table::default());
        let turn = visit(&table).try_turn().unwrap();
        let queued = visit(&table);
        let waiter = tokio::spawn(async move { queued.turn().await.map(drop) });
        table.close();
        assert!(matches!(waiter.await.unwrap(), Err(Fault::Closed)));
        assert!(turn.entry().gate.pass(far()).await.is_err());
        assert!(table.visit(&keys("a")).is_err());
        drop(turn);
        assert_eq!(table.len(), 0);
    }

    #[tokio::test]
    async fn a_gate_banks_one_opening_and_remembers_a_call() {
        let gate = Gate::new();
        gate.open(false);
        gate.open(true);
        assert_eq!(gate.pass(far()).await.unwrap(), Call::Ours);
        gate.open(true);
        assert_eq!(gate.pass(far()).await.unwrap(), Call::Anothers);
        assert_eq!(gate.pass(Instant::now()).await.unwrap(), Call::Silence);
        gate.open(false);
        gate.shut();
        assert_eq!(gate.pass(Instant::now()).await.unwrap(), Call::Silence);
    }
}
