//! One grant by Redis to this client, as plain state: who holds it, how it goes from holder to holder, when the watchdog has to look
//! at it, and how it ends. `lifetime.rs` says how long it lasts. The engine has it behind the mutex of a tenure, beside whatever has
//! to be given back (`engine/entry/tenure.rs`).
//!
//! 1. A tenure is held, or idle between two holders of this client. Then it is released or lost, exactly once.
//! 2. A reader may join a read of its client: then both are holds of one tenure. Each reader leaves separately, and the last
//!    one releases the tenure.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::budget::{Budget, Idle};
use crate::core::lifetime::Lifetime;
use crate::keys::TenureId;

/// The least time between two checks that messages cause.
pub(crate) const CHECKS_APART: Duration = Duration::from_millis(20);

/// How many alarms cause a check within `ALARMS_WITHIN`. Signs of life of those who wait for it change the key of a fair lock, and a
/// server that tracks too many keys forgets some: each is a false alarm, and the check that it causes makes the next one possible.
const MOST_ALARMS: u8 = 4;
const ALARMS_WITHIN: Duration = Duration::from_secs(10);

/// How a hold ended: the output of [`Guard::ended`](crate::Guard::ended), which has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was released.
    Released,
    /// Its lease expired, the lock was taken away, the server forgot it, or the client was closed.
    Lost,
}

/// One grant by Redis.
pub(crate) struct Tenure {
    granted: CompactInstant,
    /// How it ended for all of its holds, if it has ended.
    pub(crate) ended: Option<Ended>,
    /// The number of the current hold, or of the last one if idle: how many there were before it.
    pub(crate) hand_overs: u16,
    /// The hold count; 0: idle.
    pub(super) holds: u32,
    /// The client keeps it idle.
    pub(super) is_kept: bool,
    /// The numbers of the holds that have not ended, once a second caller has joined.
    #[expect(clippy::box_collection, reason = "few tenures are shared, and each has space for it")]
    shared_read: Option<Box<BTreeSet<u16>>>,
    /// The callers that it was handed over to, and that still stand in the server's line under these owner fields.
    pub(crate) served: Vec<TenureId>,
    /// When the current holder began; if idle, when the last holder left.
    pub(crate) since: CompactInstant,
    pub(crate) lifetime: Lifetime,
    /// A message of another client may concern this tenure: from this time on, the watchdog has to check it.
    doubted: Option<CompactInstant>,
    /// When the watchdog last checked it because of a message.
    checked: Option<CompactInstant>,
    /// From this time on, the watchdog has to ask that the server track the key.
    untracked: Option<CompactInstant>,
    /// How many alarms have caused a check, and since when.
    alarms: Option<(CompactInstant, u8)>,
}

/// What a holder that leaves finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// Its hold has ended before.
    Lost,
    /// Other holds of the same owner remain.
    Nested,
    /// Other holds remain, of callers that have joined.
    Others,
    /// No hold remains.
    Nobody,
}

/// Who may have a tenure that its last holder has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heirs {
    /// A caller of this client waits for it.
    pub(crate) is_awaited: bool,
    /// Callers wait separately, in the server's line.
    pub(crate) in_line: bool,
    /// Its client may keep it.
    pub(crate) may_keep: bool,
}

/// Who has it next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heir {
    /// The caller of this client that waits for it.
    Next,
    /// Its client keeps it idle.
    Client,
    /// It has ended, and has to be released.
    Nobody,
}

/// The outcome for a caller that would take up an idle tenure. `E`: what is left of a tenure that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickUp<E> {
    /// The caller now holds it, after this many hand-overs.
    Held(u16),
    /// It may not be handed over. It has ended, and has to be released.
    Ended(E),
    /// Another caller has it, or it is over.
    Nothing,
}

