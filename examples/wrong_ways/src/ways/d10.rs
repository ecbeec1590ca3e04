//! A renewal that does not look whose lock it renews, and that goes on after the release.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep};

use crate::right;
use crate::stage::Stage;
use crate::store::{POLL, Store, new_id};
use crate::{Harm, Row};

/// The renewal comes each second, so the machine may be two seconds late.
const LEASE: Duration = Duration::from_secs(3);

/// The wrong way: the renewal is told neither whose lock it is nor when to end.
async fn lock(store: &Store, key: &'static str, id: &str) -> Result<Option<AbortHandle>> {
    if !store.set_nx_px(key, id, LEASE).await? {
        return Ok(None);
    }
    let store = store.clone();
    let renewal = tokio::spawn(async move {
        let mut beat = interval(LEASE / 3);
        loop {
            beat.tick().await;
            let _ = store.expire(key, LEASE.as_secs()).await; // "swallow it and go on"
        }
    });
    Ok(Some(renewal.abort_handle()))
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let (wrong, right) = tokio::try_join!(kept_for_ever(stage), ends_with_its_lease(stage))?;
    let schedule = "A releases, B enters and its process is killed inside";
    Ok(vec![Row {
        number: "D10",
        way: "a renewal without an owner or an end",
        schedule,
        wrong,
        right,
    }])
}

async fn kept_for_ever(stage: &Stage) -> Result<Harm> {
    let store = stage.store().await?;
    let id = new_id();
    let renewal = lock(&store, "d10", &id).await?.context("A is in")?;
    ensure!(store.compare_and_delete("d10", &id).await?, "A is out");
    let victim = stage.victim("set-nx-px:3000", &stage.url(), "d10").await?;
    let killed = victim.kill();
    while killed.elapsed() < 3 * LEASE {
        ensure!(!store.set_nx_px("d10", &new_id(), LEASE).await?, "somebody got in");
        sleep(POLL).await;
    }
    let (waited, left) = (killed.elapsed(), store.pttl("d10").await?);
    ensure!(left > 0, "the lock of the dead is kept");
    renewal.abort();
    Ok(Harm::new(1, 1, format!("nobody in for {waited:.1?}, three leases; it is renewed for ever")))
}

async fn ends_with_its_lease(stage: &Stage) -> Result<Harm> {
    let client = stage.client_with(LEASE).await?;
    let since = Instant::now();
    client.lock("d10").lock().await?.unlock().await?;
    ensure!(since.elapsed() < Duration::from_secs(60), "A is in and out");
    right::killed_holder(stage, "d10", LEASE).await
}
