//! `async-redis-lock`: waits by trying again each 100 ms, renews at a third of its lease.

use anyhow::Result;
use async_redis_lock::{Lock, Locker, Options};

use super::{Contender, Kind};
use crate::worker::protocol::Setup;

#[derive(Clone)]
pub struct AsyncRedisLock {
    locker: Locker,
    options: Options,
}

impl Contender for AsyncRedisLock {
    type Handle = String;
    type Guard = Lock;

    async fn connect(setup: &Setup) -> Result<Self> {
        // It gives up after a second by default; here everybody waits for the turn.
        let options = Options::new().timeout(None);
        Ok(Self {
            locker: Locker::from_redis_url(&setup.url).await?,
            options: match setup.lease() {
                Some(lease) => options.ttl(lease).extend(lease / 3),
                None => options,
            },
        })
    }

    fn handle(&self, _kind: Kind, name: &str) -> String {
        name.to_owned()
    }

    async fn acquire(&self, name: &String) -> Result<Lock> {
        let locked = self.locker.acquire_with_options(&self.options, name.as_str());
        Ok(locked.await?)
    }

    async fn release(&self, guard: Lock) -> Result<()> {
        Ok(guard.release().await?)
    }

    fn is_valid(guard: &Lock) -> bool {
        !guard.is_lost()
    }
}
