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
        let program = program(kind);
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
        let started = spawn_blocking(move || launch(kind, medium)).await?;
        self.running.push((kind, started?));
        Ok(())
    }
}

/// Starts one more server of this kind. Blocks the thread.
pub fn launch(kind: Kind, medium: Medium) -> Result<Server> {
    let program = program(kind);
    let name = program.name();
    Server::start(program, medium).with_context(|| format!("{name} does not start"))
}

fn program(kind: Kind) -> Box<dyn Program> {
    match kind {
        Kind::Redis => Box::new(Redis(Persistence::None)),
        Kind::RedisSynced => Box::new(Redis(Persistence::Always)),
        Kind::Postgres => Box::new(Postgres),
        Kind::MariaDb => Box::new(MariaDb),
        Kind::ZooKeeper => Box::new(ZooKeeper),
        Kind::Etcd => Box::new(Etcd),
    }
}
