//! W12: a cluster of three primaries beside one server, and what its clients notice when it is rearranged.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Card, Ratio, Run, Workload};
use crate::cluster::{Cluster, Which};
use crate::measure::Quantity::{
    ClientCore, ClientCpuPerPair, Errors, LeastPerSecond, LocksLost, NodesReplaced,
    OnOneClientCore, OnOnePairsPerSecond, OnOneServerCore, OverKill, OverOnePrimary,
    PairsPerSecond, ServerCore, ServerCpuPerPair, Stall, StallOfFailover, StallOfKill, StallOfMove,
};
use crate::measure::clock::now_ns;
use crate::measure::{Sample, Timeline, process};
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::Variant;
use crate::worker::process::Worker;
use crate::worker::protocol::{Order, Reply, Setup, Steadied, Steady};

/// A node counts as gone when it was silent for so long; and where one is killed.
const SILENCE: Duration = Duration::from_secs(15);
const BRIEF: Duration = Duration::from_secs(1);

/// Turns are counted for each such part of the time.
const TICK: Duration = Duration::from_millis(100);

/// What is done to a cluster is felt for no longer than this afterwards.
const ECHO: Duration = Duration::from_secs(1);

/// Locks that are held while it is rearranged.
const HELD: usize = 1_000;
/// All the locks of W7 at full size, for so many leases.
const LOCKS: usize = 100_000;
const LEASES: u32 = 3;

const ONE: &str = "bench:one";

/// All of W12.
pub fn all(plan: &Plan) -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(Turns { tasks: plan.tasks, processes: 1, on_one_name: false }),
        Box::new(Turns { tasks: plan.tasks_each, processes: plan.processes, on_one_name: true }),
        Box::new(Kept { locks: plan.scaled(LOCKS), lease: plan.lease }),
        Box::new(Rearranged),
    ]
}

/// W2, and W4 on one name.
#[derive(Debug)]
struct Turns {
    /// Of each process.
    tasks: usize,
    processes: usize,
    on_one_name: bool,
}

impl Workload for Turns {
    fn card(&self) -> Card {
        let (name, what) = match self.on_one_name {
            false => ("cluster-par", "each its own name"),
            true => ("cluster-fleet", "one name"),
        };
        Card {
            id: "W12",
            name: name.to_owned(),
            about: format!(
                "{} processes of {} tasks, {what}: on three primaries with a replica each, and on one server",
                self.processes, self.tasks
            ),
            target: "at least 0.9 of one primary's",
            quantities: &[
                PairsPerSecond,
                OnOnePairsPerSecond,
                OverOnePrimary,
                ClientCpuPerPair,
                ServerCpuPerPair,
                Errors,
            ],
            rounds: 5,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn cast(&self, _: &[Variant]) -> Vec<Variant> {
        vec![Variant::PARKLOCK]
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.compare(stage, variant))
    }
}

impl Turns {
    async fn compare(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        let cluster = Cluster::start(SILENCE).await?;
        let nodes: Vec<u32> = cluster.nodes().map(|node| node.pid()).collect();
        let alone = (stage.server.url(), vec![stage.server.pid()]);
        let ours = (cluster.url(), nodes);
        // Nobody always goes first.
        let (ours, alone) = if fastrand::bool() {
            let ours = self.play(stage, variant, ours).await?;
            (ours, self.play(stage, variant, alone).await?)
        } else {
            let alone = self.play(stage, variant, alone).await?;
            (self.play(stage, variant, ours).await?, alone)
        };
        let mut sample = Sample::default();
        sample.set(PairsPerSecond, ours.rate());
        sample.set(OnOnePairsPerSecond, alone.rate());
        sample.set(OverOnePrimary, ours.rate() / alone.rate());
        sample.set(ClientCpuPerPair, ours.client_cpu / ours.turns() as f64);
        sample.set(ServerCpuPerPair, ours.server_cpu / ours.turns() as f64);
        sample.set(Errors, (ours.errors() + alone.errors()) as f64);
        Ok(sample)
    }

