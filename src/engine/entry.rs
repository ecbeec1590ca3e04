//! One lock within one client: what the client knows of it (`core/lock.rs`) behind a mutex, and the gate of its contender.
//!
//! 1. The contender has the permit of the `queue`, or the tenure that it was granted. Otherwise the permit is free, or a
//!    caller was called. The work of a contender lies in `contest`, so that the lookout can cancel a contender that
//!    is not polled (`contest.rs`).
//! 2. `gate` stores an opening until the contender takes it. `waiting` is what the contender knows. It
//!    outlives a cancelled contender, and serves the next one of this client.
//! 3. In a kind in which each caller waits separately, each caller has its own entry, and gets its permit at once.
//! 4. If several callers may hold a lock side by side, they hold it without the permit. Each tenure has a seat, which
//!    keeps the entry in the table. `side_by_side.rs` knows the tenures inside.
//! 5. A caller that takes the permit picks up an idle tenure, if there is one. A caller that hands a tenure over, or leaves
//!    the queue, checks afterwards whether a caller still waits for it. If none does, it releases the tenure
//!    (`Visit::look_after`).
//!
//! All that changes is one plain value behind that mutex, except the gate, which is a semaphore, and the count of
//! visitors. Whoever has this mutex takes no other one but those of the subscriptions and of `Tried`. The mutexes of a
//! tenure and of the table may be held when this one is taken.
//!
//! `entry/table.rs` finds entries, `entry/visit.rs` keeps one in the table, `entry/permit.rs` is what a tenure has of it,
//! and `entry/tenure.rs` is the tenure: one grant by Redis.

mod alarms;
mod contest;
mod hold;
mod holds;
mod lookout;
mod permit;
mod table;
pub(crate) mod tenure;
mod visit;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, MutexGuard};
use std::task::Wake;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::core::lock::{self, Lock, Parts};
use crate::core::queue::Look;
use crate::core::side_by_side::SideBySide;
use crate::core::waiting::{Event, Turns};
use crate::engine::ghost::Ghost;
use crate::engine::keep::{Ears, may_keep};
use crate::error::{Error, Result};
use crate::keys::{Keys, TenureId};
use crate::meters;
use crate::mutex::Mutex;
use crate::wakers::wake;
use crate::wire::{Manner, Subscription};

pub(crate) use alarms::Alarms;
pub use hold::Hold;
pub use holds::{Awaited, Held, Holds};
pub(crate) use permit::{EntryPermit, Stay};
pub(crate) use table::{Remains, Table};
pub(crate) use tenure::{OwnerHolds, Tenure, Timetable};
pub(crate) use visit::{InQueue, Visit};

use contest::Work;
use permit::Seat;
use table::EntryKey;

/// The place in the table of an entry that is not for a plain lock.
struct Listed {
    channel: Box<str>,
    key: EntryKey,
}

/// What an entry leaves with its lock.
pub(crate) struct Inside;

impl Parts for Inside {
    type Tenure = Arc<Tenure>;
    type Ghost = Ghost;
    type Work = Work;
    type Ears = Ears;

    fn id(tenure: &Arc<Tenure>) -> TenureId {
        tenure.id
    }

    fn lasts_until(ghost: &Ghost) -> Instant {
        ghost.until
    }
}

type State = Lock<Inside>;
type After = lock::After<Inside>;

/// One lock within one client.
pub(crate) struct Entry {
    pub(crate) keys: Arc<Keys>,
    /// The table in which it is. Visits find the table here: if each had a reference of its own, the threads that lock
    /// different names would contend for the count of these references.
    table: Arc<Table>,
    listed: Option<Box<Listed>>,
    visitors: AtomicU32,
    pub(crate) gate: Gate,
    state: Mutex<State>,
}

/// The outcome of a contest: the hold; `None` if one attempt was not enough; or an error.
pub(crate) type Contested = Result<Option<Hold>>;

impl Entry {
    fn new(table: &Arc<Table>, keys: Arc<Keys>) -> Self {
        Self {
            keys,
            table: Arc::clone(table),
            listed: None,
            visitors: AtomicU32::new(0),
            gate: Gate::new(),
            state: Mutex::default(),
        }
    }

