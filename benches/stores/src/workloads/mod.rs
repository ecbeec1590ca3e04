//! What is done with each way to lock.

mod alone;
mod crowd;
mod gone;
mod late;
mod restart;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use private_servers::Medium;

use crate::contenders::Terms;
use crate::group::Group;
use crate::hosts::Hosts;
use crate::rows::Row;
use crate::table::{Column, Results, Table, Trouble};

/// How long and how large.
#[derive(Clone, Debug)]
pub struct Plan {
    pub timed: Duration,
    /// `None`: as the workload likes.
    pub rounds: Option<usize>,
    pub clients: usize,
    pub processes: usize,
    /// Of the lock or of the session, where its end is measured.
    pub lease: Duration,
    /// Where a server keeps its data that a workload starts for itself.
    pub medium: Medium,
    /// This program, to run holders in processes of their own.
    pub program: PathBuf,
}

impl Default for Plan {
    fn default() -> Self {
        let (timed, lease) = (Duration::from_secs(2), Duration::from_secs(10));
        Self {
            timed,
            rounds: None,
            clients: 16,
            processes: 4,
            lease,
            medium: Medium::Disk,
            program: PathBuf::new(),
        }
    }
}

impl Plan {
    pub fn smoke() -> Self {
        let (timed, lease) = (Duration::from_millis(200), Duration::from_secs(2));
        Self { timed, lease, rounds: Some(1), clients: 4, processes: 2, ..Self::default() }
    }

    /// How long a wait is watched: what takes longer than this may take for ever.
    fn cap(&self) -> Duration {
        self.lease * 3
    }

    /// How long a holder holds before anything happens to it.
    fn lead(&self) -> Duration {
        self.lease / 10
    }

    /// Longer than a lease and shorter than the cap: a lock that lasts as long as the statement can be told from both.
    fn statement(&self) -> Duration {
        self.lease * 2
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Workload {
    Alone,
    Crowd,
    Gone,
    Restart,
    Late,
}

impl Workload {
    pub const ALL: [Self; 5] = [Self::Alone, Self::Crowd, Self::Gone, Self::Restart, Self::Late];

    pub fn columns(self, plan: &Plan) -> Vec<Column> {
        match self {
            Self::Alone => alone::COLUMNS.to_vec(),
            Self::Crowd => crowd::COLUMNS.to_vec(),
            Self::Gone => gone::columns(plan),
            Self::Restart => restart::columns(plan),
            Self::Late => late::columns(plan),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Alone => "alone (W-S1)",
            Self::Crowd => "crowd (W-S2)",
            Self::Gone => "gone (W-S3)",
            Self::Restart => "restart (W-S4)",
            Self::Late => "late (W-S5)",
        }
    }

    fn about(self, plan: &Plan) -> String {
        let (clients, lease) = (plan.clients, plan.lease);
        match self {
            Self::Alone => "One client locks and unlocks one name in sequence.".to_owned(),
            Self::Crowd => format!(
                "{clients} clients in {} processes, each client with its own connection, on one name.",
                plan.processes
            ),
            Self::Gone => format!(
                "The holder goes: until the next one has the lock. Lease or session: {lease:?}. The statement takes {:?}.",
                plan.statement()
            ),
            Self::Restart => format!(
                "The server is killed and started again while somebody holds; of five servers, one. Lease or session: {lease:?}."
            ),
            Self::Late => format!(
                "The holder is stopped past its lease ({lease:?}), and goes on writing when somebody else holds."
            ),
        }
    }

    fn rounds(self) -> usize {
        match self {
            Self::Alone | Self::Crowd => 5,
            Self::Gone | Self::Restart | Self::Late => 1,
        }
    }

    async fn once(
        self,
        row: Row,
        terms: Terms<'_>,
        plan: &Plan,
        group: &Group,
    ) -> Result<Vec<Option<f64>>> {
        match self {
            Self::Alone => alone::run(row, terms, plan).await,
            Self::Crowd => crowd::run(row, terms, plan, group).await,
            Self::Gone => gone::run(row, terms, plan).await,
            Self::Restart => restart::run(row, terms, plan).await,
            Self::Late => late::run(row, terms, plan).await,
        }
    }
}

/// Alternates the rows within each round, every other round backwards. A row that has failed is not tried again.
pub async fn run(workload: Workload, rows: &[Row], hosts: &Hosts, plan: &Plan) -> Table {
    let rounds = plan.rounds.unwrap_or(workload.rounds());
    let mut results: Vec<Results> = rows.iter().map(|&row| begin(row, hosts)).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..results.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            one_round(workload, &mut results[index], hosts, plan, round).await;
        }
    }
    let (title, about, columns) = (workload.title(), workload.about(plan), workload.columns(plan));
    let about = format!("{about} Rounds: {rounds}; {}.", hosts.data());
    Table { title, about, columns, rows: results }
}

fn begin(row: Row, hosts: &Hosts) -> Results {
    let trouble = hosts.group(row).err().map(|why| Trouble::LeftOut(why.to_owned()));
    Results { row, rounds: Vec::new(), trouble }
}

async fn one_round(
    workload: Workload,
    results: &mut Results,
    hosts: &Hosts,
    plan: &Plan,
    round: usize,
) {
    let row = results.row;
    let (None, Ok(group)) = (&results.trouble, hosts.group(row)) else { return };
    // A name of its own: nothing that is left of a round meets the next one.
    let name = format!("{}-{row}-{round}", workload.title().split(' ').next().unwrap_or_default());
    let terms = Terms { address: &group.address(), name: &name, lease: plan.lease };
    let done = workload.once(row, terms, plan, group).await;
    eprintln!("{} {row:<18} round {}  {done:?}", workload.title(), round + 1);
    match done {
        Ok(values) => results.rounds.push(values),
        Err(error) => results.trouble = Some(Trouble::Failed(format!("{error:#}"))),
    }
}
