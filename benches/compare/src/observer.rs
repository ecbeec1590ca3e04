//! What the server says about itself, on a connection that takes no part in any run.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, cmd, pipe};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::measure::Commands;

/// A server that is full of work may take so long to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Id, time, microseconds, the words of the call, client's address and name.
type Slow = (u64, u64, u64, Vec<Vec<u8>>, Vec<u8>, Vec<u8>);

/// How often we look whether the backlog has come or gone, and how long in between.
const LOOKS: u32 = 500;
const BETWEEN: Duration = Duration::from_millis(20);

/// Asks, and empties the server between runs.
#[derive(Clone, Debug)]
pub struct Observer {
    connection: MultiplexedConnection,
}

impl Observer {
    pub async fn connect(url: &str) -> Result<Self> {
        let client = Client::open(url)?;
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        Ok(Self { connection })
    }

    /// No key is left of an earlier run.
    pub async fn empty(&mut self) -> Result<()> {
        Ok(cmd("FLUSHALL").exec_async(&mut self.connection).await?)
    }

    pub async fn version(&mut self) -> Result<String> {
        let info = self.info("server").await?;
        let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(line.context("the server tells no version")?.trim().to_owned())
    }

    pub async fn commands(&mut self) -> Result<Commands> {
        Ok(Commands::parse(&self.info("commandstats").await?))
    }

    pub async fn keys(&mut self) -> Result<u64> {
        Ok(cmd("DBSIZE").query_async(&mut self.connection).await?)
    }

    /// Channels that somebody is subscribed to.
    pub async fn channels(&mut self) -> Result<usize> {
        let mut ask = cmd("PUBSUB");
        ask.arg("CHANNELS");
        let names: Vec<Vec<u8>> = ask.query_async(&mut self.connection).await?;
        Ok(names.len())
    }

    /// Milliseconds that each key has left; negative if it is gone.
    pub async fn time_left(&mut self, keys: &[String]) -> Result<Vec<i64>> {
        let mut asks: Pipeline = pipe();
        for key in keys {
            asks.cmd("PTTL").arg(key);
        }
        Ok(asks.query_async(&mut self.connection).await?)
    }

    /// How many bytes have been replicated. There is something to count only while there is a backlog.
    pub async fn replicated(&mut self) -> Result<u64> {
        let info = self.info("replication").await?;
        let line = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
        Ok(line.context("the server tells no offset")?.trim().parse()?)
    }

    /// Makes the server count what it would replicate: a replica has come, and has gone at once.
    pub async fn open_backlog(&mut self, port: u16) -> Result<()> {
        self.keep_backlog_for(Duration::from_secs(3600)).await?;
        let mut replica = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        replica.write_all(b"PSYNC ? -1\r\n").await?;
        self.backlog_is("1").await
    }

    /// So that other workloads do not pay for it.
    pub async fn close_backlog(&mut self) -> Result<()> {
        self.keep_backlog_for(Duration::from_secs(1)).await?;
        self.backlog_is("0").await
    }

    async fn keep_backlog_for(&mut self, time: Duration) -> Result<()> {
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("repl-backlog-ttl").arg(time.as_secs());
        Ok(set.exec_async(&mut self.connection).await?)
    }

    async fn backlog_is(&mut self, active: &str) -> Result<()> {
        let line = format!("repl_backlog_active:{active}");
        for _ in 0..LOOKS {
            if self.info("replication").await?.contains(&line) {
                return Ok(());
            }
            sleep(BETWEEN).await;
        }
        bail!("the server's backlog of what it replicates did not change: expected {line}")
    }

    /// Forgets the slow calls of earlier runs.
    pub async fn forget_slow(&mut self) -> Result<()> {
        let mut reset = cmd("SLOWLOG");
        reset.arg("RESET");
        Ok(reset.exec_async(&mut self.connection).await?)
    }

    /// How long each slow script took. Scripts that are faster than the server's threshold are not in it.
    pub async fn slow_scripts(&mut self) -> Result<Vec<Duration>> {
        let mut ask = cmd("SLOWLOG");
        ask.arg("GET").arg(-1);
        let entries: Vec<Slow> = ask.query_async(&mut self.connection).await?;
        let scripts = entries.into_iter().filter(|(_, _, _, words, ..)| {
            words.first().is_some_and(|name| Commands::is_script(&String::from_utf8_lossy(name)))
        });
        Ok(scripts.map(|(_, _, micros, ..)| Duration::from_micros(micros)).collect())
    }

    async fn info(&mut self, section: &str) -> Result<String> {
        let mut ask = cmd("INFO");
        ask.arg(section);
        Ok(ask.query_async(&mut self.connection).await?)
    }
}
