//! `rslock`: SET NX PX, tried again after a random part of 200 ms; nothing renews.

use std::time::Duration;

use anyhow::Result;
use rslock::{LockGuard, LockManager};

use super::contender::FIXED_LEASE;
use super::{Contender, Kind};
use crate::worker::protocol::Setup;

#[derive(Clone)]
pub struct Rslock {
    manager: LockManager,
    lease: Duration,
}

impl Contender for Rslock {
    type Handle = String;
    type Guard = LockGuard;

    async fn connect(setup: &Setup) -> Result<Self> {
        Ok(Self {
            manager: LockManager::new(vec![setup.url.as_str()]),
            lease: setup.lease().unwrap_or(FIXED_LEASE),
        })
    }

    fn handle(&self, _kind: Kind, name: &str) -> String {
        name.to_owned()
    }

    async fn acquire(&self, name: &String) -> Result<LockGuard> {
        Ok(self.manager.acquire(name.as_str(), self.lease).await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        guard.release().await;
        Ok(())
    }
}
