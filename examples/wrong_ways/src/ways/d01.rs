//! `SETNX`, and `DEL` at the end. Nothing ends the lock of a holder that dies.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::right;
use crate::stage::Stage;
use crate::store::{POLL, Store};
use crate::{Harm, Row};

pub const WAY: &str = "setnx";

/// The lease of the right way. Nobody gets in behind the wrong one for three of them, and then the schedule ends.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The wrong way.
pub(crate) async fn try_lock(store: &Store, key: &str) -> Result<bool> {
    store.set_nx(key, "locked").await
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let wrong = killed_inside(stage).await?;
    let right = right::killed_holder(stage, "d1", LEASE).await?;
    let schedule = "the holder's process is killed inside";
    Ok(vec![Row { number: "D1", way: "SETNX without an expiry", schedule, wrong, right }])
}

async fn killed_inside(stage: &Stage) -> Result<Harm> {
    let victim = stage.victim(WAY, &stage.url(), "d1").await?;
    let killed = victim.kill();
    nobody_gets_in(&stage.store().await?, "d1", killed).await
}

/// Others try for three leases behind a process that was killed. The key has no expiry, so this is for ever.
pub(super) async fn nobody_gets_in(store: &Store, key: &str, killed: Instant) -> Result<Harm> {
    while killed.elapsed() < 3 * LEASE {
        ensure!(!try_lock(store, key).await?, "somebody got in");
        sleep(POLL).await;
    }
    ensure!(store.pttl(key).await? == -1, "the key has an expiry");
    let waited = killed.elapsed();
    Ok(Harm::new(1, 1, format!("nobody in for {waited:.1?}, and the key has no expiry: for ever")))
}
