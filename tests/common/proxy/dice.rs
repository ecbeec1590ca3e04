//! Jitter that a seed brings back.

use std::time::Duration;

#[derive(Debug)]
pub struct Dice(fastrand::Rng);

impl Dice {
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// `base`, and up to `jitter` more.
    pub fn delay(&mut self, base: Duration, jitter: Duration) -> Duration {
        base + jitter.mul_f64(self.0.f64())
    }
}
