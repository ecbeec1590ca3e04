//! A `redis-server` of our own, on a free port, ended by its process id.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis::Client;
use tokio::time::sleep;

/// How often we look whether it is up, and how long in between.
const LOOKS: u32 = 200;
const BETWEEN: Duration = Duration::from_millis(25);

/// Clients that it lets in. It sets its own limit of open files by this number, as far as it may.
pub const MAX_CLIENTS: usize = 10_000;

/// Scripts that take longer than this are kept in its `SLOWLOG`, so many of them.
const SLOW_MICROS: u32 = 500;
const SLOW_KEPT: u32 = 100_000;

/// Lives as long as this value. Keeps nothing on disk.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub async fn start() -> Result<Self> {
        let port = free_port()?;
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(options().split(' '))
            .args(["--save", ""])
            .stdout(Stdio::null())
            .spawn()
            .context("`redis-server` does not start: is it installed?")?;
        let server = Self { child, port };
        server.answers().await?;
        Ok(server)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn answers(&self) -> Result<()> {
        let client = Client::open(self.url())?;
        for _ in 0..LOOKS {
            if client.get_multiplexed_async_connection().await.is_ok() {
                return Ok(());
            }
            sleep(BETWEEN).await;
        }
        bail!("redis-server does not answer on port {}", self.port)
    }
}

/// What it is told beside its address. Nothing is written to a disk.
pub fn options() -> String {
    format!(
        "--appendonly no --loglevel warning --maxclients {MAX_CLIENTS} \
         --slowlog-log-slower-than {SLOW_MICROS} --slowlog-max-len {SLOW_KEPT} --repl-diskless-sync-delay 0"
    )
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}
