//! One grant by Redis to this client: its holders, its release and its loss. `term.rs` says how long it lasts.
//!
//! 1. A tenure is held, or idle between two holders of this client. Then it is released or lost, exactly once.
//! 2. The code that ends a hold takes the permit out while the state is locked, and drops it afterwards: the drop may wake
//!    a task.
//! 3. Reads of one client are side-by-side holds of one tenure. Each reader leaves separately, and the last one
//!    releases the tenure.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::compact_instant::CompactInstant;
use crate::engine::debts::Debt;
use crate::engine::grant::{Ended, Grant, Holder, Lease, Loss};
use crate::engine::hand_off_budget::{Budget, Idle};
use crate::engine::joint::Joint;
use crate::engine::shared::Company;
use crate::engine::term::Term;
use crate::engine::wheel::TimerSlot;
use crate::keys::{Keys, TenureId};
use crate::meters::{Holds, Lateness};
use crate::owner::OwnerId;
use crate::token::FencingToken;

/// The part of its client's entry that a tenure keeps while it may be held. The entry is above this module: a tenure
/// knows it only through this trait.
pub(crate) trait Stay: Sized {
    /// A value that keeps the entry in the table.
    type Visit;

    /// Whether the next caller in the queue takes over the tenure.
    fn is_handed_on(&self) -> bool;

    /// Whether the client may keep the tenure idle, since no other client wants the lock.
    fn may_be_kept(&self) -> bool;

    /// The part of an idle tenure that its client keeps: it keeps the entry in the table, but not the permit.
    fn to_keep(&self) -> Self;

    /// Whether it is such a part.
    fn is_kept(&self) -> bool;

    /// Lets the tenure rest for other callers of this client, if one waits for it or another return is in flight.
    /// `allows` decides whether that is permitted; its argument says whether, within `time`, the server has reported
    /// that no waiter stands in line.
    fn rest(
        &self,
        permits: u32,
        now: Instant,
        time: Duration,
        allows: impl FnOnce(bool) -> bool,
    ) -> Option<Self::Visit>;

    /// The tenure is about to be released.
    fn leaving(&mut self);
}

/// One grant by Redis to this client.
pub(crate) struct Tenure<S> {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    /// The lease with which the tenure began.
    pub(crate) lease: Duration,
    number: u64,
    granted: CompactInstant,
    state: Mutex<State<S>>,
    /// A hold has ended, or the deadline has moved.
    changed: Notify,
}

struct State<S> {
    ended: Option<Ended>,
    /// What the holds of the current owner share.
    joint: Weak<Joined<S>>,
    /// The owner has holds that do not know of each other: none of them can wait for a condition.
    is_mixed: bool,
    /// The owner, which may nest. `None`: the guard is the owner.
    owner: Option<OwnerId>,
    /// The task or thread that asked for it.
    asked_by: OwnerId,
    /// The number of holders before this one.
    hand_overs: u16,
    /// The hold count; 0: idle.
    holds: u32,
    /// The holds that have not ended, once a second caller has joined.
    company: Option<Box<Company>>,
    /// The lease that the current holder asked for.
    asked: Lease,
    /// The number of permits, for a kind with permits.
    permits: u32,
    /// The owner may have taken another hold within this one. The server let that hold in beside this one, so no other
    /// caller may take over this tenure.
    is_shelter: bool,
    /// When the current holder began; if idle, when the last holder left.
    since: CompactInstant,
    term: Term,
    /// A message of another client may concern this tenure: the watchdog has to check it.
    doubted: bool,
    stay: Option<S>,
    slot: Option<TimerSlot>,
    /// When the watchdog looks at this tenure next.
    look_at: CompactInstant,
    /// The debt, as long as the server may have the lock, even if the lease has expired and the lock has to be swept.
    debt: Option<Debt>,
    /// Whether a background job is writing the hold count.
    telling: Telling,
    /// How many times such a job has ended. It wraps around.
    tellings: u8,
    warned_of_deadlock: bool,
    /// For the metrics.
    counted: Holds,
    late: Lateness,
}

/// What the holds of one owner share: the tenure that they are in now, and their hold number in it.
pub(crate) type Joined<S> = Joint<(Arc<Tenure<S>>, u16)>;

/// The state of the background job that writes the hold count to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    No,
    Once,
    /// The holder has written a count meanwhile, which may arrive later: write once more after this.
    Again,
}

/// The outcome for a holder that leaves.
pub(crate) enum Left<S: Stay> {
    /// Other holds of the same owner remain.
    Nested,
    /// Other holds remain, of callers that have joined.
    Others,
    /// The last hold ended, and the next holder waits: the tenure is idle until that holder takes the permit.
    HandedOn(S),
    /// The last hold ended, and another caller of this client may take up the idle tenure.
    Rests(S::Visit),
    /// The last hold ended, and the client keeps the idle tenure. The permit is to be passed on.
    Kept(S),
    /// The last hold ended: the lock has to be released, and then the permit passed on.
    Last(Option<S>, Option<TimerSlot>),
    /// The lock was already lost.
    Lost,
}

/// The outcome for the next caller in the queue.
pub(crate) enum PickUp<T> {
    /// An idle tenure that the caller now holds, after this many hand-overs.
    Held(u16),
    /// An idle tenure that may not be handed on. It has ended, and has to be released.
    Ended(T, Option<TimerSlot>),
    Nothing(T),
}

