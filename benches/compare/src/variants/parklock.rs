//! `parklock`: the library that this comparison belongs to. Every call to it stands here.

use std::time::Duration;

use anyhow::Result;
use parklock::{Client, Config, Guard, Lock, RwLock, Semaphore};

use super::{Contender, Kind};
use crate::worker::protocol::Setup;

#[derive(Clone)]
pub struct Parklock {
    client: Client,
}

/// One of its locks, and how it is to be taken.
pub enum Handle {
    Lock(Lock),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore, u32),
}

impl Contender for Parklock {
    type Handle = Handle;
    type Guard = Guard;

    async fn connect(setup: &Setup) -> Result<Self> {
        let mut config = Config::default();
        if let Some(lease) = setup.lease() {
            config = config.watchdog_timeout(lease);
        }
        if let Some(linger) = setup.linger_ms {
            config = config.subscription_linger(Duration::from_millis(linger));
        }
        if let Some(keep) = setup.keep_ms {
            config = config.keep(Duration::from_millis(keep));
        }
        Ok(Self { client: Client::connect_with(&setup.url, config).await? })
    }

    fn handle(&self, kind: Kind, name: &str) -> Handle {
        match kind {
            Kind::Lock => Handle::Lock(self.client.lock(name)),
            Kind::Fair => Handle::Lock(self.client.fair_lock(name)),
            Kind::Read => Handle::Read(self.client.rw_lock(name)),
            Kind::Write => Handle::Write(self.client.rw_lock(name)),
            Kind::Permits(permits) => Handle::Permit(self.client.semaphore(name, permits), permits),
        }
    }

    /// The plain lock's wait is not to take the memory of the largest of them, so that the others' are in a box.
    async fn acquire(&self, handle: &Handle) -> Result<Guard> {
        Ok(match handle {
            Handle::Lock(lock) => lock.lock().await?,
            Handle::Read(lock) => Box::pin(lock.read()).await?,
            Handle::Write(lock) => Box::pin(lock.write()).await?.into_guard(),
            Handle::Permit(semaphore, _) => Box::pin(semaphore.acquire()).await?,
        })
    }

    async fn acquire_whole(&self, handle: &Handle) -> Result<Guard> {
        Ok(match handle {
            Handle::Lock(lock) => lock.lock().await?,
            Handle::Read(lock) | Handle::Write(lock) => lock.write().await?.into_guard(),
            Handle::Permit(semaphore, permits) => semaphore.acquire_many(*permits).await?,
        })
    }

    async fn release(&self, guard: Guard) -> Result<()> {
        Ok(guard.unlock().await?)
    }

    fn is_valid(guard: &Guard) -> bool {
        guard.is_valid()
    }
}
