//! The state of one lock within one client: its permit, the gate of its contender, its tenures.
//!
//! 1. The contender has the `permit`, or the tenure that it was granted. Otherwise the permit is open, or a caller was
//!    called (`permit.rs`). The work of a contender lies in `contest`, so that the lookout can cancel a contender that
//!    is not polled (`contest.rs`).
//! 2. `gate` stores at most one opening, and only the contender takes it. `line` is what the contender knows. It
//!    outlives a cancelled contender, and serves the next one of this client.
//! 3. An entry is in the table exactly as long as it has visitors.
//! 4. In a kind in which each caller waits separately, each caller has its own entry, and gets its permit at once.
//! 5. If several callers may hold a lock side by side, they hold it without the permit. Each tenure has a seat, which
//!    keeps the entry in the table. `shared.rs` knows the tenures inside.
//! 6. A caller that takes the permit always checks for an idle tenure: one that was handed on and not taken up yet. If
//!    it finds that no other caller waits for the tenure any more, it releases the tenure.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::engine::compact_instant::CompactInstant;
use crate::engine::contest::{Contest, Part, Work};
use crate::engine::gate::Gate;
use crate::engine::ghost::Ghost;
use crate::engine::grant::{Grant, Holder, Lease};
use crate::engine::keep::Keep;
use crate::engine::line::{Event, Line, Next, Rules};
use crate::engine::lookout::{Age, Lookout, Watched};
use crate::engine::permit::{Look, Permit, Ticket};
use crate::engine::shared::Shared;
use crate::engine::tenure;
use crate::error::Result as Answer;
use crate::keys::{Keys, TenureId, ids_of};
use crate::kinds::Kind;
use crate::wire::{Fault, Manner, Subscription};

/// The entries of a client: plain locks by lock, all others by channel.
#[derive(Default)]
pub(crate) struct Table {
    locks: DashMap<ById, Arc<Entry>>,
    others: DashMap<Box<str>, Siblings>,
    closed: AtomicBool,
    lookout: Arc<Lookout<Entry>>,
    /// `None` in a test.
    give_back: Option<GiveBack>,
}

/// One grant by Redis to this client, with its part of the entry.
pub(crate) type Tenure = tenure::Tenure<Stay>;

/// What the holds of one owner share.
pub(crate) type Joined = tenure::Joined<Stay>;

/// Releases a tenure, if still no caller holds it.
type GiveBack = Box<dyn Fn(&Tenure) + Send + Sync>;

/// The entries of one channel, except those of plain locks.
#[derive(Default)]
struct Siblings {
    entries: BTreeMap<EntryKey, Arc<Entry>>,
    /// The one far contender that asks from time to time for all of them.
    watcher: Option<EntryKey>,
}

impl Siblings {
    /// If this entry was the watcher, makes the next far contender the watcher, and wakes it. That contender may be
    /// asking at this moment, and learn that it is near. It is the watcher by then, so it passes the watch on.
    fn stop_watching(&mut self, key: EntryKey) {
        if self.watcher == Some(key) {
            // Take turns. Otherwise two entries with many callers could pass the watch to and fro, and a third would
            // never get it.
            let behind = self.entries.range((Bound::Excluded(key), Bound::Unbounded));
            let mut in_turn = behind.chain(self.entries.range(..key));
            let next = in_turn.find(|(_, entry)| entry.can_watch());
            self.watcher = next.map(|(next, _)| *next);
            if let Some((_, entry)) = next {
                entry.gate.open();
            }
        }
    }
}

impl Table {
    /// A table that calls `give_back` for each tenure that no caller needs any more.
    pub(crate) fn new(give_back: impl Fn(&Tenure) + Send + Sync + 'static) -> Self {
        Self { give_back: Some(Box::new(give_back)), ..Self::default() }
    }

    pub(crate) fn lookout(&self) -> &Arc<Lookout<Entry>> {
        &self.lookout
    }

    /// Another visit of an entry, or `None` if the entry has no visitor any more.
    pub(crate) fn visit_again(self: &Arc<Self>, entry: &Arc<Entry>) -> Option<Visit> {
        // This does not lock the shard of the table: an entry with visitors stays in the table, and a removed one never
        // returns.
        let one_more = |visitors: usize| (visitors > 0).then_some(visitors + 1);
        let visited =
            entry.visitors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok();
        visited.then(|| Visit { table: Arc::clone(self), entry: Arc::clone(entry) })
    }