/// The outcome for a caller that takes up a tenure without the permit.
pub(crate) enum Taken<S> {
    /// The caller now holds it, after this many hand-overs.
    Held(u16),
    /// It may not be handed on. It has ended, and has to be released.
    Ended(Option<S>, Option<TimerSlot>),
    /// Another caller has it, or it is over.
    Nothing,
}

/// What the watchdog finds when a tenure is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Renew,
    /// There is nothing to do before this time.
    At(Instant),
    /// It is lost. Redis may still have the lock, which has to be swept.
    Sweep,
    /// It was idle for too long. It has ended, and has to be released.
    Unclaimed,
    Ended,
}

impl<S: Stay> Tenure<S> {
    /// Begins a tenure with its first hold. A tenure of a latch is over at once, since a caller passes a latch and does
    /// not hold it.
    pub(crate) fn begin(
        keys: &Arc<Keys>,
        stay: S,
        grant: Grant,
        holder: Holder,
        renew_at: Instant,
    ) -> Arc<Self> {
        let (now, held) = (Instant::now(), !keys.row.is_passed);
        let mut state = State {
            ended: (!held).then_some(Ended::Released),
            joint: Weak::new(),
            is_mixed: false,
            owner: holder.owner,
            asked_by: holder.asked_by,
            hand_overs: 0,
            holds: u32::from(held),
            company: None,
            asked: holder.lease,
            permits: holder.permits,
            is_shelter: false,
            since: now.into(),
            term: Term::new(&grant, holder.lease == Lease::Watched || keys.row.is_notice, renew_at),
            doubted: false,
            stay: held.then_some(stay),
            slot: None,
            look_at: now.into(),
            debt: held.then_some(grant.debt),
            telling: Telling::No,
            tellings: 0,
            warned_of_deadlock: false,
            counted: Holds::default(),
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
            granted: now.into(),
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().expect("no panic under this lock")
    }

    pub(crate) fn token(&self, hand_over: u16) -> FencingToken {
        if self.keys.row.token_is_number {
            FencingToken::of_redisson(self.number)
        } else {
            FencingToken::new(self.number, hand_over)
        }
    }

    /// How this hold ended, if it has ended.
    pub(crate) fn ended(&self, hand_over: u16) -> Option<Ended> {
        self.state().ended(hand_over)
    }

    /// Whether the tenure has ended, for all of its holds.
    pub(crate) fn is_over(&self) -> bool {
        self.state().ended.is_some()
    }

    /// Records that a message granted this tenure, only for as long as a sign of life lasts. The watchdog asks for the
    /// whole lease when it confirms the grant.
    pub(crate) fn is_to_last(&self, lease: Duration, confirm_at: Instant) {
        self.state().term.confirm(lease, confirm_at, Instant::now());
    }

    /// Compares clocks, so it is right even if no task of this process has run for a while.
    pub(crate) fn remaining(&self, hand_over: u16) -> Duration {
        let state = self.state();
        match state.ended(hand_over) {
            None => state.term.deadline().saturating_duration_since(Instant::now()),
            Some(_) => Duration::ZERO,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state().term.deadline()
    }

    /// What the holds of this owner share; `None` if the owner may not nest.
    pub(crate) fn joint(&self, hand_over: u16) -> Option<Arc<Joined<S>>> {
        let mut state = self.state();
        if state.owner.is_none() || !self.keys.row.has_conditions || state.hand_overs != hand_over {
            return None;
        }
        let joint = state.joint.upgrade().unwrap_or_default();
        state.joint = Arc::downgrade(&joint);
        Some(joint)
    }

    /// Moves the holds of `joint` into this tenure after a wait: `others` of them besides the one that waited. Returns
    /// their number in this tenure.
    pub(crate) fn take_in(&self, joint: &Arc<Joined<S>>, others: u32) -> u16 {
        let mut state = self.state();
        if state.holds > 1 {
            // Another future of the owner has nested meanwhile.
            state.is_mixed = true;
        }
        state.joint = Arc::downgrade(joint);
        if state.ended.is_none() {
            state.holds += others;
        }
        state.hand_overs
    }

    /// Whether one of its holds can wait for a condition: no hold of the owner would be left out when they come back.
    pub(crate) fn can_wait(&self) -> bool {
        let state = self.state();
        !state.is_mixed && !state.is_shelter
    }

    /// What the holder asked for, so that it can ask again.
    pub(crate) fn holder(&self) -> Holder {
        let state = self.state();
        let lease = if state.term.is_watched() { Lease::Watched } else { state.asked };
        let (owner, asked_by, permits) = (state.owner, state.asked_by, state.permits);
        Holder { owner, asked_by, lease, permits }
    }

    /// The number of the hold that this owner has now.
    pub(crate) fn hold_of(&self, owner: OwnerId) -> Option<u16> {
        let state = self.state();
        let held = state.ended(state.hand_overs).is_none();
        (held && state.owner == Some(owner)).then_some(state.hand_overs)
    }

    pub(crate) fn holds(&self) -> u32 {
        self.state().holds
    }

    /// The hold count of a hold: how often its owner has nested, or one for a caller that has joined.
    pub(crate) fn count_of(&self, hand_over: u16) -> u32 {
        let state = self.state();
        match &state.company {
            Some(company) => u32::from(company.has(hand_over)),
            None => state.holds,
        }
    }

    /// The owner of this hold is about to ask for another hold within it, which the server lets in beside this one. So
    /// from now on no other caller may take over this tenure. Returns `false` if the hold has ended.
    pub(crate) fn shelters(&self, hand_over: u16) -> bool {
        let mut state = self.state();
        let is_held = state.ended(hand_over).is_none();
        state.is_shelter |= is_held;
        is_held
    }

    /// The hold count for Redis. An idle tenure counts as one: its next holder is about to begin.
    pub(crate) fn holds_to_tell(&self) -> u32 {
        self.holds().max(1)
    }

    /// Records that the background has to write the hold count. Returns whether that is new.
    pub(crate) fn will_tell(&self) -> bool {
        let mut state = self.state();
        let is_new = state.telling == Telling::No;
        state.telling = if is_new { Telling::Once } else { Telling::Again };
        is_new
    }

    /// Redis has written this hold count. Returns `false` if the count has changed meanwhile, and has to be written
    /// again.
    pub(crate) fn told(&self, holds: u32) -> bool {
        // Decide under one mutex: a hold that ends after this is written separately.
        let mut state = self.state();
        let done = state.holds.max(1) == holds && state.telling != Telling::Again;
        if done {
            state.stop_telling();
        } else {
            state.telling = Telling::Once;
        }
        done
    }

    /// The background has stopped writing the hold count.
    pub(crate) fn stop_telling(&self) {
        self.state().stop_telling();
    }

    /// How many times a background job for the hold count has ended; `None` while one runs. If the value is the same
    /// before the caller writes a hold and after the hold has begun, no background job has written an older count after
    /// it.
    pub(crate) fn tellings(&self) -> Option<u8> {
        let state = self.state();
        (state.telling == Telling::No).then_some(state.tellings)
    }

    /// Another token of its debt, while it has one.
    pub(crate) fn debt(&self) -> Option<Debt> {
        self.state().debt.clone()
    }

    /// Takes its debt, for the job that releases the lock.
    pub(crate) fn take_debt(&self) -> Option<Debt> {
        self.state().debt.take()
    }

    /// Records its slot in the wheel. Returns `false` if there is nothing left to do about the tenure.
    pub(crate) fn scheduled(&self, slot: TimerSlot, look_at: Instant) -> bool {
        let mut state = self.state();
        state.slot = Some(slot);
        state.look_at = look_at.into();
        state.ended.is_none() || state.is_unswept()
    }

    pub(crate) fn slot(&self) -> Option<TimerSlot> {
        self.state().slot
    }

    /// Whether the watchdog looks at it by this time.
    pub(crate) fn is_looked_at_by(&self, at: Instant) -> bool {
        self.state().look_at <= at.into()
    }

    /// Has the watchdog renew it from now on, unless the watchdog has done so for `max_hold`. Returns whether that is
    /// new.
    pub(crate) fn watch(&self) -> bool {
        self.state().term.watch()
    }

    /// When the watchdog has to look next, if nothing happens before.
    pub(crate) fn next_look(&self, idle: Idle) -> Instant {
        self.state().next_look(idle)
    }

    /// Has the watchdog renew the tenure at this time.
    pub(crate) fn renew_at(&self, at: Instant) {
        self.state().term.renew_at(at);
    }

    /// Has the watchdog check the tenure the next time that it looks.
    pub(crate) fn doubt(&self) {
        self.state().doubted = true;
    }

    /// The TTL that a renewal has to ask for: this much from now, or what was asked for before if that ends later. So a
    /// renewal never shortens the TTL.
    pub(crate) fn at_least(&self, wanted: Duration) -> Duration {
        self.state().term.at_least(wanted, Instant::now())
    }

    /// The TTL that a nested hold asks for. After `max_hold`, a watched hold gets no more time, or a holder that keeps
    /// nesting would never end. This check does not rely on the watchdog, which may look later: each nested hold
    /// postpones the next renewal.
    pub(crate) fn for_nested(
        &self,
        lease: Lease,
        length: Duration,
        max_hold: Option<Duration>,
    ) -> Duration {
        let state = self.state();
        let overdue = state.term.is_overdue() || state.is_held_for(max_hold, Instant::now());
        drop(state);
        let gives_none = lease == Lease::Watched && overdue;
        self.at_least(if gives_none { Duration::ZERO } else { length })
    }

    /// The TTL that the watchdog asks for.
    pub(crate) fn renewal(&self, timeout: Duration) -> Duration {
        let watched = self.state().term.is_watched();
        self.at_least(if watched { timeout } else { Duration::ZERO })
    }

    /// Redis has agreed to a TTL that was requested at `sent`. Returns `false` if the tenure is over. Past its deadline
    /// a tenure is lost, even if the server still has it.
    pub(crate) fn prolong(&self, sent: Instant, ttl: Duration) -> bool {
        self.expire();
        let mut state = self.state();
        if state.ended.is_some() {
            return false;
        }
        state.term.prolong(sent, ttl);
        state.late.renewed();
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Adds one to the hold count and returns the count, or `None` if the hold has ended.
    pub(crate) fn enter(&self, hand_over: u16) -> Option<u32> {
        let mut state = self.state();
        if state.ended(hand_over).is_some() {
            return None;
        }
        state.holds += 1;
        Some(state.holds)
    }

    /// Takes one off the hold count. When the last holder leaves a tenure that was not lost, the tenure is handed on if
    /// a caller waits for it, and released otherwise.
    pub(crate) fn leave(&self, hand_over: u16, budget: Budget) -> Left<S> {
        self.leave_with(hand_over, 1, budget).1
    }

    /// Ends all holds of an owner at once. Returns how many there were.
    pub(crate) fn leave_wholly(&self, hand_over: u16, budget: Budget) -> (u32, Left<S>) {
        self.leave_with(hand_over, u32::MAX, budget)
    }

    fn leave_with(&self, hand_over: u16, holds: u32, budget: Budget) -> (u32, Left<S>) {
        self.expire();
        let now = Instant::now();
        let mut state = self.state();
        // If all holds of this owner ended at once, another holder of this client may have the tenure by now.
        if state.ended(hand_over).is_some() {
            return (0, Left::Lost);
        }
        let holds = holds.min(state.holds);
        state.holds -= holds;
        if let Some(company) = &mut state.company {
            company.leave(hand_over);
        }
        let is_last = state.holds == 0 || state.company.is_some();
        let _ended = is_last.then(|| state.counted.end(hand_over));
        let left = match state.stay.take() {
            stay if state.holds > 0 => {
                state.stay = stay;
                if state.company.is_none() {
                    return (holds, Left::Nested);
                }
                Left::Others
            }
            Some(stay) if self.is_handed_on(&state, &stay) => {
                state.since = now.into();
                Left::HandedOn(stay)
            }
            Some(stay) if self.is_to_be_kept(&state, &stay, budget, now) => state.keep(stay, now),
            stay => {
                let rests = stay.as_ref().and_then(|stay| self.rests(&state, stay, budget, now));
                state.stay = stay;
                state.rest_or_end(rests, now)
            }
        };
        drop(state);
        self.changed.notify_waiters();
        (holds, left)
    }

    fn is_handed_on(&self, state: &State<S>, stay: &S) -> bool {
        self.keys.row.is_handed_on && !state.is_shelter && stay.is_handed_on()
    }

    /// Whether the client keeps it: only if the next holder may have it without asking Redis.
    fn is_to_be_kept(&self, state: &State<S>, stay: &S, budget: Budget, now: Instant) -> bool {
        stay.may_be_kept() && !state.is_shelter && state.term.allows(self.budget(budget), now)
    }

    fn rests(&self, state: &State<S>, stay: &S, budget: Budget, now: Instant) -> Option<S::Visit> {
        if state.owner.is_some() || !state.term.is_watched() {
            return None;
        }
        let allows = |is_fresh| state.allows(self.budget(budget), self.held(now, is_fresh), now);
        stay.rest(state.permits, now, budget.time, allows)
    }

    /// For how long its client has relied on the server's report that no waiter stands in line.
    fn held(&self, now: Instant, is_fresh: bool) -> Duration {
        if is_fresh { Duration::ZERO } else { now - self.granted.instant() }
    }

    /// The lease of a grant by message is shorter, but long enough for a hand-off.
    fn budget(&self, budget: Budget) -> Budget {
        Budget { reserve: budget.reserve.min(self.lease / 3), ..budget }
    }

    /// A caller takes up a resting tenure.
    pub(crate) fn take_up(&self, holder: Holder, budget: Budget, is_fresh: bool) -> Taken<S> {
        self.expire();
        let now = Instant::now();
        let mut state = self.state();
        if state.ended.is_some() || state.holds > 0 {
            return Taken::Nothing;
        }
        if !state.allows(self.budget(budget), self.held(now, is_fresh), now) {
            let (stay, slot) = state.release();
            return Taken::Ended(stay, slot);
        }
        (state.owner, state.asked_by, state.asked) = (holder.owner, holder.asked_by, holder.lease);
        state.since = now.into();
        Taken::Held(state.next_hold(&self.keys))
    }

    /// A caller joins the read of another caller of its client. Returns the number of its hold, or `None` if the caller
    /// has to ask Redis.
    pub(crate) fn join(&self, budget: Budget) -> Option<u16> {
        self.expire();
        let now = Instant::now();
        let mut state = self.state();
        let is_held = state.ended.is_none() && state.holds > 0 && state.owner.is_none();
        if !is_held || !state.allows(self.budget(budget), self.held(now, false), now) {
            return None;
        }
        if state.company.is_none() {
            let mut company = Company::default();
            company.enter(state.hand_overs);
            state.company = Some(Box::new(company));
        }
        Some(state.next_hold(&self.keys))
    }

    /// The next caller in the queue takes up an idle tenure, if the budget allows it. Otherwise the tenure ends, and
    /// the caller offers it to Redis.
    pub(crate) fn pick_up<T: Into<S>>(
        &self,
        permit: T,
        holder: Holder,
        budget: Budget,
    ) -> PickUp<T> {
        self.expire();
        let now = Instant::now();
        let mut state = self.state();
        if state.ended.is_some() || state.holds > 0 {
            return PickUp::Nothing(permit);
        }
        let is_allowed = holder.lease == Lease::Watched
            && state.allows(self.budget(budget), self.held(now, false), now);
        if !is_allowed {
            return PickUp::Ended(permit, state.release().1);
        }
        state.since = now.into();
        (state.owner, state.asked_by, state.asked) = (holder.owner, holder.asked_by, holder.lease);
        let kept = state.stay.replace(permit.into());
        let hand_over = state.next_hold(&self.keys);
        drop(state);
        drop(kept);
        PickUp::Held(hand_over)
    }

    /// Ends an idle tenure that no caller waits for. Returns its seat, if it has one, and its slot in the wheel.
    pub(crate) fn retire(&self) -> Option<(Option<S>, Option<TimerSlot>)> {
        let mut state = self.state();
        if state.ended.is_some() || state.holds > 0 {
            return None;
        }
        Some(state.release())
    }

    /// Ends a tenure that its client keeps idle. Returns the same as [`retire`](Self::retire).
    pub(crate) fn retire_kept(&self) -> Option<(Option<S>, Option<TimerSlot>)> {
        let mut state = self.state();
        (state.ended.is_none() && state.is_kept()).then(|| state.release())
    }

    /// Takes the permit or the seat of a tenure that has ended and has to be released.
    pub(crate) fn take_stay(&self) -> Option<S> {
        self.state().stay.take()
    }

    /// The lock is not ours any more.
    pub(crate) fn lose(&self, why: Loss) {
        self.end_lost(why);
        let mut state = self.state();
        // A released tenure keeps its debt until the release is answered.
        let settled = if state.ended == Some(Ended::Lost) { state.debt.take() } else { None };
        drop(state);
        drop(settled);
    }

    /// Past its deadline the lock is lost, even if the server still has it.
    fn expire(&self) {
        if self.deadline() <= Instant::now() {
            self.end_lost(Loss::Deadline);
        }
    }

    fn end_lost(&self, why: Loss) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(Ended::Lost);
        let (stay, token, held) =
            (state.stay.take(), self.token(state.hand_overs), state.holds > 0);
        let is_lock = !self.keys.row.is_notice;
        let holds = state.counted.end_all();
        drop(state);
        holds.lost(why.word());
        if held && is_lock {
            tracing::error!(name = ?self.keys.name(), %token, why = why.reason(), "lock lost");
        }
        self.changed.notify_waiters();
        drop(stay);
    }

    /// Ends the tenure of a closed client, and notifies its guards. Returns the permit, to be given up with the lock,
    /// or `None` if there is nothing to release.
    pub(crate) fn close(&self) -> Option<Option<S>> {
        let mut state = self.state();
        if state.is_unswept() {
            return Some(None);
        }
        if state.ended.is_some() {
            return None;
        }
        let (stay, _) = state.release();
        state.ended = Some(Ended::Lost);
        let holds = state.counted.end_all();
        drop(state);
        holds.lost(Loss::Closed.word());
        self.changed.notify_waiters();
        Some(stay)
    }

    /// What the watchdog has to do when the wheel reaches this tenure.
    pub(crate) fn due(&self, now: Instant, max_hold: Option<Duration>, idle: Idle) -> Due {
        self.expire();
        let mut state = self.state();
        match state.ended {
            Some(_) if state.is_unswept() => return Due::Sweep,
            Some(_) => return Due::Ended,
            None => {}
        }
        if state.holds == 0 && now >= state.idle_until(idle) {
            (state.stay, _) = state.release();
            return Due::Unclaimed;
        }
        if state.holds > 0 && state.term.is_watched() && state.is_held_for(max_hold, now) {
            state.term.stop_watching();
            drop(state);
            let name = self.keys.name();
            tracing::warn!(?name, "held for max_hold: no longer renewed");
            return self.due(now, max_hold, idle);
        }
        let renew = state.term.is_due(now);
        if renew {
            let at = state.term.renewal();
            state.late.due(at);
        }
        if std::mem::take(&mut state.doubted) || renew {
            Due::Renew
        } else {
            Due::At(state.next_look(idle))
        }
    }

    /// Warns once if the task that waits now is the task that asked for this hold.
    pub(crate) fn warn_of_deadlock(&self, waiting: OwnerId) {
        let mut state = self.state();
        if state.ended.is_some() || state.holds == 0 || state.asked_by != waiting {
            return;
        }
        let warned = std::mem::replace(&mut state.warned_of_deadlock, true);
        drop(state);
        if !warned {
            let name = self.keys.name();
            tracing::warn!(
                ?name,
                "a task waits for a lock whose guard it took itself: a deadlock?"
            );
        }
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
                (state.ended(hand_over), state.term.deadline())
            };
            if let Some(ended) = ended {
                return ended;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(deadline) => self.expire(),
            }
        }
    }
}

