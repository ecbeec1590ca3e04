//! The secrets of signs of life: only this client can make them, and each contains the time at which it was made.
//!
//! When the server grants a lock by message, it repeats the secret of the sign of life for which it grants the lock. A
//! user that may publish on the channel can write such a message too. So a secret is the time of its sign, and 40 bits
//! of a keyed hash ([`SipHash`](https://www.aumasson.jp/siphash/)) of that time. The client counts the lease of the
//! grant from that time, and needs no table of secrets.

use std::hash::{Hash, Hasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// The bits of a secret that contain its time, in milliseconds. They wrap around after four and a half hours.
const TIME_BITS: u32 = 24;
const TIME: u64 = (1 << TIME_BITS) - 1;

/// Makes the secrets of one client, and recognizes them.
pub(crate) struct Secrets {
    key: RandomState,
    started: Instant,
}

impl Secrets {
    pub(crate) fn new(started: Instant) -> Self {
        Self { key: RandomState::new(), started }
    }

    /// A new secret for this channel, and the time that it carries, which is not later than now.
    pub(crate) fn make(&self, now: Instant, channel: &str) -> (u64, Instant) {
        let millis = self.millis(now);
        (self.sealed(millis, channel), self.started + Duration::from_millis(millis))
    }

    /// When this secret was made, if this client made it for this channel.
    pub(crate) fn time_of(&self, secret: u64, now: Instant, channel: &str) -> Option<Instant> {
        let latest = self.millis(now);
        let ago = latest.wrapping_sub(secret) & TIME;
        let millis = latest.checked_sub(ago)?;
        let is_ours = self.sealed(millis, channel) == secret;
        is_ours.then(|| self.started + Duration::from_millis(millis))
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from((now - self.started).as_millis()).unwrap_or(u64::MAX)
    }

    fn sealed(&self, millis: u64, channel: &str) -> u64 {
        (self.hash(millis, channel) & !TIME) | (millis & TIME)
    }

    #[cfg(not(parklock_sim))]
    fn hash(&self, millis: u64, channel: &str) -> u64 {
        let mut hasher = std::hash::BuildHasher::build_hasher(&self.key);
        (millis, channel).hash(&mut hasher);
        hasher.finish()
    }

    /// A run of the simulation must be repeatable from its seed, so its key is fixed.
    #[cfg(parklock_sim)]
    fn hash(&self, millis: u64, channel: &str) -> u64 {
        let _ = &self.key;
        let mut hasher = std::hash::DefaultHasher::new();
        (millis, channel, "a key of the simulation").hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_known_again_with_its_time() {
        let started = Instant::now();
        let (ours, others) = (Secrets::new(started), Secrets::new(started));
        for millis in [0, 1, 1_500, TIME, TIME + 1, TIME * 3 + 7] {
            let now = started + Duration::from_micros(millis * 1_000 + 900);
            let (sign, time) = ours.make(now, "a");
            assert_eq!(time, started + Duration::from_millis(millis));
            for later in [0, 1, 999, TIME] {
                let later = now + Duration::from_millis(later);
                assert_eq!(ours.time_of(sign, later, "a"), Some(time));
                assert_eq!(ours.time_of(sign, later, "b"), None);
                assert_eq!(others.time_of(sign, later, "a"), None);
            }
        }
    }

    #[test]
    fn a_sign_with_another_time_is_no_sign() {
        let started = Instant::now();
        let secrets = Secrets::new(started);
        let now = started + Duration::from_secs(5);
        let (sign, _) = secrets.make(now, "a");
        for other in [0, 1, u64::MAX, sign + 1, sign - 1, sign ^ (1 << 40)] {
            assert_eq!(secrets.time_of(other, now, "a"), None, "{other}");
        }
    }
}
