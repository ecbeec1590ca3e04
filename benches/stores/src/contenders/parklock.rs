//! parklock, with its defaults but for the lease.

use anyhow::{Context, Result};
use parklock::{Client, Config, Guard, Lock, RedGuard, RedLock};

use super::{Contender, Pending, Terms};

async fn connect(address: &str, terms: Terms<'_>) -> Result<Client> {
    let config = Config::default().watchdog_timeout(terms.lease);
    Ok(Client::connect_with(format!("redis://{address}"), config).await?)
}

pub struct Parklock {
    lock: Lock,
    guard: Option<Guard>,
}

impl Parklock {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let client = connect(terms.address, terms).await?;
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

/// The library's `RedLock`: a client of each server. It has no token, since each server counts separately.
pub struct Majority {
    lock: RedLock,
    guard: Option<RedGuard>,
}

impl Majority {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let mut locks = Vec::new();
        for address in terms.address.split(',') {
            locks.push(connect(address, terms).await?.lock(terms.name));
        }
        Ok(Self { lock: RedLock::new(locks), guard: None })
    }
}

impl Contender for Majority {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            self.guard = Some(self.lock.lock().await?);
            Ok(())
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async { Ok(self.guard.take().context("not locked")?.unlock().await?) })
    }

    fn believes(&self) -> Option<bool> {
        Some(self.guard.as_ref().is_some_and(RedGuard::is_valid))
    }
}
