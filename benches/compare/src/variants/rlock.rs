//! `rlock`: waits by trying again each 100 ms, renews at half its lease.

use std::time::Duration;

use anyhow::Result;
use rlock::async_lock::{RLock, RLockGuard};
use rlock::{AcquireOptions, LeaseState};

use super::{Contender, Kind};
use crate::worker::protocol::Setup;

#[derive(Clone)]
pub struct Rlock {
    client: RLock,
    options: AcquireOptions,
}

impl Contender for Rlock {
    type Handle = String;
    type Guard = RLockGuard;

    async fn connect(setup: &Setup) -> Result<Self> {
        Ok(Self { client: RLock::new(setup.url.as_str()).await?, options: options(setup.lease())? })
    }

    fn handle(&self, _kind: Kind, name: &str) -> String {
        name.to_owned()
    }

    async fn acquire(&self, name: &String) -> Result<RLockGuard> {
        let acquired = self.client.acquire_mutex_with_options(name, self.options.clone());
        Ok(acquired.await?)
    }

    async fn release(&self, mut guard: RLockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }

    fn is_valid(guard: &RLockGuard) -> bool {
        guard.lease_state() == LeaseState::Active
    }
}

fn options(lease: Option<Duration>) -> Result<AcquireOptions> {
    let options = AcquireOptions::builder();
    let options = match lease {
        Some(lease) => options.ttl(lease),
        None => options,
    };
    Ok(options.build()?)
}
