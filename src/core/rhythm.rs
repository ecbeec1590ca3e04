//! How the watchdog times its renewals.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::core::budget::Idle;
use crate::keys::Keys;
use crate::kinds::Holders;
use crate::pause::jittered;

/// Renewals that are due within this part of a period are sent together.
const PARTS: u32 = 64;

/// When the watchdog renews the tenures of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    pub(crate) timeout: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// How long a tenure may be idle.
    pub(crate) idle: Idle,
    /// Renewals fall into step with this time.
    started: Instant,
}

impl Rhythm {
    /// The rhythm of a client that has started then.
    pub(crate) fn new(config: &Config, started: Instant) -> Self {
        let Config { watchdog_timeout: timeout, max_hold, keep, .. } = *config;
        Self { timeout, max_hold, idle: Idle { pickup: config.pickup(), keep }, started }
    }

    /// The rhythm for a hold of these keys that began with this lease. A notification is renewed as often as a waiter
    /// shows signs of life, so that it soon moves on if its waiter dies.
    pub(crate) fn of(self, keys: &Keys, lease: Duration) -> Self {
        match keys.row.holders {
            Holders::Notified => Self { timeout: lease, max_hold: None, ..self },
            _ => self,
        }
    }

    /// Two renewals in a row may fail before the third would be late.
    fn period(self) -> Duration {
        self.timeout / 3
    }

    /// When a tenure is renewed for the first time. Its lease runs from `sent`, even if its holder takes it up later. A
    /// random part spreads tenures that begin together.
    pub(crate) fn first(self, sent: Instant) -> Instant {
        self.in_step(sent + self.period().mul_f64(0.5 + fastrand::f64() / 2.0))
    }

    /// When a tenure confirmed at `now` is renewed next: at most one period later.
    pub(crate) fn next(self, now: Instant) -> Instant {
        self.in_step(now + self.period())
    }

    /// The time for a renewal: a little before it is due, so that renewals share a batch.
    fn in_step(self, due: Instant) -> Instant {
        let part = (self.period() / PARTS).max(Duration::from_millis(1));
        let late = due.saturating_duration_since(self.started).as_nanos() % part.as_nanos();
        due - Duration::from_nanos(u64::try_from(late).unwrap_or(0))
    }

    /// When to ask again after a failure or a refusal.
    pub(crate) fn again(self, now: Instant) -> Instant {
        let pause = (self.period() / 16).min(Duration::from_millis(500));
        now + jittered(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const IDLE: Idle = Idle { pickup: SECOND, keep: SECOND };

    fn rhythm(started: Instant) -> Rhythm {
        Rhythm { timeout: Duration::from_secs(30), max_hold: None, idle: IDLE, started }
    }

    #[test]
    fn renewals_are_a_period_apart_at_the_most_and_fall_into_step() {
        let started = Instant::now();
        let rhythm = rhythm(started);
        let mut moments = std::collections::BTreeSet::new();
        for millis in 0..1000 {
            let now = started + Duration::from_millis(millis);
            let next = rhythm.next(now);
            assert!(next <= now + rhythm.period());
            assert!(next > now + rhythm.period() - rhythm.period() / PARTS);
            moments.insert(next);
        }
        assert!(moments.len() <= 8, "{} batches in a second", moments.len());
    }

    #[test]
    fn the_first_renewal_comes_in_the_first_third_of_the_lease_and_spreads() {
        let sent = Instant::now();
        let rhythm = rhythm(sent.checked_sub(Duration::from_secs(100)).unwrap_or(sent));
        let mut moments = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let first = rhythm.first(sent);
            assert!(first <= sent + rhythm.period());
            assert!(first > sent + rhythm.period() / 2 - rhythm.period() / PARTS);
            moments.insert(first);
        }
        assert!(moments.len() >= 10, "{} batches", moments.len());
    }

    #[test]
    fn an_unanswered_renewal_is_repeated_well_before_the_lease_is_over() {
        let now = Instant::now();
        for timeout in
            [Duration::from_millis(100), Duration::from_secs(30), Duration::from_secs(3600)]
        {
            let rhythm = Rhythm { timeout, ..rhythm(now) };
            assert!(rhythm.again(now) <= now + timeout / 12);
        }
    }
}
