//! PostgreSQL, one session a client. Statements are prepared once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, NoTls, Statement};

use super::{Contender, Pending, Polls, Terms, new_id, poll};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS l (name TEXT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 0, \
     state INT NOT NULL DEFAULT 0, owner TEXT, expire TIMESTAMPTZ)";

async fn connect(address: &str) -> Result<Client> {
    let (host, port) = address.split_once(':').context("host:port")?;
    let url = format!("host={host} port={port} user=root dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A statement that takes this long.
async fn sleep_in(session: &Client, time: Duration) -> Result<()> {
    Ok(session.batch_execute(&format!("SELECT pg_sleep({})", time.as_secs_f64())).await?)
}

/// Connects, and makes the row: without it, `FOR UPDATE` locks nothing.
async fn connect_with_row(terms: Terms<'_>) -> Result<Client> {
    let client = connect(terms.address).await?;
    client.batch_execute(TABLE).await?;
    let row = "INSERT INTO l (name) VALUES ($1) ON CONFLICT DO NOTHING";
    client.execute(row, &[&terms.name]).await?;
    Ok(client)
}

/// `pg_advisory_lock`, of the session.
pub struct Advisory {
    session: Client,
    key: i64,
    take: Statement,
    give: Statement,
}

impl Advisory {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let session = connect(terms.address).await?;
        let key = session.query_one("SELECT hashtextextended($1, 0)", &[&terms.name]).await?.get(0);
        let take = session.prepare("SELECT pg_advisory_lock($1)").await?;
        let give = session.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Self { session, key, take, give })
    }
}

impl Contender for Advisory {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            self.session.query_one(&self.take, &[&self.key]).await?;
            Ok(())
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let held: bool = self.session.query_one(&self.give, &[&self.key]).await?.get(0);
            ensure!(held, "it was not held");
            Ok(())
        })
    }

    fn statement(&mut self, time: Duration) -> Pending<'_, ()> {
        Box::pin(sleep_in(&self.session, time))
    }
}

/// `SELECT .. FOR UPDATE` in a transaction that stays open.
pub struct ForUpdate {
    session: Client,
    name: String,
    select: Statement,
}

impl ForUpdate {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let session = connect_with_row(terms).await?;
        let select = session.prepare("SELECT name FROM l WHERE name = $1 FOR UPDATE").await?;
        Ok(Self { session, name: terms.name.to_owned(), select })
    }
}

impl Contender for ForUpdate {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            self.session.batch_execute("BEGIN").await?;
            self.session.query_one(&self.select, &[&self.name]).await?;
            Ok(())
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async { Ok(self.session.batch_execute("COMMIT").await?) })
    }

    fn statement(&mut self, time: Duration) -> Pending<'_, ()> {
        Box::pin(sleep_in(&self.session, time))
    }
}

/// A version that is read, compared and set, with an expiry.
pub struct Version {
    session: Client,
    name: String,
    owner: String,
    lease: Duration,
    read: Statement,
    take: Statement,
    give: Statement,
    version: i64,
}

impl Version {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let session = connect_with_row(terms).await?;
        let read = session.prepare("SELECT version FROM l WHERE name = $1").await?;
        // `now()` would be the beginning of the transaction.
        let take = "UPDATE l SET state = 1, version = version + 1, owner = $3, \
                    expire = clock_timestamp() + $4 * interval '1 millisecond' \
                    WHERE name = $1 AND version = $2 AND (state = 0 OR expire < clock_timestamp())";
        let take = session.prepare(take).await?;
        let give = "UPDATE l SET state = 0 WHERE name = $1 AND version = $2 AND owner = $3";
        let give = session.prepare(give).await?;
        let (name, owner, lease) = (terms.name.to_owned(), new_id(), terms.lease);
        Ok(Self { session, name, owner, lease, read, take, give, version: 0 })
    }
}

impl Polls for Version {
    async fn try_lock(&mut self) -> Result<bool> {
        let version: i64 = self.session.query_one(&self.read, &[&self.name]).await?.get(0);
        let lease = self.lease.as_millis() as f64;
        self.version = version + 1;
        let (name, owner) = (&self.name, &self.owner);
        let taken = self.session.execute(&self.take, &[name, &version, owner, &lease]).await?;
        Ok(taken == 1)
    }
}

impl Contender for Version {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(poll(self))
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let (name, version, owner) = (&self.name, &self.version, &self.owner);
            let given = self.session.execute(&self.give, &[name, version, owner]).await?;
            ensure!(given == 1, "the lease was over");
            Ok(())
        })
    }

    fn token(&mut self) -> Pending<'_, Option<i64>> {
        let version = self.version;
        Box::pin(async move { Ok(Some(version)) })
    }

    fn statement(&mut self, time: Duration) -> Pending<'_, ()> {
        Box::pin(sleep_in(&self.session, time))
    }
}
