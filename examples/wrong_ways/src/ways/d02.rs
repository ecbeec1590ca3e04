//! `SETNX`, then `EXPIRE`. A process that dies between the two leaves a lock without an expiry.

use anyhow::Result;

use super::d01::{LEASE, nobody_gets_in};
use crate::points::Points;
use crate::right;
use crate::stage::Stage;
use crate::store::Store;
use crate::{Harm, Row};

pub const WAY: &str = "setnx-expire";
pub(crate) const BETWEEN: &str = "between SETNX and EXPIRE";

/// The wrong way.
pub(crate) async fn try_lock(store: &Store, key: &str, seconds: u64, at: &Points) -> Result<bool> {
    if !store.set_nx(key, "locked").await? {
        return Ok(false);
    }
    at.reach(BETWEEN).await;
    store.expire(key, seconds).await
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let wrong = killed_between(stage).await?;
    // parklock takes a lock and gives it a lease in one script: it can only be killed behind that.
    let right = right::killed_holder(stage, "d2", LEASE).await?;
    let schedule = "the holder's process is killed between the two";
    Ok(vec![Row { number: "D2", way: "SETNX, then EXPIRE", schedule, wrong, right }])
}

async fn killed_between(stage: &Stage) -> Result<Harm> {
    let victim = stage.victim(WAY, &stage.url(), "d2").await?;
    let killed = victim.kill();
    nobody_gets_in(&stage.store().await?, "d2", killed).await
}
