//! W1: one task locks and unlocks one name in sequence. What a turn costs when nobody else is there.

use super::turns::{self, Shape};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    ClientCpuPerPair, CommandsPerPair, PairsPerSecond, RequestsPerPair, ScriptTime,
    ServerCpuPerPair, WaitP50, WaitP99,
};
use crate::stage::Stage;
use crate::variants::Variant;

#[derive(Debug)]
pub struct Seq;

impl Workload for Seq {
    fn card(&self) -> Card {
        Card {
            id: "W1",
            name: "seq".to_owned(),
            about: "one task, one name, lock and unlock in sequence".to_owned(),
            target: "at least the floor, 0.95 × the best peer",
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
        Box::pin(turns::run(stage, variant, Shape::ALONE))
    }
}
