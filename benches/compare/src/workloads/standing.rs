//! Callers of one client that wait for a lock of another process. W6 watches them, W11 lets them all in.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::measure::Quantity::{AllThrough, Errors, Overtaken, Served, ThroughPerSecond};
use crate::measure::{Sample, process};
use crate::stage::Stage;
use crate::variants::{Kind, Variant};
use crate::worker::process::Worker;
use crate::worker::protocol::{Herd, Hold, Order, Reply, Setup, Through};

/// The callers.
#[derive(Clone, Debug)]
pub struct Callers {
    /// What they want, in turn.
    pub kinds: Vec<Kind>,
    pub callers: usize,
    pub names: usize,
}

/// All that there is of each name is held, and the callers wait.
#[derive(Debug)]
pub struct Standing {
    pub waiter: Worker,
    holder: Worker,
    callers: usize,
    /// What the waiting process had in memory before the first caller came.
    empty: u64,
}

impl Standing {
    pub async fn gather(stage: &mut Stage, variant: Variant, callers: Callers) -> Result<Self> {
        stage.observer.empty().await?;
        let setup = stage.setup(variant);
        let holder = hold(stage, variant, setup.clone(), callers.names).await?;
        let mut waiter = stage.fresh(variant).await?;
        let count = callers.callers;
        let Callers { kinds, callers, names } = callers;
        waiter.prepare(Order::Herd(Herd { setup, kinds, callers, names })).await?;
        let empty = process::resident_bytes(waiter.pid()?)?;
        waiter.tell(&Order::Go).await?;
        match waiter.hear().await? {
            Reply::Parked => Ok(Self { waiter, holder, callers: count, empty }),
            other => bail!("told to park, a worker said {other:?}"),
        }
    }

    /// Memory of the waiting process by caller.
    pub fn bytes_per_caller(&self) -> Result<f64> {
        let full = process::resident_bytes(self.waiter.pid()?)?;
        Ok(full.saturating_sub(self.empty) as f64 / self.callers as f64)
    }

    /// The holder lets go, and everybody gets through; `sample` takes how it went.
    pub async fn release(mut self, limit: Duration, sample: &mut Sample) -> Result<()> {
        let limit_ms = limit.as_millis() as u64;
        self.holder.tell(&Order::Unlock).await?;
        self.waiter.tell(&Order::Finish { limit_ms }).await?;
        let (called_ns, errors) = match self.holder.hear().await? {
            Reply::Unlocked { called_ns, errors } => (called_ns, errors),
            other => bail!("told to unlock, a worker said {other:?}"),
        };
        let through = match self.waiter.hear().await? {
            Reply::Through(through) => through,
            other => bail!("told to get through, a worker said {other:?}"),
        };
        note(&through, called_ns, self.callers, sample);
        if errors > 0 {
            eprintln!("the holder had lost {errors} locks");
            sample.set(Errors, (through.failed + errors) as f64);
        } else {
            sample.violations += u64::from(is_early(&through, called_ns));
        }
        Ok(())
    }
}

async fn hold(stage: &mut Stage, variant: Variant, setup: Setup, names: usize) -> Result<Worker> {
    let mut holder = stage.fresh(variant).await?;
    holder.prepare(Order::Hold(Hold { setup, names })).await?;
    holder.tell(&Order::Go).await?;
    match holder.hear().await? {
        Reply::Held => Ok(holder),
        other => bail!("told to hold, a worker said {other:?}"),
    }
}

/// Whether somebody came in before the holder let go: what the holder had lost, anybody may have.
fn is_early(through: &Through, called_ns: u64) -> bool {
    through.served > 0 && through.first_ns < called_ns
}

fn note(through: &Through, called_ns: u64, callers: usize, sample: &mut Sample) {
    if let Some(error) = &through.error {
        eprintln!("{} callers got an error: {error}", through.failed);
    }
    sample.violations += through.overfull;
    let time = through.last_ns.saturating_sub(called_ns) as f64 / 1e9;
    sample.set(Served, through.served as f64);
    sample.set(Errors, through.failed as f64);
    sample.set(Overtaken, through.overtaken as f64);
    if through.served == callers {
        sample.set(AllThrough, time);
    }
    if time > 0.0 {
        sample.set(ThroughPerSecond, through.served as f64 / time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herd_that_is_not_through_has_no_time() {
        let mut sample = Sample::default();
        let through =
            Through { served: 9, first_ns: 2_000, last_ns: 1_000_001_000, ..Through::default() };
        note(&through, 1_000, 10, &mut sample);
        assert_eq!(sample.get(AllThrough), None);
        assert_eq!(sample.get(ThroughPerSecond), Some(9.0));
        assert_eq!(sample.violations, 0);
        note(&through, 1_000, 9, &mut sample);
        assert_eq!(sample.get(AllThrough), Some(1.0));
    }

    #[test]
    fn a_caller_that_is_let_in_before_the_release_is_early() {
        let through = Through { served: 1, first_ns: 500, last_ns: 600, ..Through::default() };
        assert!(is_early(&through, 1_000));
        assert!(!is_early(&through, 400));
        assert!(!is_early(&Through::default(), 1_000));
    }
}
