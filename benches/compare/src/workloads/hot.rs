//! W3: many tasks of one process want one name. How fast it goes from hand to hand, and how fairly.

use super::turns::{self, Shape};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    CommandsPerPair, Jain, PairsPerSecond, RequestsPerPair, WaitMax, WaitMean, WaitP50, WaitP99,
};
use crate::stage::Stage;
use crate::variants::Variant;

#[derive(Debug)]
pub struct Hot {
    pub tasks: usize,
}

impl Workload for Hot {
    fn card(&self) -> Card {
        Card {
            id: "W3",
            name: "hot".to_owned(),
            about: format!("{} tasks of one process, one name (the floor: one task)", self.tasks),
            target: "at least 60 × the floor and the best peer; Jain 0.99; p99 wait at most 5 × the mean; \
                     at most 0.1 commands/pair",
            quantities: &[
                PairsPerSecond,
                Jain,
                WaitMean,
                WaitP50,
                WaitP99,
                WaitMax,
                CommandsPerPair,
                RequestsPerPair,
            ],
            rounds: 5,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        let shape = Shape { tasks: self.tasks, contended: true, ..Shape::ALONE };
        Box::pin(turns::run(stage, variant, shape))
    }
}
