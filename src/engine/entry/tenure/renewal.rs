//! What the watchdog does for a tenure, and when. `lifetime.rs` says how long a tenure lasts.
//!
//! A tenure that ends with its client's session (`Config::session`) is *suspended* as long as the client does not hear itself. Nobody may
//! believe in it then, but it is not lost: the next beat or the next renewal says more. `wire/session.rs` says which beats count, and why.

use std::time::Duration;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::budget::Idle;
use crate::core::lifetime::deadline;
use crate::core::tenure::Due;
use crate::core::wheel::TimerSlot;
use crate::engine::entry::tenure::{Ending, State, Tenure};
use crate::engine::grant::Lease;
use crate::log;

/// After so long, a lock is worth a request that has the server track it.
pub(super) const WORTH_TRACKING: Duration = Duration::from_millis(100);

/// After so long, the client asks again for the tracking that it did not get.
pub(crate) const TRACK_AGAIN: Duration = Duration::from_secs(1);

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
        if state.tenure.ended.is_some() && !state.is_unswept() {
            return;
        }
        let look_at = due(&state);
        if let Some(slot) = enter(look_at, state.slot) {
            (state.slot, state.look_at) = (Some(slot), look_at.into());
        }
    }

    /// See [`core::tenure::Tenure::doubt`](crate::core::tenure::Tenure::doubt).
    pub(crate) fn doubt(&self) -> Instant {
        self.state().tenure.doubt(CompactInstant::now()).instant()
    }

    /// The TTL that a request asks for: this much from now, or what Redis has agreed to if that ends later. So it never shortens the
    /// TTL. The releaser counts on what was asked for.
    pub(crate) fn at_least(&self, wanted: Duration) -> Duration {
        let now = Instant::now();
        self.state().tenure.lifetime.ask(wanted, now)
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
        let (mut state, now) = (self.state(), Instant::now());
        let gives_none = lease == Lease::Watched && state.tenure.is_held_for(max_hold, now);
        state.tenure.lifetime.ask(if gives_none { Duration::ZERO } else { length }, now)
    }

    /// The TTL that the watchdog asks for.
    pub(crate) fn renewal(&self, timeout: Duration) -> Duration {
        let (lifetime, now) = (&mut self.state().tenure.lifetime, Instant::now());
        lifetime.ask(if lifetime.is_watched() { timeout } else { Duration::ZERO }, now)
    }

    /// Redis has agreed to a TTL that was requested at `sent`. Returns `false` if the tenure is over. Past its deadline
    /// a tenure is lost, even if the server still has it.
    pub(crate) fn prolong(&self, sent: Instant, ttl: Duration) -> bool {
        let mut state = self.state_at(CompactInstant::now());
        if !state.tenure.prolong(sent, ttl) {
            return false;
        }
        state.late.renewed();
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Whether its client has connected anew since the last request by which it counts: it has to be renewed.
    pub(crate) fn is_of_former_connection(&self) -> bool {
        let state = self.state();
        let confirmed = state.tenure.lifetime.confirmed();
        state.session.as_ref().is_some_and(|session| session.has_begun_since(confirmed))
    }

    /// What the watchdog has to do when the wheel reaches this tenure.
    pub(crate) fn due(&self, now: Instant, max_hold: Option<Duration>, idle: Idle) -> Due<Ending> {
        let mut state = self.state_at(now.into());
        if state.is_unswept() {
            return Due::Release(state.ending(self, now.into()));
        }
        let stops = state.tenure.stops_watching(now, max_hold);
        let due = match state.tenure.due(now, idle) {
            Due::Renew(planned) => {
                planned.into_iter().for_each(|at| state.late.due(at));
                Due::Renew(planned)
            }
            Due::Release(()) => Due::Release(state.released(self, now.into())),
            Due::Track => Due::Track,
            Due::Later => Due::Later,
            Due::Ended => Due::Ended,
        };
        drop(state);
        if stops {
            let name = self.keys.name();
            log::warn!(
                ?name,
                "a caller has held the lock for max_hold: the client no longer renews it"
            );
        }
        due
    }
}

impl State {
    /// When the watchdog has to look, now that the tenure may be idle for this long; `None` if it looks by then anyway.
    pub(super) fn look_when_idle(&self, idle: Duration) -> Option<Instant> {
        let look_at = self.tenure.since + idle;
        (self.look_at > look_at).then(|| look_at.instant())
    }

    /// Until when the client believes in it: its lease may last longer.
    pub(super) fn believed_until(&self) -> Instant {
        self.believed_until_before(Duration::ZERO)
    }

    /// The same, so much earlier. Of a patience no more than a third: it may be shorter than the margin of a lease.
    pub(super) fn believed_until_before(&self, margin: Duration) -> Instant {
        let earlier = |end: Instant, margin| end.checked_sub(margin).unwrap_or(end);
        let lease = earlier(self.tenure.lifetime.deadline(), margin);
        let Some(session) = &self.session else { return lease };
        let (confirmed, patience) = (self.tenure.lifetime.confirmed(), session.patience());
        match session.proved(confirmed) {
            Some(beat) => lease.min(earlier(deadline(beat, patience), margin.min(patience / 3))),
            // It was granted, and no beat proves it yet.
            None => lease.min(confirmed),
        }
    }

    /// Whether it is not suspended.
    pub(super) fn is_believed(&self, now: CompactInstant) -> bool {
        self.session.is_none() || self.believed_until() > now.instant()
    }
}
