//! How long a tenure lasts: until when the client believes in it, and until when Redis may keep it. `rhythm.rs` says when it is
//! renewed.
//!
//! Plain state. It reads no clock.
//!
//! 1. The deadline only moves outwards, and only for an answer: it is the moment just before the request was sent, plus the
//!    requested TTL, minus drift.
//! 2. A request never asks for an earlier expiry than Redis has agreed to. If a longer request got no answer, the scripts
//!    see to it that the next one does not shorten the TTL in Redis.

use std::time::Duration;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::budget::Budget;

/// The part of a lease that the holder must not count on. The clocks of two machines may differ in speed by 1 %, and
/// Redis rounds to milliseconds. The allowance is that of the Redlock algorithm (redis.io, *Distributed locks with
/// Redis*).
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Until when the client may believe a grant of this lease that it requested at `sent`.
pub(crate) fn deadline(sent: Instant, lease: Duration) -> Instant {
    sent + lease.saturating_sub(drift(lease))
}

/// How long a tenure lasts.
pub(crate) struct Lifetime {
    deadline: CompactInstant,
    /// The latest expiry that Redis has agreed to, or that a grant by message has to be confirmed for. Redis may keep the
    /// lock until then, and a little longer.
    expiry: CompactInstant,
    /// The latest expiry that a request has asked for. If it got no answer, Redis may keep the lock until then.
    asked: CompactInstant,
    renew_at: CompactInstant,
    watched: bool,
    /// A message granted it, for no longer than a sign of life lasts. The watchdog has to confirm it after a third of that time, even
    /// if the lease is fixed.
    unconfirmed: bool,
    /// The last request was sent then after whose answer the hold counts on what its client hears: see `wire/session.rs`.
    confirmed: CompactInstant,
}

impl Lifetime {
    /// A grant of this lease, which was requested at `sent`. `unconfirmed`: the lease that the watchdog has to ask for soon, since a
    /// message granted it.
    pub(crate) fn new(
        (sent, lease): (Instant, Duration),
        unconfirmed: Option<Duration>,
        watched: bool,
        renew_at: Instant,
        now: Instant,
    ) -> Self {
        let whole = unconfirmed.map_or(sent, |whole| now + whole);
        let expiry = whole.max(sent + lease).into();
        let confirm_at = unconfirmed.map_or(renew_at, |_| sent + lease / 3);
        Self {
            deadline: deadline(sent, lease).into(),
            expiry,
            asked: expiry,
            renew_at: renew_at.min(confirm_at).into(),
            watched,
            unconfirmed: unconfirmed.is_some(),
            confirmed: sent.into(),
        }
    }

    /// Until when the client believes in it.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline.instant()
    }

    /// Whether the client no longer believes in it at this time.
    pub(crate) fn is_expired(&self, now: CompactInstant) -> bool {
        self.deadline <= now
    }

    /// Whether the watchdog renews it as long as it is held.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Has the watchdog renew it from now on. Returns whether that is new.
    pub(crate) fn watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    pub(crate) fn stop_watching(&mut self) {
        self.watched = false;
    }

    pub(crate) fn renew_at(&mut self, at: Instant) {
        self.renew_at = at.into();
    }

    /// When it is to be renewed, if at all.
    pub(crate) fn renewal(&self) -> Instant {
        self.renew_at.instant()
    }

    /// Redis has agreed to a TTL that was requested at `sent`.
    pub(crate) fn prolong(&mut self, sent: Instant, ttl: Duration) {
        self.deadline = self.deadline.max(deadline(sent, ttl).into());
        self.expiry = self.expiry.max((sent + ttl).into());
        self.unconfirmed = false;
    }

    /// Redis has also erased the note that nobody listens to this client, for a request that was sent then.
    pub(crate) fn counts_from(&mut self, sent: Instant) {
        self.confirmed = self.confirmed.max(sent.into());
    }

    /// See the field.
    pub(crate) fn confirmed(&self) -> Instant {
        self.confirmed.instant()
    }

    /// The TTL that a request asks for: this much from now, or what Redis has agreed to if that ends later.
    pub(crate) fn ask(&mut self, wanted: Duration, now: Instant) -> Duration {
        let ttl = wanted.max(self.expiry.instant().saturating_duration_since(now));
        self.asked = self.asked.max((now + ttl).into());
        ttl
    }

    /// Until when Redis may keep it, whether or not the last requests were answered.
    pub(crate) fn asked_until(&self) -> Instant {
        self.asked.instant()
    }

    /// Whether it is time to renew it.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_renewed() && self.renew_at <= now.into()
    }

    /// When it is renewed, or when it ends.
    pub(crate) fn next_look(&self) -> Instant {
        let at = if self.is_renewed() { self.renew_at.min(self.deadline) } else { self.deadline };
        at.instant()
    }

    /// Whether the next holder may have it without asking Redis.
    pub(crate) fn allows(&self, budget: Budget, now: CompactInstant) -> bool {
        // A grant by message has a short lease until it is confirmed. If the reserve were longer than a third of that, such a tenure would
        // never be handed over.
        let first = self.deadline.saturating_duration_since(self.confirmed);
        let reserve = if self.unconfirmed { budget.reserve.min(first / 3) } else { budget.reserve };
        self.watched && now + reserve < self.deadline && self.deadline <= now + budget.lease
    }

    fn is_renewed(&self) -> bool {
        self.watched || self.unconfirmed
    }

    #[cfg(test)]
    pub(crate) fn set(&mut self, deadline: Instant, watched: bool) {
        (self.deadline, self.watched) = (deadline.into(), watched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_reserve_is_short_only_until_a_grant_by_message_is_confirmed() {
        let now = Instant::now();
        let budget =
            Budget { hand_overs: 9, time: SECOND * 60, reserve: SECOND * 3, lease: Duration::MAX };
        let mut lifetime = Lifetime::new((now, SECOND), Some(SECOND * 10), true, now, now);
        let allows = |lifetime: &Lifetime, at| lifetime.allows(budget, (now + at).into());
        assert!(allows(&lifetime, SECOND / 2));
        lifetime.prolong(now, SECOND * 10);
        assert!(allows(&lifetime, SECOND * 6) && !allows(&lifetime, SECOND * 7));
    }

    #[test]
    fn redis_may_keep_what_a_request_has_asked_for_that_was_not_answered() {
        let now = Instant::now();
        let mut lifetime = Lifetime::new((now, SECOND), None, true, now, now);
        assert_eq!(lifetime.ask(SECOND * 9, now), SECOND * 9);
        assert_eq!(lifetime.ask(Duration::ZERO, now), SECOND, "redis has agreed to no more");
        assert!(lifetime.asked_until() >= now + SECOND * 9);
    }
}
