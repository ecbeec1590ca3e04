//! A version column: read the version, then `UPDATE .. WHERE state = 0 AND version = v`. Without an expiry, a holder that dies holds for ever.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;
use tokio_postgres::Client;

use super::d01::LEASE;
use crate::right;
use crate::stage::Stage;
use crate::{Harm, Row};

pub const WAY: &str = "version";

/// A statement a turn is enough, and leaves the machine to the others.
const POLL: Duration = Duration::from_millis(50);

/// The wrong way.
pub(crate) async fn try_lock(session: &Client, name: &str) -> Result<bool> {
    let read = session.query_one("SELECT version FROM l12 WHERE name = $1", &[&name]).await?;
    let version: i64 = read.get(0);
    let update = "UPDATE l12 SET state = 1, version = version + 1 \
                  WHERE name = $1 AND version = $2 AND state = 0";
    Ok(session.execute(update, &[&name, &version]).await? == 1)
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let Some(url) = stage.postgres_url().await? else { return Ok(Vec::new()) };
    let wrong = killed_inside(stage, &url).await?;
    let right = right::killed_holder(stage, "d12", LEASE).await?;
    let (way, schedule) =
        ("a version column without an expiry", "the holder's process is killed inside");
    Ok(vec![Row { number: "D12", way, schedule, wrong, right }])
}

async fn killed_inside(stage: &Stage, url: &str) -> Result<Harm> {
    let Some(session) = stage.postgres().await? else { return Ok(Harm::new(0, 0, "left out")) };
    let table =
        "CREATE TABLE l12 (name TEXT PRIMARY KEY, version BIGINT NOT NULL, state INT NOT NULL)";
    session.batch_execute(table).await?;
    session.batch_execute("INSERT INTO l12 VALUES ('d12', 1, 0)").await?;
    let killed = stage.victim(WAY, url, "d12").await?.kill();
    while killed.elapsed() < 3 * LEASE {
        ensure!(!try_lock(&session, "d12").await?, "somebody got in");
        sleep(POLL).await;
    }
    let waited = killed.elapsed();
    Ok(Harm::new(
        1,
        1,
        format!("nobody in for {waited:.1?}, and nothing in the row ends it: for ever"),
    ))
}