impl<S: Stay> State<S> {
    fn stop_telling(&mut self) {
        (self.telling, self.tellings) = (Telling::No, self.tellings.wrapping_add(1));
    }

    fn ended(&self, hand_over: u16) -> Option<Ended> {
        // A holder that has left has released its hold, even if the tenure is lost later.
        let left = match &self.company {
            Some(company) => !company.has(hand_over),
            None => self.hand_overs != hand_over || self.holds == 0,
        };
        if left { Some(Ended::Released) } else { self.ended }
    }

    /// Begins the next hold, and counts it.
    fn next_hold(&mut self, keys: &Keys) -> u16 {
        self.hand_overs += 1;
        self.holds += 1;
        if let Some(company) = &mut self.company {
            company.enter(self.hand_overs);
        }
        self.warned_of_deadlock = false;
        (self.joint, self.is_mixed) = (Weak::new(), false);
        self.counted.begin(&keys.meters, self.hand_overs);
        self.hand_overs
    }

    /// Whether the server may still have a lock that this client gave up as lost.
    fn is_unswept(&self) -> bool {
        self.ended == Some(Ended::Lost) && self.debt.is_some()
    }

    fn next_look(&self, idle: Idle) -> Instant {
        if self.doubted || self.ended.is_some() {
            return Instant::now();
        }
        let renewal = self.term.next_look();
        if self.holds == 0 { renewal.min(self.idle_until(idle)) } else { renewal }
    }

