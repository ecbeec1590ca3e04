//! RedLock by its recipe, over several Redis servers that know nothing of each other. It polls, and does not renew.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::redis::{compare_and_delete, connect, set_nx_px};
use super::{Contender, Pending, Polls, Terms, new_id, poll};

/// How long one server may take to answer: a small part of the lease, so that one that is down costs little.
const ANSWER: Duration = Duration::from_millis(50);

/// `SET key id NX PX lease` on all servers at once. A majority of them is the lock.
pub struct RedLock {
    servers: Vec<MultiplexedConnection>,
    key: String,
    lease: Duration,
    id: String,
}

impl RedLock {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let mut servers = Vec::new();
        for address in terms.address.split(',') {
            servers.push(connect(address).await?);
        }
        Ok(Self { servers, key: terms.name.to_owned(), lease: terms.lease, id: new_id() })
    }

    /// On how many servers the key is ours now.
    async fn take(&mut self) -> usize {
        let (key, id, lease) = (self.key.as_str(), self.id.as_str(), self.lease);
        let ask = |server| timeout(ANSWER, set_nx_px(server, key, id, lease));
        count(&join_all(self.servers.iter_mut().map(ask)).await)
    }

    /// On how many servers the key was ours until now.
    async fn give(&mut self) -> usize {
        let (key, id) = (self.key.as_str(), self.id.as_str());
        let ask = |server| timeout(ANSWER, compare_and_delete(server, key, id));
        count(&join_all(self.servers.iter_mut().map(ask)).await)
    }

    fn is_majority(&self, servers: usize) -> bool {
        servers > self.servers.len() / 2
    }

    /// By how much the clocks of two servers may come apart within a lease, as the recipe has it.
    fn drift(&self) -> Duration {
        self.lease / 100 + Duration::from_millis(2)
    }
}

/// A server that fails, or does not answer in time, counts as one that refuses.
fn count(answers: &[Result<Result<bool>, Elapsed>]) -> usize {
    answers.iter().filter(|answer| matches!(answer, Ok(Ok(true)))).count()
}

impl Polls for RedLock {
    async fn try_lock(&mut self) -> Result<bool> {
        let since = Instant::now();
        let taken = self.take().await;
        if self.is_majority(taken) && since.elapsed() + self.drift() < self.lease {
            return Ok(true);
        }
        // Also on the servers that did not answer: they may have taken it.
        self.give().await;
        Ok(false)
    }
}

impl Contender for RedLock {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(poll(self))
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let given = self.give().await;
            ensure!(self.is_majority(given), "the lease was over");
            Ok(())
        })
    }
}
