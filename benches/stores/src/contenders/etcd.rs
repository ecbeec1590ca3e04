//! etcd's lock service, under a lease that is kept alive three times in its time to live.

use std::time::Duration;

use anyhow::{Context, Result};
use etcd_client::{Client, LockOptions};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Contender, Pending, Terms};

pub struct Service {
    client: Client,
    name: String,
    lease: i64,
    /// Of the lock while it is held.
    key: Option<Vec<u8>>,
    renewal: JoinHandle<()>,
}

impl Service {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let mut client = Client::connect([terms.address], None).await?;
        let seconds = terms.lease.as_secs();
        let lease = client.lease_grant(seconds.cast_signed(), None).await?.id();
        let renewal = tokio::spawn(keep_alive(client.clone(), lease, terms.lease / 3));
        Ok(Self { client, name: terms.name.to_owned(), lease, key: None, renewal })
    }
}

/// Until the task is aborted. A stream that breaks is opened again.
async fn keep_alive(mut client: Client, lease: i64, between: Duration) {
    loop {
        if let Ok((mut keeper, mut answers)) = client.lease_keep_alive(lease).await {
            while keeper.keep_alive().await.is_ok()
                && matches!(answers.message().await, Ok(Some(_)))
            {
                sleep(between).await;
            }
        }
        sleep(between / 10).await;
    }
}

impl Contender for Service {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let options = LockOptions::new().with_lease(self.lease);
            let granted = self.client.lock(self.name.as_str(), Some(options)).await?;
            self.key = Some(granted.key().to_vec());
            Ok(())
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let key = self.key.take().context("not locked")?;
            self.client.unlock(key).await?;
            Ok(())
        })
    }

    /// The revision that made the key of the lock.
    fn token(&mut self) -> Pending<'_, Option<i64>> {
        Box::pin(async {
            let key = self.key.clone().context("not locked")?;
            let found = self.client.get(key, None).await?;
            Ok(found.kvs().first().map(etcd_client::KeyValue::create_revision))
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}