    /// Until when an idle tenure stays idle.
    fn idle_until(&self, idle: Idle) -> Instant {
        self.since.instant() + if self.is_kept() { idle.keep } else { idle.pickup }
    }

    fn is_kept(&self) -> bool {
        self.stay.as_ref().is_some_and(S::is_kept)
    }

    fn keep(&mut self, stay: S, now: Instant) -> Left<S> {
        (self.stay, self.since) = (Some(stay.to_keep()), now.into());
        Left::Kept(stay)
    }

    fn is_held_for(&self, max_hold: Option<Duration>, now: Instant) -> bool {
        max_hold.is_some_and(|most| now - self.since.instant() >= most)
    }

    /// Leaves it to the next caller of its client, or ends it.
    fn rest_or_end(&mut self, rests: Option<S::Visit>, now: Instant) -> Left<S> {
        if let Some(visit) = rests {
            self.since = now.into();
            return Left::Rests(visit);
        }
        let (stay, slot) = self.release();
        Left::Last(stay, slot)
    }

    /// Ends it as released. Returns its permit or its seat, and its slot in the wheel.
    fn release(&mut self) -> (Option<S>, Option<TimerSlot>) {
        self.ended = Some(Ended::Released);
        let mut stay = self.stay.take();
        if let Some(stay) = &mut stay {
            stay.leaving();
        }
        (stay, self.slot.take())
    }

