//! What a client of these worlds knows of one lock: the real [`Lock`] and the real [`Tenure`], with times in ticks from now. So
//! states that differ only in absolute time are one. A client makes the real ones of them, changes those, and notes what they have
//! become.

use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::budget::Budget;
use crate::core::lifetime::{Lifetime, deadline};
use crate::core::lock::{Behind, Lock, Parts};
use crate::core::model_check::server::{Ids, Terms};
use crate::core::model_check::{PARK, TTL};
use crate::core::tenure::Tenure;
use crate::core::waiting::pace::Pace;
use crate::core::waiting::{PushedGrant, SIGNS, Waiting};
use crate::keys::TenureId;

/// A tick, and the rules in ticks.
pub(crate) const TICK: Duration = Duration::from_millis(300);

/// After so many signs of life, the pause of a contender that rests is `max_park`.
const MOST_SIGNS: u32 = SIGNS + PARK.unsigned_abs().next_power_of_two().ilog2();

/// Whether a tenure is handed over or offered to other clients is drawn. A tenure that is almost over is not handed over.
pub(crate) const BUDGET: Budget =
    Budget { hand_overs: u32::MAX, time: Duration::MAX, reserve: TICK, lease: Duration::MAX };

/// What a client of these worlds leaves with its lock.
pub(crate) struct InModel;

impl Parts for InModel {
    type Tenure = TenureId;
    type Ghost = Ghost;
    type Work = ();
    type Ears = ();

    fn id(tenure: &TenureId) -> TenureId {
        *tenure
    }

    fn lasts_until(_: &Ghost) -> Instant {
        unreachable!("there are few ghosts in a small world")
    }
}

/// An acquire that got no answer, and may run late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    pub(crate) id: u8,
    /// The connection on which it was sent.
    pub(crate) sent_on: u8,
    pub(crate) until: i8,
}

/// What a client knows of one lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Known {
    pub(crate) line: Option<Line>,
    /// The callers that wait for the permit within the client.
    pub(crate) queued: u8,
    pub(crate) behind: Behind,
    pub(crate) held_back: Vec<Ghost>,
    pub(crate) may_keep: bool,
    has_used_name: bool,
}

impl Known {
    pub(crate) fn of(lock: Lock<InModel>, clock: Clock, terms: Terms) -> Self {
        let queued = u8::try_from(lock.queue.waiting()).expect("the world is small");
        let Lock { waiting, behind, held_back, may_keep, has_used_name, .. } = lock;
        let line = waiting.map(|waiting| Line::of(&waiting, clock, terms));
        Self { line, queued, behind, held_back, may_keep, has_used_name }
    }

    /// The lock. `is_permit_taken`: a caller contends or holds.
    pub(crate) fn lock(&self, is_permit_taken: bool, clock: Clock) -> Lock<InModel> {
        let mut lock = Lock::default();
        if is_permit_taken {
            lock.queue.try_take();
        }
        for _ in 0..self.queued {
            let ticket = lock.queue.join(None, clock.now);
            let polled = lock.queue.poll(ticket, Waker::noop(), true, &mut None);
            assert!(polled.is_pending(), "no caller waits for a permit that is free");
        }
        lock.waiting = self.line.as_ref().map(|line| Box::new(line.waiting(clock)));
        lock.held_back.clone_from(&self.held_back);
        (lock.behind, lock.may_keep, lock.has_used_name) =
            (self.behind, self.may_keep, self.has_used_name);
        lock
    }

    pub(crate) fn tick(&mut self) {
        self.line.iter_mut().for_each(Line::tick);
        self.held_back.iter_mut().for_each(|ghost| ghost.until = (ghost.until - 1).max(0));
    }
}

/// One grant that a client has: the real [`Tenure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Granted {
    pub(crate) id: u8,
    /// When it is over, by the client's own account.
    pub(crate) ends: i8,
    renew_at: i8,
    /// Its renewal is under way.
    pub(crate) renewing: bool,
    /// For how many ticks its holder holds it, its client keeps it, or it is left to the next caller.
    pub(crate) rest: i8,
    /// No caller holds it.
    pub(crate) is_idle: bool,
    is_kept: bool,
    /// The callers that it was handed over to, and that still stand in line.
    pub(crate) served: Ids,
}

impl Granted {
    /// It has just begun.
    pub(crate) fn new(id: u8, ends: i8, renew_at: i8, rest: i8) -> Self {
        let (renewing, is_idle, is_kept, served) = (false, false, false, Ids::default());
        Self { id, ends, renew_at, renewing, rest, is_idle, is_kept, served }
    }

