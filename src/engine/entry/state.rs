//! What a client knows of one lock: one plain value, behind the mutex of its [`Entry`](crate::engine::entry::Entry).
//!
//! Nothing here wakes a task, locks anything, or drops what somebody else made. Methods return the callers to wake and the
//! values to drop, for the time after the state is unlocked: a waker may poll its task at once, and a tenure that is dropped
//! may leave the table.

use std::mem::take;
use std::sync::Arc;
use std::task::Waker;

use tokio::time::Instant;

use crate::engine::compact_instant::CompactInstant;
use crate::engine::entry::alarms::Alarm;
use crate::engine::entry::behind::Behind;
use crate::engine::entry::contest::Contest;
use crate::engine::entry::lookout::Age;
use crate::engine::entry::queue::Queue;
use crate::engine::entry::side_by_side::SideBySide;
use crate::engine::entry::{Contested, Tenure};
use crate::engine::ghost::Ghost;
use crate::engine::keep::Keep;
use crate::engine::waiting::{Event, Rules, Waiting};
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
    pub(super) contest: Contest<Contested>,
    /// What the contender knows.
    pub(super) waiting: Option<Box<Waiting>>,
    /// The last tenure of this client; it may have ended.
    pub(super) tenure: Option<Arc<Tenure>>,
    /// The tenures that are inside side by side. Not for a plain lock.
    pub(super) side_by_side: Option<Box<SideBySide<Arc<Tenure>>>>,
    pub(super) behind: Behind,
    /// The owner fields under which the contender got no answer. They are released once it gets one.
    held_back: Vec<Ghost>,
    /// Since when every attempt has failed.
    failing: Option<CompactInstant>,
    /// When a holder was last known.
    taken: Option<CompactInstant>,
    /// When a message last said that somebody has lost the lock.
    lost: Option<CompactInstant>,
    /// The contender waits: another client has the lock, or is ahead.
    pub(super) elsewhere: bool,
    /// Whether a caller has lined up under the owner field of the entry.
    has_used_name: bool,
    /// Whether the tenure may be kept idle. `None` in a client that keeps nothing.
    pub(super) keep: Option<Box<Keep>>,
    pub(super) lookout: Watched,
}

/// What the lookout knows of an entry.
#[derive(Default)]
pub(super) struct Watched {
    /// Whether the lookout watches it.
    pub(super) is_so: bool,
    pub(super) alarm: Alarm,
    /// Whether the lookout is notified when the contender is woken. Not as long as the contender is alone.
    pub(super) is_told: bool,
    /// How long the contender has had no answer, and how many contenders were counted.
    age: Option<Age>,
    counted: u32,
}

/// The count of one contender. When its caller leaves, its entry may have counted the next contender already.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp(u32);

impl Watched {
    /// Has the entry watched. Returns whether it was not yet.
    #[must_use]
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.is_so, true)
    }

    /// Counts a contender that has no answer yet. Returns the count of the previous one, if that goes on.
    pub(super) fn count(&mut self, age: Age) -> (Stamp, Option<Age>) {
        self.counted = self.counted.wrapping_add(1);
        (Stamp(self.counted), self.age.replace(age))
    }

    /// Ends the count of whatever contender is counted.
    pub(super) fn uncount(&mut self) -> Option<Age> {
        self.age.take()
    }

    /// Ends the count of this contender, unless it has ended.
    pub(super) fn uncount_one(&mut self, Stamp(stamp): Stamp) -> Option<Age> {
        if self.counted == stamp { self.age.take() } else { None }
    }
}

impl State {
    /// Whether another caller of this client is in the queue, and not known to be silent.
    pub(super) fn is_awaited(&self) -> bool {
        self.queue.waiting() > 0
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

    /// Whether its contender is far from the front, and can ask for others. A contender that was notified and not
    /// polled since may never be polled.
    pub(super) fn can_watch(&self) -> bool {
        self.is_far() && !self.contest.is_late()
    }

    pub(super) fn is_far(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.is_far())
    }

    /// The resting tenures that no caller wants.
    pub(super) fn forgotten(&self) -> Vec<Arc<Tenure>> {
        let shared = self.side_by_side.as_ref().filter(|_| !self.is_wanted());
        shared.map_or_else(Vec::new, |shared| shared.forgotten())
    }

    /// The tenure of this owner field.
    pub(super) fn holder(&self, id: TenureId) -> Option<Arc<Tenure>> {
        let together = self.side_by_side.as_ref().and_then(|shared| shared.find(id));
        together.or_else(|| self.tenure.as_ref().filter(|tenure| tenure.id == id).cloned())
    }

