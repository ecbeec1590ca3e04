//! The tenures that several callers of one client hold side by side: reads, and permits of a semaphore.
//!
//! Plain state. It does no I/O and does not know the type of a tenure, which is `T`.
//!
//! 1. A tenure is inside from its grant until the first answer to its release.
//! 2. If the budget allows, a tenure that no caller holds stays idle: for a caller of this entry that waits, or while another
//!    release of this entry is in flight. Otherwise it would be released too, and the next caller would ask for it again.
//! 3. An idle tenure is checked when a release is answered, and when the last caller stops waiting. If no caller takes
//!    it up, the watchdog releases it.
//! 4. Sharing keeps no other client waiting. For a limited time after the server has reported that no waiter stands in
//!    line, callers join a read, and permits pass from caller to caller. Later, only a caller that was already waiting at the
//!    grant joins a read, or takes up a read that is idle for it. A permit is released then when its holder leaves it, which
//!    lets in a waiter that has come meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::core::queue::Callers;
use crate::keys::TenureId;

/// The tenures inside one entry.
pub(crate) struct SideBySide<T> {
    inside: BTreeMap<TenureId, T>,
    /// Idle tenures with their permits, the oldest first.
    idle: Vec<(TenureId, u32)>,
    /// The read that others may join.
    open: Option<Open>,
    /// How many releases are in flight to the server.
    releasing: usize,
    /// When the server last reported that no waiter stands in line.
    nobody_waits: Option<Instant>,
    /// How many permits the last contender asked for.
    asked_for: Option<u32>,
}

/// A read that others may join.
#[derive(Clone, Copy)]
struct Open {
    id: TenureId,
    granted: Instant,
    /// Any caller may join, since no waiter stands in line. Otherwise only callers that came before the grant may.
    to_all: bool,
    /// How many of the callers that were in the queue at the grant have not come inside yet.
    expected: usize,
    /// Their tickets are no greater than this.
    last_ticket: u64,
}

impl<T> Default for SideBySide<T> {
    fn default() -> Self {
        Self {
            inside: BTreeMap::new(),
            idle: Vec::new(),
            open: None,
            releasing: 0,
            nobody_waits: None,
            asked_for: None,
        }
    }
}

impl<T: Clone> SideBySide<T> {
    /// The server has granted a tenure. `awaited`: a waiter stands in line, or the client does not know. `joined`: others may
    /// join the tenure, and these callers of this client wait for it now.
    pub(crate) fn enter(
        &mut self,
        id: TenureId,
        tenure: T,
        (awaited, joined): (bool, Option<Callers>),
        now: Instant,
    ) {
        self.inside.insert(id, tenure);
        let open = |Callers { waiting: expected, last_ticket }| {
            let to_all = !awaited;
            Open { id, granted: now, to_all, expected, last_ticket }
        };
        self.open = joined.map(open);
        self.nobody_waits = (!awaited).then_some(now);
    }

    /// The server did not grant the request: waiters of other clients are ahead.
    pub(crate) fn others_come_first(&mut self) {
        self.open.iter_mut().for_each(|open| open.to_all = false);
        self.nobody_waits = None;
    }

    /// Whether the previous contender asked for another number of permits. Then its answer says nothing about this
    /// contender.
    pub(crate) fn asks_for(&mut self, permits: u32) -> bool {
        self.asked_for.replace(permits).is_some_and(|before| before != permits)
    }

    pub(crate) fn has(&self, id: TenureId) -> bool {
        self.inside.contains_key(&id)
    }

    /// Which of these tenures are inside.
    pub(crate) fn known_among(&self, ids: &BTreeSet<TenureId>) -> Vec<TenureId> {
        // Look the fewer ones up: a few readers may be inside, or thousands of holders of permits.
        if self.inside.len() < ids.len() {
            self.inside.keys().copied().filter(|id| ids.contains(id)).collect()
        } else {
            ids.iter().copied().filter(|id| self.has(*id)).collect()
        }
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.inside.values().cloned().collect()
    }

    pub(crate) fn find(&self, id: TenureId) -> Option<T> {
        self.inside.get(&id).cloned()
    }

    /// The read that a caller may join that came at this time.
    pub(crate) fn open(&self, came: Instant) -> Option<T> {
        let open = self.open.filter(|open| open.to_all || self.has_waited(came))?;
        self.find(open.id)
    }

    /// Whether a caller that came at this time was waiting when the open read was granted. The server lets in readers that
    /// waited before the next writer, and the one that it let in stood in line for this caller too.
    pub(crate) fn has_waited(&self, came: Instant) -> bool {
        self.open.is_some_and(|open| came <= open.granted)
    }

    /// The open read, if a caller with this ticket was in the queue when that read was granted. A caller without a ticket was
    /// not in the queue.
    pub(crate) fn expects(&self, ticket: Option<u64>) -> Option<TenureId> {
        let ticket = ticket?;
        self.open.filter(|open| ticket <= open.last_ticket).map(|open| open.id)
    }

