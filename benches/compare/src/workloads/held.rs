//! W7: many locks are held for a long time. What the watchdog costs, and whether it is in time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    BytesPerLock, ClientCore, LatenessP99, LocksLost, ScriptsPerRenewal, ServerCore,
};
use crate::measure::lateness::Lateness;
use crate::measure::{Sample, process};
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::Variant;
use crate::worker::process::Worker;
use crate::worker::protocol::{Hold, Order, Reply, Setup, name};

/// Locks at full size.
const LOCKS: usize = 100_000;

/// They are held for so many leases.
const LEASES: u32 = 3;

/// Keys whose renewals are followed, and how often in a lease they are looked at.
const FOLLOWED: usize = 500;
const LOOKS: u32 = 30;

/// Keys that are asked for in one go.
const BATCH: usize = 1_000;

#[derive(Debug)]
pub struct Held {
    locks: usize,
    lease: Duration,
}

impl Held {
    pub fn new(plan: &Plan) -> Self {
        Self { locks: plan.scaled(LOCKS), lease: plan.lease }
    }
}

impl Workload for Held {
    fn card(&self) -> Card {
        Card {
            id: "W7",
            name: "held".to_owned(),
            about: format!(
                "{} locks held for {LEASES} leases of {} s",
                self.locks,
                self.lease.as_secs_f64()
            ),
            target: "at most 0.01 calls per lock and period; client at most 2 % of a core; none lost; at most 600 B",
            quantities: &[
                ScriptsPerRenewal,
                ClientCore,
                ServerCore,
                LatenessP99,
                BytesPerLock,
                LocksLost,
            ],
            rounds: 1,
            ratio: Ratio::OursOverThis,
            left_out: &[
                (Variant::PARKLOCK_FAIR, "each of its renewals is a call of its own"),
                (Variant::FLOOR, "nothing renews its locks"),
                (Variant::RSLOCK, "nothing renews its locks"),
                (Variant::REDISSON, "a thread for each owner is another measure"),
                (Variant::REDISSON_FAIR, "a thread for each owner is another measure"),
            ],
        }
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.hold(stage, variant))
    }
}

impl Held {
    async fn hold(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        let due_after = variant.renews_after(self.lease).context("nothing renews")?;
        stage.observer.empty().await?;
        let mut holder = stage.fresh(variant).await?;
        let setup = Setup { lease_ms: Some(self.lease.as_millis() as u64), ..stage.setup(variant) };
        let job = Hold { setup, names: self.locks };
        holder.prepare(Order::Hold(job)).await?;
        let empty = process::resident_bytes(holder.pid()?)?;
        holder.tell(&Order::Go).await?;
        let Reply::Held = holder.hear().await? else {
            bail!("told to hold, a worker did something else");
        };
        let full = process::resident_bytes(holder.pid()?)?;

        let meter = stage.meter(&[&holder]).await?;
        let start = Instant::now();
        let lateness = self.follow(stage, variant, due_after).await?;
        let time = start.elapsed().as_secs_f64();
        let used = meter.used(&mut stage.observer).await?;
        let there = self.count(stage, variant).await?;
        let valid = believed(&mut holder).await?;

        let periods = time / due_after.as_secs_f64();
        let mut sample = Sample::default();
        sample.set(ScriptsPerRenewal, used.commands.scripts() as f64 / self.locks as f64 / periods);
        sample.set(ClientCore, used.client_cpu / time);
        sample.set(ServerCore, used.server_cpu / time);
        sample.set(BytesPerLock, full.saturating_sub(empty) as f64 / self.locks as f64);
        sample.set(LocksLost, (self.locks - there.min(valid)) as f64);
        if let Some(p99) = lateness.p99() {
            sample.set(LatenessP99, p99);
        }
        sample.commands = used.commands;
        Ok(sample)
    }

    /// Looks at some keys, evenly spread, until the time is over.
    async fn follow(
        &self,
        stage: &mut Stage,
        variant: Variant,
        due_after: Duration,
    ) -> Result<Lateness> {
        let step = (self.locks / FOLLOWED).max(1);
        let followed = (0..self.locks).step_by(step).take(FOLLOWED);
        let keys: Vec<String> = followed.map(|i| variant.key(&name(i))).collect();
        let mut lateness = Lateness::of(keys.len(), self.lease, due_after);
        let end = Instant::now() + self.lease * LEASES;
        while Instant::now() < end {
            let left = stage.observer.time_left(&keys).await?;
            lateness.look(Instant::now(), &left);
            sleep(self.lease / LOOKS).await;
        }
        Ok(lateness)
    }

    /// How many of the locks are still there.
    async fn count(&self, stage: &mut Stage, variant: Variant) -> Result<usize> {
        let keys: Vec<String> = (0..self.locks).map(|i| variant.key(&name(i))).collect();
        let mut there = 0;
        for batch in keys.chunks(BATCH) {
            let left = stage.observer.time_left(batch).await?;
            there += left.iter().filter(|&&ms| ms > 0).count();
        }
        Ok(there)
    }
}

/// How many of its locks the client still believes in.
async fn believed(holder: &mut Worker) -> Result<usize> {
    holder.tell(&Order::Stop).await?;
    match holder.hear().await? {
        Reply::Stopped { valid } => Ok(valid),
        other => bail!("told to stop, a worker said {other:?}"),
    }
}
