//! What the watchdog does for a tenure, and when. `lifetime.rs` says how long a tenure lasts.
//!
//! A tenure that ends with its client's session (`Config::session`) is *suspended* as long as the client does not hear itself. Nobody may
//! believe in it then, but it is not lost: the next beat or the next renewal says more. `wire/session.rs` says which beats count, and why.

use std::time::Duration;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::budget::Idle;
use crate::core::lifetime::deadline;
use crate::core::wheel::TimerSlot;
use crate::engine::entry::tenure::{Ending, State, Tenure};
use crate::engine::grant::Lease;
use crate::wakers::wake_all;

/// The least time between two checks that messages cause.
pub(super) const CHECKS_APART: Duration = Duration::from_millis(20);

/// After so long, a lock is worth a request that has the server track it.
pub(super) const WORTH_TRACKING: Duration = Duration::from_millis(100);

/// After so long, the client asks again for the tracking that it did not get.
pub(crate) const TRACK_AGAIN: Duration = Duration::from_secs(1);

/// How many alarms cause a check within `ALARMS_WITHIN`. Signs of life of those who wait for it change the key of a fair lock, and a
/// server that tracks too many keys forgets some: each is a false alarm, and the check that it causes makes the next one possible.
const MOST_ALARMS: u8 = 4;
const ALARMS_WITHIN: Duration = Duration::from_secs(10);

/// What the watchdog finds when a tenure is due.
pub(crate) enum Due {
    Renew,
    /// The server has to track its key: see `wire/tracking.rs`.
    Track,
    /// There is nothing to do yet.
    Later,
    /// It is lost, or was idle for too long. Redis may still have the lock.
    Release(Ending),
    Ended,
}

impl Tenure {
    /// Has `enter` put it into the wheel for the time that `due` says, and notes where it stands. `enter` gets its former place too,
    /// and returns `None` if it stays there. Does nothing if nothing is left to do about the tenure.
    ///
    /// All this is one step: so a holder that leaves before sees that it needs a look of its own, or `due` sees that it has left.
    pub(super) fn schedule(
        &self,
        due: impl FnOnce(&State) -> Instant,
        enter: impl FnOnce(Instant, Option<TimerSlot>) -> Option<TimerSlot>,
    ) {
        let mut state = self.state();
        if state.ended.is_some() && !state.is_unswept() {
            return;
        }
        let look_at = due(&state);
        if let Some(slot) = enter(look_at, state.slot) {
            (state.slot, state.look_at) = (Some(slot), look_at.into());
        }
    }

    /// When the watchdog has to look at an idle tenure that may be idle for this long; `None` if it looks by then anyway.
    pub(crate) fn look_after_idle(&self, idle: Duration) -> Option<Instant> {
        let state = self.state();
        let look_at = state.since + idle;
        (state.look_at > look_at).then(|| look_at.instant())
    }

    /// Has the watchdog renew it from now on, unless the watchdog has done so for `max_hold`. Returns whether that is
    /// new.
    pub(crate) fn watch(&self) -> bool {
        self.state().lifetime.watch()
    }

    /// Has the watchdog renew the tenure at this time.
    pub(crate) fn renew_at(&self, at: Instant) {
        self.state().lifetime.renew_at(at);
    }

    /// A message says that the tenure may be lost. Returns when the watchdog has to check it: now, or soon if it has just done
    /// so. Anybody who may publish can write such messages.
    pub(crate) fn doubt(&self) -> Instant {
        let mut state = self.state();
        let now = CompactInstant::now();
        let from = state.checked.map_or(now, |checked| now.max(checked + CHECKS_APART));
        let from = state.doubted.map_or(from, |doubted| doubted.min(from));
        state.doubted = Some(from);
        from.instant()
    }

    /// Has the watchdog ask after this time that the server track the key. Returns when it has to look.
    pub(super) fn track_after(&self, pause: Duration) -> Instant {
        self.state().untracked.get_or_insert(CompactInstant::now() + pause).instant()
    }

    /// The server says that the key of the lock has changed. Returns whether the watchdog has to check the tenure.
    pub(crate) fn takes_alarm(&self) -> bool {
        let (mut state, now) = (self.state(), CompactInstant::now());
        let (since, count) =
            state.alarms.filter(|(since, _)| now < *since + ALARMS_WITHIN).unwrap_or((now, 0));
        let takes = state.ended.is_none() && count < MOST_ALARMS;
        state.alarms = Some((since, count + u8::from(takes)));
        takes
    }

    /// The watchdog got no answer: has it check the tenure again at this time, whatever the lease.
    pub(crate) fn check_again(&self, at: Instant) {
        let mut state = self.state();
        state.lifetime.renew_at(at);
        // A message that has come meanwhile has it check the tenure sooner.
        state.doubted.get_or_insert(at.into());
    }

    /// The TTL that a renewal has to ask for: this much from now, or what was asked for before if that ends later. So a
    /// renewal never shortens the TTL.
    pub(crate) fn at_least(&self, wanted: Duration) -> Duration {
        let now = Instant::now();
        self.state().lifetime.at_least(wanted, now)
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
        let (state, now) = (self.state(), Instant::now());
        let overdue = state.lifetime.is_overdue() || state.is_held_for(max_hold, now);
        let gives_none = lease == Lease::Watched && overdue;
        state.lifetime.at_least(if gives_none { Duration::ZERO } else { length }, now)
    }

