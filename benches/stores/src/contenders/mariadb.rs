//! MariaDB, one session a client. The crate keeps prepared statements.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};

use super::{Contender, Pending, Polls, Terms, new_id, poll};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS l (name VARCHAR(64) PRIMARY KEY, version BIGINT NOT NULL DEFAULT 0, \
     state INT NOT NULL DEFAULT 0, owner VARCHAR(64), expire DATETIME(3)) ENGINE=InnoDB";

async fn connect(address: &str) -> Result<Conn> {
    let (host, port) = address.split_once(':').context("host:port")?;
    let options = OptsBuilder::default()
        .ip_or_hostname(host)
        .tcp_port(port.parse()?)
        .user(Some("root"))
        .db_name(Some("test"))
        .prefer_socket(false);
    Ok(Conn::new(options).await?)
}

/// A statement that takes this long.
async fn sleep_in(session: &mut Conn, time: Duration) -> Result<()> {
    Ok(session.query_drop(format!("SELECT SLEEP({})", time.as_secs_f64())).await?)
}

/// Connects, and makes the row: without it, `FOR UPDATE` locks a gap.
async fn connect_with_row(terms: Terms<'_>) -> Result<Conn> {
    let mut session = connect(terms.address).await?;
    session.query_drop(TABLE).await?;
    session.exec_drop("INSERT IGNORE INTO l (name) VALUES (?)", (terms.name,)).await?;
    // A waiter would give up after fifty seconds.
    session.query_drop("SET SESSION innodb_lock_wait_timeout = 3600").await?;
    Ok(session)
}

/// `GET_LOCK`, of the session.
pub struct GetLock {
    session: Conn,
    name: String,
}

impl GetLock {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        Ok(Self { session: connect(terms.address).await?, name: terms.name.to_owned() })
    }
}

impl Contender for GetLock {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let get = "SELECT GET_LOCK(?, 3600)";
            let answer: Option<Option<i64>> = self.session.exec_first(get, (&self.name,)).await?;
            ensure!(answer == Some(Some(1)), "GET_LOCK answers {answer:?}");
            Ok(())
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let release = "SELECT RELEASE_LOCK(?)";
            let answer: Option<Option<i64>> =
                self.session.exec_first(release, (&self.name,)).await?;
            ensure!(answer == Some(Some(1)), "RELEASE_LOCK answers {answer:?}");
            Ok(())
        })
    }

    fn statement(&mut self, time: Duration) -> Pending<'_, ()> {
        Box::pin(sleep_in(&mut self.session, time))
    }
}

/// `SELECT .. FOR UPDATE` in a transaction that stays open.
pub struct ForUpdate {
    session: Conn,
    name: String,
}

impl ForUpdate {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        Ok(Self { session: connect_with_row(terms).await?, name: terms.name.to_owned() })
    }
}

impl Contender for ForUpdate {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            self.session.query_drop("START TRANSACTION").await?;
            let select = "SELECT name FROM l WHERE name = ? FOR UPDATE";
            let row: Option<String> = self.session.exec_first(select, (&self.name,)).await?;
            row.context("the row was made beforehand").map(drop)
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async { Ok(self.session.query_drop("COMMIT").await?) })
    }

    fn statement(&mut self, time: Duration) -> Pending<'_, ()> {
        Box::pin(sleep_in(&mut self.session, time))
    }
}

/// A version that is read, compared and set, with an expiry.
pub struct Version {
    session: Conn,
    name: String,
    owner: String,
    lease: Duration,
    version: i64,
}

impl Version {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let (session, name) = (connect_with_row(terms).await?, terms.name.to_owned());
        Ok(Self { session, name, owner: new_id(), lease: terms.lease, version: 0 })
    }
}

impl Polls for Version {
    async fn try_lock(&mut self) -> Result<bool> {
        let read = "SELECT version FROM l WHERE name = ?";
        let version: Option<i64> = self.session.exec_first(read, (&self.name,)).await?;
        let version = version.context("the row was made beforehand")?;
        self.version = version + 1;
        let take = "UPDATE l SET state = 1, version = version + 1, owner = ?, \
                    expire = TIMESTAMPADD(MICROSECOND, ?, SYSDATE(3)) \
                    WHERE name = ? AND version = ? AND (state = 0 OR expire < SYSDATE(3))";
        let lease = self.lease.as_micros() as u64;
        self.session.exec_drop(take, (&self.owner, lease, &self.name, version)).await?;
        Ok(self.session.affected_rows() == 1)
    }
}

impl Contender for Version {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(poll(self))
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let give = "UPDATE l SET state = 0 WHERE name = ? AND version = ? AND owner = ?";
            self.session.exec_drop(give, (&self.name, self.version, &self.owner)).await?;
            ensure!(self.session.affected_rows() == 1, "the lease was over");
            Ok(())
        })
    }

    fn token(&mut self) -> Pending<'_, Option<i64>> {
        let version = self.version;
        Box::pin(async move { Ok(Some(version)) })
    }

    fn statement(&mut self, time: Duration) -> Pending<'_, ()> {
        Box::pin(sleep_in(&mut self.session, time))
    }
}