    /// The entry of a lock, which its callers share. Callers of a semaphore share an entry if they ask for the same
    /// number of permits.
    ///
    /// # Errors
    /// [`Fault::Closed`] if the client was closed.
    pub(crate) fn visit(self: &Arc<Self>, keys: &Arc<Keys>, permits: u32) -> Result<Visit, Fault> {
        if !keys.row.is_plain {
            let key = EntryKey::Shared(keys.kind, keys.braced, keys.class(permits));
            return self.at(keys, keys.channel.clone(), key);
        }
        self.open(self.entered(keys))
    }

    /// An entry for one caller alone. `id` is the id of the tenure that it waits for.
    ///
    /// # Errors
    /// Same as [`visit`](Self::visit).
    pub(crate) fn enter_alone(
        self: &Arc<Self>,
        keys: &Arc<Keys>,
        channel: Box<str>,
        id: TenureId,
    ) -> Result<Visit, Fault> {
        self.at(keys, channel, EntryKey::Alone(id))
    }

    fn at(
        self: &Arc<Self>,
        keys: &Arc<Keys>,
        channel: Box<str>,
        key: EntryKey,
    ) -> Result<Visit, Fault> {
        let mut siblings = self.others.entry(channel.clone()).or_default();
        let made = || Arc::new(Entry::at(Arc::clone(keys), channel, key));
        let entry = Arc::clone(siblings.entries.entry(key).or_insert_with(made));
        entry.visitors.fetch_add(1, Ordering::Relaxed);
        drop(siblings);
        self.open(entry)
    }

    fn open(self: &Arc<Self>, entry: Arc<Entry>) -> Result<Visit, Fault> {
        let visit = Visit { table: Arc::clone(self), entry };
        // Check only after the entry is in the table: a `close` that runs at the same time finds it there.
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

    /// The entry of a plain lock. The result does not keep the shard of the table locked.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Entry>> {
        self.locks.get(id).map(|entry| Arc::clone(&entry))
    }

    /// The entry that waits or holds under this owner field.
    pub(crate) fn find_waiting(&self, channel: &str, id: TenureId) -> Option<Arc<Entry>> {
        let is_it = |entry: &Arc<Entry>| entry.is_known_as(id);
        if let Some(entry) = self.plain_of(channel).find(is_it) {
            return Some(entry);
        }
        let siblings = self.others.get(channel)?;
        // Nearly every caller has the owner field of its entry. A caller whose request was not answered has another
        // one.
        let first = siblings.entries.get(&EntryKey::Alone(id)).filter(|entry| is_it(entry));
        first.or_else(|| siblings.entries.values().find(|entry| is_it(entry))).map(Arc::clone)
    }

    /// The entries of the plain locks of a channel.
    pub(crate) fn plain_of(&self, channel: &str) -> impl Iterator<Item = Arc<Entry>> {
        ids_of(channel).filter_map(|id| self.find(id))
    }

    /// All entries of a channel.
    pub(crate) fn all_of(&self, channel: &str) -> Vec<Arc<Entry>> {
        let mut entries: Vec<_> = self.plain_of(channel).collect();
        if let Some(siblings) = self.others.get(channel) {
            entries.extend(siblings.entries.values().map(Arc::clone));
        }
        entries
    }

