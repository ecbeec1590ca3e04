//! What a workload came to: a row for each variant, medians and ratios over its rounds.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::measure::stats::{median, ratio};
use crate::measure::{Commands, Quantity, Sample, Waits};
use crate::variants::{Library, Variant};
use crate::workloads::{Card, Ratio};

/// A workload that was run: one row for each variant.
#[derive(Debug)]
pub struct Outcome {
    pub card: Card,
    pub rounds: usize,
    pub rows: Vec<Row>,
}

/// What one variant did in all rounds.
#[derive(Debug)]
pub struct Row {
    pub variant: Variant,
    /// By round; `None` where it did not run.
    pub samples: Vec<Option<Sample>>,
    /// Why there is nothing, or not everything, to report.
    pub trouble: Option<Trouble>,
}

/// Why a row is not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The workload is not for it.
    LeftOut(&'static str),
    /// Two held the lock at once, so often that we know of.
    NoExclusion(u64),
    Failed(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftOut(why) => write!(f, "left out: {why}"),
            Self::NoExclusion(times) => write!(f, "NO EXCLUSION, seen {times} times"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

impl Row {
    pub fn new(variant: Variant, trouble: Option<Trouble>) -> Self {
        Self { variant, samples: Vec::new(), trouble }
    }

    /// Takes the result of one round.
    pub fn push(&mut self, played: anyhow::Result<Sample>) {
        self.trouble = match &played {
            Ok(sample) if sample.violations > 0 => Some(Trouble::NoExclusion(sample.violations)),
            Ok(_) => None,
            Err(error) => Some(Trouble::Failed(format!("{error:#}"))),
        };
        self.samples.push(played.ok());
    }

    /// Whether two held the lock at once. Then nothing else counts.
    pub fn is_broken(&self) -> bool {
        matches!(self.trouble, Some(Trouble::NoExclusion(_)))
    }

    /// Everything that was measured of it.
    pub fn quantities(&self) -> BTreeSet<Quantity> {
        let samples = self.samples.iter().flatten();
        samples.flat_map(|sample| sample.figures.keys().copied()).collect()
    }

    pub fn by_round(&self, quantity: Quantity) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| sample.as_ref()?.get(quantity)).collect()
    }

    /// The median of the rounds; nothing for a lock that did not exclude.
    pub fn median(&self, quantity: Quantity) -> Option<f64> {
        if self.is_broken() {
            return None;
        }
        median(self.by_round(quantity).into_iter().flatten())
    }

    /// The waits of all rounds together.
    pub fn waits(&self) -> Waits {
        let mut all = Waits::default();
        for sample in self.samples.iter().flatten() {
            all.add(&sample.waits);
        }
        all
    }

    /// Pairs by process, all rounds together, greatest first in each round.
    pub fn shares(&self) -> Vec<u64> {
        let mut sums = Vec::new();
        for sample in self.samples.iter().flatten() {
            let mut shares = sample.shares.clone();
            shares.sort_unstable_by(|a, b| b.cmp(a));
            sums.resize(sums.len().max(shares.len()), 0);
            sums.iter_mut().zip(&shares).for_each(|(sum, share)| *sum += share);
        }
        sums
    }

    /// Resident bytes after each part, by round; of a churn only.
    pub fn memory(&self) -> Vec<&[u64]> {
        let parts = self.samples.iter().flatten().map(|sample| sample.memory.as_slice());
        parts.filter(|parts| !parts.is_empty()).collect()
    }

    pub fn commands(&self) -> Commands {
        let mut all = Commands::default();
        for sample in self.samples.iter().flatten() {
            all.add(&sample.commands);
        }
        all
    }
}

impl Outcome {
    /// Whether the run shows a fault: something that did not work, or parklock itself not excluding.
    pub fn is_faulty(&self) -> bool {
        self.rows.iter().any(|row| match &row.trouble {
            Some(Trouble::Failed(_)) => true,
            Some(Trouble::NoExclusion(_)) => {
                matches!(row.variant.library, Library::Parklock | Library::ParklockKept)
            }
            Some(Trouble::LeftOut(_)) | None => false,
        })
    }

    /// What stands in brackets behind the row's value: taken within each round; the median.
    pub fn ratio(&self, row: &Row, quantity: Quantity) -> Option<f64> {
        let measure = match self.card.ratio {
            Ratio::OursOverThis => Variant::PARKLOCK,
            Ratio::ThisOver(variant) => variant,
        };
        let other = self.rows.iter().find(|row| row.variant == measure)?;
        if other.variant == row.variant || other.is_broken() || row.is_broken() {
            return None;
        }
        let (this, other) = (row.by_round(quantity), other.by_round(quantity));
        match self.card.ratio {
            Ratio::OursOverThis => ratio(&other, &this),
            Ratio::ThisOver(_) => ratio(&this, &other),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An outcome made of numbers: each variant's pairs per second by round.
    pub fn outcome(rows: &[(Variant, &[f64])]) -> Outcome {
        let rows = rows.iter().map(|(variant, rates)| Row {
            variant: *variant,
            samples: rates.iter().map(|&rate| Some(sample(rate))).collect(),
            trouble: None,
        });
        Outcome { card: Card::example(), rounds: 2, rows: rows.collect() }
    }

    fn sample(rate: f64) -> Sample {
        let mut sample = Sample::default();
        sample.set(Quantity::PairsPerSecond, rate);
        sample.set(Quantity::CommandsPerPair, 9.0);
        sample.shares = vec![rate as u64, 2 * rate as u64];
        let mut waits = Waits::default();
        waits.record(std::time::Duration::from_secs_f64(1.0 / rate));
        sample.set_waits(waits);
        sample
    }

    #[test]
    fn the_ratio_is_ours_over_theirs() {
        let outcome =
            outcome(&[(Variant::PARKLOCK, &[30.0, 300.0]), (Variant::RLOCK, &[10.0, 100.0])]);
        let peer = &outcome.rows[1];
        assert_eq!(outcome.ratio(peer, Quantity::PairsPerSecond), Some(3.0));
        assert_eq!(outcome.ratio(&outcome.rows[0], Quantity::PairsPerSecond), None);
    }

    #[test]
    fn the_ratio_to_a_measure_is_this_over_it() {
        let mut outcome =
            outcome(&[(Variant::FLOOR, &[10.0, 100.0]), (Variant::PARKLOCK, &[5.0, 50.0])]);
        outcome.card.ratio = Ratio::ThisOver(Variant::FLOOR);
        assert_eq!(outcome.ratio(&outcome.rows[1], Quantity::PairsPerSecond), Some(0.5));
        assert_eq!(outcome.ratio(&outcome.rows[0], Quantity::PairsPerSecond), None);
    }

    #[test]
    fn a_lock_that_does_not_exclude_has_no_figures() {
        let mut outcome =
            outcome(&[(Variant::PARKLOCK, &[30.0, 300.0]), (Variant::RLOCK, &[10.0, 100.0])]);
        outcome.rows[1].push(Ok(Sample { violations: 1, ..Sample::default() }));
        assert_eq!(outcome.rows[1].median(Quantity::PairsPerSecond), None);
        assert_eq!(outcome.ratio(&outcome.rows[1], Quantity::PairsPerSecond), None);
    }

    #[test]
    fn shares_add_up_by_rank() {
        let outcome = outcome(&[(Variant::RLOCK, &[1.0, 2.0])]);
        assert_eq!(outcome.rows[0].shares(), [6, 3]);
    }
}
