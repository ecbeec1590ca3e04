//! What a client knows of one lock: who has its turn, where its contender parks.
//!
//! 1. `turn` is with the contender, or with the tenure that it became, or open, or somebody was called (`turn.rs`). What a
//!    contender does lies in `contest`, so that one that is not polled can be cancelled (`contest.rs`).
//! 2. `gate` banks at most one permit, and only the contender takes it. `line` is what the contender knows; it
//!    outlives a contender that was cancelled, for the next one of this client.
//! 3. An entry is in the table exactly as long as somebody visits it.
//! 4. Where each caller waits for itself, each has an entry of its own, and its turn at once.
//! 5. What several callers may hold side by side is held without the turn: each tenure has a seat, which keeps the entry
//!    in the table, and what is inside is in `shared.rs`.
//! 6. A tenure that is idle (handed on, and not yet taken up) is always looked for after the turn
//!    was taken, and given back by whoever finds that nobody waits for it any more.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use dashmap::DashMap;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout_at};

use crate::engine::Engine;
use crate::engine::contest::{Contest, Part, Work};
use crate::engine::job::Job;
use crate::engine::line::{Event, Line, Next, Rules};
use crate::engine::lookout::{Age, Lookout, Watched};
use crate::engine::moment::Moment;
use crate::engine::returns::Returns;
use crate::engine::shared::Shared;
use crate::engine::stint::Stint;
use crate::engine::tenure::Tenure;
use crate::engine::timetable::Timetable;
use crate::engine::turn::{Look, Ticket, Turns};
use crate::error::Result as Answer;
use crate::keys::{Keys, Kind, TenureId, ids_of};
use crate::wire::{Fault, Manner};

/// The entries of a client: those of plain locks by lock, all others by their channel.
#[derive(Default)]
pub(crate) struct Table {
    locks: DashMap<ById, Arc<Entry>>,
    others: DashMap<Box<str>, Spots>,
    closed: AtomicBool,
    lookout: Arc<Lookout>,
    /// None in a test.
    outbox: Option<Outbox>,
}

/// Where what nobody needs any more is left to be given back.
pub(crate) struct Outbox {
    pub(crate) releaser: UnboundedSender<Job>,
    pub(crate) returns: Arc<Returns>,
    pub(crate) timetable: Arc<Timetable>,
}

impl Outbox {
    /// Leaves a job; `false` if the client is closed, and nobody does it.
    pub(crate) fn put(&self, mut job: Job) -> bool {
        !job.is_new(&self.returns) || self.releaser.send(job).is_ok()
    }

    /// Gives back a tenure that nobody holds, if that is still so.
    fn give_back(&self, tenure: &Tenure) {
        if let Some((stay, place)) = tenure.retire() {
            self.timetable.leave(place);
            // Without the task that gives back, the lease does it.
            self.put(Job::release(tenure, stay));
        }
    }
}

/// The entries at one channel that are no plain lock's.
#[derive(Default)]
struct Spots {
    entries: BTreeMap<Spot, Arc<Entry>>,
    /// The one far contender that asks now and then, for all of them.
    watcher: Option<Spot>,
}

impl Spots {
    /// Wakes the next far contender to be the watcher, if this one was.
    fn stop_watching(&mut self, spot: Spot) {
        if self.watcher == Some(spot) {
            self.watcher = None;
            let next = self.entries.iter().find(|(other, entry)| **other != spot && entry.is_far());
            if let Some((_, entry)) = next {
                entry.gate.open();
            }
        }
    }
}