    /// The entries of a channel that several callers share: only in these can tenures rest. Each caller that waits
    /// alone, and each hold that `try_acquire` or `try_read` has got, has another entry.
    pub(crate) fn shared_of(&self, channel: &str) -> Vec<Arc<Entry>> {
        let Some(siblings) = self.others.get(channel) else { return Vec::new() };
        // They come first.
        let is_shared = |(key, _): &(&EntryKey, _)| matches!(key, EntryKey::Shared(..));
        siblings.entries.iter().take_while(is_shared).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// Rejects every waiter, now and from now on. Returns all entries: the caller has to give up their places in line.
    pub(crate) fn close(&self) -> Vec<Arc<Entry>> {
        self.closed.store(true, Ordering::SeqCst);
        let entries = self.sorted(|_| true);
        entries.iter().for_each(|entry| entry.close());
        entries
    }

    /// These entries, in a fixed order. The maps hash with random keys: without a fixed order, no simulation run could
    /// be repeated.
    fn sorted(&self, is_one: impl Fn(&Arc<Entry>) -> bool) -> Vec<Arc<Entry>> {
        let plain = self.locks.iter().map(|entry| Arc::clone(&entry));
        let mut entries: Vec<_> = plain.filter(&is_one).collect();
        for siblings in &self.others {
            entries.extend(siblings.entries.values().filter(|entry| is_one(entry)).cloned());
        }
        entries.sort_by(|a, b| a.order().cmp(&b.order()));
        entries
    }

    /// The entries whose contender was notified and has not been polled since.
    pub(crate) fn late(&self) -> Vec<Arc<Entry>> {
        self.sorted(|entry| entry.contest.is_late())
    }

    pub(crate) fn len(&self) -> usize {
        self.locks.len() + self.others.len()
    }

    /// All entries of plain locks, in a fixed order.
    pub(crate) fn plain(&self) -> Vec<Arc<Entry>> {
        self.sorted(|entry| entry.keys.row.is_plain)
    }

    fn leave(&self, entry: &Arc<Entry>) {
        // New visitors enter under the lock of the table's shard, so none can enter during this check.
        let unvisited = |there: &Arc<Entry>| {
            Arc::ptr_eq(there, entry) && there.visitors.load(Ordering::Acquire) == 0
        };
        let Some(listed) = &entry.listed else {
            self.locks.remove_if(entry.keys.id(), |_, there| unvisited(there));
            return;
        };
        self.others.remove_if_mut(&*listed.channel, |_, siblings| {
            if siblings.entries.get(&listed.key).is_some_and(unvisited) {
                siblings.stop_watching(listed.key);
                siblings.entries.remove(&listed.key);
            }
            siblings.entries.is_empty()
        });
    }

    /// Whether this contender has to ask from time to time for all contenders of this client that are far from the
    /// front of the same line, so that a lost message is discovered.
    fn is_watched_by(&self, entry: &Entry, is_far: bool) -> bool {
        let Some(listed) = &entry.listed else { return true };
        let Some(mut siblings) = self.others.get_mut(&*listed.channel) else { return true };
        if !is_far {
            siblings.stop_watching(listed.key);
            return true;
        }
        *siblings.watcher.get_or_insert(listed.key) == listed.key
    }
}

/// The key of an entry within its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EntryKey {
    /// The entry of a kind: for the name with or without its own braces, and for this many permits.
    Shared(Kind, bool, u32),
    /// The entry of one caller alone.
    Alone(TenureId),
}

/// The place in the table of an entry that is not for a plain lock.
struct Listed {
    channel: Box<str>,
    key: EntryKey,
    /// The tenures that are inside side by side.
    shared: Mutex<Shared<Arc<Tenure>>>,
}

/// A lock as the table finds it: by its id.
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
    permit: Permit,
    contest: Contest<Contested>,
    pub(crate) gate: Gate,
    tenure: Mutex<Option<Arc<Tenure>>>,
    /// The owner fields under which the contender got no answer. They are released once it gets one.
    held_back: Mutex<Vec<Ghost>>,
    /// Since when every attempt has failed.
    failing: Mutex<Option<CompactInstant>>,
    /// When a holder was last known.
    taken: Mutex<Option<CompactInstant>>,
    /// The contender waits: another client has the lock, or is ahead.
    elsewhere: AtomicBool,
    /// Whether a line has used the entry's owner field.
    has_used_name: AtomicBool,
    /// Whether the tenure may be kept idle. Not set in a client that keeps nothing.
    keep: OnceLock<Box<Keep>>,
    /// What the contender knows.
    line: Mutex<Option<Box<Line>>>,
    visitors: AtomicUsize,
    listed: Option<Box<Listed>>,
    /// Whether the lookout watches this entry.
    pub(crate) watched: Watched,
    /// How long the contender has had no answer.
    age: Age,
    /// The lookout, which is notified when the contender is woken. Not set as long as the contender is alone.
    lookout: OnceLock<Arc<Lookout<Self>>>,
}

/// The outcome of a contest: the tenure with its number of hand-overs; `None` after a release, or if one attempt was
/// not enough; or an error.
pub(crate) type Contested = Answer<Option<(Arc<Tenure>, u16)>>;

