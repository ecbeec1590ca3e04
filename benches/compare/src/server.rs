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

/// Lives as long as this value. Keeps nothing on disk.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub async fn start() -> Result<Self> {
        let port = free_port()?;
        let args =
            format!("--port {port} --bind 127.0.0.1 --appendonly no --loglevel warning --save");
        let child = Command::new("redis-server")
            .args(args.split(' '))
            .arg("")
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