    /// The TTL that the watchdog asks for.
    pub(crate) fn renewal(&self, timeout: Duration) -> Duration {
        let (lifetime, now) = (&self.state().lifetime, Instant::now());
        lifetime.at_least(if lifetime.is_watched() { timeout } else { Duration::ZERO }, now)
    }

    /// Redis has agreed to a TTL that was requested at `sent`. Returns `false` if the tenure is over. Past its deadline
    /// a tenure is lost, even if the server still has it.
    pub(crate) fn prolong(&self, sent: Instant, ttl: Duration) -> bool {
        let mut state = self.state_at(CompactInstant::now());
        if state.ended.is_some() {
            return false;
        }
        state.lifetime.prolong(sent, ttl);
        state.late.renewed();
        drop(state);
        wake_all(&self.changed);
        true
    }

    /// The same, for a renewal after which nobody has noted that the client does not listen. See `wire/session.rs`.
    pub(crate) fn counts_from(&self, sent: Instant) {
        self.state().lifetime.counts_from(sent);
    }

    /// Whether the last request by which it counts was sent at this time or later.
    pub(crate) fn was_asked_for_since(&self, at: Instant) -> bool {
        self.state().lifetime.confirmed() >= at
    }

    /// Whether its client has connected anew since the last request by which it counts: it has to be renewed.
    pub(crate) fn is_of_former_connection(&self) -> bool {
        let state = self.state();
        let confirmed = state.lifetime.confirmed();
        state.session.as_ref().is_some_and(|session| session.has_begun_since(confirmed))
    }

    /// What the watchdog has to do when the wheel reaches this tenure.
    pub(crate) fn due(&self, now: Instant, max_hold: Option<Duration>, idle: Idle) -> Due {
        let mut state = self.state_at(now.into());
        match state.ended {
            Some(_) if state.is_unswept() => return Due::Release(state.ending(self, now.into())),
            Some(_) => return Due::Ended,
            None => {}
        }
        if state.holds == 0 && now >= state.idle_until(idle) {
            return Due::Release(state.release(self, now.into()));
        }
        if state.holds > 0 && state.lifetime.is_watched() && state.is_held_for(max_hold, now) {
            state.lifetime.stop_watching();
            drop(state);
            let name = self.keys.name();
            tracing::warn!(
                ?name,
                "a caller has held the lock for max_hold: the client no longer renews it"
            );
            return self.due(now, max_hold, idle);
        }
        let renew = state.lifetime.is_due(now);
        if renew {
            let at = state.lifetime.renewal();
            state.late.due(at);
        }
        let is_doubted = state.doubted.take_if(|from| *from <= now.into()).is_some();
        if is_doubted {
            state.checked = Some(now.into());
        }
        // A renewal has the server track the key, too.
        let is_untracked = state.untracked.take_if(|from| *from <= now.into()).is_some();
        if is_doubted || renew {
            // Until the answer comes, it is not renewed again before its deadline.
            let deadline = state.lifetime.deadline();
            state.lifetime.renew_at(deadline);
            Due::Renew
        } else if is_untracked {
            Due::Track
        } else {
            Due::Later
        }
    }
}

impl State {
    /// When the watchdog has to look next, if nothing happens before.
    pub(super) fn next_look(&self, idle: Idle) -> Instant {
        if self.ended.is_some() {
            return Instant::now();
        }
        let renewal = self.lifetime.next_look();
        let others = self.doubted.into_iter().chain(self.untracked).map(CompactInstant::instant);
        let look = others.fold(renewal, Instant::min);
        if self.holds == 0 { look.min(self.idle_until(idle)) } else { look }
    }

    /// Until when the client believes in it: its lease may last longer.
    pub(super) fn believed_until(&self) -> Instant {
        self.believed_until_before(Duration::ZERO)
    }

    /// The same, so much earlier. Of a patience no more than a third: it may be shorter than the margin of a lease.
    pub(super) fn believed_until_before(&self, margin: Duration) -> Instant {
        let earlier = |end: Instant, margin| end.checked_sub(margin).unwrap_or(end);
        let lease = earlier(self.lifetime.deadline(), margin);
        let Some(session) = &self.session else { return lease };
        let (confirmed, patience) = (self.lifetime.confirmed(), session.patience());
        match session.proved(confirmed) {
            Some(beat) => lease.min(earlier(deadline(beat, patience), margin.min(patience / 3))),
            // It was granted, and no beat proves it yet.
            None => lease.min(confirmed),
        }
    }

    pub(super) fn is_suspended(&self, now: CompactInstant) -> bool {
        self.session.is_some() && self.believed_until() <= now.instant()
    }

    /// Until when an idle tenure stays idle.
    fn idle_until(&self, idle: Idle) -> Instant {
        self.since.instant() + if self.is_kept() { idle.keep } else { idle.pickup }
    }

    fn is_held_for(&self, max_hold: Option<Duration>, now: Instant) -> bool {
        max_hold.is_some_and(|most| now - self.since.instant() >= most)
    }
}