    /// A caller has come inside that was in the queue when this read was granted.
    pub(crate) fn has_come(&mut self, id: TenureId) {
        let open = self.open.iter_mut().filter(|open| open.id == id);
        open.for_each(|open| open.expected = open.expected.saturating_sub(1));
    }

    /// How many callers still have to come inside before those that came later, if a waiter stands in line.
    pub(crate) fn expected(&self) -> usize {
        self.open.filter(|open| !open.to_all).map_or(0, |open| open.expected)
    }

    /// Whether callers still have to join this read that were waiting when it was granted.
    pub(crate) fn is_expected(&self, id: TenureId) -> bool {
        self.open.is_some_and(|open| open.id == id && open.expected > 0)
    }

    /// No caller can join it any more.
    pub(crate) fn close(&mut self, id: TenureId) {
        self.open = self.open.filter(|open| open.id != id);
    }

    /// Whether no waiter stands in line, as far as the client knows. The server has reported so, and no answer since then
    /// said otherwise. The report must also be younger than `time`, unless a release is in flight: that release would let
    /// a waiter in.
    pub(crate) fn is_fresh(&self, now: Instant, time: Duration) -> bool {
        // The time may be endless, so it is not added to a time.
        let is_young = |then| now.saturating_duration_since(then) < time;
        self.nobody_waits.is_some_and(|then| is_young(then) || self.releasing > 0)
    }

    /// Leaves a tenure without a holder to the next caller of this client, if one waits (`wanted`) or a release is in
    /// flight. Returns whether the tenure stays idle.
    pub(crate) fn stay_idle(&mut self, id: TenureId, permits: u32, wanted: bool) -> bool {
        let stays = wanted || self.releasing > 0;
        if stays {
            self.idle.push((id, permits));
        }
        stays
    }

    /// Takes the youngest idle tenure of this many permits, if more are idle than are reserved for others.
    pub(crate) fn take(&mut self, permits: u32, reserved: usize) -> Option<T> {
        if self.idle.len() <= reserved {
            return None;
        }
        let at = self.idle.iter().rposition(|(_, idle)| *idle == permits)?;
        let (id, _) = self.idle.remove(at);
        self.find(id)
    }

    /// Idle tenures with another number of permits than the contender wants. They block it.
    pub(crate) fn unlike(&self, permits: u32) -> Vec<T> {
        let unlike = self.idle.iter().filter(|(_, idle)| *idle != permits);
        unlike.filter_map(|(id, _)| self.find(*id)).collect()
    }

    /// All idle tenures, except those that are reserved for waiting callers.
    pub(crate) fn spare(&self, reserved: usize) -> Vec<T> {
        let spare = self.idle.len().saturating_sub(reserved);
        self.idle[..spare].iter().filter_map(|(id, _)| self.find(*id)).collect()
    }

    /// The idle tenures, if no release is in flight that would check them.
    pub(crate) fn forgotten(&self) -> Vec<T> {
        if self.releasing > 0 { Vec::new() } else { self.spare(0) }
    }

    /// A tenure is about to be released. No caller takes it up or joins it any more.
    pub(crate) fn leaving(&mut self, id: TenureId) {
        self.releasing += 1;
        self.close(id);
        self.idle.retain(|(idle, _)| *idle != id);
    }