impl Table {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self { outbox: Some(outbox), ..Self::default() }
    }

    pub(crate) fn outbox(&self) -> Option<&Outbox> {
        self.outbox.as_ref()
    }

    pub(crate) fn lookout(&self) -> &Arc<Lookout> {
        &self.lookout
    }

    /// A visit of an entry that is visited; `None` if nobody is there any more.
    pub(crate) fn visit_again(self: &Arc<Self>, entry: &Arc<Entry>) -> Option<Visit> {
        // Without the lock of its shard: an entry that is in the table stays there, and no other one comes back.
        let one_more = |visitors: usize| (visitors > 0).then_some(visitors + 1);
        let visited =
            entry.visitors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok();
        visited.then(|| Visit { table: Arc::clone(self), entry: Arc::clone(entry) })
    }

    /// The entry of a lock, which its callers share; of a semaphore, those who ask for as much of it.
    ///
    /// # Errors
    /// [`Fault::Closed`] if the client was closed.
    pub(crate) fn visit(self: &Arc<Self>, keys: &Arc<Keys>, part: u32) -> Result<Visit, Fault> {
        if !keys.is_plain() {
            let spot = Spot::Shared(keys.kind, keys.braced, keys.class(part));
            return self.at(keys, keys.channel.clone(), spot);
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
        let entry = Arc::clone(spots.entries.entry(spot).or_insert_with(made));
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

    /// The entry that waits or holds under this owner field.
    pub(crate) fn find_waiting(&self, channel: &str, id: TenureId) -> Option<Arc<Entry>> {
        let is_it = |entry: &Arc<Entry>| entry.is_known_as(id);
        if let Some(entry) = ids_of(channel).filter_map(|id| self.find(id)).find(is_it) {
            return Some(entry);
        }
        let spots = self.others.get(channel)?;
        // Nearly every caller has the owner field of its entry. One whose request was not answered has another.
        let first = spots.entries.get(&Spot::Place(id)).filter(|entry| is_it(entry));
        first.or_else(|| spots.entries.values().find(|entry| is_it(entry))).map(Arc::clone)
    }

    /// All that hear a channel.
    pub(crate) fn all_of(&self, channel: &str) -> Vec<Arc<Entry>> {
        let mut entries: Vec<_> = ids_of(channel).filter_map(|id| self.find(id)).collect();
        if let Some(spots) = self.others.get(channel) {
            entries.extend(spots.entries.values().map(Arc::clone));
        }
        entries
    }

    /// Sends every waiter away, now and from now on. All entries: their places in line are to be given up.
    pub(crate) fn close(&self) -> Vec<Arc<Entry>> {
        self.closed.store(true, Ordering::SeqCst);
        let entries = self.sorted(|_| true);
        entries.iter().for_each(|entry| entry.close());
        entries
    }

    /// Those of all entries, in one order: the maps hash with random keys, and no run of a simulation could be repeated.
    fn sorted(&self, is_one: impl Fn(&Arc<Entry>) -> bool) -> Vec<Arc<Entry>> {
        let plain = self.locks.iter().map(|entry| Arc::clone(&entry));
        let mut entries: Vec<_> = plain.filter(&is_one).collect();
        for spots in &self.others {
            entries.extend(spots.entries.values().filter(|entry| is_one(entry)).cloned());
        }
        entries.sort_by(|a, b| a.order().cmp(&b.order()));
        entries
    }

    /// The entries with a contender that was told something, and has not come yet.
    pub(crate) fn late(&self) -> Vec<Arc<Entry>> {
        let late = |entry: &Arc<Entry>| entry.contest.is_late();
        self.sorted(late)
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
            if spots.entries.get(&place.spot).is_some_and(unvisited) {
                spots.stop_watching(place.spot);
                spots.entries.remove(&place.spot);
            }
            spots.entries.is_empty()
        });
    }

    /// Whether it is up to this contender to ask now and then for all of this client that are far from the front
    /// of the same line. A message that was lost is found out by that.
    fn is_watched_by(&self, entry: &Entry, is_far: bool) -> bool {
        let Some(place) = &entry.place else { return true };
        let Some(mut spots) = self.others.get_mut(&*place.channel) else { return true };
        if !is_far {
            spots.stop_watching(place.spot);
            return true;
        }
        *spots.watcher.get_or_insert(place.spot) == place.spot
    }
}

