//! The servers that the rows need, each of them private, started once.

use anyhow::{Context, Result};
use private_servers::{
    Etcd, MariaDb, Medium, Persistence, Postgres, Program, Redis, Server, ZooKeeper,
};
use tokio::task::spawn_blocking;

use crate::rows::Row;

/// A server, with the setting that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    RedisSynced,
    Postgres,
    MariaDb,
    ZooKeeper,
    Etcd,
}

/// All servers of a run.
#[derive(Debug)]
pub struct Hosts {
    medium: Medium,
    running: Vec<(Kind, Server)>,
    /// What is not installed, and what would install it.
    missing: Vec<(Kind, String)>,
    /// As the programs say it themselves.
    versions: Vec<String>,
}

impl Hosts {
    pub async fn start(rows: &[Row], medium: Medium) -> Result<Self> {
        let (running, missing, versions) = (Vec::new(), Vec::new(), Vec::new());
        let mut hosts = Self { medium, running, missing, versions };
        for row in rows {
            hosts.add(row.kind()).await?;
        }
        Ok(hosts)
    }

    /// Where the server of a row listens, or why the row is left out.
    pub fn address(&self, row: Row) -> Result<String, &str> {
        let missing = self.missing.iter().find(|(kind, _)| *kind == row.kind());
        if let Some((_, why)) = missing {
            return Err(why);
        }
        let running = self.running.iter().find(|(kind, _)| *kind == row.kind());
        running.map(|(_, server)| server.address().to_string()).ok_or("it was not started")
    }

    /// A line for the report.
    pub fn describe(&self) -> String {
        let medium = match self.medium {
            Medium::Disk => "data on disk",
            Medium::Memory => "data in memory (/dev/shm)",
        };
        format!("{} · {medium}", self.versions.join(" · "))
    }

    async fn add(&mut self, kind: Kind) -> Result<()> {
        let known =
            self.running.iter().map(|one| one.0).chain(self.missing.iter().map(|one| one.0));
        if known.into_iter().any(|one| one == kind) {
            return Ok(());
        }
        match kind {
            Kind::Redis => self.start_one(kind, Redis(Persistence::None)).await,
            Kind::RedisSynced => self.start_one(kind, Redis(Persistence::Always)).await,
            Kind::Postgres => self.start_one(kind, Postgres).await,
            Kind::MariaDb => self.start_one(kind, MariaDb).await,
            Kind::ZooKeeper => self.start_one(kind, ZooKeeper).await,
            Kind::Etcd => self.start_one(kind, Etcd).await,
        }
    }

    async fn start_one(&mut self, kind: Kind, program: impl Program + 'static) -> Result<()> {
        let name = program.name();
        if !program.is_here() {
            let why = format!("{name} is not installed: `apt-get install {}`", program.package());
            self.missing.push((kind, why));
            return Ok(());
        }
        if kind != Kind::RedisSynced {
            self.versions.push(program.version()?);
        }
        let medium = self.medium;
        let started = spawn_blocking(move || Server::start(program, medium)).await?;
        self.running.push((kind, started.with_context(|| format!("{name} does not start"))?));
        Ok(())
    }
}
