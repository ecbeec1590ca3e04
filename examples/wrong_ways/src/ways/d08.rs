//! A lease that is cut to whole seconds: below one second, the key is deleted and the caller is told that it has it.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::right::TURNS;
use crate::stage::Stage;
use crate::store::Store;
use crate::{Harm, Row};

const LEASE: Duration = Duration::from_millis(900);

/// The wrong way. `as_secs` is what `TimeUnit.toSeconds` is elsewhere.
async fn try_lock(store: &Store, key: &str, lease: Duration) -> Result<bool> {
    Ok(store.set_nx(key, "locked").await? && store.expire(key, lease.as_secs()).await?)
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let wrong = at_once(stage).await?;
    let right = refused(stage).await?;
    let (way, schedule) = ("a lease cut to whole seconds", "a lease of 900 ms: A enters, B tries");
    Ok(vec![Row { number: "D8", way, schedule, wrong, right }])
}

/// The server's own words decide, not the time that passes: A is told that it is in, and there is no key.
async fn at_once(stage: &Stage) -> Result<Harm> {
    let [a, b] = [stage.store().await?, stage.store().await?];
    let mut both = 0;
    for _ in 0..TURNS {
        ensure!(try_lock(&a, "d8", LEASE).await?, "A is in");
        ensure!(!a.exists("d8").await?, "the key is gone at once");
        both += u32::from(try_lock(&b, "d8", LEASE).await?);
    }
    ensure!(both == TURNS, "B is in too");
    Ok(Harm::new(both, TURNS, "both are told that they are in; EXPIRE 0 has deleted the key"))
}

async fn refused(stage: &Stage) -> Result<Harm> {
    let [a, b] = [stage.client().await?.lock("d8"), stage.client().await?.lock("d8")];
    let a = a.lease(LEASE);
    let mut both = 0;
    for _ in 0..TURNS {
        let guard = a.lock().await?;
        let other = b.try_lock().await?;
        // On a slow machine the lease may be over: then B may well be in.
        both += u32::from(other.is_some() && guard.is_valid());
        drop((guard, other));
    }
    ensure!(both == 0, "both are in");
    Ok(Harm::new(both, TURNS, "B is refused while the 900 ms last"))
}
