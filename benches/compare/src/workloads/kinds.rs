//! W9: the same as W1, W2 and W3, for every kind of lock that parklock and Redisson have.

use super::turns::{self, Shape};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    ClientCpuPerPair, CommandsPerPair, Jain, PairsPerSecond, RequestsPerPair, ScriptTime,
    ServerCpuPerPair, WaitMax,
};
use crate::stage::Stage;
use crate::variants::{Library, Variant};

/// One of the three workloads that each kind goes through.
#[derive(Clone, Copy, Debug)]
pub enum Scene {
    Seq,
    Par,
    Hot,
}

impl Scene {
    pub const ALL: [Self; 3] = [Self::Seq, Self::Par, Self::Hot];
}

#[derive(Debug)]
pub struct Kinds {
    pub scene: Scene,
    /// Of `par` and `hot`.
    pub tasks: usize,
}

impl Kinds {
    fn shape(&self) -> Shape {
        match self.scene {
            Scene::Seq => Shape::ALONE,
            Scene::Par => Shape { tasks: self.tasks, ..Shape::ALONE },
            Scene::Hot => Shape { tasks: self.tasks, contended: true, ..Shape::ALONE },
        }
    }
}

impl Workload for Kinds {
    fn card(&self) -> Card {
        let (name, about, target) = match self.scene {
            Scene::Seq => (
                "kinds-seq",
                "one task, one name, in sequence".to_owned(),
                "uncontended at least 0.9 × the floor and 2 × Redisson's",
            ),
            Scene::Par => (
                "kinds-par",
                format!("{} tasks of one process, each its own name", self.tasks),
                "uncontended at least 0.9 × the floor and 2 × Redisson's",
            ),
            Scene::Hot => (
                "kinds-hot",
                format!("{} tasks of one process, one name (the floor: one task)", self.tasks),
                "read and semaphore64 at least 30 × the floor; write and semaphore1 at least half of the plain lock; \
                 fair at least the floor and 5 × Redisson's",
            ),
        };
        Card {
            id: "W9",
            name: name.to_owned(),
            about,
            target,
            quantities: &[
                PairsPerSecond,
                CommandsPerPair,
                RequestsPerPair,
                ServerCpuPerPair,
                ScriptTime,
                ClientCpuPerPair,
                WaitMax,
                Jain,
            ],
            rounds: 5,
            ratio: Ratio::ThisOver(Variant::FLOOR),
            left_out: &[],
        }
    }

    /// The floor, and each kind of parklock; of Redisson too if it was asked for.
    fn cast(&self, asked: &[Variant]) -> Vec<Variant> {
        let mut cast = vec![Variant::FLOOR];
        cast.extend(Variant::all_of(Library::Parklock));
        if asked.contains(&Variant::REDISSON) {
            cast.extend(Variant::all_of(Library::Redisson));
        }
        cast
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(turns::run(stage, variant, self.shape()))
    }
}