    /// A tenure is over. If it was released, that release is now answered.
    pub(crate) fn gone(&mut self, id: TenureId, was_released: bool) -> Option<T> {
        self.close(id);
        self.idle.retain(|(idle, _)| *idle != id);
        if was_released {
            self.releasing -= 1;
        }
        self.inside.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(2);

    /// A grant of a tenure that others may join, while nobody waits.
    const ALONE: (bool, Option<Callers>) = (false, Some(NOBODY));

    const NOBODY: Callers = Callers { waiting: 0, last_ticket: 0 };

    /// A state with this many tenures inside; each is its own number.
    fn inside(tenures: u64) -> SideBySide<u64> {
        let mut shared = SideBySide::default();
        for id in 0..tenures {
            shared.enter(TenureId(id), id, ALONE, Instant::now());
        }
        shared
    }

    #[test]
    fn those_inside_are_found_whether_few_or_many_are_asked_for() {
        let asked: BTreeSet<_> = [1, 3, 900].map(TenureId).into();
        for (tenures, known) in [(2, vec![1]), (500, vec![1, 3]), (0, vec![])] {
            let known: Vec<_> = known.into_iter().map(TenureId).collect();
            assert_eq!(inside(tenures).known_among(&asked), known, "{tenures} inside");
        }
    }

    #[test]
    fn the_last_read_that_was_granted_while_nobody_waited_is_open() {
        let now = Instant::now();
        let later = now + TIME;
        let mut shared = SideBySide::default();
        shared.enter(TenureId(0), 0, ALONE, now);
        shared.enter(TenureId(1), 1, ALONE, now);
        assert_eq!(shared.open(later), Some(1));
        shared.close(TenureId(0));
        assert_eq!(shared.open(later), Some(1));
        shared.others_come_first();
        assert_eq!(shared.open(later), None);
        shared.enter(TenureId(2), 2, ALONE, now);
        shared.leaving(TenureId(2));
        assert_eq!(shared.open(later), None);
    }

    #[test]
    fn readers_that_waited_when_a_read_was_granted_join_it_although_a_writer_waits() {
        let now = Instant::now();
        let mut shared = SideBySide::default();
        let joined = Some(Callers { waiting: 2, last_ticket: 5 });
        shared.enter(TenureId(0), 0, (true, joined), now);
        assert!(shared.has_waited(now - TIME) && !shared.has_waited(now + TIME));
        assert_eq!(shared.open(now - TIME), Some(0));
        assert_eq!(shared.open(now + TIME), None, "it came later");
        shared.others_come_first();
        shared.has_come(TenureId(0));
        assert!(shared.is_expected(TenureId(0)), "one of two has come");
        assert_eq!(shared.open(now - TIME), Some(0));
        shared.has_come(TenureId(0));
        assert!(!shared.is_expected(TenureId(0)));
        shared.enter(TenureId(1), 1, (true, None), now);
        assert_eq!(shared.open(now - TIME), None, "a read with a lease of its own");
    }

    #[test]
    fn only_a_caller_that_was_in_the_queue_at_the_grant_counts_as_one_that_has_come() {
        let (mut shared, now) = (SideBySide::default(), Instant::now());
        let joined = Some(Callers { waiting: 1, last_ticket: 5 });
        shared.enter(TenureId(0), 0, (true, joined), now);
        assert_eq!([None, Some(6)].map(|ticket| shared.expects(ticket)), [None, None]);
        assert_eq!(shared.expects(Some(5)), Some(TenureId(0)));
        shared.enter(TenureId(1), 1, (true, joined), now);
        shared.has_come(TenureId(0));
        assert!(shared.is_expected(TenureId(1)), "that caller was expected by an earlier read");
        shared.has_come(TenureId(1));
        assert!(!shared.is_expected(TenureId(1)));
    }

    #[test]
    fn the_word_that_nobody_stands_in_line_counts_for_a_while() {
        let (mut shared, now) = (SideBySide::default(), Instant::now());
        assert!(!shared.is_fresh(now, TIME));
        shared.enter(TenureId(0), 0, ALONE, now);
        assert!(shared.is_fresh(now, TIME) && !shared.is_fresh(now + TIME, TIME));
        shared.leaving(TenureId(0));
        assert!(shared.is_fresh(now + TIME, TIME), "a release is on its way");
        shared.others_come_first();
        assert!(!shared.is_fresh(now, TIME));
    }

    #[test]
    fn the_word_that_nobody_stands_in_line_counts_for_ever_if_the_budget_is_endless() {
        let (mut shared, now) = (SideBySide::default(), Instant::now());
        shared.enter(TenureId(0), 0, ALONE, now);
        assert!(shared.is_fresh(now + TIME, Duration::MAX));
    }

    #[test]
    fn a_tenure_rests_for_a_waiting_caller_or_while_a_release_is_on_its_way() {
        let mut shared = inside(3);
        assert!(!shared.stay_idle(TenureId(0), 1, false));
        shared.leaving(TenureId(0));
        assert!(shared.stay_idle(TenureId(1), 1, false));
        assert!(shared.forgotten().is_empty(), "the release will look after it");
        assert_eq!(shared.gone(TenureId(0), true), Some(0));
        assert_eq!(shared.forgotten(), [1]);
        assert!(!shared.stay_idle(TenureId(2), 1, false));
        assert!(shared.stay_idle(TenureId(2), 1, true));
    }

    #[test]
    fn a_caller_takes_only_permits_of_its_number_that_are_not_kept_for_others() {
        let mut shared = inside(3);
        for (id, permits) in [(0, 1), (1, 2), (2, 1)] {
            assert!(shared.stay_idle(TenureId(id), permits, true));
        }
        assert_eq!(shared.take(3, 0), None);
        assert_eq!(shared.take(1, 3), None);
        assert_eq!((shared.unlike(1), shared.spare(2)), (vec![1], vec![0]));
        assert_eq!(shared.take(1, 2), Some(2));
        assert_eq!(shared.take(1, 0), Some(0));
        assert_eq!(shared.take(1, 0), None);
    }

    #[test]
    fn a_tenure_that_is_given_back_is_found_until_its_release_is_answered_and_not_taken() {
        let mut shared = inside(1);
        assert!(shared.stay_idle(TenureId(0), 1, true));
        shared.leaving(TenureId(0));
        assert_eq!((shared.take(1, 0), shared.find(TenureId(0))), (None, Some(0)));
        assert_eq!(shared.gone(TenureId(0), true), Some(0));
        assert_eq!(shared.find(TenureId(0)), None);
    }

    #[test]
    fn an_answer_says_nothing_to_a_contender_that_asks_for_another_number() {
        let mut shared = inside(0);
        let asked = [3, 3, 1, 3].map(|permits| shared.asks_for(permits));
        assert_eq!(asked, [false, false, true, true]);
    }
}