    fn at(table: &Arc<Table>, keys: Arc<Keys>, channel: Box<str>, key: EntryKey) -> Self {
        let listed = Some(Box::new(Listed { channel, key }));
        let entry = Self { listed, ..Self::new(table, keys) };
        entry.state().side_by_side = entry.has_seats().then(Box::default);
        entry
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Looks at the state, or changes what wakes nobody. The result is dropped when the state is unlocked.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state())
    }

    /// Changes the state, and then does what that leaves to be done.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State, &mut After) -> R) -> R {
        let mut after = After::default();
        let result = change(&mut self.state(), &mut after);
        // First: a waker may poll its task at once, and the state says that the entry is on the lookout.
        if after.look_out {
            self.table.lookout().add(self);
        }
        after.called.take().into_iter().for_each(wake);
        after.all.drain(..).for_each(wake);
        result
    }

    /// The channel for messages to all clients.
    pub(crate) fn channel(&self) -> &str {
        self.listed.as_ref().map_or(&self.keys.channel, |listed| &listed.channel)
    }

    /// A unique key that gives entries a fixed order.
    fn order(&self) -> (&str, &str, Option<EntryKey>) {
        (self.channel(), self.keys.id(), self.listed.as_ref().map(|listed| listed.key))
    }

    /// Its own owner field, if it is the entry of one caller alone.
    fn own_id(&self) -> Option<TenureId> {
        match self.listed.as_deref()?.key {
            EntryKey::Alone(id) => Some(id),
            EntryKey::SideBySide(..) => None,
        }
    }

    /// Whether each tenure has a seat here instead of the permit.
    pub(crate) fn has_seats(&self) -> bool {
        let is_shared = |listed: &Listed| matches!(listed.key, EntryKey::SideBySide(..));
        self.keys.row.holders.are_several() && self.listed.as_deref().is_some_and(is_shared)
    }

    /// Applies this to the tenures that are inside side by side. Returns `None` if there are no seats.
    pub(crate) fn side_by_side<R>(
        &self,
        act: impl FnOnce(&mut SideBySide<Arc<Tenure>>) -> R,
    ) -> Option<R> {
        // A plain lock, the most frequent, locks no mutex here.
        self.listed.as_ref()?;
        self.state().side_by_side.as_deref_mut().map(act)
    }

    /// The idle tenures that are reserved for nobody.
    pub(crate) fn spare(&self) -> Vec<Arc<Tenure>> {
        let state = self.state();
        let kept = state.ahead();
        state.side_by_side.as_ref().map_or_else(Vec::new, |shared| shared.spare(kept))
    }

    /// Whether the caller right ahead in the server's line may have left a tenure to this one.
    pub(crate) fn may_be_next(&self) -> bool {
        let row = self.keys.row;
        row.line.is_of_callers()
            && row.holders.is_handed_on()
            && self.tenure().is_some_and(|tenure| !tenure.is_over())
    }

    /// Whether an event for those near the front concerns its contender, if there is one.
    pub(crate) fn is_stirred(&self) -> bool {
        self.state().waiting.as_ref().is_none_or(|waiting| waiting.is_stirred())
    }

    /// Whether its contender is far from the front, and can ask for others. A contender that was notified and not
    /// polled since may never be polled.
    pub(crate) fn can_speak(&self) -> bool {
        let state = self.state();
        state.is_far() && !state.contest.is_late()
    }

    /// The tenure of this owner field.
    pub(crate) fn holder(&self, id: TenureId) -> Option<Arc<Tenure>> {
        let state = self.state();
        let together = state.side_by_side.as_ref().and_then(|shared| shared.find(id));
        together.or_else(|| state.tenure.as_ref().filter(|tenure| tenure.id == id).cloned())
    }

    /// The lease of a grant by message, if the contender asks for this lease.
    pub(crate) fn pushed_lease(&self, lease: Duration) -> Duration {
        let rules = self.table.rules_for(lease);
        self.state().waiting.as_ref().map_or(rules, |waiting| waiting.rules(rules)).pushed_lease
    }

    /// Passes an event to the contender, if there is one, and wakes it.
    pub(crate) fn step(&self, event: Event) {
        self.notes(event);
        self.gate.open();
    }

    /// See [`Waiting::is_named`](crate::core::waiting::Waiting::is_named). The gate has to be opened then.
    fn is_named(&self, now: Instant, event: Event, turns: &mut Turns) {
        let (mut state, rules) = (self.state(), self.table.rules);
        state.waiting.iter_mut().for_each(|waiting| waiting.is_named(now, event, turns, rules));
    }

    /// Same as a [`step`](Self::step) with [`Event::Roused`], one contender of the line after the other. Returns whether the gate has
    /// to be opened.
    fn takes_turn(&self, now: Instant, turns: &mut Turns) -> bool {
        let rules = self.table.rules;
        self.state().waiting.as_mut().is_none_or(|waiting| waiting.takes_turn(now, turns, rules))
    }

    /// Notes what the contender itself has learnt. Returns whether there is a contender.
    pub(crate) fn notes(&self, event: Event) -> bool {
        self.state().notes(Instant::now(), event, self.table.rules)
    }

    /// See [`Lock::ask`]. The contender asks for this lease.
    pub(crate) fn ask(&self, lease: Duration) -> (TenureId, u64, Manner) {
        let (next_id, rules) = (|| self.table.next_tenure(), self.table.rules_for(lease));
        let (id, place, rests) = self.state().ask(Instant::now(), self.own_id(), next_id, rules);
        (id, place, if rests { Manner::Rest } else { Manner::Wait })
    }

    /// Whether its contender has a place, which it keeps under another owner field.
    pub(crate) fn has_place(&self) -> bool {
        self.state().waiting.as_ref().is_some_and(|waiting| waiting.place() > 0)
    }

    /// Removes the owner fields of the ghosts that are [held back](Lock::hold_back). Returns whether there was one.
    pub(crate) fn takes_held_back_from(&self, ids: &mut BTreeSet<TenureId>) -> bool {
        let before = ids.len();
        self.state().held_back.iter().for_each(|ghost| _ = ids.remove(&ghost.id));
        ids.len() < before
    }

    fn close(self: &Arc<Self>) {
        self.change(State::close);
        self.gate.close();
    }

    /// The last tenure of this client; it may have ended.
    pub(crate) fn tenure(&self) -> Option<Arc<Tenure>> {
        self.state().tenure.clone()
    }

    /// See [`Lock::show`].
    pub(crate) fn show(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        self.change(|state, after| state.show(Instant::now(), Arc::clone(tenure), after));
    }

    /// The client is about to ask for the lock, and may keep what it is granted. `listen` subscribes to the channels.
    pub(crate) fn allow_keeping(
        &self,
        listen: impl FnOnce() -> Vec<Subscription>,
        is_tried: impl FnOnce() -> bool,
    ) {
        // Nobody else makes the ears meanwhile: only the caller with the permit asks for a plain lock. `listen` joins the channels when the
        // entry is not locked.
        if self.state().ears.is_none() {
            let ears = Box::new(listen());
            self.state().ears = Some(ears);
        }
        let mut state = self.state();
        state.may_keep = state.ears.as_ref().is_some_and(|ears| may_keep(ears, is_tried));
    }

    /// The last tenure of this client, which may have ended, for a caller that has the permit; and whether the client may keep it.
    /// `keeps`: whether this caller lets it do so.
    pub(crate) fn last_tenure(&self, keeps: bool) -> Option<(Arc<Tenure>, bool)> {
        let mut state = self.state();
        let tenure = state.tenure.clone()?;
        if !keeps {
            state.forbid_keeping();
        }
        Some((tenure, state.may_keep))
    }

    /// Has the lookout check whether a caller that was notified has come.
    pub(crate) fn look_out(self: &Arc<Self>) {
        self.change(State::look_out);
    }

    /// Sets the alarm of a contender that sleeps, if there is one.
    pub(crate) fn set_alarm(self: &Arc<Self>, alarms: &mut Alarms) {
        let mut state = self.state();
        if let Some(at) = state.contest.look_at() {
            alarms.set(at, &mut state.alarm, self);
        }
    }

    /// The alarm has rung. Its contender's own timer rings at the same moment, so the lookout looks once later.
    pub(crate) fn end_alarm(self: &Arc<Self>) {
        self.change(|state, after| {
            state.alarm = None;
            state.look_out(after);
        });
    }

    /// Checks whether the called caller has come.
    pub(crate) fn look_for_called(self: &Arc<Self>) -> Look {
        self.change(|state, after| {
            let (look, silent) = state.queue.look();
            after.all = silent;
            look
        })
    }

    /// Parks the contender until its gate is opened or the time is over.
    ///
    /// # Cancel safety
    /// Same as [`Gate::pass`].
    pub(crate) async fn park(&self, until: Instant) -> Result<()> {
        let _asleep = Asleep::until(self, until);
        self.gate.pass(until).await
    }

    /// Checks whether a notified contender was polled. If it is silent and blocks another caller, returns its work, for
    /// the caller to drop.
    pub(crate) fn look_for_contender(self: &Arc<Self>, now: Instant) -> (Look, Option<Work>) {
        let (look, stands) = self.change(|state, after| {
            let (look, late) = state.contest.look(now);
            after.called = late;
            (look, !state.is_awaited() && state.is_parked())
        });
        match look {
            // It blocks nobody while it only stands in line: the server removes it, since it shows no signs of life.
            Look::Silent if stands && !self.has_siblings() => (look, None),
            Look::Silent => (look, self.state().contest.take_silent()),
            _ => (look, None),
        }
    }

    /// Whether other callers of this client wait at this name in another entry: writers beside readers, callers that want
    /// another number of permits, or a lease of their own. All callers of a client share one life, so the signs of the others keep this one
    /// in line. If it does not fit in, it blocks the line.
    fn has_siblings(&self) -> bool {
        let waits_too = |entry: &Arc<Self>| {
            !std::ptr::eq(&**entry, self) && entry.with(|lock| lock.was_told_to_wait())
        };
        // If each caller waits separately, each wants the whole lock, so the head always fits in when it is free.
        !self.keys.row.line.is_of_callers()
            && self.table.all_of(&self.keys.channel).iter().any(waits_too)
    }

    /// Whether the lock is known to be taken: by a caller of this client, or by whatever makes its contender wait.
    pub(crate) fn is_taken(&self) -> bool {
        let (elsewhere, tenure) = {
            let state = self.state();
            (state.elsewhere, state.tenure.clone())
        };
        elsewhere || tenure.is_some_and(|tenure| !tenure.is_over())
    }
}

