//! W8: ever new names. Whether anything stays behind, in the client or in Redis.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    ChannelsLeft, KeysLeft, MemoryAtEnd, MemoryAtTenth, MemoryGrowth, MemoryLateGrowth, MemoryPeak,
    PairsPerSecond,
};
use crate::measure::{Sample, process};
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::Variant;
use crate::worker::process::Worker;
use crate::worker::protocol::{self, Order, Reply, Setup};

/// Names at full size.
const NAMES: usize = 1_000_000;

/// Memory is read after the first of so many equal parts, and after the last. After each, the client rests until it
/// need not keep anything: what an allocator does not give back is then the same for all parts, and growth is a leak.
const PARTS: usize = 10;

/// Of ten names four are locked twice.
const PAIRS_PER_NAME: f64 = 1.4;

/// A client may keep the channel of an idle name for so long by default.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Churn {
    names: usize,
}

impl Churn {
    pub fn new(plan: &Plan) -> Self {
        Self { names: plan.scaled(NAMES) }
    }
}

impl Workload for Churn {
    fn card(&self) -> Card {
        Card {
            id: "W8",
            name: "churn".to_owned(),
            about: format!(
                "{} distinct names, half of them contended, one in ten given up while waiting",
                self.names
            ),
            target: "memory within 3 %; no key but the token counter, no channel",
            quantities: &[
                MemoryGrowth,
                MemoryLateGrowth,
                MemoryAtTenth,
                MemoryAtEnd,
                MemoryPeak,
                KeysLeft,
                ChannelsLeft,
                PairsPerSecond,
            ],
            rounds: 1,
            ratio: Ratio::OursOverThis,
            left_out: &[
                (Variant::PARKLOCK_FAIR, "the plain lock's memory is the measure"),
                (Variant::FLOOR, "it cannot wait"),
                (Variant::REDISSON, "a JVM's memory follows its own rules"),
                (Variant::REDISSON_FAIR, "a JVM's memory follows its own rules"),
            ],
        }
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.churn(stage, variant))
    }
}

impl Churn {
    async fn churn(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        stage.observer.empty().await?;
        let mut worker = stage.fresh(variant).await?;
        let setup = Setup {
            linger_ms: stage.plan.linger.map(|linger| linger.as_millis() as u64),
            ..stage.setup(variant)
        };
        let job = protocol::Churn { setup, names: self.names, marks: PARTS };
        worker.prepare(Order::Churn(job)).await?;

        let rest = stage.plan.linger.unwrap_or(LINGER).mul_f64(1.1);
        let mut sample = Sample::default();
        let mut work = Duration::ZERO;
        for _ in 0..PARTS {
            let start = Instant::now();
            sample.violations = part(&mut worker).await?;
            work += start.elapsed();
            sleep(rest).await;
            sample.memory.push(process::resident_bytes(worker.pid()?)?);
        }
        let [early, half, late] =
            [1, PARTS / 2, PARTS].map(|parts| sample.memory[parts - 1] as f64);
        sample.set(MemoryAtTenth, early);
        sample.set(MemoryAtEnd, late);
        sample.set(MemoryGrowth, late / early - 1.0);
        sample.set(MemoryLateGrowth, late / half - 1.0);
        sample.set(MemoryPeak, process::peak_bytes(worker.pid()?)? as f64);
        sample.set(PairsPerSecond, self.names as f64 * PAIRS_PER_NAME / work.as_secs_f64());
        sample.set(KeysLeft, stage.observer.keys().await? as f64);
        sample.set(ChannelsLeft, stage.observer.channels().await? as f64);
        worker.tell(&Order::Stop).await?;
        worker.hear().await?;
        Ok(sample)
    }
}

/// The next part. The reply counts all violations so far.
async fn part(worker: &mut Worker) -> Result<u64> {
    worker.tell(&Order::Go).await?;
    match worker.hear().await? {
        Reply::Marked { violations } => Ok(violations),
        other => bail!("in a churn, a worker said {other:?}"),
    }
}
