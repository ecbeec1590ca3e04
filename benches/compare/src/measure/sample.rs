//! What one variant did in one round.

use std::collections::BTreeMap;

use super::{Commands, Quantity, Waits};

/// The figures of one run, and the distributions behind them.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub figures: BTreeMap<Quantity, f64>,
    pub waits: Waits,
    /// Pairs by process.
    pub shares: Vec<u64>,
    pub commands: Commands,
    /// Resident bytes after each part of a churn.
    pub memory: Vec<u64>,
    pub timeline: Option<Timeline>,
    /// Updates of the shared value that got lost: two held the lock at once.
    pub violations: u64,
}

/// How a run went on.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Turns in each second.
    pub turns: Vec<f64>,
    /// What was done from which second to which.
    pub marks: Vec<(f64, f64, String)>,
}

impl Sample {
    pub fn set(&mut self, quantity: Quantity, value: f64) {
        self.figures.insert(quantity, value);
    }

    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        self.figures.get(&quantity).copied()
    }

    /// Keeps the waits and the figures that follow from them.
    pub fn set_waits(&mut self, waits: Waits) {
        if !waits.is_empty() {
            self.set(Quantity::WaitMean, waits.mean());
            self.set(Quantity::WaitP50, waits.quantile(0.5));
            self.set(Quantity::WaitP99, waits.quantile(0.99));
            self.set(Quantity::WaitMax, waits.max());
        }
        self.waits = waits;
    }
}
