//! The few commands of Redis that the wrong locks are made of, one connection each.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Script, cmd};
use tokio::time::sleep;

/// How often a wrong lock asks again: nobody tells it.
pub const POLL: Duration = Duration::from_millis(10);

/// `GET`, compare, `DEL` in one step: the release that all of them should have.
const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

const PATIENCE: Duration = Duration::from_secs(30);

/// A client's own connection.
#[derive(Clone, Debug)]
pub struct Store(MultiplexedConnection);

impl Store {
    pub async fn connect(url: &str) -> Result<Self> {
        // A story is not about a machine that stands still for half a second, the default.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        Ok(Self(Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?))
    }

    pub async fn set_nx(&self, key: &str, value: &str) -> Result<bool> {
        self.ask(cmd("SETNX").arg(key).arg(value)).await
    }

    pub async fn set_nx_px(&self, key: &str, value: &str, lease: Duration) -> Result<bool> {
        let mut set = cmd("SET");
        let set = set.arg(key).arg(value).arg("NX").arg("PX").arg(lease.as_millis() as u64);
        Ok(self.ask::<Option<String>>(set).await?.is_some())
    }

    pub async fn get(&self, key: &str) -> Result<Option<String>> {
        self.ask(cmd("GET").arg(key)).await
    }

    pub async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>> {
        self.ask(cmd("GETSET").arg(key).arg(value)).await
    }

    pub async fn del(&self, key: &str) -> Result<bool> {
        self.ask(cmd("DEL").arg(key)).await
    }

    pub async fn expire(&self, key: &str, seconds: u64) -> Result<bool> {
        self.ask(cmd("EXPIRE").arg(key).arg(seconds)).await
    }

    pub async fn exists(&self, key: &str) -> Result<bool> {
        self.ask(cmd("EXISTS").arg(key)).await
    }

    /// In milliseconds; -1 if the key has no expiry, -2 if there is no such key.
    pub async fn pttl(&self, key: &str) -> Result<i64> {
        self.ask(cmd("PTTL").arg(key)).await
    }

    pub async fn compare_and_delete(&self, key: &str, value: &str) -> Result<bool> {
        let mut redis = self.0.clone();
        Ok(Script::new(COMPARE_AND_DELETE).key(key).arg(value).invoke_async(&mut redis).await?)
    }

    /// Until the server has removed the key: its lease is over.
    pub async fn until_gone(&self, key: &str) -> Result<()> {
        while self.exists(key).await? {
            sleep(POLL).await;
        }
        Ok(())
    }

    async fn ask<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T> {
        Ok(command.query_async(&mut self.0.clone()).await?)
    }
}

/// An id that no other holder has.
pub fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}
