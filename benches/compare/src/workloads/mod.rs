//! W1 to W12: the work, the quantities that are reported, and the targets of parklock.

mod churn;
mod cluster;
mod crowd;
mod fleet;
mod held;
mod herd;
mod hot;
mod kept;
mod kinds;
mod par;
mod parked;
mod relay;
mod seq;
mod standing;
mod turns;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use anyhow::Result;
use clap::ValueEnum;

use crate::measure::{Quantity, Sample};
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::Variant;

/// A run of one variant in one round.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<Sample>> + 'a>>;

/// One table of the report.
pub trait Workload {
    fn card(&self) -> Card;

    /// Which of the requested variants take part: all of them, unless the workload says otherwise.
    fn cast(&self, asked: &[Variant]) -> Vec<Variant> {
        asked.to_vec()
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a>;
}

/// What stands above its table.
#[derive(Clone, Debug)]
pub struct Card {
    /// `W3`, in the words of our own plan.
    pub id: &'static str,
    /// `hot`: also the name of its plots.
    pub name: String,
    pub about: String,
    pub target: &'static str,
    /// The columns; the first is the one that progress shows.
    pub quantities: &'static [Quantity],
    pub rounds: usize,
    pub ratio: Ratio,
    /// Variants that cannot take part, and why.
    pub left_out: &'static [(Variant, &'static str)],
}

/// What stands in brackets behind each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ratio {
    /// parklock's value over this one.
    OursOverThis,
    /// This value over that of one variant, the measure of the workload.
    ThisOver(Variant),
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OursOverThis => f.write_str("parklock's value over this one"),
            Self::ThisOver(variant) => write!(f, "this value over that of {variant}"),
        }
    }
}

impl Card {
    pub fn refuses(&self, variant: Variant) -> Option<&'static str> {
        let entry = self.left_out.iter().find(|(who, _)| *who == variant);
        entry.map(|(_, why)| *why)
    }

    #[cfg(test)]
    pub fn example() -> Self {
        Self {
            id: "W0",
            name: "example".to_owned(),
            about: "nothing & nobody".to_owned(),
            target: "> 1",
            quantities: &[Quantity::PairsPerSecond, Quantity::CommandsPerPair],
            rounds: 2,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }
}

/// The names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// W1: one task, one name
    Seq,
    /// W2: 64 tasks, each its own name
    Par,
    /// W3: 64 tasks of one process, one name
    Hot,
    /// W4: 4 processes with 16 tasks each, one name; then with one of them 2 ms away
    Fleet,
    /// W5: two processes hand one name to and fro
    Relay,
    /// W6: 10,000 and 2,000 tasks of each kind wait for one name, then 10,000 each for its own
    Parked,
    /// W7: 100,000 locks are held under the watchdog
    Held,
    /// W8: 1,000,000 distinct names
    Churn,
    /// W9: W1, W2 and W3 for every kind of lock
    Kinds,
    /// W10: 10 to 1,000 clients, one task each, one name
    Crowd,
    /// W11: 20,000 callers of one client, and then all is released
    Herd,
    /// W12: W2, W4 and W7 on a cluster beside one server; then slots move, a primary is failed over, one is killed
    Cluster,
    /// W12: only the last part of `cluster`: slots move, a primary is failed over, one is killed
    Rearranged,
    /// W12: each node of a cluster is replaced under steady load; ten minutes
    Upgrade,
    /// W13: W1 with a client that keeps its lock, and how long a second client waits for it
    Kept,
    /// W1 to W11
    All,
}

impl Name {
    /// The tables that belong to it.
    pub fn workloads(self, plan: &Plan) -> Vec<Box<dyn Workload>> {
        match self {
            Self::Seq => vec![Box::new(seq::Seq)],
            Self::Par => vec![Box::new(par::Par { tasks: plan.tasks })],
            Self::Hot => vec![Box::new(hot::Hot { tasks: plan.tasks })],
            Self::Fleet => vec![
                Box::new(fleet::Fleet::new(plan, false)),
                Box::new(fleet::Fleet::new(plan, true)),
            ],
            Self::Relay => vec![Box::new(relay::Relay)],
            Self::Parked => vec![
                Box::new(parked::Parked::on_one_name(plan)),
                Box::new(parked::Parked::few_on_one_name(plan)),
                Box::new(parked::Parked::on_own_names(plan)),
            ],
            Self::Held => vec![Box::new(held::Held::new(plan))],
            Self::Churn => vec![Box::new(churn::Churn::new(plan))],
            Self::Kinds => kinds::Scene::ALL
                .map(|scene| Box::new(kinds::Kinds { scene, tasks: plan.tasks }) as _)
                .into(),
            Self::Crowd => {
                let sizes = plan.clients.iter();
                sizes.map(|&clients| Box::new(crowd::Crowd::new(plan, clients)) as _).collect()
            }
            Self::Herd => herd::Herd::all(plan).map(|herd| Box::new(herd) as _).into(),
            Self::Cluster => cluster::all(plan),
            Self::Rearranged => vec![Box::new(cluster::Rearranged)],
            Self::Upgrade => vec![Box::new(cluster::Upgrade::new(plan))],
            Self::Kept => vec![Box::new(kept::Alone), Box::new(kept::Asked)],
            Self::All => Self::value_variants()
                .iter()
                .filter(|name| {
                    !matches!(
                        name,
                        Self::Cluster | Self::Rearranged | Self::Upgrade | Self::Kept | Self::All
                    )
                })
                .flat_map(|name| name.workloads(plan))
                .collect(),
        }
    }
}
