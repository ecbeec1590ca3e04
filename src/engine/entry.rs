//! The state of one lock within one client: the queue of its callers, the gate of its contender, its tenures.
//!
//! 1. The contender has the permit of the `queue`, or the tenure that it was granted. Otherwise the permit is free, or a
//!    caller was called. The work of a contender lies in `contest`, so that the lookout can cancel a contender that
//!    is not polled (`contest.rs`).
//! 2. `gate` stores an opening until the contender takes it. `waiting` is what the contender knows. It
//!    outlives a cancelled contender, and serves the next one of this client.
//! 3. In a kind in which each caller waits separately, each caller has its own entry, and gets its permit at once.
//! 4. If several callers may hold a lock side by side, they hold it without the permit. Each tenure has a seat, which
//!    keeps the entry in the table. `side_by_side.rs` knows the tenures inside.
//! 5. A caller that takes the permit picks up an idle tenure, if there is one. A caller that hands a tenure on, or leaves
//!    the queue, checks afterwards whether a caller still waits for it. If none does, it releases the tenure
//!    (`Engine::look_after`).
//!
//! `entry/table.rs` finds entries, `entry/visit.rs` keeps one in the table, `entry/permit.rs` is what a tenure has of it.

mod alarms;
mod behind;
mod contest;
mod gate;
mod lookout;
mod permit;
mod queue;
mod side_by_side;
mod table;
mod visit;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Wake;

use tokio::time::Instant;

use crate::engine::compact_instant::{CompactInstant, SharedInstant};
use crate::engine::ghost::Ghost;
use crate::engine::keep::Keep;
use crate::engine::tenure;
use crate::engine::waiting::{Event, Rules, Turns, Waiting};
use crate::error::Result as Answer;
use crate::keys::{Keys, TenureId};
use crate::wire::{Fault, Manner, Subscription};

pub(crate) use alarms::Alarms;
pub(crate) use permit::{EntryPermit, Stay};
pub(crate) use queue::{LOOKS, Look, Ticket};
pub(crate) use table::Table;
pub(crate) use visit::{InQueue, Visit};

use behind::Behind;
use contest::{Contest, Work};
use gate::Gate;
use lookout::{Age, Watched};
use permit::Seat;
use queue::Queue;
use side_by_side::SideBySide;
use table::EntryKey;

/// With more ghosts than this, a contender forgets those whose leases are over, so that they do not pile up for as long as
/// its requests get no answer. A hold of theirs has ended. A place of theirs in line gets its grant by message, which finds
/// no caller, and the listener releases the grant.
const MOST_HELD_BACK: usize = 256;

/// One grant by Redis to this client, with its part of the entry.
pub(crate) type Tenure = tenure::Tenure<Stay>;

/// When the watchdog has to look at which tenure.
pub(crate) type Timetable = tenure::Timetable<Stay>;

/// What the holds of one owner share.
pub(crate) type OwnerHolds = tenure::OwnerHolds<Stay>;

/// The place in the table of an entry that is not for a plain lock.
struct Listed {
    channel: Box<str>,
    key: EntryKey,
    /// The tenures that are inside side by side.
    side_by_side: Mutex<SideBySide<Arc<Tenure>>>,
    behind: Behind,
}

/// One lock within one client.
pub(crate) struct Entry {
    pub(crate) keys: Arc<Keys>,
    /// The table in which it is. Visits find the table here: if each had a reference of its own, the threads that lock
    /// different names would contend for the count of these references.
    table: Arc<Table>,
    queue: Queue,
    contest: Contest<Contested>,
    pub(crate) gate: Gate,
    tenure: Mutex<Option<Arc<Tenure>>>,
    /// The owner fields under which the contender got no answer. They are released once it gets one.
    held_back: Mutex<Vec<Ghost>>,
    /// Since when every attempt has failed.
    failing: SharedInstant,
    /// When a holder was last known.
    taken: SharedInstant,
    /// When a message last said that somebody has lost the lock.
    lost: SharedInstant,
    /// The contender waits: another client has the lock, or is ahead.
    elsewhere: AtomicBool,
    /// Whether a caller has lined up under the entry's owner field.
    has_used_name: AtomicBool,
    /// Whether the tenure may be kept idle. Not set in a client that keeps nothing.
    keep: OnceLock<Box<Keep>>,
    /// What the contender knows.
    waiting: Mutex<Option<Box<Waiting>>>,
    visitors: AtomicU32,
    listed: Option<Box<Listed>>,
    /// Whether the lookout watches this entry.
    pub(crate) watched: Watched,
    /// How long the contender has had no answer.
    age: Age,
    /// Whether the lookout is notified when the contender is woken. Not as long as the contender is alone.
    tells_lookout: AtomicBool,
}

