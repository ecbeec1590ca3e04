//! The servers that the rows need, each of them private, started once.

use anyhow::Result;
use private_servers::Medium;
use tokio::task::spawn_blocking;

use crate::group::Group;
use crate::kind::Kind;
use crate::rows::Row;

/// All servers of a run.
#[derive(Debug)]
pub struct Hosts {
    medium: Medium,
    running: Vec<(Kind, Group)>,
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

    /// The servers of a row, or why the row is left out.
    pub fn group(&self, row: Row) -> Result<&Group, &str> {
        let missing = self.missing.iter().find(|(kind, _)| *kind == row.kind());
        if let Some((_, why)) = missing {
            return Err(why);
        }
        let running = self.running.iter().find(|(kind, _)| *kind == row.kind());
        running.map(|(_, group)| group).ok_or("it was not started")
    }

    /// A line for the report.
    pub fn describe(&self) -> String {
        format!("{} · {}", self.versions.join(" · "), self.data())
    }

    /// Where the servers keep their data, in words.
    pub fn data(&self) -> &'static str {
        match self.medium {
            Medium::Disk => "data on disk",
            Medium::Memory => "data in memory (/dev/shm)",
        }
    }

    async fn add(&mut self, kind: Kind) -> Result<()> {
        let known =
            self.running.iter().map(|one| one.0).chain(self.missing.iter().map(|one| one.0));
        if known.into_iter().any(|one| one == kind) {
            return Ok(());
        }
        let program = kind.program();
        let name = program.name();
        if !program.is_here() {
            let why = format!("{name} is not installed: `apt-get install {}`", program.package());
            self.missing.push((kind, why));
            return Ok(());
        }
        let version = program.version()?;
        if !self.versions.contains(&version) {
            self.versions.push(version);
        }
        let medium = self.medium;
        let started = spawn_blocking(move || Group::start(kind, medium)).await?;
        self.running.push((kind, started?));
        Ok(())
    }
}