impl Entry {
    fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            permit: Permit::default(),
            contest: Contest::default(),
            gate: Gate::new(),
            tenure: Mutex::default(),
            held_back: Mutex::default(),
            failing: Mutex::default(),
            taken: Mutex::default(),
            elsewhere: AtomicBool::new(false),
            has_used_name: AtomicBool::new(false),
            keep: OnceLock::new(),
            line: Mutex::default(),
            visitors: AtomicUsize::new(0),
            listed: None,
            watched: Watched::default(),
            age: Age::default(),
            lookout: OnceLock::new(),
        }
    }

    fn at(keys: Arc<Keys>, channel: Box<str>, key: EntryKey) -> Self {
        let listed = Listed { channel, key, shared: Mutex::default() };
        Self { listed: Some(Box::new(listed)), ..Self::new(keys) }
    }

    /// The channel for messages to all clients.
    pub(crate) fn channel(&self) -> &str {
        self.listed.as_ref().map_or(&self.keys.channel, |listed| &listed.channel)
    }

    /// The channels that its contender listens to: the one for all clients, and the one for this client alone.
    pub(crate) fn channels(&self, client: &str) -> Vec<Box<str>> {
        let mut channels = vec![Box::from(self.channel())];
        channels.extend(self.keys.row.has_line.then(|| self.keys.client_channel(client)));
        channels
    }

    fn line(&self) -> MutexGuard<'_, Option<Box<Line>>> {
        self.line.lock().expect("no panic under this lock")
    }

    /// The tenures that are inside side by side; `None` for a plain lock.
    pub(crate) fn shared(&self) -> Option<MutexGuard<'_, Shared<Arc<Tenure>>>> {
        let listed = self.listed.as_ref()?;
        Some(listed.shared.lock().expect("no panic under this lock"))
    }

    /// Whether each tenure has a seat here instead of the permit.
    pub(crate) fn has_seats(&self) -> bool {
        let is_shared = |listed: &Listed| matches!(listed.key, EntryKey::Shared(..));
        self.keys.is_held_together() && self.listed.as_deref().is_some_and(is_shared)
    }

    /// The number of callers of this client for which resting tenures are reserved: those in the queue, and the contender,
    /// if the server has told it to wait.
    pub(crate) fn ahead(&self) -> usize {
        self.permit.waiting() + usize::from(self.was_told_to_wait())
    }

    /// Whether the server has told the contender to wait.
    pub(crate) fn was_told_to_wait(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.was_told_to_wait())
    }

    /// Whether any caller of this client asks or waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_awaited() || !self.permit.is_open()
    }

    /// The resting tenures that no caller wants.
    pub(crate) fn forgotten(&self) -> Vec<Arc<Tenure>> {
        let shared = self.shared().filter(|_| !self.is_wanted());
        shared.map_or_else(Vec::new, |shared| shared.forgotten())
    }

    /// The tenure of this owner field.
    pub(crate) fn holder(&self, id: TenureId) -> Option<Arc<Tenure>> {
        let together = self.shared().and_then(|shared| shared.find(id));
        together.or_else(|| self.tenure().filter(|tenure| tenure.id == id))
    }

    /// The rules for a grant by message to this line.
    pub(crate) fn rules_of_line(&self, rules: Rules) -> Rules {
        self.line().as_ref().map_or(rules, |line| line.rules(rules))
    }

    /// Passes an event to the contender, if there is one.
    pub(crate) fn step(&self, event: Event, rules: Rules) {
        if let Some(line) = &mut *self.line() {
            line.step(Instant::now(), event, rules);
        }
        self.gate.open();
    }

    /// The contender is about to ask: under this owner field, for this place.
    pub(crate) fn ask(
        &self,
        next_id: impl Fn() -> TenureId,
        rules: Rules,
    ) -> (TenureId, u64, Manner) {
        let now = Instant::now();
        let mut line = self.line();
        let line = line.get_or_insert_with(|| Box::new(Line::new(self.new_id(&next_id), now)));
        if line.is_open() {
            line.rename(next_id(), now);
        }
        line.step(now, Event::Asked, rules);
        (line.id(), line.place(), if line.rests() { Manner::Rest } else { Manner::Wait })
    }

    /// The first line of a caller with its own entry uses the entry's owner field. If that line is cancelled, its
    /// requests may still run late, and the client cleans up after them. That would also remove a second line under the
    /// same owner field.
    fn new_id(&self, next_id: impl Fn() -> TenureId) -> TenureId {
        match self.listed.as_deref() {
            Some(Listed { key: EntryKey::Alone(id), .. })
                if !self.has_used_name.swap(true, Ordering::Relaxed) =>
            {
                *id
            }
            _ => next_id(),
        }
    }

    /// Whether its contender has a place, which it keeps under another owner field.
    pub(crate) fn has_place(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.place() > 0)
    }

    /// Keeps a ghost until [`take_held_back`](Self::take_held_back), which the caller that ends the wait has to call.
    pub(crate) fn hold_back(&self, ghost: Ghost) {
        self.held_back.lock().expect("no panic under this lock").push(ghost);
    }

    /// Whether a ghost of this owner field is kept.
    pub(crate) fn holds_back(&self, id: TenureId) -> bool {
        let ghosts = self.held_back.lock().expect("no panic under this lock");
        ghosts.iter().any(|ghost| ghost.id == id)
    }

    pub(crate) fn take_held_back(&self) -> Vec<Ghost> {
        std::mem::take(&mut *self.held_back.lock().expect("no panic under this lock"))
    }

    pub(crate) fn is_far(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.is_far())
    }

    /// Whether its contender is far from the front, and can ask for others. A contender that was notified and not
    /// polled since may never be polled.
    pub(crate) fn can_watch(&self) -> bool {
        self.is_far() && !self.contest.is_late()
    }

    /// Whether a caller here waits or holds under this owner field.
    fn is_known_as(&self, id: TenureId) -> bool {
        self.line().as_ref().is_some_and(|line| line.id() == id) || self.holder(id).is_some()
    }

    /// The contender leaves, and one of its requests may still run. The next contender keeps the place, under another
    /// owner field.
    pub(crate) fn stop_asking(&self, next_id: impl Fn() -> TenureId) {
        if let Some(line) = self.line().as_mut().filter(|line| line.is_open()) {
            line.rename(next_id(), Instant::now());
        }
    }

    /// The contender was granted the lock: the server has taken it out of the line. Its tenure is shown before that, so
    /// this client always knows the owner field. Otherwise the client would release the grant when a message about it
    /// arrives.
    fn forget_line(&self, id: TenureId) -> bool {
        // A tenure of a latch has given up its permit, so the line may belong to the next contender.
        self.line().take_if(|line| line.id() == id).is_some()
    }

    /// No caller contends any more. Returns the owner field to take out of the line, if there is one.
    pub(crate) fn leave_line(&self) -> Option<TenureId> {
        let line = self.line().take()?;
        line.stands().then(|| line.id())
    }

    /// A unique key that gives entries a fixed order.
    fn order(&self) -> (&str, &str, Option<EntryKey>) {
        (self.channel(), self.keys.id(), self.listed.as_ref().map(|listed| listed.key))
    }

    fn close(&self) {
        self.permit.close();
        self.gate.close();
    }

    /// The last tenure of this client; it may have ended.
    pub(crate) fn tenure(&self) -> Option<Arc<Tenure>> {
        self.tenure.lock().expect("no panic under this lock").clone()
    }

    /// Shows a tenure to its owner, which may nest in it, and to the next caller in the queue.
    pub(crate) fn show(&self, tenure: &Arc<Tenure>) {
        let shown = Some(Arc::clone(tenure));
        let before = std::mem::replace(&mut *self.tenure.lock().expect("no panic here"), shown);
        drop(before);
        self.take();
    }

    /// The client is about to ask for the lock, and may keep what it is granted. `listen` subscribes to the channels.
    pub(crate) fn allow_keeping(&self, listen: impl FnOnce() -> Vec<Subscription>) {
        self.keep.get_or_init(|| Box::new(Keep::new(listen()))).allow();
    }

    /// The client must not keep the tenure that it has or is about to get. Returns `false` if it keeps no locks.
    pub(crate) fn forbid_keeping(&self) -> bool {
        let keep = self.keep.get();
        keep.iter().for_each(|keep| keep.forbid());
        keep.is_some()
    }

    /// Whether the client may keep its tenure idle: it would have heard if another client wanted the lock.
    pub(crate) fn may_keep(&self) -> bool {
        self.keep.get().is_some_and(|keep| keep.is_allowed())
    }

    /// Whether the client is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.permit.is_closed()
    }

    /// Whether another caller of this client is in the queue, and not known to be silent.
    pub(crate) fn is_awaited(&self) -> bool {
        self.permit.waiting() > 0
    }

    /// Checks whether the called caller has come.
    pub(crate) fn look_for_called(&self) -> Look {
        self.permit.look()
    }

    /// Checks whether a notified contender was polled. If it is silent and blocks another caller, returns its work, for
    /// the caller to drop.
    pub(crate) fn look_for_contender(&self) -> (Look, Option<Work<Contested>>) {
        match self.contest.look() {
            // No other caller of this entry waits, and a grant by message to this silent contender ends with its sign
            // of life. So let it keep its place.
            Look::Silent if !self.is_awaited() && self.is_parked() => (Look::Silent, None),
            Look::Silent => (Look::Silent, self.contest.take_silent()),
            look => (look, None),
        }
    }

    /// Whether the contender's last request was answered, and it waits in line.
    fn is_parked(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.was_told_to_wait() && !line.is_open())
    }

    /// An attempt failed. Returns since when all attempts have failed.
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

    /// Records that another client has the lock, or is ahead.
    pub(crate) fn went_elsewhere(&self) {
        self.elsewhere.store(true, Ordering::SeqCst);
    }

    /// The contender no longer waits.
    pub(crate) fn stop_contending(&self) {
        if self.elsewhere.swap(false, Ordering::SeqCst) {
            self.take();
        }
    }

    /// Whether the lock is known to be taken: by a caller of this client, or by whatever makes its contender wait.
    pub(crate) fn is_taken(&self) -> bool {
        self.elsewhere.load(Ordering::SeqCst) || self.tenure().is_some_and(|t| !t.is_over())
    }

    /// Records that the lock has a holder now.
    pub(crate) fn take(&self) {
        *self.taken.lock().expect("no panic under this lock") = Some(Instant::now().into());
    }

    /// Whether a holder was known at this time or later.
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
    /// The permit, if it is open.
    pub(crate) fn try_permit(&self) -> Option<EntryPermit> {
        let number = self.entry.permit.try_take()?;
        Some(EntryPermit { visit: self.clone(), number })
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

    /// Begins a tenure that needs no permit.
    pub(crate) fn begin_beside(
        &self,
        grant: Grant,
        holder: Holder,
        renew_at: Instant,
    ) -> Arc<Tenure> {
        let (id, is_open) = (grant.id, holder.lease == Lease::Watched && !grant.awaited);
        let seat = Stay::Seat(Seat::new(self.clone(), id));
        let tenure = tenure::Tenure::begin(&self.entry.keys, seat, grant, holder, renew_at);
        match self.entry.shared() {
            Some(mut shared) => {
                shared.enter(id, Arc::clone(&tenure), !is_open, Instant::now());
                self.entry.take();
            }
            None => self.entry.show(&tenure),
        }
        tenure
    }

    /// A caller that has just arrived.
    #[cfg(test)]
    pub(crate) fn wait(&self) -> Waiting {
        self.wait_as(Ticket::default())
    }

    /// Counts a caller into the queue, until the value is dropped.
    pub(crate) fn wait_as(&self, ticket: Ticket) -> Waiting {
        self.entry.permit.wait();
        Waiting { visit: self.clone(), ticket }
    }

    /// From now on the lookout is notified when the contender is woken.
    pub(crate) fn have_contender_watched(&self) {
        self.entry.lookout.get_or_init(|| Arc::clone(&self.table.lookout));
        self.table.lookout.end(&self.entry.age);
        // The contender may have been woken already.
        self.table.lookout.watch(&self.entry.watched, &self.entry);
    }

    /// The contender was granted the lock. See [`Entry::forget_line`].
    fn forget_line(&self, id: TenureId) {
        if self.entry.forget_line(id) {
            self.stop_watching();
        }
    }

    /// Same as [`Entry::leave_line`], while other entries remain.
    pub(crate) fn leave_line(&self) -> Option<TenureId> {
        let left = self.entry.leave_line();
        self.stop_watching();
        left
    }

    /// The contender no longer waits, or is not polled. Its entry may stay in the table for as long as somebody holds
    /// the lock, so another contender has to watch in its place: a far contender without a watcher sleeps until a
    /// message comes.
    pub(crate) fn stop_watching(&self) {
        let Some(listed) = &self.entry.listed else { return };
        if let Some(mut siblings) = self.table.others.get_mut(&*listed.channel) {
            siblings.stop_watching(listed.key);
        }
    }

    /// The contender was cancelled.
    pub(crate) fn forget_contender(&self) {
        self.table.lookout.end(&self.entry.age);
    }

    /// Does work that has the permit. Returns `None` if the lookout cancelled it because its caller was not polled.
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

/// The caller's side of a contest.
struct Contesting<'a> {
    visit: &'a Visit,
    /// The waker for the work.
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

/// An entry is the waker of its contender.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.contest.wake();
        if let Some(lookout) = self.lookout.get() {
            lookout.watch(&self.watched, self);
        }
    }
}

