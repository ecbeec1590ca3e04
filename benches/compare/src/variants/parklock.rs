//! `parklock`: the library that this comparison belongs to.

use std::time::Duration;

use anyhow::Result;
use parklock::{Client, Config, Guard, Lock};

use super::Contender;
use crate::worker::protocol::Setup;

#[derive(Clone)]
pub struct Parklock {
    client: Client,
    fair: bool,
}

impl Contender for Parklock {
    type Handle = Lock;
    type Guard = Guard;

    async fn connect(setup: &Setup) -> Result<Self> {
        let mut config = Config::default();
        if let Some(lease) = setup.lease() {
            config = config.watchdog_timeout(lease);
        }
        if let Some(linger) = setup.linger_ms {
            config = config.subscription_linger(Duration::from_millis(linger));
        }
        let client = Client::connect_with(&setup.url, config).await?;
        Ok(Self { client, fair: setup.fair })
    }

    fn handle(&self, name: &str) -> Lock {
        if self.fair { self.client.fair_lock(name) } else { self.client.lock(name) }
    }

    async fn acquire(&self, lock: &Lock) -> Result<Guard> {
        Ok(lock.lock().await?)
    }

    async fn release(&self, guard: Guard) -> Result<()> {
        Ok(guard.unlock().await?)
    }

    fn is_valid(guard: &Guard) -> bool {
        guard.is_valid()
    }
}