/// Which of the entries at one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spot {
    /// That of a kind, for the name with or without braces of its own, and for so much of it.
    Shared(Kind, bool, u32),
    /// That of one caller.
    Place(TenureId),
}

/// Where an entry stands that is not a plain lock's.
struct Place {
    channel: Box<str>,
    spot: Spot,
    /// What is inside together.
    shared: Mutex<Shared<Arc<Tenure>>>,
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
    turn: Turns,
    contest: Contest<Contested>,
    pub(crate) gate: Gate,
    tenure: Mutex<Option<Arc<Tenure>>>,
    /// What is to be given back of the owner fields under which the contender had no answer, once it has one.
    held_back: Mutex<Vec<Job>>,
    /// Since when every attempt has failed.
    failing: Mutex<Option<Moment>>,
    /// When somebody was last known to have it.
    taken: Mutex<Option<Moment>>,
    /// Its contender waits: somebody else has it, or is to have it first.
    refused: AtomicBool,
    /// What its contender knows.
    line: Mutex<Option<Box<Line>>>,
    visitors: AtomicUsize,
    place: Option<Box<Place>>,
    /// Whether the lookout looks at it.
    pub(crate) watched: Watched,
    /// How long its contender has had no answer.
    age: Age,
    /// Who is told when the contender is woken; nobody as long as it is alone.
    lookout: OnceLock<Arc<Lookout>>,
}

/// What comes of a contest: a stint, none if there was one attempt only, or an error.
pub(crate) type Contested = Answer<Option<Stint>>;

