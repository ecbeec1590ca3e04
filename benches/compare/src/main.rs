//! Runs parklock beside the floor and its peers: `compare hot --seconds 5 --against floor,rlock,redisson`.

mod cluster;
mod limits;
mod measure;
mod observer;
mod outcome;
mod plan;
mod proxy;
mod report;
mod rounds;
mod server;
mod stage;
mod variants;
mod worker;
mod workloads;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

use outcome::Outcome;
use plan::Plan;
use stage::Stage;
use variants::Variant;
use variants::redisson::Redisson;
use workloads::Name;

/// Measures parklock beside the bare floor and other locks on Redis, alternated within each round.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    hidden: Option<Hidden>,
    /// What to run
    #[arg(required = true)]
    workload: Option<Name>,
    /// Whom to run beside parklock; `redisson` is its plain and its fair lock
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "parklock-fair,floor,rlock,rslock,async-redis-lock,redisson"
    )]
    against: Vec<String>,
    /// Tasks of `par` and `hot`, and of each process of `fleet` [default: 64, 64, 16]
    #[arg(long)]
    tasks: Option<usize>,
    /// Processes of `fleet` and `crowd` [default: 4]
    #[arg(long)]
    processes: Option<usize>,
    /// Clients of `crowd`, a table for each number [default: 10,30,100,300,1000]
    #[arg(long, value_delimiter = ',')]
    clients: Option<Vec<usize>>,
    /// Callers of `parked` and `herd` [default: 10000, 20000]
    #[arg(long)]
    waiters: Option<usize>,
    /// `parked`, `herd`: seconds that all have to get through after the release [default: 60]
    #[arg(long)]
    limit: Option<f64>,
    /// The timed part of each run of `seq`, `par`, `hot`, `fleet`, `relay`, `kinds` and `crowd` [default: 5]; how long
    /// `parked` is watched [default: 10]; how long `upgrade` takes [default: 600]
    #[arg(long)]
    seconds: Option<f64>,
    /// [default: 5; `parked`, `held`, `churn` and `herd`: 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Shrinks `parked`, `herd`, `held` and `churn`: 0.01 is a hundredth [default: 1]
    #[arg(long)]
    scale: Option<f64>,
    /// A moment of each at a hundredth of its size, once: only shows that it runs
    #[arg(long)]
    smoke: bool,
    /// Where the report goes
    #[arg(long, default_value = "target/compare")]
    out: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// Plays one variant at the word of the main process
    #[command(hide = true)]
    Worker { variant: String },
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(Hidden::Worker { variant }) = &cli.hidden {
        // A task of the runtime, as the code of a service is: the main thread only waits for it.
        return tokio::spawn(worker::serve(variant.parse()?)).await?;
    }
    tokio::select! {
        done = compare(&cli) => done,
        ended = told_to_end() => ended,
    }
}

async fn compare(cli: &Cli) -> Result<()> {
    limits::raise()?;
    let plan = cli.plan();
    let workloads = cli.workload.context("which workload?")?.workloads(&plan);
    let mut variants = cli.variants()?;
    let mut stage = Stage::set(plan).await?;
    if variants.iter().any(|variant| variant.on_the_jvm()) {
        let built = Redisson::build();
        if let Err(error) = &built {
            eprintln!("redisson is left out: {error:#}");
            variants.retain(|variant| !variant.on_the_jvm());
        }
        stage.set_redisson(built);
    }
    let mut outcomes = Vec::new();
    for workload in &workloads {
        outcomes.push(rounds::run(workload.as_ref(), &variants, &mut stage).await);
    }
    report::write(&cli.out, stage.machine(), &outcomes)?;
    ensure!(!outcomes.iter().any(Outcome::is_faulty), "not everything worked: see the report");
    Ok(())
}

/// Ctrl-C or a polite kill: what we have started ends with us.
async fn told_to_end() -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = ctrl_c() => pressed?,
        _ = terminated.recv() => {}
    }
    bail!("told to end")
}

impl Cli {
    fn plan(&self) -> Plan {
        let usual = if self.smoke { Plan::smoke() } else { Plan::default() };
        Plan {
            tasks: self.tasks.unwrap_or(usual.tasks),
            tasks_each: self.tasks.unwrap_or(usual.tasks_each),
            processes: self.processes.unwrap_or(usual.processes),
            clients: self.clients.clone().unwrap_or(usual.clients),
            waiters: self.waiters.or(usual.waiters),
            timed: self.seconds.map_or(usual.timed, Duration::from_secs_f64),
            parked: self.seconds.map_or(usual.parked, Duration::from_secs_f64),
            upgrade: self.seconds.map_or(usual.upgrade, Duration::from_secs_f64),
            limit: self.limit.map_or(usual.limit, Duration::from_secs_f64),
            rounds: self.rounds.or(usual.rounds),
            scale: self.scale.unwrap_or(usual.scale),
            ..usual
        }
    }

    /// parklock first, then whom it runs against, each once.
    fn variants(&self) -> Result<Vec<Variant>> {
        let mut variants = vec![Variant::PARKLOCK];
        for entry in &self.against {
            let new = Variant::family(entry)?.into_iter().filter(|one| !variants.contains(one));
            variants.extend(new.collect::<Vec<_>>());
        }
        Ok(variants)
    }
}
