//! One grant by Redis to this client: what the core knows of it (`core/tenure.rs`) behind a mutex, beside what has to be given back.
//!
//! The code that ends a hold takes the permit out while the state is locked, and drops it afterwards: the drop may wake
//! a task.
//!
//! `tenure/hand_over.rs`: from holder to holder, and readers that join. `tenure/renewal.rs`: what the watchdog does, and
//! whether the tenure is suspended. `tenure/ending.rs`: how it ends, and what is left to be done. `tenure/count_job.rs`:
//! whether a background job has to write the hold count.

mod count_job;
mod ending;
mod hand_over;
mod owner_holds;
mod renewal;
mod timetable;

use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::compact_instant::CompactInstant;
use crate::core::lifetime::Lifetime;
use crate::core::tenure::{self, Ended};
use crate::core::wheel::TimerSlot;
use crate::engine::debts::Debt;
use crate::engine::entry::{Held, Hold, Stay};
use crate::engine::grant::{Beginning, Holder, Lease};
use crate::keys::{Keys, TenureId};
use crate::kinds::{Holders, TokenCounter};
use crate::log;
use crate::meters::{HoldTimes, Lateness};
use crate::mutex::Mutex;
use crate::owner::OwnerId;
use crate::token::FencingToken;
use crate::wakers::guarding;
use crate::wire::Session;

pub(crate) use ending::Ending;
pub(crate) use hand_over::{Left, LookAt};
pub(crate) use owner_holds::{At, OwnerHolds};
pub(crate) use renewal::TRACK_AGAIN;
pub(crate) use timetable::Timetable;

use count_job::Telling;
use renewal::WORTH_TRACKING;

/// One grant by Redis to this client.
pub(crate) struct Tenure {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    /// The lease with which the tenure began.
    pub(crate) lease: Duration,
    number: u64,
    state: Mutex<State>,
    /// A hold has ended, or the deadline has moved.
    changed: Notify,
}

struct State {
    tenure: tenure::Tenure,
    /// What the holds of the current owner share.
    owner_holds: Weak<OwnerHolds>,
    /// The owner nested while its earlier holds were away at a condition. The two groups of holds have different
    /// [`OwnerHolds`], so no hold of this tenure can wait for a condition.
    is_mixed: bool,
    /// The current holder; if idle, the last one.
    holder: Holder,
    /// The holds that the owner has or asks for within this one. The server lets them in beside this one, so no other caller
    /// may take over this tenure.
    inner: Weak<()>,
    /// The session with which it ends: see `wire/session.rs`.
    session: Option<Arc<Session>>,
    stay: Option<Stay>,
    slot: Option<TimerSlot>,
    /// When the watchdog looks at this tenure next.
    look_at: CompactInstant,
    /// The debt, as long as the server may have the lock, even if the lease has expired and the lock has to be swept.
    debt: Option<Debt>,
    /// Whether a background job is writing the hold count.
    telling: Telling,
    /// How many times the count was written, by such a job or by a holder that has left. It wraps around.
    tellings: u8,
    warned_of_deadlock: bool,
    /// For the metrics.
    counted: HoldTimes,
    late: Lateness,
}

/// Counts a hold that an owner has or asks for within a tenure, as long as it exists: until the release of that hold is
/// answered, or fails once.
pub(crate) type Inner = Arc<()>;

