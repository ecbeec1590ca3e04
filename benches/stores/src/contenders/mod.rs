//! One client with a connection of its own, for each way to lock.

mod etcd;
mod mariadb;
mod parklock;
mod postgres;
mod red_lock;
mod redis;
mod zookeeper;

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::sleep;

use crate::rows::Row;

pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// What all workloads ask of a lock. It is locked and unlocked by turns.
pub trait Contender: Send {
    /// Waits until the lock is this client's.
    fn lock(&mut self) -> Pending<'_, ()>;

    fn unlock(&mut self) -> Pending<'_, ()>;

    /// A number that grows with every hold, if the way has one. Only asked while the lock is held.
    fn token(&mut self) -> Pending<'_, Option<i64>> {
        Box::pin(async { Ok(None) })
    }

    /// Runs a statement that takes this long, on the connection that has the lock. Only asked of rows that have statements.
    fn statement(&mut self, _: Duration) -> Pending<'_, ()> {
        Box::pin(async { bail!("it has no statements") })
    }

    /// Whether the client itself still believes that it holds; `None` if this way has nothing that it could ask.
    fn believes(&self) -> Option<bool> {
        None
    }
}

/// What a contender is told when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Host and port of the server; of each of them, with commas between, if there are several.
    pub address: &'a str,
    /// Of the lock.
    pub name: &'a str,
    /// Of the lock or of the session, for the ways that have one.
    pub lease: Duration,
}

/// Connects, and makes what has to be there before anybody locks: a row, a node.
pub async fn open(row: Row, terms: Terms<'_>) -> Result<Box<dyn Contender>> {
    Ok(match row {
        Row::Parklock | Row::ParklockSynced => Box::new(parklock::Parklock::open(terms).await?),
        Row::ParklockRedlock => Box::new(parklock::Majority::open(terms).await?),
        Row::SetNxPx | Row::SetNxPxSynced => Box::new(redis::SetNxPx::open(terms).await?),
        Row::Redlock => Box::new(red_lock::RedLock::open(terms).await?),
        Row::BoundedIncr => Box::new(redis::BoundedIncr::open(terms).await?),
        Row::PutVersion => Box::new(redis::PutVersion::open(terms).await?),
        Row::PgAdvisory => Box::new(postgres::Advisory::open(terms).await?),
        Row::PgForUpdate => Box::new(postgres::ForUpdate::open(terms).await?),
        Row::PgVersion => Box::new(postgres::Version::open(terms).await?),
        Row::MariadbGetLock => Box::new(mariadb::GetLock::open(terms).await?),
        Row::MariadbForUpdate => Box::new(mariadb::ForUpdate::open(terms).await?),
        Row::MariadbVersion => Box::new(mariadb::Version::open(terms).await?),
        Row::Zookeeper => Box::new(zookeeper::Sequence::open(terms).await?),
        Row::Etcd => Box::new(etcd::Service::open(terms).await?),
    })
}

/// A way to lock that cannot wait.
trait Polls: Send {
    fn try_lock(&mut self) -> impl Future<Output = Result<bool>> + Send;
}

/// Tries every fifty milliseconds, half of it by chance, so that clients do not try in step.
async fn poll(client: &mut impl Polls) -> Result<()> {
    while !client.try_lock().await? {
        sleep(Duration::from_millis(fastrand::u64(25..=75))).await;
    }
    Ok(())
}

/// An id that no other holder has.
fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}
