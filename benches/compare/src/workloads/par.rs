//! W2: many tasks of one process, each with its own name. How much a client and its server can do at once.

use super::turns::{self, Shape};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    ClientCpuPerPair, CommandsPerPair, PairsPerSecond, RequestsPerPair, ScriptTime,
    ServerCpuPerPair, WaitP50, WaitP99,
};
use crate::stage::Stage;
use crate::variants::Variant;

#[derive(Debug)]
pub struct Par {
    pub tasks: usize,
}

impl Workload for Par {
    fn card(&self) -> Card {
        Card {
            id: "W2",
            name: "par".to_owned(),
            about: format!("{} tasks of one process, each its own name", self.tasks),
            target: "ahead of every peer, at least 1.3 × the floor",
            quantities: &[
                PairsPerSecond,
                WaitP50,
                WaitP99,
                CommandsPerPair,
                RequestsPerPair,
                ClientCpuPerPair,
                ServerCpuPerPair,
                ScriptTime,
            ],
            rounds: 5,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        let shape = Shape { tasks: self.tasks, ..Shape::ALONE };
        Box::pin(turns::run(stage, variant, shape))
    }
}