impl Tenure {
    /// Begins a tenure with its first hold. A tenure of a latch is over at once, since a caller passes a latch and does
    /// not hold it.
    pub(crate) fn begin(keys: &Arc<Keys>, stay: Option<Stay>, beginning: Beginning) -> Arc<Self> {
        let Beginning { grant, holder, renew_at, session } = beginning;
        let (now, held) = (Instant::now(), keys.row.holders != Holders::Nobody);
        let is_watched =
            holder.wish.lease == Lease::Watched || keys.row.holders == Holders::Notified;
        let asked = (grant.sent, grant.lease);
        let lifetime = Lifetime::new(asked, grant.unconfirmed, is_watched, renew_at, now);
        let track_after = keys.row.is_tracked().then_some(WORTH_TRACKING);
        let mut state = State {
            tenure: tenure::Tenure::new(now, lifetime, held, track_after),
            owner_holds: Weak::new(),
            is_mixed: false,
            holder,
            inner: Weak::new(),
            session,
            stay,
            slot: None,
            look_at: now.into(),
            debt: held.then_some(grant.debt),
            telling: Telling::No,
            tellings: 0,
            warned_of_deadlock: false,
            counted: HoldTimes::default(),
            late: Lateness::default(),
        };
        if held {
            state.counted.begin(&keys.meters, 0);
        }
        Arc::new(Self {
            keys: Arc::clone(keys),
            id: grant.id,
            lease: grant.lease,
            number: grant.number,
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Looks at what the core knows of it, or changes what nobody is told.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut tenure::Tenure) -> R) -> R {
        act(&mut self.state().tenure)
    }

    pub(crate) fn token(&self, hand_over: u16) -> FencingToken {
        match self.keys.row.keys.tokens {
            TokenCounter::Shared => FencingToken::new(self.number, hand_over),
            TokenCounter::Redissons => FencingToken::written(self.number),
        }
    }

    /// How this hold ended, if it has ended.
    pub(crate) fn ended(&self, hand_over: u16) -> Option<Ended> {
        self.state().tenure.ended(hand_over)
    }

    /// Whether the tenure has ended, for all of its holds.
    pub(crate) fn is_over(&self) -> bool {
        self.state().tenure.ended.is_some()
    }

    /// How long it can be believed until so much earlier than its end: see [`State::believed_until_before`]. Compares clocks, so
    /// it is right even if no task of this process has run for a while.
    pub(crate) fn remaining_before(&self, hand_over: u16, margin: Duration) -> Duration {
        self.until(hand_over, |state| state.believed_until_before(margin))
    }

    /// How long it lasts before it is lost. It may be suspended earlier.
    pub(crate) fn rest_of_lease(&self, hand_over: u16) -> Duration {
        self.until(hand_over, |state| state.tenure.lifetime.deadline())
    }

    fn until(&self, hand_over: u16, end: impl FnOnce(&State) -> Instant) -> Duration {
        let state = self.state();
        match state.tenure.ended(hand_over) {
            None => end(&state).saturating_duration_since(Instant::now()),
            Some(_) => Duration::ZERO,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state().tenure.lifetime.deadline()
    }

    /// What the holds of this owner share; `None` if the owner may not nest.
    pub(crate) fn owner_holds(&self, hand_over: u16) -> Option<Arc<OwnerHolds>> {
        self.state().owner_holds(&self.keys, hand_over)
    }

    /// Moves the holds of `owner_holds` into this tenure after a wait: `others` of them besides the one that waited. Returns
    /// their number in this tenure.
    pub(crate) fn take_in(&self, owner_holds: &Arc<OwnerHolds>, others: u32) -> u16 {
        let mut state = self.state();
        if state.tenure.holds() > 1 {
            // Another future of the owner has nested meanwhile.
            state.is_mixed = true;
        }
        state.owner_holds = Arc::downgrade(owner_holds);
        let hand_over = state.tenure.hand_overs;
        state.tenure.enter(hand_over, others);
        hand_over
    }

    /// Whether one of its holds can wait for a condition: no hold of the owner would be left out when they come back.
    pub(crate) fn can_wait(&self) -> bool {
        let state = self.state();
        !state.is_mixed && !state.is_shelter()
    }

    /// What the holder asked for, so that it can ask again.
    pub(crate) fn holder(&self) -> Holder {
        let state = self.state();
        let mut holder = state.holder;
        if state.tenure.lifetime.is_watched() {
            holder.wish.lease = Lease::Watched;
        }
        holder
    }

    /// The number of the hold that this owner has now.
    pub(crate) fn hold_of(&self, owner: OwnerId) -> Option<u16> {
        let state = self.state();
        let hold = state.tenure.hand_overs;
        let held = state.tenure.ended(hold).is_none();
        (held && state.holder.wish.owner == Some(owner)).then_some(hold)
    }

    pub(crate) fn holds(&self) -> u32 {
        self.state().tenure.holds()
    }

    /// The owner of this hold is about to ask for another hold within it, which the server lets in beside this one. Returns what
    /// keeps other callers from taking over this tenure, as long as it exists; `None` if the hold has ended.
    pub(crate) fn shelter(&self, hand_over: u16) -> Option<Inner> {
        let mut state = self.state();
        if state.tenure.ended(hand_over).is_some() {
            return None;
        }
        let inner = state.inner.upgrade().unwrap_or_default();
        state.inner = Arc::downgrade(&inner);
        Some(inner)
    }

    /// What a user can see of it; `None`: it is over, or nothing that a user can hold.
    pub(crate) fn held(&self) -> Option<Held> {
        let now = Instant::now();
        let state = self.state();
        if state.tenure.ended.is_some() || self.keys.row.holders == Holders::Notified {
            return None;
        }
        let (guards, hold, holder) = (state.tenure.holds(), state.tenure.hand_overs, state.holder);
        let held_for = CompactInstant::from(now).saturating_duration_since(state.tenure.since);
        let remaining = state.believed_until().saturating_duration_since(now);
        drop(state);
        let is_held = guards > 0;
        Some(Held {
            name: self.keys.name().into_owned(),
            kind: self.keys.kind.word(),
            guards,
            permits: if self.keys.kind.is_counted() { holder.wish.permits } else { 1 },
            held_for,
            remaining,
            token: is_held.then(|| self.token(hold)),
            asked_by: holder.asked_by.task().filter(|_| is_held),
        })
    }

    /// Another token of its debt, while it has one.
    pub(crate) fn debt(&self) -> Option<Debt> {
        self.state().debt.clone()
    }

    /// The owner of this hold holds it once more. Returns the new hold and the hold count, or `None` if the hold has ended.
    pub(crate) fn enter(self: &Arc<Self>, hand_over: u16) -> Option<(Hold, u32)> {
        let mut state = self.state();
        if !state.tenure.enter(hand_over, 1) {
            return None;
        }
        // Take this now: while the request was in flight, another guard of the owner may have come back from a wait for a condition,
        // and have brought what its holds share. The next wait ends the holds that share the same.
        let owner_holds = state.owner_holds(&self.keys, hand_over);
        Some((Hold::of_owner(Arc::clone(self), hand_over, owner_holds), state.tenure.holds()))
    }

    /// Notes that a caller waits for the lock: warns once if its task is the task that asked for the current hold. Returns whether
    /// this tenure still lasts.
    pub(crate) fn note_waiter(&self, waiting: OwnerId) -> bool {
        let mut state = self.state();
        if state.tenure.ended.is_some() {
            return false;
        }
        let is_deadlock = state.tenure.holds() > 0 && state.holder.asked_by == waiting;
        let warns = is_deadlock && !std::mem::replace(&mut state.warned_of_deadlock, true);
        drop(state);
        if warns {
            let name = self.keys.name();
            log::warn!(?name, "a task waits for a lock whose guard it took itself: a deadlock?");
        }
        true
    }

    /// Resolves when a hold ends, at the deadline at the latest.
    pub(crate) async fn end(self: Arc<Self>, hand_over: u16) -> Ended {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listen first, check second: so no change in between is missed.
            changed.as_mut().enable();
            let (ended, deadline) = {
                let state = self.state();
                (state.tenure.ended(hand_over), state.tenure.lifetime.deadline())
            };
            if let Some(ended) = ended {
                return ended;
            }
            tokio::select! {
                () = guarding(changed) => {}
                () = sleep_until(deadline) => self.expire(),
            }
        }
    }
}

impl State {
    /// The hold with this number has begun, without a request.
    fn begins(&mut self, keys: &Keys, hold: u16) {
        self.warned_of_deadlock = false;
        (self.owner_holds, self.is_mixed) = (Weak::new(), false);
        self.counted.begin(&keys.meters, hold);
    }

