//! What a client knows of one lock: one plain value, behind the mutex of its [`Entry`](crate::engine::entry::Entry).
//!
//! No method wakes a task, or drops a waker, a tenure or work. A waker may poll its task at once, and the drop of a tenure may
//! remove the entry from the table. Both would lock this state again. So a method returns them, or puts them into an [`After`],
//! and the entry carries that out when the state is unlocked.

use std::collections::BTreeSet;
use std::mem::{replace, take};
use std::sync::Arc;
use std::task::Waker;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::behind::Behind;
use crate::core::queue::{Queue, Ticket};
use crate::core::side_by_side::SideBySide;
use crate::core::waiting::{Event, Rules, Waiting};
use crate::engine::entry::Tenure;
use crate::engine::entry::alarms::Alarm;
use crate::engine::entry::contest::Contest;
use crate::engine::ghost::Ghost;
use crate::engine::keep::Keep;
use crate::keys::TenureId;
use crate::wire::Manner;

/// With more ghosts than this, a contender forgets those whose leases are over, so that they do not pile up for as long as
/// its requests get no answer. A hold of theirs has ended. A place of theirs in line gets its grant by message, which finds
/// no caller, and the listener releases the grant.
const MOST_HELD_BACK: usize = 256;

/// What a client knows of one lock.
#[derive(Default)]
pub(super) struct State {
    /// The callers, and the permit.
    pub(super) queue: Queue,
    /// The work of the caller with the permit.
    pub(super) contest: Contest,
    /// What the contender knows.
    pub(super) waiting: Option<Box<Waiting>>,
    /// The last tenure of this client; it may have ended.
    pub(super) tenure: Option<Arc<Tenure>>,
    /// The tenures that are inside side by side. Not for a plain lock.
    pub(super) side_by_side: Option<Box<SideBySide<Arc<Tenure>>>>,
    pub(super) behind: Behind,
    /// The owner fields under which the contender got no answer. They are released once it gets one.
    pub(super) held_back: Vec<Ghost>,
    /// Since when every attempt has failed.
    pub(super) failing: Option<CompactInstant>,
    /// When a holder was last known.
    pub(super) taken: Option<CompactInstant>,
    /// When a message last said that somebody has lost the lock.
    pub(super) lost: Option<CompactInstant>,
    /// The contender waits: another client has the lock, or is ahead.
    pub(super) elsewhere: bool,
    /// Whether a caller has lined up under the owner field of the entry.
    has_used_name: bool,
    /// Whether the tenure may be kept idle. `None` in a client that keeps nothing.
    pub(super) keep: Option<Box<Keep>>,
    /// Whether the lookout watches the entry.
    pub(super) is_watched: bool,
    pub(super) alarm: Alarm,
}

/// What a change of the state leaves to be done when the state is unlocked.
#[derive(Default)]
pub(super) struct After {
    /// The callers to wake.
    pub(super) called: Option<Waker>,
    pub(super) all: Vec<Waker>,
    /// Whether the lookout has to watch the entry from now on.
    pub(super) watch: bool,
    /// To be dropped.
    pub(super) tenure: Option<Arc<Tenure>>,
}

/// What a client has of a lock that none of its callers needs.
pub(crate) struct Forsaken {
    /// The place in line, by its owner field.
    pub(crate) place: Option<TenureId>,
    pub(crate) ghosts: Vec<Ghost>,
    /// It may still be held, or over.
    pub(crate) tenure: Option<Arc<Tenure>>,
    /// The permit that was taken with it, so that nobody asks before the release of this tenure is answered.
    pub(super) permit: Option<u64>,
    pub(crate) resting: Vec<Arc<Tenure>>,
}

impl State {
    /// Has the lookout watch the entry, if it does not yet.
    pub(super) fn watch(&mut self, after: &mut After) {
        after.watch |= !replace(&mut self.is_watched, true);
    }

    /// Gives the permit up, and calls the next caller.
    pub(super) fn pass_on(&mut self, after: &mut After) {
        let (next, is_late) = self.queue.pass_on();
        after.called = next;
        if is_late {
            self.watch(after);
        }
    }

    /// A caller leaves the queue. Returns its own waker, to be dropped.
    pub(super) fn leave_queue(&mut self, ticket: &Ticket, after: &mut After) -> Option<Waker> {
        let (next, own) = self.queue.leave(ticket);
        after.called = next;
        if after.called.is_some() {
            self.watch(after);
        }
        own
    }

    /// The contender was granted the lock: the server has taken it out of the line. Returns whether it stood there.
    pub(super) fn forget_line(&mut self, id: TenureId) -> bool {
        // A tenure of a latch has given up its permit, so the line may belong to the next contender.
        self.waiting.take_if(|waiting| waiting.id() == id).is_some()
    }