    /// Does something to the real tenure.
    pub(crate) fn change<R>(&mut self, clock: Clock, act: impl FnOnce(&mut Tenure) -> R) -> R {
        let lease = TICK * u32::from(self.ends.unsigned_abs());
        let renew_at = clock.moment(self.renew_at);
        let lifetime = Lifetime::new((clock.now, lease), None, true, renew_at, clock.now);
        let mut tenure = Tenure::new(clock.now, lifetime, true, None);
        (tenure.holds, tenure.is_kept) = (u32::from(!self.is_idle), self.is_kept);
        let result = act(&mut tenure);
        let in_ticks = |at| clock.ticks(at).max(0);
        self.ends = in_ticks(tenure.lifetime.deadline());
        self.renew_at = in_ticks(tenure.lifetime.renewal());
        (self.is_idle, self.is_kept) = (tenure.holds == 0, tenure.is_kept);
        result
    }

    pub(crate) fn tick(&mut self) {
        for time in [&mut self.ends, &mut self.renew_at, &mut self.rest] {
            *time = (*time - 1).max(0);
        }
    }
}

/// What a contender knows: the real [`Waiting`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) id: u8,
    pub(crate) place: u8,
    pub(crate) stands: bool,
    pub(crate) near: bool,
    pub(crate) under_way: bool,
    signed: Option<i8>,
    told: Option<(u8, i8)>,
    ask_at: Option<i8>,
    look_at: Option<i8>,
    rests: bool,
    signs: u8,
}

/// Converts instants to ticks and back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        // Far enough from the earliest instant that earlier ones exist.
        Self { now: Instant::now() + Duration::from_secs(3600) }
    }

    pub(crate) fn moment(self, ticks: i8) -> Instant {
        let by = TICK * u32::from(ticks.unsigned_abs());
        if ticks < 0 { self.now - by } else { self.now + by }
    }

    /// The first tick that is not before this moment.
    pub(crate) fn ticks(self, moment: Instant) -> i8 {
        let ticks =
            |duration: Duration| i8::try_from(duration.as_millis() / 300).unwrap_or(i8::MAX);
        match moment.checked_duration_since(self.now) {
            Some(ahead) => ticks(ahead + TICK - Duration::from_millis(1)),
            None => -ticks(self.now - moment),
        }
    }

    /// Whether the client may still believe a grant of this length that it requested at this time.
    pub(crate) fn is_believed(self, sent: i8, lease: i8) -> bool {
        deadline(self.moment(sent), TICK * u32::from(lease.unsigned_abs())) > self.now
    }
}

/// A number of these worlds.
pub(crate) fn small(number: u64) -> u8 {
    u8::try_from(number).expect("the world is small")
}

impl Line {
    fn of(waiting: &Waiting, clock: Clock, terms: Terms) -> Self {
        // All callers of this world ask for the same lease.
        let Waiting { id, place, stands, near, under_way, signed, told, .. } = waiting.clone();
        let Waiting { ask_at, look_at, rests, signs, .. } = waiting.clone();
        // Further signs change nothing. If no contender rests, their number does not matter.
        let most_signs = if terms.rests { MOST_SIGNS } else { 0 };
        Self {
            id: small(id.0),
            place: small(place),
            stands,
            near,
            under_way,
            signed: signed.map(|at| clock.ticks(at)),
            told: told.map(|grant| (small(grant.id.0), clock.ticks(grant.signed))),
            ask_at: ask_at.map(|at| clock.ticks(at)),
            look_at: look_at.map(|at| clock.ticks(at)),
            rests,
            signs: small(u64::from(signs.min(most_signs))),
        }
    }

    pub(crate) fn waiting(&self, clock: Clock) -> Waiting {
        let told = |(id, signed)| PushedGrant {
            id: TenureId(u64::from(id)),
            number: 1,
            signed: clock.moment(signed),
        };
        Waiting {
            rests: self.rests,
            signs: u32::from(self.signs),
            id: TenureId(u64::from(self.id)),
            place: u64::from(self.place),
            stands: self.stands,
            near: self.near,
            under_way: self.under_way,
            signed: self.signed.map(|at| clock.moment(at)),
            told: self.told.map(told),
            doubted: false,
            ask_at: self.ask_at.map(|at| clock.moment(at)),
            look_at: self.look_at.map(|at| clock.moment(at)),
            pushed_lease: Duration::MAX,
            // Messages are few in these worlds.
            pace: Pace::default(),
        }
    }

    fn tick(&mut self) {
        let earlier = |time: &mut i8, least: i8| *time = (*time - 1).max(least);
        self.signed.iter_mut().for_each(|time| earlier(time, -PARK - TTL));
        self.told.iter_mut().for_each(|(_, time)| earlier(time, -PARK - TTL));
        // An overdue time counts as now.
        self.ask_at.iter_mut().for_each(|time| earlier(time, 0));
        self.look_at.iter_mut().for_each(|time| earlier(time, 0));
    }
}
