//! W10: many clients want one name. What a turn costs as they become more, beside a bare loop of the same shape.

use super::turns::{self, Shape};
use super::{Card, Ratio, Run, Workload};
use crate::limits;
use crate::measure::Quantity::{
    ClientCpuPerPair, CommandsPerPair, Errors, LeastOverMean, PairsPerSecond, PushesPerPair,
    ScriptsPerPair, ServerCpuPerPair, Unfinished, WaitMax, WaitMaxInRotations, WaitP50,
};
use crate::plan::Plan;
use crate::server::MAX_CLIENTS;
use crate::stage::Stage;
use crate::variants::{Library, Variant};

/// Redisson has two dozen connections and as many threads for each client.
const MOST_OF_REDISSON: usize = 30;
const ITS_CONNECTIONS: usize = 25;

/// What each of the other clients has: one for commands, one for messages.
const CONNECTIONS: usize = 2;

#[derive(Debug)]
pub struct Crowd {
    clients: usize,
    processes: usize,
}

impl Crowd {
    pub fn new(plan: &Plan, clients: usize) -> Self {
        Self { clients, processes: plan.processes.min(clients) }
    }

    fn shape(&self) -> Shape {
        let Self { clients: tasks, processes } = *self;
        Shape { processes, tasks, contended: true, own_clients: true, ..Shape::ALONE }
    }

    /// Whether the server and each process may have so many connections.
    fn fits(&self, variant: Variant) -> anyhow::Result<()> {
        let each = if variant.on_the_jvm() { ITS_CONNECTIONS } else { CONNECTIONS };
        let all = each * self.clients;
        anyhow::ensure!(all < MAX_CLIENTS, "the server takes {MAX_CLIENTS} connections, not {all}");
        limits::allow(all)
    }
}

impl Workload for Crowd {
    fn card(&self) -> Card {
        Card {
            id: "W10",
            name: format!("crowd-{}", self.clients),
            about: format!(
                "{} clients in {} processes, one task each, one name",
                self.clients, self.processes
            ),
            target: "at least 0.7 × the bare line; at most 2.2 scripts and 2.2 pushes a pair; least share at least 0.8 \
                     of the mean; longest wait at most 3 rotations",
            quantities: &[
                PairsPerSecond,
                ScriptsPerPair,
                CommandsPerPair,
                PushesPerPair,
                LeastOverMean,
                WaitP50,
                WaitMax,
                WaitMaxInRotations,
                Unfinished,
                Errors,
                ServerCpuPerPair,
                ClientCpuPerPair,
            ],
            rounds: 5,
            ratio: Ratio::ThisOver(Variant::LINE),
            left_out: &[],
        }
    }

    /// The bare line, then those of parklock that were asked for; those of Redisson while the clients are few.
    fn cast(&self, asked: &[Variant]) -> Vec<Variant> {
        let plays = |variant: &&Variant| match variant.library {
            Library::Parklock => true,
            Library::Redisson => self.clients <= MOST_OF_REDISSON,
            _ => false,
        };
        let mut cast = vec![Variant::LINE];
        cast.extend(asked.iter().filter(plays));
        cast
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(async move {
            self.fits(variant)?;
            turns::run(stage, variant, self.shape()).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redisson_plays_among_few_only() {
        let asked = [Variant::PARKLOCK, Variant::FLOOR, Variant::REDISSON];
        let cast = |clients| Crowd::new(&Plan::default(), clients).cast(&asked);
        assert_eq!(cast(30), [Variant::LINE, Variant::PARKLOCK, Variant::REDISSON]);
        assert_eq!(cast(100), [Variant::LINE, Variant::PARKLOCK]);
    }
}
