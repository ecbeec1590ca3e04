//! A process that takes a lock and is killed at a named point: `kill -9`, as a crash or the kernel's want of memory does.

use std::future::pending;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parklock::{Client, Config};
use private_servers::child::{self, Child};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;

use crate::points::Points;
use crate::stage::connect_postgres;
use crate::store::{Store, new_id};
use crate::ways::{d01, d02, d12};

/// The first argument of the program, if it is to be a victim.
pub const ROLE: &str = "victim";

/// The parent's end.
#[derive(Debug)]
pub struct Victim(Child);

impl Victim {
    /// Returns when the process has come to its point.
    pub(crate) async fn start(program: &Path, way: &str, url: &str, name: &str) -> Result<Self> {
        let mut command = child::command(program);
        command.args([ROLE, way, url, name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Child::start(command);
        let (_, lines) = child.pipes();
        let mut lines = BufReader::new(ChildStdout::from_std(lines)?).lines();
        let said = lines.next_line().await?.context("the victim ended too soon")?;
        ensure!(said.starts_with("at "), "the victim says {said}");
        Ok(Self(child))
    }

    /// Kills it, and returns when it is gone. The value is the time at which it was killed.
    pub fn kill(mut self) -> Instant {
        let killed = Instant::now();
        self.0.kill();
        killed
    }
}

/// The victim's own end: takes the lock, comes to its point, and stays there.
pub async fn suffer(way: &str, url: &str, name: &str) -> Result<()> {
    match way {
        d01::WAY => d01::try_lock(&Store::connect(url).await?, name).await.map(drop)?,
        d02::WAY => {
            let points = Points::Die(d02::BETWEEN);
            d02::try_lock(&Store::connect(url).await?, name, 1, &points).await.map(drop)?;
        }
        d12::WAY => d12::try_lock(&connect_postgres(url).await?, name).await.map(drop)?,
        // The two right ways have a lease, in milliseconds behind the name of the way.
        leased => {
            let (way, lease) = leased.split_once(':').context("a way and a lease")?;
            let lease = Duration::from_millis(lease.parse()?);
            return hold(way, url, name, lease).await;
        }
    }
    Points::Die("inside").reach("inside").await;
    Ok(())
}

async fn hold(way: &str, url: &str, name: &str, lease: Duration) -> Result<()> {
    let inside = Points::Die("inside");
    if way == "parklock" {
        let config = Config::default().watchdog_timeout(lease);
        let client = Client::connect_with(url, config).await?;
        let _guard = client.lock(name).lock().await?;
        inside.reach("inside").await;
    } else {
        ensure!(Store::connect(url).await?.set_nx_px(name, &new_id(), lease).await?, "it is held");
        inside.reach("inside").await;
    }
    pending().await
}