    /// Whether the next holder may have it without asking Redis.
    fn allows(&self, budget: Budget, held: Duration, now: Instant) -> bool {
        budget.allows(u32::from(self.hand_overs), held) && self.term.allows(budget, now)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Layout;
    use crate::engine::debts::Debts;
    use crate::engine::entry::{Entry, EntryPermit, Stay, Table, Waiting};
    use crate::engine::grant::deadline;
    use crate::engine::hold::Hold;
    use crate::kinds::Kind;

    /// With this budget, no tenure is handed on.
    pub(crate) const NO_BUDGET: Budget = Budget {
        hand_overs: 0,
        time: Duration::ZERO,
        reserve: Duration::ZERO,
        lease: Duration::MAX,
    };

    const LEASE: Duration = Duration::from_secs(10);
    const BUDGET: Budget =
        Budget { hand_overs: 2, time: LEASE, reserve: Duration::from_secs(1), lease: LEASE };

    const IDLE: Idle = Idle { pickup: LEASE, keep: LEASE };

    fn holder(lease: Lease) -> Holder {
        Holder { owner: None, asked_by: OwnerId::current(), lease, permits: 1 }
    }

    fn permit(table: &Arc<Table>) -> EntryPermit {
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap());
        table.visit(&keys, 1).unwrap().try_permit().unwrap()
    }

