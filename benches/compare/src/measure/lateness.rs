//! How late a watchdog renews, seen from outside: from what Redis says is left of each lease.

use std::time::{Duration, Instant};

use super::stats::quantile;

/// Follows a sample of keys. The moment of a key's last renewal is now, less what has been used up of its lease.
#[derive(Debug)]
pub struct Lateness {
    lease: Duration,
    due_after: Duration,
    renewed: Vec<Option<Instant>>,
    late: Vec<f64>,
}

impl Lateness {
    /// For `keys` leases of this length, which ought to be renewed `due_after` their last renewal.
    pub fn of(keys: usize, lease: Duration, due_after: Duration) -> Self {
        Self { lease, due_after, renewed: vec![None; keys], late: Vec::new() }
    }

    /// Takes what `PTTL` said of each key at the moment `now`; a negative value is a key that is gone.
    pub fn look(&mut self, now: Instant, left_ms: &[i64]) {
        for (key, &left) in left_ms.iter().enumerate() {
            if let Ok(left) = u64::try_from(left) {
                self.seen(key, now, Duration::from_millis(left));
            }
        }
    }

    fn seen(&mut self, key: usize, now: Instant, left: Duration) {
        let Some(at) = now.checked_sub(self.lease.saturating_sub(left)) else {
            return;
        };
        let before = self.renewed[key].replace(at);
        let Some(since) = before.map(|before| at.saturating_duration_since(before)) else {
            return;
        };
        // Less than half a period apart is the same renewal, read with the jitter of the reply.
        if since > self.due_after / 2 {
            self.late.push(since.saturating_sub(self.due_after).as_secs_f64());
        } else {
            self.renewed[key] = before;
        }
    }

    /// Seconds that 99 of 100 renewals were not later than.
    pub fn p99(mut self) -> Option<f64> {
        quantile(&mut self.late, 0.99)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const THIRD: Duration = Duration::from_secs(10);

    /// A key that was renewed 12 s after its grant, looked at each second.
    fn followed(renewed_after: u64) -> Option<f64> {
        let start = Instant::now() + LEASE;
        let mut lateness = Lateness::of(1, LEASE, THIRD);
        for second in 0..20 {
            let age = if second < renewed_after { second } else { second - renewed_after };
            let left = LEASE - Duration::from_secs(age);
            let now = start + Duration::from_secs(second);
            lateness.look(now, &[left.as_millis() as i64]);
        }
        lateness.p99()
    }

    #[test]
    fn a_renewal_in_time_is_not_late() {
        assert_eq!(followed(10), Some(0.0));
    }

    #[test]
    fn a_late_renewal_is_late_by_the_difference() {
        assert_eq!(followed(12), Some(2.0));
    }

    #[test]
    fn a_key_that_is_gone_says_nothing() {
        let mut lateness = Lateness::of(1, LEASE, THIRD);
        lateness.look(Instant::now(), &[-2]);
        assert_eq!(lateness.p99(), None);
    }
}