    /// See [`Tenure::owner_holds`].
    fn owner_holds(&mut self, keys: &Keys, hand_over: u16) -> Option<Arc<OwnerHolds>> {
        let nests = self.holder.wish.owner.is_some() && keys.row.has_conditions();
        if !nests || self.tenure.hand_overs != hand_over {
            return None;
        }
        let owner_holds = self.owner_holds.upgrade().unwrap_or_default();
        self.owner_holds = Arc::downgrade(&owner_holds);
        Some(owner_holds)
    }

    /// Whether its owner may have another hold within this one.
    fn is_shelter(&self) -> bool {
        self.inner.strong_count() > 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::{Config, Layout};
    use crate::core::budget::{Budget, Idle};
    use crate::core::lifetime::deadline;
    use crate::core::tenure::{CHECKS_APART, Due, PickUp};
    use crate::engine::debts::Debts;
    use crate::engine::entry::{Entry, EntryPermit, Remains, Table, Visit};
    use crate::engine::grant::{Grant, Loss, Wish};
    use crate::kinds::Kind;

    /// With this budget, no tenure is handed over.
    pub(crate) const NO_BUDGET: Budget = Budget {
        hand_overs: 0,
        time: Duration::ZERO,
        reserve: Duration::ZERO,
        lease: Duration::MAX,
    };

    const LEASE: Duration = Duration::from_secs(10);
    const BUDGET: Budget =
        Budget { hand_overs: 2, time: LEASE, reserve: Duration::from_secs(1), lease: LEASE };

    pub(crate) const IDLE: Idle = Idle { pickup: LEASE, keep: LEASE };

    fn holder(lease: Lease) -> Holder {
        Wish { owner: None, lease, permits: 1 }.by_caller()
    }

    /// A tenure that was asked for at this time, and is renewed at once.
    pub(crate) fn beginning(
        id: TenureId,
        (lease, length): (Lease, Duration),
        sent: Instant,
    ) -> Beginning {
        let debt = Debts::default().tidying();
        let (awaited, unconfirmed) = (false, None);
        let grant = Grant { id, number: 1, awaited, lease: length, sent, unconfirmed, debt };
        Beginning { grant, holder: holder(lease), renew_at: sent, session: None }
    }

    fn permit(table: &Arc<Table>) -> EntryPermit {
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap());
        table.visit(&keys, 1).unwrap().try_permit().unwrap()
    }

    fn visitor(table: &Arc<Table>) -> Visit {
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap());
        table.visit(&keys, 1).unwrap()
    }

    /// A tenure that has just begun, and the table of its permit.
    pub(crate) fn begun() -> (Arc<Table>, Hold) {
        hold(Lease::Watched, Instant::now() + LEASE)
    }

    /// Another hold of the same tenure.
    fn of_same(hold: &Hold, hand_over: u16) -> Hold {
        Hold::new(Arc::clone(&hold.tenure), hand_over, None)
    }

    fn handed_on(hold: &Hold) -> EntryPermit {
        match hold.tenure.leave(hold.hand_over, BUDGET, IDLE) {
            Left::HandedOn(permit, _) => permit,
            _ => panic!("not handed on"),
        }
    }

    /// What a caller with this permit, that asks for this lease, gets of the tenure.
    fn picked_up(
        hold: &Hold,
        permit: impl Into<Option<EntryPermit>>,
        lease: Lease,
        budget: Budget,
    ) -> PickUp<Ending> {
        hold.tenure.pick_up(&mut permit.into(), holder(lease), budget, false)
    }

    /// A tenure with this deadline.
    fn hold(lease: Lease, deadline: Instant) -> (Arc<Table>, Hold) {
        let table = Arc::new(Table::default());
        let hold = hold_in(&table, lease, deadline);
        (table, hold)
    }

