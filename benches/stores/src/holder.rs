//! A process that holds a lock, so that it can be killed or stopped. It writes all the while, as a holder does.

use std::io::Write;
use std::path::Path;
use std::time::Duration;
use std::{io, mem};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::contenders::{self, Terms};
use crate::process::Process;
use crate::rows::Row;

/// Between two writes.
const BETWEEN: Duration = Duration::from_millis(5);

/// One write of the holder, as the resource hears of it.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub token: Option<i64>,
    /// What the holder's own lock answered just before; `None` if it cannot be asked.
    pub believes: Option<bool>,
}

/// The parent's end. Dropped, it kills the process.
#[derive(Debug)]
pub struct Holder(Process);

impl Holder {
    /// Returns when the process has the lock.
    pub async fn start(program: &Path, row: Row, terms: Terms<'_>) -> Result<Self> {
        let mut holder = Self::ask(program, row, terms)?;
        holder.write().await?;
        Ok(holder)
    }

    /// Returns when the process has the lock. It then runs a statement that takes this long, and writes nothing meanwhile.
    pub async fn start_statement(
        program: &Path,
        row: Row,
        terms: Terms<'_>,
        time: Duration,
    ) -> Result<Self> {
        let mut holder = Self::launch(program, row, terms, time)?;
        holder.write().await?;
        Ok(holder)
    }

    /// A process that asks for the lock, and may have to wait.
    pub fn ask(program: &Path, row: Row, terms: Terms<'_>) -> Result<Self> {
        Self::launch(program, row, terms, Duration::ZERO)
    }

    fn launch(program: &Path, row: Row, terms: Terms<'_>, statement: Duration) -> Result<Self> {
        let (row, lease) = (row.name(), terms.lease.as_secs().to_string());
        let statement = statement.as_secs().to_string();
        let arguments = ["holder", &row, terms.address, terms.name, &lease, &statement];
        Ok(Self(Process::start(program, &arguments)?))
    }

    /// The next write.
    pub async fn write(&mut self) -> Result<Written> {
        let line = self.0.hear().await?;
        let (token, believes) = line.split_once(' ').context("two words")?;
        Ok(Written { token: token.parse().ok(), believes: believes.parse().ok() })
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }

    pub fn stop(&self) {
        self.0.stop();
    }

    pub fn go_on(&self) {
        self.0.go_on();
    }
}

/// The holder's own end: locks, runs a statement if it is to take any time, and writes until it is killed. It is not told
/// that anything has happened.
pub async fn hold(row: Row, terms: Terms<'_>, mut statement: Duration) -> Result<()> {
    ensure!(!terms.lease.is_zero(), "a lease");
    let mut contender = contenders::open(row, terms).await?;
    contender.lock().await?;
    let token = contender.token().await?.map_or("none".to_owned(), |token| token.to_string());
    loop {
        let mut out = io::stdout();
        let believes = contender.believes().map_or("none".to_owned(), |yes| yes.to_string());
        // The parent has gone when it reads no more.
        if writeln!(out, "{token} {believes}").is_err() {
            return Ok(());
        }
        if !statement.is_zero() {
            contender.statement(mem::take(&mut statement)).await?;
        }
        sleep(BETWEEN).await;
    }
}
