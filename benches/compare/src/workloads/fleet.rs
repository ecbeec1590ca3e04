//! W4: several processes want one name. How many turns they make together, and the share of each.

use super::turns::{self, Shape};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    CommandsPerPair, Jain, LeastOverGreatest, PairsPerSecond, WaitMax, WaitMean, WaitP50, WaitP99,
};
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::Variant;

#[derive(Debug)]
pub struct Fleet {
    shape: Shape,
}

impl Fleet {
    /// `far`: the first process reaches the server over a way that takes 2 ms longer.
    pub fn new(plan: &Plan, far: bool) -> Self {
        let processes = plan.processes;
        let tasks = processes * plan.tasks_each;
        Self { shape: Shape { processes, tasks, contended: true, far, ..Shape::ALONE } }
    }
}

impl Workload for Fleet {
    fn card(&self) -> Card {
        let Shape { processes, tasks, .. } = self.shape;
        let tasks = tasks / processes;
        let away = if self.shape.far { ", one process 2 ms away" } else { "" };
        Card {
            id: "W4",
            name: if self.shape.far { "fleet-far" } else { "fleet" }.to_owned(),
            about: format!(
                "{processes} processes × {tasks} tasks, one name{away} (the floor: one task)"
            ),
            target: "at least 200 × Redisson; least share at least 0.95 of the greatest (0.8 from 2 ms away); p99 and max wait at most \
                     0.05 × Redisson's",
            quantities: &[
                PairsPerSecond,
                LeastOverGreatest,
                Jain,
                WaitMean,
                WaitP50,
                WaitP99,
                WaitMax,
                CommandsPerPair,
            ],
            rounds: 5,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(turns::run(stage, variant, self.shape))
    }
}
