//! W11: more callers of one client than anybody should have wait, and then all is released. Whether the server stays
//! answerable, and whether they get through.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::standing::{Callers, Standing};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    AllThrough, BytesPerWaiter, CommandsPerPair, LongScripts, LongestScript, Overtaken,
    RequestsPerPair, Served, ThroughPerSecond,
};
use crate::measure::Sample;
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::{Kind, Library, Variant};

/// Callers at full size; of the fair lock half as many.
const CALLERS: usize = 20_000;

/// A script that takes longer makes others wait.
const LONG: Duration = Duration::from_millis(2);

/// Callers that all want one name.
#[derive(Debug)]
pub struct Herd {
    name: &'static str,
    about: String,
    kinds: Vec<Kind>,
    callers: usize,
}

impl Herd {
    /// The three of them.
    pub fn all(plan: &Plan) -> [Self; 3] {
        let callers = plan.waiters.unwrap_or_else(|| plan.scaled(CALLERS));
        let half = (callers / 2).max(1);
        [
            Self {
                name: "herd-semaphore",
                about: format!("{callers} callers of one client wait for a semaphore of 100"),
                kinds: vec![Kind::Permits(100)],
                callers,
            },
            Self {
                name: "herd-rw",
                about: format!(
                    "{half} writers and {half} readers of one client, in turn, one name"
                ),
                kinds: vec![Kind::Write, Kind::Read],
                callers: 2 * half,
            },
            Self {
                name: "herd-fair",
                about: format!("{half} callers of one client wait for a fair lock"),
                kinds: vec![Kind::Fair],
                callers: half,
            },
        ]
    }
}

impl Workload for Herd {
    fn card(&self) -> Card {
        Card {
            id: "W11",
            name: self.name.to_owned(),
            about: self.about.clone(),
            target: "no script over 2 ms (0: none above 0.5 ms); all through at 20 k/s; of the fair kind nobody overtaken",
            quantities: &[
                LongestScript,
                LongScripts,
                Served,
                AllThrough,
                ThroughPerSecond,
                Overtaken,
                RequestsPerPair,
                CommandsPerPair,
                BytesPerWaiter,
            ],
            rounds: 1,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn cast(&self, _asked: &[Variant]) -> Vec<Variant> {
        vec![Variant { library: Library::Parklock, kind: self.kinds[0] }]
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.herd(stage, variant))
    }
}

impl Herd {
    async fn herd(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        stage.observer.forget_slow().await?;
        let callers = Callers { kinds: self.kinds.clone(), callers: self.callers, names: 1 };
        let standing = Standing::gather(stage, variant, callers).await?;
        sleep(stage.plan.settle).await;
        let mut sample = Sample::default();
        sample.set(BytesPerWaiter, standing.bytes_per_caller()?);

        let meter = stage.meter(&[]).await?;
        standing.release(stage.plan.limit, &mut sample).await?;
        if self.kinds != [Kind::Fair] {
            // The others promise no order among callers that may be inside together.
            sample.figures.remove(&Overtaken);
        }
        let used = meter.used(&mut stage.observer).await?;
        let served = sample.get(Served).unwrap_or(0.0).max(1.0);
        sample.set(RequestsPerPair, used.commands.sent(variant.sent_bare()) as f64 / served);
        sample.set(CommandsPerPair, used.commands.run() as f64 / served);
        sample.commands = used.commands;

        let slow = stage.observer.slow_scripts().await?;
        let longest = slow.iter().max().map_or(0.0, Duration::as_secs_f64);
        sample.set(LongestScript, longest);
        sample.set(LongScripts, slow.iter().filter(|&&took| took > LONG).count() as f64);
        Ok(sample)
    }
}