impl Clone for Visit {
    fn clone(&self) -> Self {
        // While this visit exists, the entry is in the table: no shard needs to be locked.
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
pub(crate) struct EntryPermit {
    visit: Visit,
    /// The ticket with which its caller took the permit.
    number: u64,
}

impl EntryPermit {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.visit.entry
    }

    pub(crate) fn visit(&self) -> &Visit {
        &self.visit
    }

    /// A ticket that puts its caller before all later ones, if the caller has to queue again.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket::again(self.number)
    }

    /// Begins a tenure.
    pub(crate) fn begin(self, grant: Grant, holder: Holder, renew_at: Instant) -> Arc<Tenure> {
        if grant.awaited {
            self.entry().forbid_keeping();
        }
        if self.entry().has_seats() {
            // The next caller of this client may ask at once, or join this tenure. So the permit is passed on only when
            // the tenure can be found.
            let tenure = self.visit().begin_beside(grant, holder, renew_at);
            self.visit().forget_line(tenure.id);
            return tenure;
        }
        // Keep a visit until the tenure is shown: the tenure of a latch gives up its permit at once.
        let (visit, sent) = (self.visit().clone(), grant.sent);
        let entry = &visit.entry;
        let tenure =
            tenure::Tenure::begin(&entry.keys, Stay::Permit(self), grant, holder, renew_at);
        if tenure.is_over()
            && let Some(mut shared) = entry.shared()
        {
            shared.passed(sent);
        }
        entry.show(&tenure);
        visit.forget_line(tenure.id);
        tenure
    }