/// The outcome of a contest: the tenure with its number of hand-overs; `None` after a release, or if one attempt was
/// not enough; or an error.
pub(crate) type Contested = Answer<Option<(Arc<Tenure>, u16)>>;

impl Entry {
    fn new(table: &Arc<Table>, keys: Arc<Keys>) -> Self {
        Self {
            keys,
            table: Arc::clone(table),
            queue: Queue::default(),
            contest: Contest::default(),
            gate: Gate::new(),
            tenure: Mutex::default(),
            held_back: Mutex::default(),
            failing: SharedInstant::default(),
            taken: SharedInstant::default(),
            lost: SharedInstant::default(),
            elsewhere: AtomicBool::new(false),
            has_used_name: AtomicBool::new(false),
            keep: OnceLock::new(),
            waiting: Mutex::default(),
            visitors: AtomicU32::new(0),
            listed: None,
            watched: Watched::default(),
            age: Age::default(),
            tells_lookout: AtomicBool::new(false),
        }
    }

    fn at(table: &Arc<Table>, keys: Arc<Keys>, channel: Box<str>, key: EntryKey) -> Self {
        let listed =
            Listed { channel, key, side_by_side: Mutex::default(), behind: Behind::default() };
        Self { listed: Some(Box::new(listed)), ..Self::new(table, keys) }
    }

    /// The channel for messages to all clients.
    pub(crate) fn channel(&self) -> &str {
        self.listed.as_ref().map_or(&self.keys.channel, |listed| &listed.channel)
    }

    /// The channels that its contender listens to: the one for all clients, and the one for this client alone.
    pub(crate) fn channels(&self, client: &str) -> Vec<Box<str>> {
        let mut channels = vec![Box::from(self.channel())];
        channels.extend(self.keys.row.line.is_ours().then(|| self.keys.client_channel(client)));
        channels
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Box<Waiting>>> {
        self.waiting.lock().expect("no panic under this lock")
    }

    /// The tenures that are inside side by side; `None` for a plain lock.
    pub(crate) fn side_by_side(&self) -> Option<MutexGuard<'_, SideBySide<Arc<Tenure>>>> {
        let listed = self.listed.as_ref()?;
        Some(listed.side_by_side.lock().expect("no panic under this lock"))
    }

    /// Whether each tenure has a seat here instead of the permit.
    pub(crate) fn has_seats(&self) -> bool {
        let is_shared = |listed: &Listed| matches!(listed.key, EntryKey::SideBySide(..));
        self.keys.row.holders.are_several() && self.listed.as_deref().is_some_and(is_shared)
    }

    /// The number of callers of this client for which resting tenures are reserved: those in the queue, and the contender,
    /// if the server has told it to wait.
    pub(crate) fn ahead(&self) -> usize {
        self.queue.waiting() + usize::from(self.was_told_to_wait())
    }

    /// Whether the caller that stood right behind another one of its client still waits at that place.
    fn is_still_behind(&self) -> bool {
        let has_moved = self.listed.as_ref().is_some_and(|listed| listed.behind.has_moved());
        !has_moved && self.was_told_to_wait()
    }