    fn hold_in(table: &Arc<Table>, lease: Lease, deadline: Instant) -> Hold {
        let now = Instant::now();
        let id = TenureId(fastrand::u64(..)); // no two tenures have the same
        let tenure = permit(table).begin(beginning(id, (lease, LEASE), now));
        let hold = Hold::new(tenure, 0, None);
        let mut state = hold.tenure.state();
        state.tenure.lifetime.set(deadline, lease == Lease::Watched);
        state.tenure.never_track();
        drop(state);
        hold
    }

    fn due(hold: &Hold, max_hold: Option<Duration>) -> Due<Ending> {
        hold.tenure.due(Instant::now(), max_hold, IDLE)
    }

    fn next_look(hold: &Hold) -> Instant {
        hold.tenure.state().tenure.next_look(IDLE)
    }

    #[test]
    fn the_deadline_counts_from_before_the_request_and_leaves_room_for_drift() {
        let sent = Instant::now();
        assert_eq!(deadline(sent, LEASE), sent + Duration::from_millis(9_898));
        assert_eq!(deadline(sent, Duration::from_millis(1)), sent);
    }

    #[test]
    fn the_deadline_only_moves_outwards() {
        let now = Instant::now();
        let (_table, hold) = hold(Lease::Watched, now + LEASE);
        assert!(hold.tenure.prolong(now, LEASE / 2));
        assert_eq!(hold.tenure.deadline(), now + LEASE);
        assert!(hold.tenure.prolong(now, LEASE * 2));
        assert_eq!(hold.tenure.deadline(), deadline(now, LEASE * 2));
    }

    #[test]
    fn an_answer_after_the_deadline_brings_nothing_back() {
        let (_table, hold) = hold(Lease::Watched, Instant::now());
        assert!(!hold.tenure.prolong(Instant::now(), LEASE));
        assert_eq!(hold.outcome(), Some(Ended::Lost));
    }

    #[test]
    fn a_renewal_never_asks_for_less_than_was_asked_for_before() {
        let (_table, hold) = hold(Lease::Fixed(LEASE), Instant::now() + LEASE);
        for _ in 0..1000 {
            let (asked, sent) = (hold.tenure.renewal(LEASE * 3), Instant::now());
            assert!(asked > LEASE / 2 && asked <= LEASE, "{asked:?}");
            assert!(hold.tenure.prolong(sent, asked));
        }
    }

    #[test]
    fn a_doubted_tenure_is_looked_at_whatever_its_lease() {
        let (_table, hold) = hold(Lease::Fixed(LEASE), Instant::now() + LEASE);
        hold.tenure.doubt();
        assert!(matches!(due(&hold, None), Due::Renew(_)));
        assert!(matches!(due(&hold, None), Due::Later));
    }

    #[test]
    fn many_messages_have_a_tenure_checked_once_in_a_pause() {
        let (_table, hold) = hold(Lease::Fixed(LEASE), Instant::now() + LEASE);
        let first = hold.tenure.doubt();
        assert!(matches!(hold.tenure.due(first, None, IDLE), Due::Renew(_)));
        let second = hold.tenure.doubt();
        assert_eq!(second, first + CHECKS_APART);
        assert_eq!(hold.tenure.doubt(), second, "one of many messages");
        assert!(matches!(hold.tenure.due(first, None, IDLE), Due::Later));
        assert_eq!(next_look(&hold), second);
        assert!(matches!(hold.tenure.due(second, None, IDLE), Due::Renew(_)));
    }

    #[test]
    fn a_check_without_an_answer_is_repeated_whatever_the_lease() {
        let (_table, hold) = hold(Lease::Fixed(LEASE), Instant::now() + LEASE);
        let again = Instant::now() + LEASE / 2;
        hold.tenure.doubt();
        assert!(matches!(due(&hold, None), Due::Renew(_)));
        hold.tenure.with(|tenure| tenure.check_again(again));
        assert!(matches!(due(&hold, None), Due::Later));
        assert_eq!(next_look(&hold), again);
        assert!(matches!(hold.tenure.due(again, None, IDLE), Due::Renew(_)));
        hold.tenure.with(|tenure| tenure.check_again(again + LEASE));
        let message = hold.tenure.doubt();
        assert_eq!(message, again + CHECKS_APART, "a message does not wait for the repetition");
        assert!(matches!(hold.tenure.due(message, None, IDLE), Due::Renew(_)));
    }

    #[test]
    fn a_tenure_past_its_deadline_is_invalid_before_any_task_has_said_so() {
        let (_table, hold) = hold(Lease::Watched, Instant::now());
        assert!(!hold.tenure.is_over());
        assert_eq!(hold.remaining(), Duration::ZERO);
    }