impl Entry {
    fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            turn: Turns::default(),
            contest: Contest::default(),
            gate: Gate::new(),
            tenure: Mutex::default(),
            held_back: Mutex::default(),
            failing: Mutex::default(),
            taken: Mutex::default(),
            refused: AtomicBool::new(false),
            line: Mutex::default(),
            visitors: AtomicUsize::new(0),
            place: None,
            watched: Watched::default(),
            age: Age::default(),
            lookout: OnceLock::new(),
        }
    }

    fn at(keys: Arc<Keys>, channel: Box<str>, spot: Spot) -> Self {
        let place = Place { channel, spot, shared: Mutex::default() };
        Self { place: Some(Box::new(place)), ..Self::new(keys) }
    }

    /// Where all that concerns it is told.
    pub(crate) fn channel(&self) -> &str {
        self.place.as_ref().map_or(&self.keys.channel, |place| &place.channel)
    }

    /// What its contender listens to: that, and what concerns this client alone.
    pub(crate) fn channels(&self, client: &str) -> Vec<Box<str>> {
        let mut channels = vec![Box::from(self.channel())];
        channels.extend(self.keys.has_line().then(|| self.keys.client_channel(client)));
        channels
    }

    fn line(&self) -> MutexGuard<'_, Option<Box<Line>>> {
        self.line.lock().expect("no panic under this lock")
    }

    /// What is inside together; `None` of a plain lock.
    pub(crate) fn shared(&self) -> Option<MutexGuard<'_, Shared<Arc<Tenure>>>> {
        let place = self.place.as_ref()?;
        Some(place.shared.lock().expect("no panic under this lock"))
    }

    /// Whether each tenure has a seat here, and none has the turn.
    pub(crate) fn has_seats(&self) -> bool {
        let is_shared = |place: &Place| matches!(place.spot, Spot::Shared(..));
        self.keys.is_held_together() && self.place.as_deref().is_some_and(is_shared)
    }

    /// The callers of this client that what rests is kept for: those in the queue, and the contender, if the server has
    /// let it wait.
    pub(crate) fn ahead(&self) -> usize {
        self.turn.waiting() + usize::from(self.was_refused())
    }

    /// Whether the contender is known to wait for others.
    pub(crate) fn was_refused(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.was_refused())
    }

    /// Whether some caller of this client asks or waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_awaited() || !self.turn.is_open()
    }

    /// What rests although nobody is to have it.
    pub(crate) fn forgotten(&self) -> Vec<Arc<Tenure>> {
        let shared = self.shared().filter(|_| !self.is_wanted());
        shared.map_or_else(Vec::new, |shared| shared.forgotten())
    }

    /// What was granted under this owner field.
    pub(crate) fn holder(&self, id: TenureId) -> Option<Arc<Tenure>> {
        let together = self.shared().and_then(|shared| shared.find(id));
        together.or_else(|| self.tenure().filter(|tenure| tenure.id == id))
    }

    /// The rules for a grant that a message brings to the line.
    pub(crate) fn rules_of_line(&self, rules: Rules) -> Rules {
        self.line().as_ref().map_or(rules, |line| line.rules(rules))
    }

    /// Tells the contender, if there is one.
    pub(crate) fn step(&self, event: Event, rules: Rules) {
        if let Some(line) = &mut *self.line() {
            line.step(Instant::now(), event, rules);
        }
        self.gate.open();
    }

    /// The contender is about to ask: under this owner field, for this place.
    pub(crate) fn ask(&self, engine: &Engine, rules: Rules) -> (TenureId, u64, Manner) {
        let now = Instant::now();
        let mut line = self.line();
        let line = line.get_or_insert_with(|| Box::new(Line::new(self.new_id(engine), now)));
        if line.is_open() {
            line.rename(engine.next_tenure(), now);
        }
        line.step(now, Event::Asked, rules);
        (line.id(), line.place(), if line.rests() { Manner::Rest } else { Manner::Wait })
    }

    /// A caller with an entry of its own is known by the name of the entry, until that may be in use.
    fn new_id(&self, engine: &Engine) -> TenureId {
        match self.place.as_deref() {
            Some(Place { spot: Spot::Place(id), .. }) => *id,
            _ => engine.next_tenure(),
        }
    }

    /// Whether its contender was told a place, which it keeps under another owner field.
    pub(crate) fn has_place(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.place() > 0)
    }

    /// Keeps a job until [`take_held_back`](Self::take_held_back): whoever ends the wait has to take it.
    pub(crate) fn hold_back(&self, job: Job) {
        self.held_back.lock().expect("no panic under this lock").push(job);
    }

    pub(crate) fn take_held_back(&self) -> Vec<Job> {
        std::mem::take(&mut *self.held_back.lock().expect("no panic under this lock"))
    }

    fn is_far(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.is_far())
    }

    /// Whether it waits or holds under this owner field.
    fn is_known_as(&self, id: TenureId) -> bool {
        self.line().as_ref().is_some_and(|line| line.id() == id) || self.holder(id).is_some()
    }

    /// The contender goes, and a request of its may still run. The next contender keeps the place.
    pub(crate) fn stop_asking(&self, engine: &Engine) {
        if let Some(line) = self.line().as_mut().filter(|line| line.is_open()) {
            line.rename(engine.next_tenure(), Instant::now());
        }
    }

    /// The contender has been let in: what it knew is over.
    pub(crate) fn forget_line(&self) {
        *self.line() = None;
    }

    /// Nobody contends any more. The owner field that is to be taken out of the line, if there is one.
    pub(crate) fn leave_line(&self) -> Option<TenureId> {
        let line = self.line().take()?;
        line.stands().then(|| line.id())
    }

    /// What tells it from all others, and puts them into one order.
    fn order(&self) -> (&str, &str, Option<Spot>) {
        (self.channel(), self.keys.id(), self.place.as_ref().map(|place| place.spot))
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

    /// Whether somebody of this client is in the queue, and not known to be silent.
    pub(crate) fn is_awaited(&self) -> bool {
        self.turn.waiting() > 0
    }

    /// Looks whether whoever was called for the turn has come.
    pub(crate) fn look_for_called(&self) -> Look {
        self.turn.look()
    }

    /// Looks whether the contender has come that was told something. Its work, if it is silent and in somebody's way:
    /// it is to be dropped.
    pub(crate) fn look_for_contender(&self) -> (Look, Option<Work<Contested>>) {
        match self.contest.look() {
            // What a message grants to a silent contender lasts for a sign of life. It keeps its place, if it can.
            Look::Silent if !self.is_awaited() && self.is_parked() => (Look::Well, None),
            Look::Silent => (Look::Silent, self.contest.take_silent()),
            look => (look, None),
        }
    }

    /// Whether the contender has had an answer to its last request, and waits in line.
    fn is_parked(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.was_refused() && !line.is_open())
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

    /// Whether somebody is known to have it, or to have it next: a holder of this client, or one that makes its
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
}