    /// Passes the permit on. The caller can use the remaining visit to make sure that the permit arrives.
    pub(crate) fn pass_on(self) -> Visit {
        self.visit.clone()
    }
}

/// The part of a tenure in an entry with several tenures side by side. It keeps the entry in the table.
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

    /// The tenure is about to be released. The seat remains until Redis has answered.
    pub(crate) fn leaving(&mut self) {
        if let Some(mut shared) = self.visit.entry.shared() {
            shared.leaving(self.id);
            self.returned = true;
        }
    }
}

impl Drop for Seat {
    /// Releases tenures that rested until this return was answered: no other return will check them.
    fn drop(&mut self) {
        let entry = &self.visit.entry;
        let ahead = entry.ahead();
        let Some(mut shared) = entry.shared() else { return };
        let own = shared.gone(self.id, self.returned);
        let spare = if self.returned { shared.spare(ahead) } else { Vec::new() };
        drop(shared);
        drop(own);
        let Some(give_back) = &self.visit.table.give_back else { return };
        spare.iter().for_each(|tenure| give_back(tenure));
    }
}

/// The part of a tenure in its entry: the permit, or a seat beside others.
pub(crate) enum Stay {
    /// No other caller of this client may have the lock.
    Permit(EntryPermit),
    Seat(Seat),
    /// Nobody has the lock: the client keeps it idle.
    Kept(Visit),
}