    async fn play(
        &self,
        stage: &mut Stage,
        variant: Variant,
        (url, servers): (String, Vec<u32>),
    ) -> Result<Played> {
        let job = |process: usize| Steady {
            setup: Setup { url: url.clone(), ..stage.setup(variant) },
            names: (0..self.tasks)
                .map(|task| {
                    if self.on_one_name {
                        ONE.to_owned()
                    } else {
                        format!("bench:{process}:{task}")
                    }
                })
                .collect(),
            held: Vec::new(),
            tick_ms: TICK.as_millis() as u64,
        };
        let jobs: Vec<Steady> = (0..self.processes).map(job).collect();
        let mut crew = prepared(stage, variant, jobs).await?;
        played(&mut crew, &servers, stage.plan.timed).await
    }
}

/// W7.
#[derive(Debug)]
struct Kept {
    locks: usize,
    lease: Duration,
}

impl Workload for Kept {
    fn card(&self) -> Card {
        Card {
            id: "W12",
            name: "cluster-held".to_owned(),
            about: format!(
                "{} locks held for {LEASES} leases of {} s: on three primaries with a replica each, and on one server",
                self.locks,
                self.lease.as_secs_f64()
            ),
            target: "none lost",
            quantities: &[ClientCore, ServerCore, OnOneClientCore, OnOneServerCore, LocksLost],
            rounds: 1,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn cast(&self, _: &[Variant]) -> Vec<Variant> {
        vec![Variant::PARKLOCK]
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.compare(stage, variant))
    }
}

impl Kept {
    async fn compare(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        let cluster = Cluster::start(SILENCE).await?;
        let nodes: Vec<u32> = cluster.nodes().map(|node| node.pid()).collect();
        let ours = self.keep(stage, variant, (cluster.url(), nodes)).await?;
        let alone = (stage.server.url(), vec![stage.server.pid()]);
        let alone = self.keep(stage, variant, alone).await?;
        let time = (self.lease * LEASES).as_secs_f64();
        let mut sample = Sample::default();
        sample.set(ClientCore, ours.client_cpu / time);
        sample.set(ServerCore, ours.server_cpu / time);
        sample.set(OnOneClientCore, alone.client_cpu / time);
        sample.set(OnOneServerCore, alone.server_cpu / time);
        sample.set(LocksLost, (ours.lost() + alone.lost()) as f64);
        Ok(sample)
    }

    async fn keep(
        &self,
        stage: &mut Stage,
        variant: Variant,
        (url, servers): (String, Vec<u32>),
    ) -> Result<Played> {
        let lease_ms = Some(self.lease.as_millis() as u64);
        let timed = self.lease * LEASES;
        let job = Steady {
            setup: Setup { url, lease_ms, ..stage.setup(variant) },
            names: Vec::new(),
            held: (0..self.locks).map(|lock| format!("held:{lock}")).collect(),
            tick_ms: TICK.as_millis() as u64,
        };
        let mut crew = prepared(stage, variant, vec![job]).await?;
        played(&mut crew, &servers, timed).await
    }
}

/// A slot moved, a primary failed over and another one killed, under load.
#[derive(Debug)]
pub struct Rearranged;

/// The load goes on for so long before anything happens.
const BEFORE: Duration = Duration::from_secs(1);

/// Steady work on these names of a cluster, one task for each, while [`HELD`] others are held.
fn job(stage: &Stage, variant: Variant, cluster: &Cluster, names: Vec<String>) -> Steady {
    let setup = Setup { url: cluster.url(), ..stage.setup(variant) };
    Steady { setup, names, held: held(), tick_ms: TICK.as_millis() as u64 }
}

impl Workload for Rearranged {
    fn card(&self) -> Card {
        Card {
            id: "W12",
            name: "cluster-rearranged".to_owned(),
            about: format!(
                "the longest turn of 32 tasks while a slot moves to and fro, a primary is failed over and one is killed; {HELD} locks are held"
            ),
            target: "a planned move or failover at most 0.5 s; a kill at most the servers' own time and 0.5 s; none lost",
            quantities: &[StallOfMove, StallOfFailover, StallOfKill, OverKill, LocksLost, Errors],
            rounds: 5,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn cast(&self, _: &[Variant]) -> Vec<Variant> {
        vec![Variant::PARKLOCK]
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.rearrange(stage, variant))
    }
}

impl Rearranged {
    async fn rearrange(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        let mut cluster = Cluster::start(BRIEF).await?;
        // Half of the tasks are where all of it happens.
        let here = (0..).map(|number| format!("here:{number}"));
        let here: Vec<String> = here.filter(|name| Cluster::home(name) == 0).take(16).collect();
        let moving = here[0].clone();
        let names = here.into_iter().chain((0..16).map(|task| format!("bench:{task}"))).collect();
        let mut crew = prepared(stage, variant, vec![job(stage, variant, &cluster, names)]).await?;
        crew[0].tell(&Order::Go).await?;
        sleep(BEFORE).await;
        let moved = now_ns();
        cluster.move_slot(&moving, 0, 1).await?;
        sleep(ECHO).await;
        cluster.move_slot(&moving, 1, 0).await?;
        sleep(ECHO).await;
        let failed_over = now_ns();
        cluster.fail_over(0).await?;
        sleep(ECHO).await;
        let killed = now_ns();
        let own_time = cluster.kill_primary(0).await?;
        sleep(ECHO).await;
        crew[0].tell(&Order::Stop).await?;
        let steadied = steadied(&mut crew[0]).await?;

        let stall_of_kill = longest(&steadied, killed, u64::MAX);
        let mut sample = Sample::default();
        sample.set(StallOfMove, longest(&steadied, moved, failed_over));
        sample.set(StallOfFailover, longest(&steadied, failed_over, killed));
        sample.set(StallOfKill, stall_of_kill);
        sample.set(OverKill, (stall_of_kill - own_time.as_secs_f64()).max(0.0));
        sample.set(LocksLost, steadied.lost as f64);
        sample.set(Errors, steadied.errors as f64);
        tell_error(&steadied);
        Ok(sample)
    }
}

/// Every node replaced by a new one, as in an upgrade, under steady load.
#[derive(Debug)]
pub struct Upgrade {
    lasts: Duration,
}

impl Upgrade {
    pub fn new(plan: &Plan) -> Self {
        Self { lasts: plan.upgrade }
    }
}

impl Workload for Upgrade {
    fn card(&self) -> Card {
        Card {
            id: "W12",
            name: "upgrade".to_owned(),
            about: format!(
                "32 tasks for {} s, eight of them on one name; {HELD} locks are held; each of the six nodes of a cluster is replaced by a new one",
                self.lasts.as_secs()
            ),
            target: "none lost, no error, longest stall at most 0.5 s",
            quantities: &[PairsPerSecond, LeastPerSecond, Stall, NodesReplaced, LocksLost, Errors],
            rounds: 1,
            ratio: Ratio::OursOverThis,
            left_out: &[],
        }
    }

