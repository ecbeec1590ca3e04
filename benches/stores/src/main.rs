//! Runs parklock beside locks in databases, ZooKeeper and etcd: `stores alone --seconds 2 --rounds 5`.

mod contenders;
mod counter;
mod crew;
mod group;
mod holder;
mod hosts;
mod kind;
mod plots;
mod process;
mod processor;
mod proxy;
mod report;
mod rows;
mod share;
mod stats;
mod table;
mod turns;
mod workloads;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use private_servers::Medium;

use contenders::Terms;
use crew::Job;
use hosts::Hosts;
use rows::Row;
use workloads::{Plan, Workload};

/// Measures ways to lock on real, private servers, alternated within each round.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    hidden: Option<Hidden>,
    /// What to run
    #[arg(required = true)]
    workload: Option<Choice>,
    /// Which rows, by name; all of them if none is named
    #[arg(long, value_delimiter = ',')]
    rows: Vec<Row>,
    /// The timed part of each run of `alone` and `crowd` [default: 2]
    #[arg(long)]
    seconds: Option<f64>,
    /// [default: 5; `gone`, `restart` and `late`: 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Clients of `crowd`, each with its own connection [default: 16]
    #[arg(long)]
    clients: Option<usize>,
    /// Processes of `crowd`, over which its clients are spread [default: 4]
    #[arg(long)]
    processes: Option<usize>,
    /// Seconds of the lease or session in `gone`, `restart` and `late` [default: 10]
    #[arg(long)]
    lease: Option<u64>,
    /// Where the servers keep their data
    #[arg(long, default_value = "disk")]
    data: Data,
    /// A moment of each, once: only shows that it runs
    #[arg(long)]
    smoke: bool,
    /// Where the report goes
    #[arg(long, default_value = "target/stores")]
    out: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// Takes a lock and holds it, at the word of the main process
    #[command(hide = true)]
    Holder { row: Row, address: String, name: String, lease: u64, statement: u64 },
    /// Takes turns with some of the clients of `crowd`
    #[command(hide = true)]
    Crew {
        row: Row,
        address: String,
        name: String,
        lease: u64,
        clients: usize,
        millis: u64,
        counter: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    Alone,
    Crowd,
    Gone,
    Restart,
    Late,
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Data {
    Disk,
    Memory,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut cli = Cli::parse();
    if let Some(hidden) = cli.hidden.take() {
        // The main process reads it, and reports it with the row.
        return hidden.run().await.inspect_err(process::tell_failure);
    }
    let rows = if cli.rows.is_empty() { Row::value_variants().to_vec() } else { cli.rows.clone() };
    let hosts = Hosts::start(&rows, cli.medium()).await?;
    let plan = cli.plan()?;
    let mut tables = Vec::new();
    for workload in cli.workloads()? {
        tables.push(workloads::run(workload, &rows, &hosts, &plan).await);
    }
    report::write(&cli.out, &hosts, &tables)?;
    ensure!(!tables.iter().any(table::Table::is_faulty), "not everything worked: see the report");
    Ok(())
}

impl Hidden {
    async fn run(self) -> Result<()> {
        match self {
            Self::Holder { row, address, name, lease, statement } => {
                let lease = Duration::from_secs(lease);
                let terms = Terms { address: &address, name: &name, lease };
                holder::hold(row, terms, Duration::from_secs(statement)).await
            }
            Self::Crew { row, address, name, lease, clients, millis, counter } => {
                let lease = Duration::from_secs(lease);
                let terms = Terms { address: &address, name: &name, lease };
                let timed = Duration::from_millis(millis);
                crew::work(row, terms, Job { clients, timed, counter: &counter }).await
            }
        }
    }
}

impl Cli {
    fn plan(&self) -> Result<Plan> {
        let usual = if self.smoke { Plan::smoke() } else { Plan::default() };
        Ok(Plan {
            timed: self.seconds.map_or(usual.timed, Duration::from_secs_f64),
            rounds: self.rounds.or(usual.rounds),
            clients: self.clients.unwrap_or(usual.clients),
            processes: self.processes.unwrap_or(usual.processes),
            lease: self.lease.map_or(usual.lease, Duration::from_secs),
            medium: self.medium(),
            program: env::current_exe()?,
        })
    }

    fn medium(&self) -> Medium {
        match self.data {
            Data::Disk => Medium::Disk,
            Data::Memory => Medium::Memory,
        }
    }

    fn workloads(&self) -> Result<Vec<Workload>> {
        Ok(match self.workload.context("which workload?")? {
            Choice::Alone => vec![Workload::Alone],
            Choice::Crowd => vec![Workload::Crowd],
            Choice::Gone => vec![Workload::Gone],
            Choice::Restart => vec![Workload::Restart],
            Choice::Late => vec![Workload::Late],
            Choice::All => Workload::ALL.to_vec(),
        })
    }
}
