//! Bare commands and scripts on Redis. All of them poll, and none renews.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script, cmd};

use super::{Contender, Pending, Polls, Terms, new_id, poll};

static COMPARE_AND_DELETE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    )
});

/// `incr`, refused outside of 0 to 1, with a time to live. The same script takes and gives back.
static BOUNDED_INCR: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local new = tonumber(redis.call('get', KEYS[1]) or 0) + ARGV[1]
         if new < 0 or new > 1 then return 0 end
         redis.call('set', KEYS[1], new, 'PX', ARGV[2])
         return 1",
    )
});

/// `put` with a version: refused unless the key is absent, or its version is this one.
static PUT_VERSION: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local version = redis.call('hget', KEYS[1], 'version')
         if version and version ~= ARGV[2] then return 0 end
         redis.call('hset', KEYS[1], 'value', ARGV[1], 'version', (tonumber(version) or 0) + 1)
         redis.call('pexpire', KEYS[1], ARGV[3])
         return 1",
    )
});

/// Any number that the version never is: then `put` means "create, if absent".
const NO_VERSION: i64 = 1_000_000;

pub(super) async fn connect(address: &str) -> Result<MultiplexedConnection> {
    let client = Client::open(format!("redis://{address}"))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// `SET key id NX PX lease`: whether the key is ours now.
pub(super) async fn set_nx_px(
    redis: &mut MultiplexedConnection,
    key: &str,
    id: &str,
    lease: Duration,
) -> Result<bool> {
    let mut set = cmd("SET");
    set.arg(key).arg(id).arg("NX").arg("PX").arg(millis(lease));
    let taken: Option<String> = set.query_async(redis).await?;
    Ok(taken.is_some())
}

/// Deletes the key if it is ours: whether it was.
pub(super) async fn compare_and_delete(
    redis: &mut MultiplexedConnection,
    key: &str,
    id: &str,
) -> Result<bool> {
    let mut release = COMPARE_AND_DELETE.key(key);
    Ok(release.arg(id).invoke_async(redis).await?)
}

fn millis(lease: Duration) -> u64 {
    lease.as_millis() as u64
}

/// `SET key id NX PX lease`, and a release that compares.
pub struct SetNxPx {
    redis: MultiplexedConnection,
    key: String,
    lease: Duration,
    id: String,
}

impl SetNxPx {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let (redis, key) = (connect(terms.address).await?, terms.name.to_owned());
        Ok(Self { redis, key, lease: terms.lease, id: new_id() })
    }
}

impl Polls for SetNxPx {
    async fn try_lock(&mut self) -> Result<bool> {
        set_nx_px(&mut self.redis, &self.key, &self.id, self.lease).await
    }
}

impl Contender for SetNxPx {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(poll(self))
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let found = compare_and_delete(&mut self.redis, &self.key, &self.id).await?;
            ensure!(found, "the lease was over");
            Ok(())
        })
    }
}

/// A counter between 0 and 1. It has no owner: whoever subtracts, frees.
pub struct BoundedIncr {
    redis: MultiplexedConnection,
    key: String,
    lease: Duration,
}

impl BoundedIncr {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let (redis, key) = (connect(terms.address).await?, terms.name.to_owned());
        Ok(Self { redis, key, lease: terms.lease })
    }

    async fn add(&mut self, number: i64) -> Result<bool> {
        let mut call = BOUNDED_INCR.key(&self.key);
        let call = call.arg(number).arg(millis(self.lease));
        Ok(call.invoke_async(&mut self.redis).await?)
    }
}

impl Polls for BoundedIncr {
    async fn try_lock(&mut self) -> Result<bool> {
        self.add(1).await
    }
}

impl Contender for BoundedIncr {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(poll(self))
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            ensure!(self.add(-1).await?, "the lease was over");
            Ok(())
        })
    }
}

/// `put` with a version that never is, and a plain `del`: it has no owner either.
pub struct PutVersion {
    redis: MultiplexedConnection,
    key: String,
    lease: Duration,
}

impl PutVersion {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let (redis, key) = (connect(terms.address).await?, terms.name.to_owned());
        Ok(Self { redis, key, lease: terms.lease })
    }

    async fn put(&mut self) -> Result<bool> {
        let mut call = PUT_VERSION.key(&self.key);
        let call = call.arg("locked").arg(NO_VERSION).arg(millis(self.lease));
        Ok(call.invoke_async(&mut self.redis).await?)
    }
}

impl Polls for PutVersion {
    async fn try_lock(&mut self) -> Result<bool> {
        self.put().await
    }
}

impl Contender for PutVersion {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(poll(self))
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let found: bool = cmd("DEL").arg(&self.key).query_async(&mut self.redis).await?;
            ensure!(found, "the lease was over");
            Ok(())
        })
    }
}
