//! A process with some of the clients of a crowd.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::contenders::{self, Terms};
use crate::counter::Counter;
use crate::process::Process;
use crate::rows::Row;
use crate::share::Share;
use crate::turns;

const READY: &str = "ready";

/// What a crew does.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub clients: usize,
    pub timed: Duration,
    pub counter: &'a Path,
}

/// The parent's end. Dropped, it kills the process.
#[derive(Debug)]
pub struct Crew(Process);

impl Crew {
    /// Returns when all its clients are connected.
    pub async fn start(program: &Path, row: Row, terms: Terms<'_>, job: Job<'_>) -> Result<Self> {
        let (row, lease) = (row.name(), terms.lease.as_secs().to_string());
        let (clients, millis) = (job.clients.to_string(), job.timed.as_millis().to_string());
        let counter = job.counter.to_string_lossy();
        let (address, name) = (terms.address, terms.name);
        let arguments = ["crew", &row, address, name, &lease, &clients, &millis, &counter];
        let mut process = Process::start(program, &arguments)?;
        let said = process.hear().await?;
        ensure!(said == READY, "{said:?}");
        Ok(Self(process))
    }

    pub async fn go(&mut self) -> Result<()> {
        self.0.order("go").await
    }

    /// What each client came to, when all are through.
    pub async fn shares(&mut self) -> Result<Vec<Share>> {
        self.0.hear().await?.split(' ').map(str::parse).collect()
    }
}

/// The crew's own end: connects, waits for the word, takes turns, and tells what they came to.
pub async fn work(row: Row, terms: Terms<'_>, job: Job<'_>) -> Result<()> {
    let counter = Counter::open(job.counter)?;
    let mut contenders = Vec::new();
    for _ in 0..job.clients {
        contenders.push(contenders::open(row, terms).await?);
    }
    writeln!(io::stdout(), "{READY}")?;
    if BufReader::new(stdin()).lines().next_line().await?.is_none() {
        return Ok(());
    }
    let shares = turns::take(contenders, counter, job.timed).await?;
    let shares: Vec<String> = shares.iter().map(Share::to_string).collect();
    Ok(writeln!(io::stdout(), "{}", shares.join(" "))?)
}