#[cfg(test)]
impl Entry {
    /// An entry that no table finds.
    fn unlisted() -> Arc<Self> {
        let keys =
            Keys::new(crate::config::Layout::Native, crate::kinds::Kind::Lock, "a".to_owned());
        Arc::new(Self::new(&Arc::default(), Arc::new(keys.unwrap())))
    }
}

/// An entry is the waker of its contender.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.change(State::wake);
    }
}

/// The gate at which the contender parks until it is notified.
pub(crate) struct Gate {
    permits: Semaphore,
}

impl Gate {
    fn new() -> Self {
        Self { permits: Semaphore::new(0) }
    }

    /// Lets the contender through, or the next one if there is none now. Two tasks that open the gate at once may store
    /// two openings. Then the contender asks once more than necessary.
    pub(crate) fn open(&self) {
        if self.permits.available_permits() == 0 {
            self.permits.add_permits(1);
        }
    }

    /// Parks until the gate is opened or the time is over.
    ///
    /// # Errors
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    /// An opening that a dropped future has not seen stays stored for the next contender.
    async fn pass(&self, until: Instant) -> Result<()> {
        match timeout_at(until, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit.forget(),
            Ok(Err(_)) => return Err(Error::Closed),
            Err(_) => meters::woken("ttl", || 1),
        }
        Ok(())
    }

    #[cfg(test)]
    fn was_opened(&self) -> bool {
        self.permits.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok()
    }

    fn close(&self) {
        self.permits.close();
    }
}

/// The contender sleeps as long as this lives.
struct Asleep<'a>(&'a Entry);

impl<'a> Asleep<'a> {
    fn until(entry: &'a Entry, until: Instant) -> Self {
        entry.state().contest.sleeps_until(Some(until));
        Self(entry)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.state().contest.sleeps_until(None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(60)
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