impl Stay {
    /// Passes the permit on. The caller can use the remaining visit to make sure that the permit arrives.
    pub(crate) fn pass_on(self) -> Visit {
        self.visit().clone()
    }

    fn visit(&self) -> &Visit {
        match self {
            Self::Permit(permit) => permit.visit(),
            Self::Seat(seat) => seat.visit(),
            Self::Kept(visit) => visit,
        }
    }
}

impl From<EntryPermit> for Stay {
    fn from(permit: EntryPermit) -> Self {
        Self::Permit(permit)
    }
}

impl tenure::Stay for Stay {
    type Visit = Visit;

    fn is_handed_on(&self) -> bool {
        matches!(self, Self::Permit(permit) if permit.entry().is_awaited())
    }

    fn may_be_kept(&self) -> bool {
        matches!(self, Self::Permit(permit) if permit.entry().may_keep())
    }

    fn to_keep(&self) -> Self {
        Self::Kept(self.visit().clone())
    }

    fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }

    fn rest(
        &self,
        permits: u32,
        now: Instant,
        time: Duration,
        allows: impl FnOnce(bool) -> bool,
    ) -> Option<Visit> {
        let Self::Seat(seat) = self else { return None };
        let entry = &seat.visit.entry;
        let mut shared = entry.shared()?;
        // Check both under this lock. A caller that stops waiting checks resting tenures afterwards, so it cannot miss
        // this one.
        let (is_wanted, is_fresh) = (entry.is_wanted(), shared.is_fresh(now, time));
        let rests = allows(is_fresh) && shared.rest(seat.id, permits, is_wanted);
        rests.then(|| seat.visit.clone())
    }

    fn leaving(&mut self) {
        if let Self::Seat(seat) = self {
            seat.leaving();
        }
    }
}

impl Drop for EntryPermit {
    fn drop(&mut self) {
        let Visit { table, entry } = &self.visit;
        if entry.permit.pass_on() {
            table.lookout.watch(&entry.watched, entry);
        }
    }
}

/// One caller in the queue.
pub(crate) struct Waiting {
    visit: Visit,
    ticket: Ticket,
}

impl Waiting {
    /// The permit, first come, first served.
    ///
    /// # Cancel safety
    /// Dropping the future gives up nothing: this value keeps the place in the queue.
    pub(crate) async fn permit(&mut self) -> Result<EntryPermit, Fault> {
        let Self { visit, ticket } = self;
        let number = poll_fn(|context| visit.entry.permit.poll(ticket, context)).await?;
        Ok(EntryPermit { visit: visit.clone(), number })
    }