/// What the watchdog has to do when a tenure is due. `E`: what is left of a tenure that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due<E> {
    /// Renew it. With the time for which that was planned, unless a message is the only reason.
    Renew(Option<Instant>),
    /// Have the server track its key: see `wire/tracking.rs`.
    Track,
    /// Nothing yet.
    Later,
    /// It is lost, or was idle for too long. It has ended, and has to be released.
    Release(E),
    Ended,
}

impl Tenure {
    /// Begins with its first hold. `is_held`: not for a latch, since a caller passes a latch and does not hold it.
    pub(crate) fn new(
        now: Instant,
        lifetime: Lifetime,
        is_held: bool,
        track_after: Option<Duration>,
    ) -> Self {
        Self {
            granted: now.into(),
            ended: (!is_held).then_some(Ended::Released),
            hand_overs: 0,
            holds: u32::from(is_held),
            is_kept: false,
            shared_read: None,
            served: Vec::new(),
            since: now.into(),
            lifetime,
            doubted: None,
            checked: None,
            untracked: track_after.map(|pause| (now + pause).into()),
            alarms: None,
        }
    }

    /// How this hold ended, if it has ended.
    pub(crate) fn ended(&self, hand_over: u16) -> Option<Ended> {
        // A holder that has left has released its hold, even if the tenure is lost later.
        let left = match &self.shared_read {
            Some(read) => !read.contains(&hand_over),
            None => self.hand_overs != hand_over || self.holds == 0,
        };
        if left { Some(Ended::Released) } else { self.ended }
    }

    /// The hold count of a hold: how often its owner has nested, or one for a caller that has joined. 0 if it has ended.
    pub(crate) fn count_of(&self, hand_over: u16) -> u32 {
        match &self.shared_read {
            _ if self.ended(hand_over).is_some() => 0,
            Some(_) => 1,
            None => self.holds,
        }
    }

    pub(crate) fn holds(&self) -> u32 {
        self.holds
    }

    /// Adds holds of the current owner, unless it has ended. Returns whether it has not.
    pub(crate) fn enter(&mut self, hand_over: u16, count: u32) -> bool {
        let lasts = self.ended(hand_over).is_none();
        if lasts {
            self.holds += count;
        }
        lasts
    }

    /// Ends up to this count of the holds with this number. Returns how many there were, too.
    pub(crate) fn leave(&mut self, hand_over: u16, count: u32) -> (u32, Remaining) {
        // If all holds of this owner ended at once, another holder of this client may have the tenure by now.
        if self.ended(hand_over).is_some() {
            return (0, Remaining::Lost);
        }
        let count = count.min(self.holds);
        self.holds -= count;
        if let Some(read) = &mut self.shared_read {
            read.remove(&hand_over);
        }
        let remaining = match &self.shared_read {
            _ if self.holds == 0 => Remaining::Nobody,
            Some(_) => Remaining::Others,
            None => Remaining::Nested,
        };
        (count, remaining)
    }

    /// The last holder of a tenure with a permit has left: who has it next. `is_believed`: see [`allows`](Self::allows).
    pub(crate) fn pass_on(
        &mut self,
        now: CompactInstant,
        heirs: Heirs,
        budget: Budget,
        is_believed: bool,
    ) -> Heir {
        let Heirs { is_awaited, in_line, may_keep } = heirs;
        // The next caller in the queue may find that the budget is used up, and offers the tenure to Redis. A caller that
        // waits separately stands in the server's line already, so nothing is left for it then.
        let may_pass = !in_line || self.allows(now, budget.in_line(), false, is_believed);
        if is_awaited && may_pass {
            self.since = now;
            return Heir::Next;
        }
        // Only if the next holder may have it without asking Redis.
        if may_keep && is_believed && self.lifetime.allows(budget, now) {
            (self.since, self.is_kept) = (now, true);
            return Heir::Client;
        }
        self.ended = Some(Ended::Released);
        Heir::Nobody
    }

    /// The last holder has left it idle for other callers.
    pub(crate) fn idles(&mut self, now: CompactInstant) {
        self.since = now;
    }

