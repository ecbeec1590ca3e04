//! parklock, with its defaults but for the lease.

use anyhow::{Context, Result};
use parklock::{Client, Config, Guard, Lock};

use super::{Contender, Pending, Terms};

pub struct Parklock {
    lock: Lock,
    guard: Option<Guard>,
}

impl Parklock {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let config = Config::default().watchdog_timeout(terms.lease);
        let client = Client::connect_with(format!("redis://{}", terms.address), config).await?;
        Ok(Self { lock: client.lock(terms.name), guard: None })
    }
}

impl Contender for Parklock {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            self.guard = Some(self.lock.lock().await?);
            Ok(())
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async { Ok(self.guard.take().context("not locked")?.unlock().await?) })
    }

    fn token(&mut self) -> Pending<'_, Option<i64>> {
        let token = self.guard.as_ref().map(|guard| guard.token().get().cast_signed());
        Box::pin(async move { Ok(token) })
    }

    fn believes(&self) -> Option<bool> {
        Some(self.guard.as_ref().is_some_and(Guard::is_valid))
    }
}