    /// Whether the caller right behind in the server's line is one of this client, if each caller waits separately.
    fn has_one_behind(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.behind.get().is_some())
    }

    /// Whether the caller right ahead in the server's line may have left a tenure to this one.
    pub(crate) fn may_be_next(&self) -> bool {
        let row = self.keys.row;
        row.line.is_of_callers()
            && row.holders.is_handed_on()
            && self.tenure().is_some_and(|tenure| !tenure.is_over())
    }

    /// Whether the server has told the contender to wait.
    pub(crate) fn was_told_to_wait(&self) -> bool {
        self.waiting().as_ref().is_some_and(|waiting| waiting.was_told_to_wait())
    }

    /// Whether any caller of this client asks or waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_awaited() || !self.queue.is_permit_free()
    }

    /// The resting tenures that no caller wants.
    pub(crate) fn forgotten(&self) -> Vec<Arc<Tenure>> {
        let shared = self.side_by_side().filter(|_| !self.is_wanted());
        shared.map_or_else(Vec::new, |shared| shared.forgotten())
    }

    /// The tenure of this owner field.
    pub(crate) fn holder(&self, id: TenureId) -> Option<Arc<Tenure>> {
        let together = self.side_by_side().and_then(|shared| shared.find(id));
        together.or_else(|| self.tenure().filter(|tenure| tenure.id == id))
    }

    /// The rules for a grant by message to this line.
    pub(crate) fn rules_of_line(&self, rules: Rules) -> Rules {
        self.waiting().as_ref().map_or(rules, |waiting| waiting.rules(rules))
    }

    /// Passes an event to the contender, if there is one, and wakes it.
    pub(crate) fn step(&self, event: Event, rules: Rules) {
        self.notes(event, rules);
        self.gate.open();
    }

    /// Same as a [`step`](Self::step) with [`Event::Roused`], one contender of the line after the other. Returns whether the gate has
    /// to be opened.
    fn takes_turn(&self, now: Instant, turns: &mut Turns, rules: Rules) -> bool {
        self.waiting().as_mut().is_none_or(|waiting| waiting.takes_turn(now, turns, rules))
    }

    /// Notes what the contender itself has learnt. Returns whether there is a contender.
    pub(crate) fn notes(&self, event: Event, rules: Rules) -> bool {
        let mut waiting = self.waiting();
        if let Some(waiting) = &mut *waiting {
            waiting.step(Instant::now(), event, rules);
        }
        waiting.is_some()
    }

    /// The contender is about to ask: under this owner field, for this place.
    pub(crate) fn ask(
        &self,
        next_id: impl Fn() -> TenureId,
        rules: Rules,
    ) -> (TenureId, u64, Manner) {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let waiting =
            waiting.get_or_insert_with(|| Box::new(Waiting::new(self.new_id(&next_id), now)));
        if waiting.may_still_run() {
            self.rename(waiting, next_id(), now);
        }
        waiting.step(now, Event::Asked, rules);
        (waiting.id(), waiting.place(), if waiting.rests() { Manner::Rest } else { Manner::Wait })
    }

    fn rename(&self, waiting: &mut Waiting, id: TenureId, now: Instant) {
        waiting.rename(id, now);
        self.moves();
    }

    /// The caller goes on under another owner field. See `behind.rs`.
    fn moves(&self) {
        self.listed.iter().for_each(|listed| listed.behind.moves());
    }

    /// A caller with its own entry first lines up under the owner field of the entry. If it is cancelled, its requests
    /// may still run late, and the client cleans up after them. That would also remove a later place under the same
    /// owner field. So the caller never lines up under that owner field again.
    fn new_id(&self, next_id: impl Fn() -> TenureId) -> TenureId {
        match self.listed.as_deref() {
            Some(Listed { key: EntryKey::Alone(id), .. })
                if !self.has_used_name.swap(true, Ordering::Relaxed) =>
            {
                *id
            }
            _ => {
                self.moves();
                next_id()
            }
        }
    }

    /// Whether its contender has a place, which it keeps under another owner field.
    pub(crate) fn has_place(&self) -> bool {
        self.waiting().as_ref().is_some_and(|waiting| waiting.place() > 0)
    }

    /// Keeps a ghost until [`take_held_back`](Self::take_held_back), which the caller that ends the wait has to call.
    pub(crate) fn hold_back(&self, ghost: Ghost) {
        let mut ghosts = self.held_back.lock().expect("no panic under this lock");
        if ghosts.len() >= MOST_HELD_BACK {
            let now = Instant::now();
            ghosts.retain(|former| now < former.until);
        }
        ghosts.push(ghost);
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
        self.waiting().as_ref().is_some_and(|waiting| waiting.is_far())
    }

    /// Whether its contender is far from the front, and can ask for others. A contender that was notified and not
    /// polled since may never be polled.
    pub(crate) fn can_watch(&self) -> bool {
        self.is_far() && !self.contest.is_late()
    }

    /// Whether a caller here waits or holds under this owner field.
    fn is_known_as(&self, id: TenureId) -> bool {
        self.waiting().as_ref().is_some_and(|waiting| waiting.id() == id)
            || self.holder(id).is_some()
    }

    /// The contender leaves, and one of its requests may still run. The next contender keeps the place, under another
    /// owner field.
    pub(crate) fn stop_asking(&self, next_id: impl Fn() -> TenureId) {
        if let Some(waiting) = self.waiting().as_mut().filter(|waiting| waiting.may_still_run()) {
            self.rename(waiting, next_id(), Instant::now());
        }
    }

    /// The contender was granted the lock: the server has taken it out of the line. Its tenure is shown before that, so
    /// this client always knows the owner field. Otherwise the client would release the grant when a message about it
    /// arrives.
    fn forget_line(&self, id: TenureId) -> Option<Box<Waiting>> {
        // A tenure of a latch has given up its permit, so the line may belong to the next contender.
        self.waiting().take_if(|waiting| waiting.id() == id)
    }

    /// No caller contends any more. Returns the owner field to take out of the line, if there is one.
    pub(crate) fn leave_line(&self) -> Option<TenureId> {
        let waiting = self.waiting().take()?;
        waiting.stands().then(|| waiting.id())
    }

    /// A unique key that gives entries a fixed order.
    fn order(&self) -> (&str, &str, Option<EntryKey>) {
        (self.channel(), self.keys.id(), self.listed.as_ref().map(|listed| listed.key))
    }

    fn close(&self) {
        self.queue.close();
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
        self.note_holder();
    }

    /// The client is about to ask for the lock, and may keep what it is granted. `listen` subscribes to the channels.
    pub(crate) fn allow_keeping(
        &self,
        listen: impl FnOnce() -> Vec<Subscription>,
        is_tried: impl FnOnce() -> bool,
    ) {
        self.keep.get_or_init(|| Box::new(Keep::new(listen()))).allow(is_tried);
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

    /// Has the lookout check whether a caller that was notified has come.
    fn have_watched(self: &Arc<Self>) {
        self.table.lookout().watch(&self.watched, self);
    }

    /// Whether the client is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Whether another caller of this client is in the queue, and not known to be silent.
    pub(crate) fn is_awaited(&self) -> bool {
        self.queue.waiting() > 0
    }

    /// Checks whether the called caller has come.
    pub(crate) fn look_for_called(&self) -> Look {
        self.queue.look()
    }

    /// When the lookout has to look at a contender that sleeps.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.contest.look_at()
    }

    /// Parks the contender until its gate is opened or the time is over.
    ///
    /// # Cancel safety
    /// Same as [`Gate::pass`].
    pub(crate) async fn park(&self, until: Instant) -> Result<(), Fault> {
        let _asleep = self.contest.sleeps_until(until);
        self.gate.pass(until).await
    }

    /// Same as [`park`](Self::park), but also until `early` is ready. Returns whether it was.
    pub(crate) async fn park_unless(
        &self,
        early: impl Future<Output = ()>,
        until: Instant,
    ) -> Result<bool, Fault> {
        tokio::select! {
            biased;
            parked = self.park(until) => parked.map(|()| false),
            () = early => Ok(true),
        }
    }

    /// Checks whether a notified contender was polled. If it is silent and blocks another caller, returns its work, for
    /// the caller to drop.
    pub(crate) fn look_for_contender(&self, now: Instant) -> (Look, Option<Work<Contested>>) {
        match self.contest.look(now) {
            // It blocks nobody while it only stands in line: the server removes it, since it shows no signs of life.
            Look::Silent if !self.is_awaited() && self.is_parked() && !self.has_siblings() => {
                (Look::Silent, None)
            }
            Look::Silent => (Look::Silent, self.contest.take_silent()),
            look => (look, None),
        }
    }

    /// Whether the contender only stands in line: its last request was answered, and it was granted nothing, neither by a
    /// message nor by an earlier request whose answer was lost.
    fn is_parked(&self) -> bool {
        let stands = self.waiting().as_ref().is_some_and(|waiting| waiting.only_stands());
        stands && self.held_back.lock().expect("no panic under this lock").is_empty()
    }

    /// Whether other callers of this client wait at this name in another entry: writers beside readers, callers that want
    /// another number of permits, or a lease of their own. All callers of a client share one life, so the signs of the others keep this one
    /// in line. If it does not fit in, it blocks the line.
    fn has_siblings(&self) -> bool {
        let waits_too =
            |entry: &Arc<Self>| !std::ptr::eq(&**entry, self) && entry.was_told_to_wait();
        // If each caller waits separately, each wants the whole lock, so the head always fits in when it is free.
        !self.keys.row.line.is_of_callers()
            && self.table.all_of(&self.keys.channel).iter().any(waits_too)
    }

    /// An attempt failed. Returns since when all attempts have failed.
    pub(crate) fn failed(&self, now: Instant) -> Instant {
        self.failing.get_or_set(now.into()).instant()
    }

    /// An attempt was answered.
    pub(crate) fn answered(&self) {
        self.failing.clear();
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing.get().is_some()
    }

    /// Records that another client has the lock, or is ahead.
    pub(crate) fn went_elsewhere(&self) {
        self.elsewhere.store(true, Ordering::SeqCst);
    }

    /// The contender no longer waits.
    pub(crate) fn stop_contending(&self) {
        if self.elsewhere.swap(false, Ordering::SeqCst) {
            self.note_holder();
        }
    }

    /// Whether the lock is known to be taken: by a caller of this client, or by whatever makes its contender wait.
    pub(crate) fn is_taken(&self) -> bool {
        self.elsewhere.load(Ordering::SeqCst) || self.tenure().is_some_and(|t| !t.is_over())
    }

    /// Records that the lock has a holder now.
    pub(crate) fn note_holder(&self) {
        self.note_holder_since(Instant::now());
    }

    /// Records that the lock had a holder at this time or later.
    pub(crate) fn note_holder_since(&self, then: Instant) {
        self.taken.advance(then.into());
    }

    /// A message says that somebody has lost the lock, perhaps a caller that was granted it and does not hold it yet.
    pub(crate) fn note_loss(&self) {
        self.lost.advance(CompactInstant::now());
    }

    /// Whether a message has said so at this time or later.
    fn was_lost_since(&self, then: Instant) -> bool {
        self.lost.get().is_some_and(|lost| lost >= then.into())
    }

    /// Whether a holder was known at this time or later.
    pub(crate) fn was_taken_since(&self, then: Instant) -> bool {
        self.taken.get().is_some_and(|taken| taken >= then.into())
    }
}

/// An entry is the waker of its contender.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.contest.wake();
        if self.tells_lookout.load(Ordering::SeqCst) {
            self.have_watched();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Layout;
    use crate::engine::debts::Debts;
    use crate::kinds::Kind;

    #[test]
    fn of_many_ghosts_those_are_kept_that_may_still_hold_the_lock() {
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap());
        let visit = Arc::new(Table::default()).visit(&keys, 1).unwrap();
        let (now, debts) = (Instant::now(), Debts::default());
        let hold_back = |id, until| {
            let (keys, debt) = (Arc::clone(&keys), debts.tidying());
            visit.entry.hold_back(Ghost { keys, id: TenureId(id), sent_on: 1, until, debt });
        };
        hold_back(0, now + Duration::from_secs(3600));
        (1..=MOST_HELD_BACK as u64).for_each(|id| hold_back(id, now));
        let kept: Vec<_> = visit.entry.take_held_back().iter().map(|ghost| ghost.id.0).collect();
        assert_eq!(kept, [0, MOST_HELD_BACK as u64]);
    }
}