    /// Whether a caller waits or holds under this owner field.
    pub(super) fn is_known_as(&self, id: TenureId) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.id() == id)
            || self.side_by_side.as_ref().is_some_and(|shared| shared.has(id))
            || self.tenure.as_ref().is_some_and(|tenure| tenure.id == id)
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
        self.stop_asking(next_id, now);
        let waiting = self.waiting.as_mut().expect("it waits from now on");
        waiting.step(now, Event::Asked, rules);
        (waiting.id(), waiting.place(), if waiting.rests() { Manner::Rest } else { Manner::Wait })
    }

    /// One of its requests may still run. So the contender, or the next one, keeps the place under another owner field.
    pub(super) fn stop_asking(&mut self, next_id: impl Fn() -> TenureId, now: Instant) {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.may_still_run()) {
            waiting.rename(next_id(), now);
            self.behind = Behind::Moved;
        }
    }

    /// A caller with its own entry first lines up under the owner field of the entry. If it is cancelled, its requests
    /// may still run late, and the client cleans up after them. That would also remove a later place under the same
    /// owner field. So the caller never lines up under that owner field again.
    fn new_id(&mut self, own: Option<TenureId>, next_id: impl Fn() -> TenureId) -> TenureId {
        if let Some(own) = own.filter(|_| !std::mem::replace(&mut self.has_used_name, true)) {
            return own;
        }
        self.behind = Behind::Moved;
        next_id()
    }

    /// Keeps a ghost until [`take_held_back`](Self::take_held_back), which the caller that ends the wait has to call. Returns
    /// ghosts that are not kept any more.
    #[must_use]
    pub(super) fn hold_back(&mut self, ghost: Ghost) -> Vec<Ghost> {
        let mut former = Vec::new();
        if self.held_back.len() >= MOST_HELD_BACK {
            let now = Instant::now();
            former.extend(self.held_back.extract_if(.., |former| now >= former.until));
        }
        self.held_back.push(ghost);
        former
    }

    /// Whether a ghost of this owner field is kept.
    pub(super) fn holds_back(&self, id: TenureId) -> bool {
        self.held_back.iter().any(|ghost| ghost.id == id)
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

    /// No caller contends any more. Returns the owner field to take out of the line, if there is one.
    pub(super) fn leave_line(&mut self) -> Option<TenureId> {
        let waiting = self.waiting.take()?;
        waiting.stands().then(|| waiting.id())
    }

    /// Shows a tenure. Returns the one before.
    #[must_use]
    pub(super) fn show(&mut self, tenure: &Arc<Tenure>) -> Option<Arc<Tenure>> {
        self.note_holder(CompactInstant::now());
        self.tenure.replace(Arc::clone(tenure))
    }

    /// There is an event for the contender. Returns the caller to wake, and whether the lookout has to watch the entry.
    #[must_use]
    pub(super) fn wake(&mut self) -> (Option<Waker>, bool) {
        let watches = self.lookout.is_told && self.lookout.begin();
        (self.contest.wake(), watches)
    }

    /// Rejects all callers. Returns those to wake.
    #[must_use]
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.queue.close()
    }

    /// An attempt failed. Returns since when all attempts have failed.
    pub(super) fn failed(&mut self, now: CompactInstant) -> CompactInstant {
        *self.failing.get_or_insert(now)
    }

    /// An attempt was answered.
    pub(super) fn answered(&mut self) {
        self.failing = None;
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
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

    /// Whether a holder was known at this time or later.
    pub(super) fn was_taken_since(&self, then: CompactInstant) -> bool {
        self.taken.is_some_and(|taken| taken >= then)
    }

    /// A message says that somebody has lost the lock, perhaps a caller that was granted it and does not hold it yet.
    pub(super) fn note_loss(&mut self) {
        self.lost = self.lost.max(Some(CompactInstant::now()));
    }

    /// Whether a message has said so at this time or later.
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
    use crate::engine::entry::lookout::Lookout;
    use crate::keys::Keys;
    use crate::kinds::Kind;

    #[test]
    fn of_many_ghosts_those_are_kept_that_may_still_hold_the_lock() {
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap());
        let (mut state, now, debts) = (State::default(), Instant::now(), Debts::default());
        let mut hold_back = |id, until| {
            let (keys, debt) = (Arc::clone(&keys), debts.tidying());
            state.hold_back(Ghost { keys, id: TenureId(id), sent_on: 1, until, debt }).len()
        };
        hold_back(0, now + Duration::from_secs(3600));
        let dropped: Vec<_> = (1..=MOST_HELD_BACK as u64).map(|id| hold_back(id, now)).collect();
        assert_eq!(dropped.iter().sum::<usize>(), MOST_HELD_BACK - 1);
        let kept: Vec<_> = state.take_held_back().iter().map(|ghost| ghost.id.0).collect();
        assert_eq!(kept, [0, MOST_HELD_BACK as u64]);
    }

    #[test]
    fn a_contender_that_was_cancelled_does_not_end_the_count_of_the_next_one() {
        let (lookout, mut watched) = (Lookout::<()>::default(), Watched::default());
        let (cancelled, before) = watched.count(lookout.begin());
        assert!(before.is_none() && watched.uncount().is_some());
        let (next, _) = watched.count(lookout.begin());
        assert!(watched.uncount_one(cancelled).is_none());
        assert!(watched.uncount_one(next).is_some() && watched.uncount_one(next).is_none());
    }
}
