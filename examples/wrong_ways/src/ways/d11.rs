//! `SELECT .. FOR UPDATE` on a row that is not there, or by a column without an index.

use anyhow::{Result, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};

use crate::right::TURNS;
use crate::stage::Stage;
use crate::{Harm, Row};

/// Numbers of MariaDB: a deadlock; no lock within the time.
const DEADLOCK: u16 = 1213;
const NO_LOCK: u16 = 1205;

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if let (Some(a), Some(b)) = (stage.postgres().await?, stage.postgres().await?) {
        rows.push(Row {
            number: "D11 i",
            way: "FOR UPDATE without the row, PostgreSQL",
            schedule: "A and B select a name that has no row",
            wrong: both_pass(a, b).await?,
            right: a_new_name(stage, "d11i").await?,
        });
    }
    if let (Some(mut a), Some(mut b)) = (stage.mariadb().await?, stage.mariadb().await?) {
        a.query_drop("CREATE TABLE l (name VARCHAR(64) PRIMARY KEY) ENGINE=InnoDB").await?;
        rows.push(Row {
            number: "D11 ii",
            way: "FOR UPDATE without the row, MariaDB",
            schedule: "A and B select a name that has no row, then both insert it",
            wrong: both_insert(&mut a, &mut b).await?,
            right: a_new_name(stage, "d11ii").await?,
        });
        a.query_drop("CREATE TABLE u (name VARCHAR(64)) ENGINE=InnoDB").await?;
        a.query_drop("INSERT INTO u VALUES ('one'), ('other')").await?;
        rows.push(Row {
            number: "D11 iii",
            way: "FOR UPDATE without an index, MariaDB",
            schedule: "A locks one name, B another",
            wrong: all_names_locked(&mut a, &mut b).await?,
            right: another_name(stage).await?,
        });
    }
    Ok(rows)
}

/// The wrong way: no row, hence no lock.
async fn both_pass(mut a: tokio_postgres::Client, mut b: tokio_postgres::Client) -> Result<Harm> {
    a.batch_execute("CREATE TABLE l (name TEXT PRIMARY KEY)").await?;
    let select = "SELECT name FROM l WHERE name = 'new' FOR UPDATE";
    let mut both = 0;
    for _ in 0..TURNS {
        let (a, b) = (a.transaction().await?, b.transaction().await?);
        ensure!(a.query(select, &[]).await?.is_empty(), "there is no such row");
        // B would wait here until A commits, if A had locked anything.
        both += u32::from(b.query(select, &[]).await?.is_empty());
        a.rollback().await?;
        b.rollback().await?;
    }
    ensure!(both == TURNS, "both go on in each turn");
    Ok(Harm::new(both, TURNS, "A and B inside, in open transactions"))
}

/// The wrong way: what is locked is the gap, and by both. Each insert waits for the gap of the other.
async fn both_insert(a: &mut Conn, b: &mut Conn) -> Result<Harm> {
    let mut deadlocks = 0;
    for _ in 0..TURNS {
        for session in [&mut *a, &mut *b] {
            session.query_drop("START TRANSACTION").await?;
            session.query_drop("SELECT name FROM l WHERE name = 'new' FOR UPDATE").await?;
        }
        let (one, other) = tokio::try_join!(insert(a), insert(b))?;
        deadlocks += u32::from(one || other);
    }
    ensure!(deadlocks == TURNS, "{deadlocks} deadlocks in {TURNS} turns");
    Ok(Harm::new(deadlocks, TURNS, "A and B inside; then a deadlock (1213) takes one of them"))
}

/// Whether the insert ends in a deadlock. The transaction is over in any case.
async fn insert(session: &mut Conn) -> Result<bool> {
    let inserted = session.query_drop("INSERT INTO l VALUES ('new')").await;
    session.query_drop("ROLLBACK").await?;
    match inserted {
        Ok(()) => Ok(false),
        Err(Error::Server(error)) if error.code == DEADLOCK => Ok(true),
        Err(other) => Err(other.into()),
    }
}

/// The wrong way: the search reads every row, and locks what it reads.
async fn all_names_locked(a: &mut Conn, b: &mut Conn) -> Result<Harm> {
    let mut blocked = 0;
    for _ in 0..TURNS {
        a.query_drop("START TRANSACTION").await?;
        a.query_drop("SELECT name FROM u WHERE name = 'one' FOR UPDATE").await?;
        b.query_drop("START TRANSACTION").await?;
        let other = b.query_drop("SELECT name FROM u WHERE name = 'other' FOR UPDATE NOWAIT").await;
        match other {
            Err(Error::Server(error)) if error.code == NO_LOCK => blocked += 1,
            other => other?,
        }
        a.query_drop("ROLLBACK").await?;
        b.query_drop("ROLLBACK").await?;
    }
    ensure!(blocked == TURNS, "{blocked} of {TURNS} turns were blocked");
    Ok(Harm::new(blocked, TURNS, "a lock on one name blocks all other names (1205)"))
}

async fn a_new_name(stage: &Stage, name: &str) -> Result<Harm> {
    let [a, b] = [stage.client().await?, stage.client().await?];
    let mut both = 0;
    for turn in 0..TURNS {
        let name = format!("{name}-{turn}"); // never used before
        let guard = a.lock(&name).lock().await?;
        both += u32::from(b.lock(&name).try_lock().await?.is_some() && guard.is_valid());
        guard.unlock().await?;
    }
    ensure!(both == 0, "both are inside");
    Ok(Harm::new(both, TURNS, "B is refused: a new name is a lock like any other"))
}

async fn another_name(stage: &Stage) -> Result<Harm> {
    let client = stage.client().await?;
    let [one, other] = ["d11-one", "d11-other"].map(|name| client.lock(name));
    let mut blocked = 0;
    for _ in 0..TURNS {
        let (first, second) = (one.lock().await?, other.try_lock().await?);
        blocked += u32::from(second.is_none());
        drop((first, second));
    }
    ensure!(blocked == 0, "another name is blocked");
    Ok(Harm::new(blocked, TURNS, "another name is free"))
}
