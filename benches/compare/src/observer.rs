//! What the server says about itself, on a connection that takes no part in any run.

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use redis::{Client, Pipeline, cmd, pipe};

use crate::measure::Commands;

/// Asks, and empties the server between runs.
#[derive(Clone, Debug)]
pub struct Observer {
    connection: MultiplexedConnection,
}

impl Observer {
    pub async fn connect(url: &str) -> Result<Self> {
        let client = Client::open(url)?;
        let connection = client.get_multiplexed_async_connection().await?;
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

    async fn info(&mut self, section: &str) -> Result<String> {
        let mut ask = cmd("INFO");
        ask.arg(section);
        Ok(ask.query_async(&mut self.connection).await?)
    }
}