    fn cast(&self, _: &[Variant]) -> Vec<Variant> {
        vec![Variant::PARKLOCK]
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.upgrade(stage, variant))
    }
}

impl Upgrade {
    async fn upgrade(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        let mut cluster = Cluster::start(SILENCE).await?;
        let own = (0..24).map(|task| format!("bench:{task}"));
        let names = own.chain((0..8).map(|_| ONE.to_owned())).collect();
        let mut crew = prepared(stage, variant, vec![job(stage, variant, &cluster, names)]).await?;
        crew[0].tell(&Order::Go).await?;
        let (begun, mut marks, mut replaced) = (Instant::now(), Vec::new(), 0_u32);
        // The replica of a shard first, as operators do it.
        for shard in 0..cluster.shards.len() {
            for which in [Which::Replica, Which::Primary] {
                sleep_until(begun + self.lasts * (replaced + 1) / 7).await;
                let from = now_ns();
                cluster.replace(shard, which, SILENCE).await?;
                let what = if which == Which::Primary { "primary" } else { "replica" };
                eprintln!(
                    "{what} of shard {shard} replaced, {:.0} s",
                    begun.elapsed().as_secs_f64()
                );
                marks.push((from, now_ns(), what));
                replaced += 1;
            }
        }
        sleep_until(begun + self.lasts).await;
        crew[0].tell(&Order::Stop).await?;
        let steadied = steadied(&mut crew[0]).await?;
        tell_error(&steadied);

        let timeline = timeline(&steadied, &marks);
        let mut sample = Sample::default();
        sample.set(
            PairsPerSecond,
            steadied.ticks.iter().sum::<u64>() as f64 / self.lasts.as_secs_f64(),
        );
        let least = timeline.turns.iter().copied().reduce(f64::min);
        sample.set(LeastPerSecond, least.context("no second has passed")?);
        sample.set(Stall, steadied.longest_ns as f64 / 1e9);
        sample.set(NodesReplaced, f64::from(replaced));
        sample.set(LocksLost, steadied.lost as f64);
        sample.set(Errors, steadied.errors as f64);
        sample.timeline = Some(timeline);
        Ok(sample)
    }
}

fn held() -> Vec<String> {
    (0..HELD).map(|lock| format!("held:{lock}")).collect()
}

/// Turns of each second, and what happened between which seconds.
fn timeline(steadied: &Steadied, marks: &[(u64, u64, &'static str)]) -> Timeline {
    let a_second = (1_000 / TICK.as_millis()) as usize;
    let seconds = steadied.ticks.chunks_exact(a_second);
    let since = |at: u64| at.saturating_sub(steadied.start_ns) as f64 / 1e9;
    let mark = |&(from, to, what): &(u64, u64, &str)| (since(from), since(to), what.to_owned());
    Timeline {
        turns: seconds.map(|ticks| ticks.iter().sum::<u64>() as f64).collect(),
        marks: marks.iter().map(mark).collect(),
    }
}

/// The longest turn, in seconds, of those that were over within this time. What came next may have made others longer.
fn longest(steadied: &Steadied, from: u64, to: u64) -> f64 {
    let seen = steadied.long.iter().filter(|(over, _)| (from..=to).contains(over));
    seen.map(|(_, took)| *took).max().unwrap_or(steadied.told_from_ns) as f64 / 1e9
}

fn tell_error(steadied: &Steadied) {
    if let Some(error) = &steadied.first_error {
        eprintln!("calls ended with an error: {error}");
    }
}

/// What the processes did, and what that cost.
struct Played {
    all: Vec<Steadied>,
    client_cpu: f64,
    server_cpu: f64,
}

impl Played {
    fn turns(&self) -> u64 {
        self.all.iter().flat_map(|one| &one.ticks).sum::<u64>().max(1)
    }

    /// Turns a second of all processes together.
    fn rate(&self) -> f64 {
        let of_one = |one: &Steadied| one.ticks.iter().sum::<u64>() as f64 / one.seconds();
        self.all.iter().map(of_one).sum()
    }

    fn errors(&self) -> u64 {
        self.all.iter().map(|one| one.errors).sum()
    }

    fn lost(&self) -> u64 {
        self.all.iter().map(|one| one.lost).sum()
    }
}

/// A new process for each job.
async fn prepared(stage: &mut Stage, variant: Variant, jobs: Vec<Steady>) -> Result<Vec<Worker>> {
    let mut crew = Vec::with_capacity(jobs.len());
    for job in jobs {
        let mut worker = stage.fresh(variant).await?;
        worker.prepare(Order::Steady(job)).await?;
        crew.push(worker);
    }
    Ok(crew)
}

async fn played(crew: &mut [Worker], servers: &[u32], timed: Duration) -> Result<Played> {
    let clients = crew.iter().map(Worker::pid).collect::<Result<Vec<u32>>>()?;
    let used =
        |pids: &[u32]| pids.iter().map(|pid| process::cpu_seconds(*pid)).sum::<Result<f64>>();
    let before = (used(&clients)?, used(servers)?);
    for worker in crew.iter_mut() {
        worker.tell(&Order::Go).await?;
    }
    sleep(timed).await;
    for worker in crew.iter_mut() {
        worker.tell(&Order::Stop).await?;
    }
    let mut all = Vec::with_capacity(crew.len());
    for worker in crew {
        all.push(steadied(worker).await?);
    }
    all.iter().for_each(tell_error);
    let (client_cpu, server_cpu) = (used(&clients)? - before.0, used(servers)? - before.1);
    Ok(Played { all, client_cpu, server_cpu })
}

async fn steadied(worker: &mut Worker) -> Result<Steadied> {
    match worker.hear().await? {
        Reply::Steadied(steadied) => Ok(steadied),
        other => bail!("a steady load ended with {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_for_the_time_in_which_it_was_over() {
        let long = vec![(50, 40), (95, 10), (200, 60)];
        let steadied = Steadied { long, told_from_ns: 5, ..Steadied::default() };
        assert_eq!(longest(&steadied, 20, 60), 40e-9);
        assert_eq!(
            longest(&steadied, 60, 90),
            5e-9,
            "as long as those that are not told one by one"
        );
        assert_eq!(longest(&steadied, 60, 150), 10e-9);
        assert_eq!(longest(&steadied, 150, u64::MAX), 60e-9);
    }

    #[test]
    fn a_timeline_has_whole_seconds() {
        let steadied = Steadied { ticks: vec![2; 25], ..Steadied::default() };
        assert_eq!(timeline(&steadied, &[]).turns, [20.0, 20.0]);
    }
}