/// Keeps an entry in the table.
pub(crate) struct Visit {
    table: Arc<Table>,
    pub(crate) entry: Arc<Entry>,
}

impl Visit {
    /// The turn, if it is open.
    pub(crate) fn try_turn(&self) -> Option<Turn> {
        let number = self.entry.turn.try_take()?;
        Some(Turn { visit: self.clone(), number })
    }

    /// What its contender does next.
    pub(crate) fn next(&self, listening: bool, rules: Rules) -> Next {
        let watching = self.table.is_watched_by(&self.entry, self.entry.is_far());
        let now = Instant::now();
        match &*self.entry.line() {
            Some(line) => line.next(now, listening, watching, line.rules(rules)),
            None => Next::Ask,
        }
    }

    /// A caller that has only come.
    #[cfg(test)]
    pub(crate) fn wait(&self) -> Waiting {
        self.wait_as(Ticket::default())
    }

    /// Counts a caller into the queue, until the value is dropped.
    pub(crate) fn wait_as(&self, ticket: Ticket) -> Waiting {
        self.entry.turn.wait();
        Waiting { visit: self.clone(), ticket }
    }

    /// From now on somebody is told if the contender is woken and not polled.
    pub(crate) fn have_contender_watched(&self) {
        self.entry.lookout.get_or_init(|| Arc::clone(&self.table.lookout));
        self.table.lookout.end(&self.entry.age);
        // It may have been woken before.
        self.table.lookout.watch(&self.entry);
    }

    /// The contender was cancelled.
    pub(crate) fn forget_contender(&self) {
        self.table.lookout.end(&self.entry.age);
    }

    /// Does what needs the turn, which the work has; `None` if it was cancelled because its caller was not polled.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work.
    pub(crate) async fn contest(&self, work: Work<Contested>) -> Option<Contested> {
        if self.entry.lookout.get().is_none() {
            self.table.lookout.begin(&self.entry.age);
        }
        let waker = Waker::from(Arc::clone(&self.entry));
        let mut contesting = Contesting { visit: self, waker, part: Part::New(work) };
        poll_fn(|context| contesting.poll(context)).await
    }
}

/// The caller's end of a contest.
struct Contesting<'a> {
    visit: &'a Visit,
    /// That of the work.
    waker: Waker,
    part: Part<Contested>,
}

impl Contesting<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Contested>> {
        self.visit.entry.contest.poll(&mut self.part, &self.waker, context)
    }
}

impl Drop for Contesting<'_> {
    fn drop(&mut self) {
        let Visit { table, entry } = self.visit;
        table.lookout.end(&entry.age);
        entry.contest.end(&mut self.part);
    }
}

/// An entry wakes its contender.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.contest.wake();
        if let Some(lookout) = self.lookout.get() {
            lookout.watch(self);
        }
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
pub(crate) struct Turn {
    visit: Visit,
    /// The ticket with which it was taken.
    number: u64,
}

impl Turn {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.visit.entry
    }

    pub(crate) fn visit(&self) -> &Visit {
        &self.visit
    }

    /// With which its caller stands before all that came later, should it have to come again.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket::again(self.number)
    }

    /// Passes the turn on, and stays to see to it that it arrives.
    pub(crate) fn pass_on(self) -> Visit {
        self.visit.clone()
    }
}

/// A place inside for a tenure that several callers may have one of at the same time.
pub(crate) struct Seat {
    visit: Visit,
    id: TenureId,
    returned: bool,
}

