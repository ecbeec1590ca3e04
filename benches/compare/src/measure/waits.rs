//! How long acquiring took: a histogram that can be merged and sent between processes.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longer waits are counted as this long.
const LONGEST: Duration = Duration::from_secs(600);

/// Waits in nanoseconds, kept to two digits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Vec<(u64, u64)>", from = "Vec<(u64, u64)>")]
pub struct Waits(Histogram<u64>);

impl Default for Waits {
    fn default() -> Self {
        let longest = LONGEST.as_nanos() as u64;
        Self(Histogram::new_with_max(longest, 2).expect("two digits up to ten minutes"))
    }
}

impl Waits {
    pub fn record(&mut self, wait: Duration) {
        self.0.saturating_record(wait.as_nanos() as u64);
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same range");
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Seconds that `part` (0 to 1) of the waits did not exceed.
    pub fn quantile(&self, part: f64) -> f64 {
        self.0.value_at_quantile(part) as f64 / 1e9
    }

    pub fn mean(&self) -> f64 {
        self.0.mean() / 1e9
    }

    pub fn max(&self) -> f64 {
        self.0.max() as f64 / 1e9
    }
}

impl From<Waits> for Vec<(u64, u64)> {
    fn from(waits: Waits) -> Self {
        let bars = waits.0.iter_recorded();
        bars.map(|bar| (bar.value_iterated_to(), bar.count_at_value())).collect()
    }
}

impl From<Vec<(u64, u64)>> for Waits {
    fn from(bars: Vec<(u64, u64)>) -> Self {
        let mut waits = Self::default();
        for (value, count) in bars {
            waits.0.saturating_record_n(value, count);
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_in_another_process_is_what_was_sent() {
        let mut sent = Waits::default();
        for ms in 1..=100 {
            sent.record(Duration::from_millis(ms));
        }
        let line = serde_json::to_string(&sent).expect("serializes");
        let got: Waits = serde_json::from_str(&line).expect("parses");
        assert_eq!(got.0, sent.0);
        assert!((got.quantile(0.5) - 0.050).abs() < 0.001);
    }

    #[test]
    fn a_wait_beyond_the_range_counts_as_the_longest() {
        let mut waits = Waits::default();
        waits.record(LONGEST * 10);
        assert!(waits.max() >= LONGEST.as_secs_f64());
    }
}