    /// Whether the next holder may have it without asking Redis. `is_fresh`: whether Redis has just said that no waiter stands in
    /// line. Otherwise it said so when it granted the lock. `is_believed`: it is not suspended (`engine/entry/tenure/renewal.rs`).
    pub(crate) fn allows(
        &self,
        now: CompactInstant,
        budget: Budget,
        is_fresh: bool,
        is_believed: bool,
    ) -> bool {
        let granted_for = now.saturating_duration_since(self.granted);
        let age = if is_fresh { Duration::ZERO } else { granted_for };
        is_believed
            && budget.allows(u32::from(self.hand_overs), age)
            && self.lifetime.allows(budget, now)
    }

    /// A caller takes up the idle tenure, if the budget allows it. Otherwise the tenure ends. `None`: this caller may not take it up.
    pub(crate) fn pick_up(
        &mut self,
        now: CompactInstant,
        budget: Option<Budget>,
        is_fresh: bool,
        is_believed: bool,
    ) -> PickUp<()> {
        if self.ended.is_some() || self.holds > 0 {
            return PickUp::Nothing;
        }
        if !budget.is_some_and(|budget| self.allows(now, budget, is_fresh, is_believed)) {
            self.ended = Some(Ended::Released);
            return PickUp::Ended(());
        }
        (self.since, self.is_kept) = (now, false);
        PickUp::Held(self.next_hold())
    }

    /// A caller joins a read. Returns the number of its hold, or `None` if the caller has to ask Redis.
    pub(crate) fn join(
        &mut self,
        now: CompactInstant,
        budget: Budget,
        is_believed: bool,
    ) -> Option<u16> {
        let is_held = self.ended.is_none() && self.holds > 0;
        if !is_held || !self.allows(now, budget, false, is_believed) {
            return None;
        }
        let first = self.hand_overs;
        self.shared_read.get_or_insert_with(|| Box::new(BTreeSet::from([first])));
        Some(self.next_hold())
    }

    /// Begins the next hold.
    fn next_hold(&mut self) -> u16 {
        self.hand_overs += 1;
        self.holds += 1;
        if let Some(read) = &mut self.shared_read {
            read.insert(self.hand_overs);
        }
        self.hand_overs
    }

    /// Ends it as released, if it is idle. `kept`: only if its client keeps it. Returns whether it has ended just now.
    pub(crate) fn retire(&mut self, kept: bool) -> bool {
        let retires = self.ended.is_none() && self.holds == 0 && (self.is_kept || !kept);
        if retires {
            self.ended = Some(Ended::Released);
        }
        retires
    }

    /// Ends it as lost. Returns whether it has ended just now.
    pub(crate) fn lose(&mut self) -> bool {
        let is_new = self.ended.is_none();
        self.ended.get_or_insert(Ended::Lost);
        is_new
    }

    /// Past its deadline the lock is lost, even if the server still has it. Returns whether it has ended just now.
    pub(crate) fn expire(&mut self, now: CompactInstant) -> bool {
        self.lifetime.is_expired(now) && self.lose()
    }

    /// Redis has agreed to a TTL that was requested at `sent`. Returns `false` if the tenure is over.
    pub(crate) fn prolong(&mut self, sent: Instant, ttl: Duration) -> bool {
        let lasts = self.ended.is_none();
        if lasts {
            self.lifetime.prolong(sent, ttl);
        }
        lasts
    }

    /// A message says that the tenure may be lost. Returns when the watchdog has to check it: now, or soon if it has just done
    /// so. Anybody who may publish can write such messages.
    pub(crate) fn doubt(&mut self, now: CompactInstant) -> CompactInstant {
        let from = self.checked.map_or(now, |checked| now.max(checked + CHECKS_APART));
        let from = self.doubted.map_or(from, |doubted| doubted.min(from));
        *self.doubted.insert(from)
    }