    /// There is an event for the contender.
    pub(super) fn wake(&mut self, after: &mut After) {
        after.called = self.contest.wake();
        self.watch(after);
    }

    /// Rejects all callers.
    pub(super) fn close(&mut self, after: &mut After) {
        after.all = self.queue.close();
    }

    /// Whether another caller of this client is in the queue, and not known to be silent.
    pub(super) fn is_awaited(&self) -> bool {
        self.queue.waiting() > 0
    }

    /// How many callers of this client ask or wait, and when the first of them came; `None`: nobody does.
    pub(super) fn waiters(&self) -> Option<(usize, CompactInstant)> {
        let contender = self.contest.came();
        let first = contender.into_iter().chain(self.queue.first_came()).min()?;
        Some((self.queue.waiting() + usize::from(contender.is_some()), first))
    }

    /// The client must not keep the tenure that it has or is about to get. Returns `false` if it keeps no locks.
    pub(super) fn forbid_keeping(&mut self) -> bool {
        self.keep.as_mut().map(|keep| keep.is_allowed = false).is_some()
    }

    /// Whether the client may keep its tenure idle: it would have heard if another client wanted the lock.
    pub(super) fn may_keep(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.is_allowed)
    }

    /// Whether any caller of this client asks or waits.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_awaited() || !self.queue.is_permit_free()
    }

    /// Whether the server has told the contender to wait.
    pub(super) fn was_told_to_wait(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.was_told_to_wait())
    }

    /// The number of callers of this client for which resting tenures are reserved: those in the queue, and the contender,
    /// if the server has told it to wait.
    pub(super) fn ahead(&self) -> usize {
        self.queue.waiting() + usize::from(self.was_told_to_wait())
    }

    /// Whether the caller that stood right behind another one of its client still waits at that place.
    pub(super) fn is_still_behind(&self) -> bool {
        self.behind != Behind::Moved && self.was_told_to_wait()
    }

    pub(super) fn is_far(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.is_far())
    }

    /// Whether a caller waits or holds under this owner field.
    pub(super) fn is_known_as(&self, id: TenureId) -> bool {
        self.own_ids().any(|own| own == id)
            || self.side_by_side.as_ref().is_some_and(|shared| shared.has(id))
    }

    /// Which of these owner fields a caller waits or holds under.
    pub(super) fn known_among(&self, ids: &BTreeSet<TenureId>) -> Vec<TenureId> {
        let own = self.own_ids().filter(|id| ids.contains(id));
        let together = self.side_by_side.iter().flat_map(|shared| shared.known_among(ids));
        own.chain(together).collect()
    }

    /// The owner fields of its contender and of its last tenure.
    fn own_ids(&self) -> impl Iterator<Item = TenureId> {
        let waiting = self.waiting.iter().map(|waiting| waiting.id());
        waiting.chain(self.tenure.iter().map(|tenure| tenure.id))
    }

    /// Passes an event to the contender. Returns whether there is one.
    pub(super) fn notes(&mut self, now: Instant, event: Event, rules: Rules) -> bool {
        self.waiting.as_mut().map(|waiting| waiting.step(now, event, rules)).is_some()
    }

    /// The contender is about to ask: under this owner field, for this place. `own`: the owner field of the entry, if it
    /// has one.
    pub(super) fn ask(
        &mut self,
        own: Option<TenureId>,
        next_id: impl Fn() -> TenureId,
        rules: Rules,
    ) -> (TenureId, u64, Manner) {
        let now = Instant::now();
        if self.waiting.is_none() {
            let id = self.new_id(own, &next_id);
            self.waiting = Some(Box::new(Waiting::new(id, now)));
        }
        self.stop_asking(next_id);
        let waiting = self.waiting.as_mut().expect("it waits from now on");
        waiting.step(now, Event::Asked, rules);
        (waiting.id(), waiting.place(), if waiting.rests() { Manner::Rest } else { Manner::Wait })
    }

    /// One of its requests may still run. So the contender, or the next one, keeps the place under another owner field.
    pub(super) fn stop_asking(&mut self, next_id: impl Fn() -> TenureId) {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.may_still_run()) {
            waiting.rename(next_id(), Instant::now());
            self.behind = Behind::Moved;
        }
    }

    /// A caller with its own entry first lines up under the owner field of the entry. If it is cancelled, its requests
    /// may still run late, and the client cleans up after them. That would also remove a later place under the same
    /// owner field. So the caller never lines up under that owner field again.
    fn new_id(&mut self, own: Option<TenureId>, next_id: impl Fn() -> TenureId) -> TenureId {
        if let Some(own) = own.filter(|_| !replace(&mut self.has_used_name, true)) {
            return own;
        }
        self.behind = Behind::Moved;
        next_id()
    }

    /// A request was answered, and granted nothing. Returns the ghosts of a contender that had a place: they need not be held back
    /// any more. A caller that asks beside the contender says nothing about the place of the contender.
    pub(super) fn granted_nothing(&mut self, has_place: bool) -> Vec<Ghost> {
        self.failing = None;
        if let Some(shared) = &mut self.side_by_side {
            shared.others_come_first();
        }
        if has_place { self.take_held_back() } else { Vec::new() }
    }

    /// The contender has the lock, whether the server has granted it or another caller of this client has left it. Returns the
    /// ghosts that were held back.
    pub(super) fn has_it(&mut self) -> Vec<Ghost> {
        self.stop_contending();
        self.take_held_back()
    }

    /// Keeps a ghost until [`take_held_back`](Self::take_held_back), which the caller that ends the wait has to call. Returns
    /// those that are forgotten, to be dropped.
    pub(super) fn hold_back(&mut self, ghost: Ghost) -> Vec<Ghost> {
        let mut forgotten = Vec::new();
        if self.held_back.len() >= MOST_HELD_BACK {
            let now = Instant::now();
            forgotten.extend(self.held_back.extract_if(.., |former| now >= former.until));
        }
        self.held_back.push(ghost);
        forgotten
    }

    pub(super) fn take_held_back(&mut self) -> Vec<Ghost> {
        take(&mut self.held_back)
    }

    /// Whether the contender only stands in line: its last request was answered, and it was granted nothing, neither by a
    /// message nor by an earlier request whose answer was lost.
    pub(super) fn is_parked(&self) -> bool {
        let stands = self.waiting.as_ref().is_some_and(|waiting| waiting.only_stands());
        stands && self.held_back.is_empty()
    }

    /// Takes out everything that was left for callers of this client, unless one waits or contends.
    pub(super) fn forsake(&mut self) -> Option<Forsaken> {
        let is_closed = self.queue.is_closed();
        if self.is_awaited() || !(is_closed || self.queue.is_permit_free()) {
            return None;
        }
        let place = self.leave_line();
        let resting = self.side_by_side.as_ref().filter(|_| !self.is_wanted());
        let resting = resting.map_or_else(Vec::new, |shared| shared.forgotten());
        let tenure = self.tenure.clone();
        let permit = tenure.as_ref().and_then(|_| self.queue.try_take());
        Some(Forsaken { place, ghosts: self.take_held_back(), tenure, permit, resting })
    }

    /// No caller contends any more. Returns the owner field to take out of the line, if there is one.
    pub(super) fn leave_line(&mut self) -> Option<TenureId> {
        let waiting = self.waiting.take()?;
        waiting.stands().then(|| waiting.id())
    }

    /// Shows a tenure to its owner, which may nest in it, and to the next caller in the queue.
    pub(super) fn show(&mut self, tenure: Arc<Tenure>, after: &mut After) {
        self.note_holder(CompactInstant::now());
        after.tenure = self.tenure.replace(tenure);
    }

    /// The contender no longer waits.
    pub(super) fn stop_contending(&mut self) {
        if take(&mut self.elsewhere) {
            self.note_holder(CompactInstant::now());
        }
    }

    /// Records that the lock had a holder at this time or later.
    pub(super) fn note_holder(&mut self, then: CompactInstant) {
        self.taken = self.taken.max(Some(then));
    }

    /// Whether a message has said at this time or later that somebody has lost the lock.
    pub(super) fn was_lost_since(&self, then: CompactInstant) -> bool {
        self.lost.is_some_and(|lost| lost >= then)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Layout;
    use crate::engine::debts::Debts;
    use crate::keys::Keys;
    use crate::kinds::Kind;

    #[test]
    fn of_many_ghosts_those_are_kept_that_may_still_hold_the_lock() {
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap());
        let (mut state, now, debts) = (State::default(), Instant::now(), Debts::default());
        let mut forgotten = 0;
        let mut hold_back = |id, until| {
            let (keys, debt) = (Arc::clone(&keys), debts.tidying());
            let ghost = Ghost { keys, id: TenureId(id), sent_on: 1, until, debt };
            forgotten += state.hold_back(ghost).len();
        };
        hold_back(0, now + Duration::from_secs(3600));
        (1..=MOST_HELD_BACK as u64).for_each(|id| hold_back(id, now));
        assert_eq!(forgotten, MOST_HELD_BACK - 1);
        let kept: Vec<_> = state.take_held_back().iter().map(|ghost| ghost.id.0).collect();
        assert_eq!(kept, [0, MOST_HELD_BACK as u64]);
    }
}