impl Seat {
    pub(crate) fn new(visit: Visit, id: TenureId) -> Self {
        Self { visit, id, returned: false }
    }

    pub(crate) fn visit(&self) -> &Visit {
        &self.visit
    }

    /// What it stands for is about to be given back. The seat is kept until that was answered.
    pub(crate) fn leaving(&mut self) {
        if let Some(mut shared) = self.visit.entry.shared() {
            shared.leaving(self.id);
            self.returned = true;
        }
    }
}

impl Drop for Seat {
    /// What has rested for the sake of this return is not looked after by another one.
    fn drop(&mut self) {
        let entry = &self.visit.entry;
        let ahead = entry.ahead();
        let Some(mut shared) = entry.shared() else { return };
        let own = shared.gone(self.id, self.returned);
        let spare = if self.returned { shared.spare(ahead) } else { Vec::new() };
        drop(shared);
        drop(own);
        let Some(outbox) = self.visit.table.outbox() else { return };
        spare.iter().for_each(|tenure| outbox.give_back(tenure));
    }
}

/// What a tenure keeps of its entry.
pub(crate) enum Stay {
    /// Nobody else of this client may have one.
    Turn(Turn),
    Seat(Seat),
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Visit { table, entry } = &self.visit;
        if entry.turn.pass_on() {
            table.lookout.watch(entry);
        }
    }
}

/// One caller in the queue.
pub(crate) struct Waiting {
    visit: Visit,
    ticket: Ticket,
}

impl Waiting {
    /// The turn, first come, first served.
    ///
    /// # Cancel safety
    /// Dropping the future gives up nothing: the place in the queue is this value's.
    pub(crate) async fn turn(&mut self) -> Result<Turn, Fault> {
        let Self { visit, ticket } = self;
        let number = poll_fn(|context| visit.entry.turn.poll(ticket, context)).await?;
        Ok(Turn { visit: visit.clone(), number })
    }

    /// Leaves the queue; who was the last one in it looks after what was left for it.
    pub(crate) fn leave(self) -> Option<Visit> {
        let visit = self.visit.clone();
        drop(self);
        (!visit.entry.is_awaited()).then_some(visit)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Visit { table, entry } = &self.visit;
        if entry.turn.leave(&self.ticket) {
            table.lookout.watch(entry);
        }
    }
}

/// Where the contender parks until it is told something.
pub(crate) struct Gate {
    permits: Semaphore,
}

impl Gate {
    fn new() -> Self {
        Self { permits: Semaphore::new(0) }
    }

    /// Lets the contender through, the next one if there is none. Two who open at once may bank two: the
    /// contender then looks once more than it needs to.
    pub(crate) fn open(&self) {
        if self.permits.available_permits() == 0 {
            self.permits.add_permits(1);
        }
    }

    /// Parks until the gate is opened, or the time is over.
    ///
    /// # Cancel safety
    /// An opening that a dropped future has not seen stays banked for the next contender.
    pub(crate) async fn pass(&self, until: Instant) -> Result<(), Fault> {
        match timeout_at(until, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit.forget(),
            Ok(Err(_)) => return Err(Fault::Closed),
            Err(_) => {}
        }
        Ok(())
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
        table.visit(&keys("a"), 1).unwrap()
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
                let visit = table.visit(&keys, 1).unwrap();
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
        let waiter = tokio::spawn(async move { queued.wait().turn().await.map(drop) });
        table.close();
        assert!(matches!(waiter.await.unwrap(), Err(Fault::Closed)));
        assert!(turn.entry().gate.pass(far()).await.is_err());
        assert!(table.visit(&keys("a"), 1).is_err());
        drop(turn);
        assert_eq!(table.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_banks_one_opening() {
        let (gate, start) = (Gate::new(), Instant::now());
        gate.open();
        gate.open();
        gate.pass(far()).await.unwrap();
        assert_eq!(Instant::now(), start);
        gate.pass(far()).await.unwrap();
        assert!(Instant::now() > start);
    }
}