    /// Has the watchdog ask at this time that the server track the key, or earlier. Returns when.
    pub(crate) fn track_at(&mut self, at: CompactInstant) -> CompactInstant {
        *self.untracked.get_or_insert(at)
    }

    /// The server says that the key of the lock has changed. Returns whether the watchdog has to check the tenure.
    pub(crate) fn takes_alarm(&mut self, now: CompactInstant) -> bool {
        let (since, count) =
            self.alarms.filter(|(since, _)| now < *since + ALARMS_WITHIN).unwrap_or((now, 0));
        let takes = self.ended.is_none() && count < MOST_ALARMS;
        self.alarms = Some((since, count + u8::from(takes)));
        takes
    }

    /// The watchdog got no answer: has it check the tenure again at this time, whatever the lease.
    pub(crate) fn check_again(&mut self, at: Instant) {
        self.lifetime.renew_at(at);
        // A message that has come meanwhile has it check the tenure sooner.
        self.doubted.get_or_insert(at.into());
    }

    /// What the watchdog has to do when the wheel reaches this tenure, whose deadline has not passed.
    pub(crate) fn due(&mut self, now: Instant, idle: Idle) -> Due<()> {
        if self.ended.is_some() {
            return Due::Ended;
        }
        if self.holds == 0 && now >= self.idle_until(idle) {
            self.ended = Some(Ended::Released);
            return Due::Release(());
        }
        let planned = self.lifetime.is_due(now).then(|| self.lifetime.renewal());
        let is_doubted = self.doubted.take_if(|from| *from <= now.into()).is_some();
        if is_doubted {
            self.checked = Some(now.into());
        }
        // A renewal has the server track the key, too.
        let is_untracked = self.untracked.take_if(|from| *from <= now.into()).is_some();
        if is_doubted || planned.is_some() {
            // Until the answer comes, it is not renewed again before its deadline.
            let deadline = self.lifetime.deadline();
            self.lifetime.renew_at(deadline);
            Due::Renew(planned)
        } else if is_untracked {
            Due::Track
        } else {
            Due::Later
        }
    }

    /// Stops the renewals of a holder that has held it for `max_hold`. Returns whether it stops them just now.
    pub(crate) fn stops_watching(&mut self, now: Instant, max_hold: Option<Duration>) -> bool {
        let is_held = self.ended.is_none() && self.holds > 0;
        let stops = is_held && self.lifetime.is_watched() && self.is_held_for(max_hold, now);
        if stops {
            self.lifetime.stop_watching();
        }
        stops
    }

    /// Has the watchdog renew it from now on, as long as it is held, but not past `max_hold`. Returns whether that is new.
    pub(crate) fn watch(&mut self, now: Instant, max_hold: Option<Duration>) -> bool {
        self.holds > 0 && !self.is_held_for(max_hold, now) && self.lifetime.watch()
    }

    /// Whether a watched hold gets no more time: it has had `max_hold`.
    pub(crate) fn is_held_for(&self, max_hold: Option<Duration>, now: Instant) -> bool {
        max_hold.is_some_and(|most| now - self.since.instant() >= most)
    }

    /// When the watchdog has to look next, if nothing happens before. That has come if the deadline has passed.
    pub(crate) fn next_look(&self, idle: Idle) -> Instant {
        let renewal = self.lifetime.next_look();
        let others = self.doubted.into_iter().chain(self.untracked).map(CompactInstant::instant);
        let look = others.fold(renewal, Instant::min);
        if self.holds == 0 { look.min(self.idle_until(idle)) } else { look }
    }

    /// Until when an idle tenure stays idle.
    fn idle_until(&self, idle: Idle) -> Instant {
        self.since.instant() + if self.is_kept { idle.keep } else { idle.pickup }
    }

    #[cfg(test)]
    pub(crate) fn never_track(&mut self) {
        self.untracked = None;
    }
}