    /// Its permit is on its way to the next holder.
    #[test]
    fn an_idle_tenure_whose_lease_is_over_is_swept_once() {
        let swept_by: [fn(&Hold) -> bool; 3] = [
            |hold| matches!(due(hold, None), Due::Release(Ending { stay: None, .. })),
            |hold| hold.tenure.close().is_some(),
            |hold| hold.tenure.lose(Loss::Gone).is_some(),
        ];
        for sweeps in swept_by {
            let (table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
            let visitor = visitor(&table);
            let _next = visitor.wait();
            let permit = handed_on(&hold);
            hold.tenure.state().tenure.lifetime.set(Instant::now(), true);
            assert!(!hold.tenure.lasts() && hold.tenure.debt().is_some());
            assert!(sweeps(&hold) && !sweeps(&hold));
            assert!(matches!(due(&hold, None), Due::Ended));
            let late = picked_up(&hold, permit, Lease::Watched, BUDGET);
            assert!(matches!(late, PickUp::Nothing));
        }
    }

    /// The server still has it for a while, so a caller that asked meanwhile would be refused.
    #[test]
    fn a_tenure_whose_lease_is_over_is_released_at_once_and_keeps_its_turn_until_then() {
        let released = Arc::new(Mutex::new(Vec::new()));
        let releases = Arc::clone(&released);
        let releases = move |remains: Remains<'_>| match remains {
            Remains::Tenure(ending) => releases.lock().push(ending),
            _ => panic!("only a tenure is left"),
        };
        let table = Table::new(&Config::default(), releases);
        let table = Arc::new(table);
        let hold = hold_in(&table, Lease::Watched, Instant::now());
        assert!(!hold.tenure.lasts());
        assert!(matches!(hold.tenure.leave(0, BUDGET, IDLE), Left::Lost));
        assert_eq!(hold.outcome(), Some(Ended::Lost));
        let ended = std::mem::take(&mut *released.lock());
        assert!(matches!(&ended[..], [Ending { stay: Some(Stay::Permit(_)), .. }]));
        assert!(visitor(&table).try_permit().is_none(), "the release keeps the permit");
        drop(ended);
        assert!(visitor(&table).try_permit().is_some());
        assert!(matches!(due(&hold, None), Due::Ended), "nothing is left to sweep");
        assert!(released.lock().is_empty());
    }

    #[tokio::test]
    async fn a_count_that_the_background_may_have_written_behind_ours_is_noticed() {
        let (_, hold) = begun();
        let before = hold.tenure.tellings();
        assert_eq!(hold.tenure.tellings(), before);
        assert!(hold.tenure.will_tell());
        assert_eq!(hold.tenure.tellings(), None, "it is writing");
        assert!(hold.tenure.told(1));
        assert_ne!(hold.tenure.tellings(), before, "it has written");
    }

    /// Two tasks with one `Owner`: one nests while the other one leaves a nested hold.
    #[test]
    fn a_count_that_another_holder_may_have_written_behind_ours_is_noticed() {
        let (_table, hold) = begun();
        let before = hold.tenure.tellings();
        assert!(hold.tenure.has_told(1));
        assert_ne!(hold.tenure.tellings(), before, "it has written");
        assert!(!hold.tenure.has_told(2), "there is one");
    }

    /// An open latch lets in whoever came before its client asked.
    #[test]
    fn a_tenure_was_asked_for_since_its_latest_request_was_sent() {
        const LATER: Duration = Duration::from_secs(1);
        let before = Instant::now();
        let (_table, hold) = begun();
        let after = Instant::now() + LATER;
        let asked_since = |at| hold.tenure.with(|tenure| tenure.lifetime.confirmed() >= at);
        assert!(asked_since(before) && !asked_since(after));
        hold.tenure.with(|tenure| tenure.lifetime.counts_from(after));
        hold.tenure.with(|tenure| tenure.lifetime.counts_from(before));
        assert!(asked_since(after), "an earlier request changes nothing");
    }

    #[test]
    fn the_releaser_repeats_a_release_for_as_long_as_an_unanswered_extension_may_keep_the_lock() {
        let (_table, hold) = begun();
        let (longer, asked) = (LEASE * 6, Instant::now());
        hold.tenure.at_least(longer);
        let Left::Last(ending) = hold.tenure.leave(0, NO_BUDGET, IDLE) else {
            panic!("nobody waits")
        };
        assert!(ending.until >= asked + longer);
    }

