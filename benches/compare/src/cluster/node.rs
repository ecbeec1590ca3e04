//! One node of a cluster: a `redis-server` with a folder of its own, ended by its process id.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue};
use tokio::time::{Instant, sleep};

use crate::server;

const START: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

/// How much higher the port of the bus is.
const BUS: u16 = 10_000;

/// Lives as long as this value.
#[derive(Debug)]
pub struct Node {
    child: Child,
    folder: PathBuf,
    pub port: u16,
    /// What the other nodes call it.
    pub id: String,
    connection: MultiplexedConnection,
}

impl Node {
    /// A node that knows no other one.
    pub async fn start(silence: Duration) -> Result<Self> {
        let (port, folder) = (free_port()?, folder()?);
        let silence = silence.as_millis().to_string();
        let mut child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--cluster-enabled", "yes", "--cluster-node-timeout", &silence])
            .args(server::options().split(' '))
            .args(["--save", ""])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .context("`redis-server` does not start: is it installed?")?;
        let connected = connection(port).await;
        if connected.is_err() {
            let _ = child.kill().and_then(|()| child.wait().map(drop));
        }
        let mut node = Self { child, folder, port, id: String::new(), connection: connected? };
        node.id = node.ask(&["CLUSTER", "MYID"]).await?;
        Ok(node)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn bus(&self) -> u16 {
        self.port + BUS
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        let mut cmd = Cmd::new();
        words.iter().for_each(|word| _ = cmd.arg(word));
        let asked = cmd.query_async(&mut self.connection.clone()).await;
        asked.with_context(|| format!("{} of the node on port {}", words.join(" "), self.port))
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// As an operator does it: it says goodbye.
    pub async fn shut_down(&self) -> Result<()> {
        // It ends instead of answering.
        let _ = self.ask::<()>(&["SHUTDOWN", "NOSAVE"]).await;
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            ensure!(begun.elapsed() < START, "the node on port {} does not end", self.port);
            sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // All fail only if it has ended already, or if somebody else has cleared its folder away.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

async fn connection(port: u16) -> Result<MultiplexedConnection> {
    let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let begun = Instant::now();
    loop {
        match client.get_multiplexed_async_connection_with_config(&patient).await {
            Ok(connection) => return Ok(connection),
            Err(error) if begun.elapsed() > START => {
                return Err(error).with_context(|| format!("no node answers on port {port}"));
            }
            Err(_) => sleep(LOOK).await,
        }
    }
}

/// One whose bus has a free port too, below those that the system gives to whoever asks for any.
fn free_port() -> Result<u16> {
    for _ in 0..1_000 {
        let port = fastrand::u16(11_000..22_000);
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + BUS) {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free")
}

fn folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("parklock-compare-{:016x}", fastrand::u64(..)));
    fs::create_dir(&folder)?;
    Ok(folder)
}