    /// Leaves the queue. The last caller to leave gets the visit back, and has to check for tenures that were left for
    /// the queue.
    pub(crate) fn leave(self) -> Option<Visit> {
        let visit = self.visit.clone();
        drop(self);
        (!visit.entry.is_awaited()).then_some(visit)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Visit { table, entry } = &self.visit;
        if entry.permit.leave(&self.ticket) {
            table.lookout.watch(&entry.watched, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layout;
    use crate::kinds::Kind;

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

    /// The place where `Engine::held_by` looks for the hold of an owner.
    #[test]
    fn exactly_the_plain_locks_are_found_by_their_name() {
        for layout in [Layout::Native, Layout::Redisson] {
            for kind in [Kind::Lock, Kind::Fenced, Kind::Fair, Kind::Read, Kind::Latch] {
                let table = Arc::new(Table::default());
                let keys = Arc::new(Keys::new(layout, kind, "a".to_owned()).unwrap());
                let visit = table.visit(&keys, 1).unwrap();
                let found = table.find(keys.id()).is_some_and(|e| Arc::ptr_eq(&e, &visit.entry));
                assert_eq!(found, keys.row.is_plain, "{kind:?} in {layout:?}");
            }
        }
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
    fn the_last_caller_to_leave_the_queue_looks_after_a_tenure_that_was_left_for_it() {
        let table = Arc::new(Table::default());
        let (first, second) = (visit(&table).wait(), visit(&table).wait());
        assert!(first.leave().is_none());
        assert!(second.leave().is_some());
        assert_eq!(table.len(), 0);
    }

    const RULES: Rules = Rules {
        waiter_ttl: Duration::from_secs(1),
        pushed_lease: Duration::from_secs(1),
        max_park: Duration::from_secs(10),
        rests: true,
    };

    fn waits(near: bool) -> Event {
        Event::Waits { place: 1, near, sent: Instant::now(), again: None }
    }

    /// Contenders for a fair lock. The server has told each of them that it is far from the front.
    fn far_contenders<const N: usize>() -> [Visit; N] {
        let table = Arc::new(Table::default());
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Fair, "a".to_owned()).unwrap());
        std::array::from_fn(|number| {
            let id = TenureId(u64::try_from(number).unwrap());
            let visit = table.enter_alone(&keys, keys.channel.clone(), id).unwrap();
            *visit.entry.line() = Some(Box::new(Line::new(id, Instant::now())));
            visit.entry.step(Event::Asked, RULES);
            visit.entry.step(waits(false), RULES);
            visit.entry.gate.was_opened();
            visit
        })
    }

    /// Whether it asks by itself when no message comes.
    fn watches(visit: &Visit) -> bool {
        match visit.next(true, RULES) {
            Next::Park(until) => until <= Instant::now() + RULES.max_park,
            _ => true,
        }
    }

    #[test]
    fn when_the_wait_of_the_watcher_is_over_another_far_contender_watches() {
        let [first, second] = far_contenders();
        assert!(watches(&first));
        assert!(!watches(&second));
        // It has the lock. So its entry stays in the table as long as its guard lives.
        first.forget_line(TenureId(0));
        assert!(second.entry.gate.was_opened(), "it is woken");
        assert!(watches(&second));
    }

    #[test]
    fn a_watcher_that_hears_that_it_is_near_passes_the_watch_on() {
        let [first, second, third] = far_contenders();
        assert!(watches(&first));
        assert!(!watches(&third));
        second.entry.step(Event::Asked, RULES);
        first.forget_line(TenureId(0));
        second.entry.step(waits(true), RULES);
        assert!(watches(&second), "it is near, and asks for itself");
        assert!(third.entry.gate.was_opened(), "it is woken");
        assert!(watches(&third));
    }

    #[test]
    fn each_far_contender_has_the_watch_in_turn() {
        let [first, second, third] = far_contenders();
        assert!(watches(&first));
        first.stop_watching();
        assert!(watches(&second));
        second.stop_watching();
        assert!(watches(&third), "not the first one again");
        third.stop_watching();
        assert!(watches(&first));
    }

    #[tokio::test]
    async fn a_closed_table_sends_waiters_away_and_takes_no_more() {
        let table = Arc::new(Table::default());
        let permit = visit(&table).try_permit().unwrap();
        let queued = visit(&table);
        let waiter = tokio::spawn(async move { queued.wait().permit().await.map(drop) });
        table.close();
        assert!(matches!(waiter.await.unwrap(), Err(Fault::Closed)));
        assert!(permit.entry().gate.pass(far()).await.is_err());
        assert!(table.visit(&keys("a"), 1).is_err());
        drop(permit);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn holds_that_were_tried_for_are_not_looked_at() {
        let table = Arc::new(Table::default());
        let keys = Arc::new(
            Keys::new(Layout::Native, Kind::Semaphore { permits: 3 }, "a".to_owned()).unwrap(),
        );
        let _waits = table.visit(&keys, 1).unwrap();
        let alone = |id| table.enter_alone(&keys, keys.channel.clone(), TenureId(id)).unwrap();
        let _held: Vec<_> = (0..10).map(alone).collect();
        assert_eq!(table.all_of(&keys.channel).len(), 11);
        assert_eq!(table.shared_of(&keys.channel).len(), 1);
    }
}