    fn waiting(table: &Arc<Table>) -> Waiting {
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap());
        table.visit(&keys, 1).unwrap().wait()
    }

    /// A tenure that has just begun, and the table of its permit.
    pub(crate) fn begun() -> (Arc<Table>, Hold) {
        hold(Lease::Watched, Instant::now() + LEASE)
    }

    /// Another hold of the same tenure.
    fn of_same(hold: &Hold, hand_over: u16) -> Hold {
        Hold::new(Arc::clone(&hold.tenure), hand_over)
    }

    fn handed_on(hold: &Hold) -> EntryPermit {
        match hold.tenure.leave(hold.hand_over, BUDGET) {
            Left::HandedOn(Stay::Permit(permit)) => permit,
            _ => panic!("not handed on"),
        }
    }

    /// A tenure with this deadline.
    fn hold(lease: Lease, deadline: Instant) -> (Arc<Table>, Hold) {
        let table = Arc::new(Table::default());
        let now = Instant::now();
        let debt = Debts::default().tidying();
        let grant =
            Grant { id: TenureId(1), number: 1, awaited: false, lease: LEASE, sent: now, debt };
        let tenure = permit(&table).begin(grant, holder(lease), now);
        let hold = Hold::new(tenure, 0);
        hold.tenure.state().term.set(deadline, lease == Lease::Watched);
        (table, hold)
    }

    fn due(hold: &Hold, max_hold: Option<Duration>) -> Due {
        hold.tenure.due(Instant::now(), max_hold, IDLE)
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
        assert_eq!(due(&hold, None), Due::Renew);
        assert!(matches!(due(&hold, None), Due::At(_)));
    }

    #[test]
    fn a_tenure_past_its_deadline_is_invalid_before_any_task_has_said_so() {
        let (_table, hold) = hold(Lease::Watched, Instant::now());
        assert!(!hold.tenure.is_over());
        assert_eq!(hold.remaining(), Duration::ZERO);
    }

    #[test]
    fn a_lost_tenure_gives_up_its_turn_and_is_swept_once() {
        let (table, hold) = hold(Lease::Watched, Instant::now());
        assert_eq!(due(&hold, None), Due::Sweep);
        assert!(hold.tenure.take_debt().is_some());
        assert_eq!(due(&hold, None), Due::Ended);
        assert_eq!(table.len(), 0, "the permit keeps the entry");
        assert!(matches!(hold.tenure.leave(0, BUDGET), Left::Lost));
        assert_eq!(hold.outcome(), Some(Ended::Lost));
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

    #[test]
    fn hold_counts_are_written_one_at_a_time_until_the_latest_is() {
        let (_table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        assert_eq!(hold.tenure.enter(0), Some(2));
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
        assert!(matches!(released.tenure.leave(0, BUDGET), Left::Last(..)));
        assert!(released.tenure.close().is_none(), "it is being given back");
        assert!(released.tenure.take_debt().is_some());
        assert!(released.tenure.take_debt().is_none());

        let (_table, gone) = hold(Lease::Watched, Instant::now() + LEASE);
        gone.tenure.lose(Loss::Gone);
        assert!(gone.tenure.debt().is_none());

        let (_table, over) = hold(Lease::Watched, Instant::now());
        assert!(matches!(over.tenure.leave(0, BUDGET), Left::Lost));
        assert!(over.tenure.close().is_some(), "the server may still have it");
    }

    #[test]
    fn a_tenure_ends_once() {
        let (_table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        assert!(matches!(hold.tenure.leave(0, BUDGET), Left::Last(Some(_), None)));
        hold.tenure.lose(Loss::Gone);
        assert_eq!(hold.outcome(), Some(Ended::Released));
        assert_eq!(due(&hold, None), Due::Ended);
    }

    #[test]
    fn only_a_watched_tenure_is_renewed_and_not_beyond_max_hold() {
        let far = Instant::now() + LEASE;
        let (_table, fixed) = hold(Lease::Fixed(LEASE), far);
        assert_eq!(due(&fixed, None), Due::At(far));
        let (_table, watched) = hold(Lease::Watched, far);
        assert_eq!(due(&watched, Some(LEASE)), Due::Renew);
        assert_eq!(due(&watched, Some(Duration::ZERO)), Due::At(far));
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
        let next = waiting(&table);
        for _ in 0..BUDGET.hand_overs {
            let permit = handed_on(&last);
            assert_eq!(last.outcome(), Some(Ended::Released));
            let PickUp::Held(next) = last.tenure.pick_up(permit, holder(Lease::Watched), BUDGET)
            else {
                panic!("not picked up")
            };
            let next = of_same(&last, next);
            assert!(next.token() > last.token());
            assert_eq!(next.outcome(), None);
            last = next;
        }
        let permit = handed_on(&last);
        let spent = last.tenure.pick_up(permit, holder(Lease::Watched), BUDGET);
        assert!(matches!(spent, PickUp::Ended(..)));
        drop((spent, next));
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
            let _next = waiting(&table);
            let permit = handed_on(&hold);
            assert!(matches!(hold.tenure.pick_up(permit, holder(to), BUDGET), PickUp::Ended(..)));
        }
    }

    #[test]
    fn an_idle_tenure_that_nobody_takes_up_in_time_ends() {
        let (table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        hold.tenure.renew_at(Instant::now() + LEASE);
        let _next = waiting(&table);
        let permit = handed_on(&hold);
        assert!(matches!(due(&hold, None), Due::At(_)));
        let now = Instant::now();
        let idle = Idle { pickup: Duration::ZERO, ..IDLE };
        assert_eq!(hold.tenure.due(now, None, idle), Due::Unclaimed);
        let late = hold.tenure.pick_up(permit, holder(Lease::Watched), BUDGET);
        assert!(matches!(late, PickUp::Nothing(_)));
    }

    /// A read that others may join, and the table of its seat.
    fn read() -> (Arc<Table>, Hold) {
        let table = Arc::new(Table::default());
        let keys = Arc::new(Keys::new(Layout::Native, Kind::Read, "a".to_owned()).unwrap());
        let permit = table.visit(&keys, 1).unwrap().try_permit().unwrap();
        let (sent, debt) = (Instant::now(), Debts::default().tidying());
        let grant = Grant { id: TenureId(1), number: 1, awaited: false, lease: LEASE, sent, debt };
        (table, Hold::new(permit.begin(grant, holder(Lease::Watched), sent), 0))
    }

    #[test]
    fn readers_that_join_have_holds_of_their_own_and_the_last_one_gives_back() {
        let (table, first) = read();
        let second = of_same(&first, first.tenure.join(BUDGET).unwrap());
        let third = of_same(&first, first.tenure.join(BUDGET).unwrap());
        assert!(first.token() < second.token() && second.token() < third.token());
        assert!(first.tenure.join(BUDGET).is_none(), "the budget is spent");
        assert!(matches!(second.tenure.leave(second.hand_over, BUDGET), Left::Others));
        let ends = [&first, &second, &third].map(Hold::outcome);
        assert_eq!(ends, [None, Some(Ended::Released), None]);
        assert_eq!([&first, &second, &third].map(Hold::count), [1, 0, 1]);
        assert!(matches!(first.tenure.leave(first.hand_over, BUDGET), Left::Others));
        let last = third.tenure.leave(third.hand_over, BUDGET);
        assert!(matches!(last, Left::Last(Some(Stay::Seat(_)), _)));
        assert!(first.tenure.join(BUDGET).is_none());
        drop(last);
        assert_eq!(table.len(), 0, "the seat keeps the entry");
    }

    #[test]
    fn a_loss_is_told_to_the_remaining_readers() {
        let (_table, first) = read();
        let second = of_same(&first, first.tenure.join(BUDGET).unwrap());
        assert!(matches!(first.tenure.leave(first.hand_over, BUDGET), Left::Others));
        first.tenure.lose(Loss::Gone);
        assert_eq!((first.outcome(), second.outcome()), (Some(Ended::Released), Some(Ended::Lost)));
        assert!(first.tenure.join(BUDGET).is_none());
        assert!(matches!(second.tenure.leave(second.hand_over, BUDGET), Left::Lost));
    }

    #[test]
    fn nobody_joins_an_owner_or_a_fixed_lease() {
        for (owner, lease) in
            [(Some(OwnerId::current()), Lease::Watched), (None, Lease::Fixed(LEASE))]
        {
            let (_table, hold) = read();
            hold.tenure.state().owner = owner;
            hold.tenure.state().term.set(Instant::now() + LEASE, lease == Lease::Watched);
            assert!(hold.tenure.join(BUDGET).is_none());
        }
    }

    #[test]
    fn a_resting_tenure_is_taken_up_once_or_given_back_when_the_budget_is_spent() {
        let (table, mut hold) = read();
        let keys = Arc::clone(&hold.tenure.keys);
        let next = table.visit(&keys, 1).unwrap().wait();
        for _ in 0..BUDGET.hand_overs {
            assert!(matches!(hold.tenure.leave(hold.hand_over, BUDGET), Left::Rests(_)));
            let Taken::Held(again) = hold.tenure.take_up(holder(Lease::Watched), BUDGET, false)
            else {
                panic!("not taken up")
            };
            let twice = hold.tenure.take_up(holder(Lease::Watched), BUDGET, false);
            assert!(matches!(twice, Taken::Nothing));
            hold = of_same(&hold, again);
        }
        let spent = hold.tenure.leave(hold.hand_over, BUDGET);
        assert!(matches!(spent, Left::Last(Some(_), _)));
        drop((spent, next));
        assert_eq!(table.len(), 0);
    }

    /// A tenure that its client may keep, the table of its permit, and its entry.
    fn keepable(lease: Lease) -> (Arc<Table>, Hold, Arc<Entry>) {
        let (table, hold) = hold(lease, Instant::now() + LEASE);
        let entry = table.find(hold.tenure.keys.id()).unwrap();
        entry.allow_keeping(Vec::new); // without channels, there is nothing to miss
        (table, hold, entry)
    }

    #[test]
    fn a_kept_tenure_is_idle_and_the_next_caller_takes_it_up() {
        let (table, first, _entry) = keepable(Lease::Watched);
        let Left::Kept(stay) = first.tenure.leave(0, BUDGET) else { panic!("not kept") };
        drop(stay);
        assert_eq!(first.outcome(), Some(Ended::Released));
        assert!(first.tenure.hold_of(OwnerId::current()).is_none());
        let (permit, unwanted) = (permit(&table), BUDGET.unwanted());
        let PickUp::Held(next) = first.tenure.pick_up(permit, holder(Lease::Watched), unwanted)
        else {
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
                    match hold.tenure.leave(0, BUDGET) {
                        Left::Kept(stay) => drop(stay),
                        Left::Last(..) => is_given_back = true,
                        _ => panic!("a holder alone"),
                    }
                }
                match step {
                    0 => _ = entry.forbid_keeping(),
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
        assert!(matches!(hold.tenure.leave(0, BUDGET), Left::Kept(_)));
        let idle = Idle { pickup: Duration::ZERO, keep: LEASE / 2 };
        assert!(!matches!(hold.tenure.due(now, None, idle), Due::Unclaimed));
        let idle = Idle { pickup: LEASE, keep: Duration::ZERO };
        assert_eq!(hold.tenure.due(Instant::now(), None, idle), Due::Unclaimed);
        assert!(hold.tenure.is_over() && hold.tenure.take_stay().is_some());
    }

    #[test]
    fn a_kept_tenure_that_is_lost_is_taken_up_by_nobody() {
        let (table, hold, _entry) = keepable(Lease::Watched);
        assert!(matches!(hold.tenure.leave(0, BUDGET), Left::Kept(_)));
        hold.tenure.lose(Loss::Gone);
        let unwanted = BUDGET.unwanted();
        let taken = hold.tenure.pick_up(permit(&table), holder(Lease::Watched), unwanted);
        assert!(matches!(taken, PickUp::Nothing(_)));
        assert!(hold.tenure.retire_kept().is_none());
    }

    /// A held tenure is not given back because somebody asks, nor is one that was handed to a caller in the queue.
    #[test]
    fn only_a_kept_tenure_is_given_back_when_another_client_asks() {
        let (table, hold, _entry) = keepable(Lease::Watched);
        assert!(hold.tenure.retire_kept().is_none());
        let next = waiting(&table);
        let permit = handed_on(&hold);
        assert!(hold.tenure.retire_kept().is_none());
        drop((permit, next));
    }

    #[test]
    fn a_fixed_lease_is_not_kept() {
        let (_table, hold, _entry) = keepable(Lease::Fixed(LEASE));
        assert!(matches!(hold.tenure.leave(0, BUDGET), Left::Last(..)));
    }

    #[test]
    fn a_tenure_within_which_more_was_asked_for_is_not_handed_on() {
        let (table, hold) = hold(Lease::Watched, Instant::now() + LEASE);
        let _next = waiting(&table);
        assert!(hold.tenure.shelters(hold.hand_over));
        assert!(matches!(hold.tenure.leave(hold.hand_over, BUDGET), Left::Last(..)));
        assert!(!hold.tenure.shelters(hold.hand_over), "it is over");
    }

    #[test]
    fn a_loss_after_the_hand_over_is_not_the_former_holders() {
        let (table, first) = hold(Lease::Watched, Instant::now() + LEASE);
        let _next = waiting(&table);
        let permit = handed_on(&first);
        let PickUp::Held(next) = first.tenure.pick_up(permit, holder(Lease::Watched), BUDGET)
        else {
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