    #[test]
    fn hold_counts_are_written_one_at_a_time_until_the_latest_is() {
        let (_table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        assert_eq!(hold.tenure.enter(0).map(|(_, count)| count), Some(2));
        assert!(hold.tenure.will_tell());
        assert!(!hold.tenure.told(1), "there are two");
        assert!(!hold.tenure.will_tell(), "the same word will do");
        assert!(!hold.tenure.told(2), "another word may arrive after this one");
        assert!(hold.tenure.told(2));
        assert!(hold.tenure.will_tell());
    }

    #[test]
    fn the_debt_of_a_tenure_is_handed_over_once_and_ends_with_a_loss() {
        let (_table, released) = hold(Lease::Watched, Instant::now() + LEASE);
        assert!(matches!(released.tenure.leave(0, BUDGET, IDLE), Left::Last(..)));
        assert!(released.tenure.close().is_none(), "it is being given back");

        let (_table, gone) = hold(Lease::Watched, Instant::now() + LEASE);
        gone.tenure.lose(Loss::Gone);
        assert!(gone.tenure.debt().is_none());
    }

    /// Its requests have failed, and then a message has granted it the lock.
    #[test]
    fn a_client_that_has_the_lock_is_not_failing() {
        let permit = permit(&Arc::new(Table::default()));
        let (entry, now) = (Arc::clone(permit.entry()), Instant::now());
        entry.with(|lock| lock.failed(now.into()));
        let _tenure = permit.begin(beginning(TenureId(1), (Lease::Watched, LEASE), now));
        assert!(!entry.with(|lock| lock.failing.is_some()));
    }

    #[test]
    fn a_tenure_ends_once() {
        let (_table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        assert!(matches!(
            hold.tenure.leave(0, BUDGET, IDLE),
            Left::Last(Ending { stay: Some(_), .. })
        ));
        hold.tenure.lose(Loss::Gone);
        assert_eq!(hold.outcome(), Some(Ended::Released));
        assert!(matches!(due(&hold, None), Due::Ended));
    }

    #[test]
    fn only_a_watched_tenure_is_renewed_and_not_beyond_max_hold() {
        let far = Instant::now() + LEASE;
        let (_table, fixed) = hold(Lease::Fixed(LEASE), far);
        assert!(matches!(due(&fixed, None), Due::Later));
        assert_eq!(next_look(&fixed), far);
        let (_table, watched) = hold(Lease::Watched, far);
        assert!(matches!(due(&watched, Some(LEASE)), Due::Renew(_)));
        assert!(matches!(due(&watched, Some(Duration::ZERO)), Due::Later));
        assert_eq!(next_look(&watched), far);
    }

    #[test]
    fn a_nested_hold_gets_no_more_after_max_hold_though_the_watchdog_has_not_looked() {
        let (_table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        let (more, fixed) = (LEASE * 2, Lease::Fixed(LEASE * 2));
        let nested = |lease, max_hold| hold.tenure.for_nested(lease, more, Some(max_hold));
        assert_eq!(nested(Lease::Watched, LEASE), more);
        assert!(nested(Lease::Watched, Duration::ZERO) <= LEASE);
        assert_eq!(nested(fixed, Duration::ZERO), more);
    }

    #[test]
    fn a_tenure_is_handed_on_within_its_budget_each_turn_with_a_greater_token() {
        let (table, mut last) = hold(Lease::Watched, Instant::now() + LEASE);
        let visitor = visitor(&table);
        let next = visitor.wait();
        for _ in 0..BUDGET.hand_overs {
            let permit = handed_on(&last);
            assert_eq!(last.outcome(), Some(Ended::Released));
            let PickUp::Held(next) = picked_up(&last, permit, Lease::Watched, BUDGET) else {
                panic!("not picked up")
            };
            let next = of_same(&last, next);
            assert!(next.token() > last.token());
            assert_eq!(next.outcome(), None);
            last = next;
        }
        let permit = handed_on(&last);
        let spent = picked_up(&last, permit, Lease::Watched, BUDGET);
        assert!(matches!(spent, PickUp::Ended(..)));
        drop((spent, next));
        drop(visitor);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn neither_to_nor_from_a_fixed_lease_nor_near_the_deadline_is_a_tenure_taken_up() {
        let soon = Instant::now() + BUDGET.reserve / 2;
        for (from, to, deadline) in [
            (Lease::Fixed(LEASE), Lease::Watched, soon + LEASE),
            (Lease::Watched, Lease::Fixed(LEASE), soon + LEASE),
            (Lease::Watched, Lease::Watched, soon),
            (Lease::Watched, Lease::Watched, soon + LEASE * 2),
        ] {
            let (table, hold) = hold(from, deadline);
            let visitor = visitor(&table);
            let _next = visitor.wait();
            let permit = handed_on(&hold);
            assert!(matches!(picked_up(&hold, permit, to, BUDGET), PickUp::Ended(..)));
        }
    }

    #[test]
    fn an_idle_tenure_that_nobody_takes_up_in_time_ends() {
        let (table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        hold.tenure.with(|tenure| tenure.lifetime.renew_at(Instant::now() + LEASE));
        let visitor = visitor(&table);
        let _next = visitor.wait();
        let permit = handed_on(&hold);
        assert!(matches!(due(&hold, None), Due::Later));
        let now = Instant::now();
        let idle = Idle { pickup: Duration::ZERO, ..IDLE };
        assert!(matches!(hold.tenure.due(now, None, idle), Due::Release(_)));
        let late = picked_up(&hold, permit, Lease::Watched, BUDGET);
        assert!(matches!(late, PickUp::Nothing));
    }

    /// A read that others may join, and the table of its seat.
    fn read() -> (Arc<Table>, Hold) {
        let table = Arc::new(Table::default());
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Read, "a".to_owned()).unwrap());
        let permit = table.visit(&keys, 1).unwrap().try_permit().unwrap();
        let beginning = beginning(TenureId(1), (Lease::Watched, LEASE), Instant::now());
        (table, Hold::new(permit.begin(beginning), 0, None))
    }

    #[test]
    fn readers_that_join_have_holds_of_their_own_and_the_last_one_gives_back() {
        let (table, first) = read();
        let second = of_same(&first, first.tenure.join(BUDGET).unwrap());
        let third = of_same(&first, first.tenure.join(BUDGET).unwrap());
        assert!(first.token() < second.token() && second.token() < third.token());
        assert!(first.tenure.join(BUDGET).is_none(), "the budget is spent");
        assert!(matches!(second.tenure.leave(second.hand_over, BUDGET, IDLE), Left::Others));
        let ends = [&first, &second, &third].map(Hold::outcome);
        assert_eq!(ends, [None, Some(Ended::Released), None]);
        assert_eq!([&first, &second, &third].map(Hold::count), [1, 0, 1]);
        assert!(matches!(first.tenure.leave(first.hand_over, BUDGET, IDLE), Left::Others));
        let last = third.tenure.leave(third.hand_over, BUDGET, IDLE);
        assert!(matches!(last, Left::Last(Ending { stay: Some(Stay::Seat(_)), .. })));
        assert!(first.tenure.join(BUDGET).is_none());
        drop(last);
        assert_eq!(table.len(), 0, "the seat keeps the entry");
    }

    #[test]
    fn a_loss_is_told_to_the_remaining_readers() {
        let (_table, first) = read();
        let second = of_same(&first, first.tenure.join(BUDGET).unwrap());
        assert!(matches!(first.tenure.leave(first.hand_over, BUDGET, IDLE), Left::Others));
        first.tenure.lose(Loss::Gone);
        assert_eq!((first.outcome(), second.outcome()), (Some(Ended::Released), Some(Ended::Lost)));
        assert!(first.tenure.join(BUDGET).is_none());
        assert!(matches!(second.tenure.leave(second.hand_over, BUDGET, IDLE), Left::Lost));
    }

    #[test]
    fn nobody_joins_an_owner_or_a_fixed_lease() {
        for (owner, lease) in
            [(Some(OwnerId::current()), Lease::Watched), (None, Lease::Fixed(LEASE))]
        {
            let (_table, hold) = read();
            hold.tenure.state().holder.wish.owner = owner;
            hold.tenure
                .state()
                .tenure
                .lifetime
                .set(Instant::now() + LEASE, lease == Lease::Watched);
            assert!(hold.tenure.join(BUDGET).is_none());
        }
    }

    #[test]
    fn a_resting_tenure_is_taken_up_once_or_given_back_when_the_budget_is_spent() {
        let (table, mut hold) = read();
        let keys = Arc::clone(&hold.tenure.keys);
        let visitor = table.visit(&keys, 1).unwrap();
        let next = visitor.wait();
        for _ in 0..BUDGET.hand_overs {
            assert!(matches!(hold.tenure.leave(hold.hand_over, BUDGET, IDLE), Left::Idle(..)));
            let PickUp::Held(again) = picked_up(&hold, None, Lease::Watched, BUDGET) else {
                panic!("not taken up")
            };
            let twice = picked_up(&hold, None, Lease::Watched, BUDGET);
            assert!(matches!(twice, PickUp::Nothing));
            hold = of_same(&hold, again);
        }
        let spent = hold.tenure.leave(hold.hand_over, BUDGET, IDLE);
        assert!(matches!(spent, Left::Last(Ending { stay: Some(_), .. })));
        drop((spent, next));
        drop(visitor);
        assert_eq!(table.len(), 0);
    }

    /// A tenure that its client may keep, the table of its permit, and its entry.
    fn keepable(lease: Lease) -> (Arc<Table>, Hold, Arc<Entry>) {
        let (table, hold) = hold(lease, Instant::now() + LEASE);
        let entry = table.find(hold.tenure.keys.id()).unwrap();
        entry.allow_keeping(Vec::new, || false); // without channels, there is nothing to miss
        (table, hold, entry)
    }

    #[test]
    fn a_kept_tenure_is_idle_and_the_next_caller_takes_it_up() {
        let (table, first, _entry) = keepable(Lease::Watched);
        let Left::Kept(stay, _) = first.tenure.leave(0, BUDGET, IDLE) else { panic!("not kept") };
        drop(stay);
        assert_eq!(first.outcome(), Some(Ended::Released));
        assert!(first.tenure.hold_of(OwnerId::current()).is_none());
        let (permit, unwanted) = (permit(&table), BUDGET.unwanted());
        let PickUp::Held(next) = picked_up(&first, permit, Lease::Watched, unwanted) else {
            panic!("not taken up")
        };
        assert!(of_same(&first, next).token() > first.token());
    }

    /// A holder leaves while a message says that another client wants the lock. In each order of their steps, the client
    /// gives the lock back.
    #[test]
    fn a_holder_that_leaves_while_another_client_asks_keeps_nothing() {
        for leaves_after in 0..=2 {
            let (_table, hold, entry) = keepable(Lease::Watched);
            let mut is_given_back = false;
            for step in 0..=2 {
                if step == leaves_after {
                    match hold.tenure.leave(0, BUDGET, IDLE) {
                        Left::Kept(stay, _) => drop(stay),
                        Left::Last(..) => is_given_back = true,
                        _ => panic!("a holder alone"),
                    }
                }
                match step {
                    0 => _ = entry.with(|lock| lock.forbid_keeping()),
                    1 => is_given_back |= hold.tenure.retire_kept().is_some(),
                    _ => {}
                }
            }
            assert!(is_given_back && hold.tenure.is_over(), "leaves after {leaves_after} steps");
        }
    }

    #[test]
    fn a_kept_tenure_ends_when_it_was_idle_for_too_long() {
        let (_table, hold, _entry) = keepable(Lease::Watched);
        let now = Instant::now();
        assert!(matches!(hold.tenure.leave(0, BUDGET, IDLE), Left::Kept(..)));
        let idle = Idle { pickup: Duration::ZERO, keep: LEASE / 2 };
        assert!(!matches!(hold.tenure.due(now, None, idle), Due::Release(_)));
        let idle = Idle { pickup: LEASE, keep: Duration::ZERO };
        let due = hold.tenure.due(Instant::now(), None, idle);
        assert!(matches!(due, Due::Release(Ending { stay: Some(Stay::Kept(_)), .. })));
        assert!(hold.tenure.is_over());
    }

    #[test]
    fn a_kept_tenure_that_is_lost_is_taken_up_by_nobody() {
        let (table, hold, _entry) = keepable(Lease::Watched);
        assert!(matches!(hold.tenure.leave(0, BUDGET, IDLE), Left::Kept(..)));
        hold.tenure.lose(Loss::Gone);
        let unwanted = BUDGET.unwanted();
        let taken = picked_up(&hold, permit(&table), Lease::Watched, unwanted);
        assert!(matches!(taken, PickUp::Nothing));
        assert!(hold.tenure.retire_kept().is_none());
    }

    /// A held tenure is not given back because somebody asks, nor is one that was handed to a caller in the queue.
    #[test]
    fn only_a_kept_tenure_is_given_back_when_another_client_asks() {
        let (table, hold, _entry) = keepable(Lease::Watched);
        assert!(hold.tenure.retire_kept().is_none());
        let visitor = visitor(&table);
        let next = visitor.wait();
        let permit = handed_on(&hold);
        assert!(hold.tenure.retire_kept().is_none());
        drop((permit, next));
    }

    #[test]
    fn a_fixed_lease_is_not_kept() {
        let (_table, hold, _entry) = keepable(Lease::Fixed(LEASE));
        assert!(matches!(hold.tenure.leave(0, BUDGET, IDLE), Left::Last(..)));
    }

    #[test]
    fn a_tenure_within_which_more_was_asked_for_is_not_handed_on() {
        let (table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        let visitor = visitor(&table);
        let _next = visitor.wait();
        let inner = hold.tenure.shelter(hold.hand_over).unwrap();
        let another = hold.tenure.shelter(hold.hand_over).unwrap();
        drop(inner);
        assert!(!hold.tenure.can_wait());
        assert!(matches!(hold.tenure.leave(hold.hand_over, BUDGET, IDLE), Left::Last(..)));
        assert!(hold.tenure.shelter(hold.hand_over).is_none(), "it is over");
        drop(another);
    }

    /// One guard of an owner comes back from a wait for a condition while another future of that owner nests. The wait after that
    /// ends the holds of all guards, and counts those that come back by what they share.
    #[test]
    fn a_hold_that_is_added_after_a_wait_shares_what_the_guard_that_waited_has_brought() {
        let (_table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        let owner = OwnerId::current();
        hold.tenure.state().holder.wish.owner = Some(owner);
        let asks = Hold::new(Arc::clone(&hold.tenure), 0, Some(owner));
        let brought = Arc::new(OwnerHolds::default());
        hold.tenure.take_in(&brought, 0);
        let (nested, _) = hold.tenure.enter(asks.hand_over).unwrap();
        assert!(nested.owner_holds.is_some_and(|own| Arc::ptr_eq(&own, &brought)));
        assert!(hold.tenure.can_wait());
    }

    #[test]
    fn a_tenure_is_handed_on_when_all_that_was_within_it_is_over() {
        let (table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        let visitor = visitor(&table);
        let _next = visitor.wait();
        let inner = [(); 2].map(|()| hold.tenure.shelter(hold.hand_over).unwrap());
        drop(inner);
        assert!(hold.tenure.can_wait());
        handed_on(&hold);
    }

    #[test]
    fn a_loss_after_the_hand_over_is_not_the_former_holders() {
        let (table, first) = hold(Lease::Watched, Instant::now() + LEASE);
        let visitor = visitor(&table);
        let _next = visitor.wait();
        let permit = handed_on(&first);
        let PickUp::Held(next) = picked_up(&first, permit, Lease::Watched, BUDGET) else {
            panic!("not picked up")
        };
        let next = of_same(&first, next);
        first.tenure.lose(Loss::Gone);
        assert_eq!(first.outcome(), Some(Ended::Released));
        assert_eq!(next.outcome(), Some(Ended::Lost));
    }

    #[tokio::test]
    async fn the_end_is_told_to_all_that_wait_for_it() {
        let (_table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        let ends = [(); 3].map(|()| tokio::spawn(hold.ended()));
        tokio::task::yield_now().await;
        hold.tenure.lose(Loss::Gone);
        for end in ends {
            assert_eq!(end.await.unwrap(), Ended::Lost);
        }
    }

    #[tokio::test]
    async fn the_end_comes_by_the_deadline_though_nobody_says_so() {
        let deadline = Instant::now() + Duration::from_millis(20);
        let (_table, hold) = hold(Lease::Watched, deadline);
        assert_eq!(hold.ended().await, Ended::Lost);
        assert!(Instant::now() >= deadline);
    }
}
