//! A lease that is shorter than the work, and that nobody renews.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use tokio::time::sleep;

use crate::stage::Stage;
use crate::store::{POLL, Store, new_id};
use crate::{Harm, Row};

const CLIENTS: u32 = 8;
/// The work takes so many leases.
const WORK: usize = 3;
const SHORT: Duration = Duration::from_millis(200);
/// Of the right way, which renews it each second: a machine that is busy must not be in the way of that.
const RENEWED: Duration = Duration::from_secs(3);

/// The wrong way, apart from its release, which is right: compare and delete.
async fn try_lock(store: &Store, key: &str, id: &str) -> Result<bool> {
    store.set_nx_px(key, id, SHORT).await
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let wrong = overrun(stage).await?;
    let right = renewed(stage).await?;
    let schedule = "8 clients, the work takes 3 leases";
    Ok(vec![Row { number: "D3", way: "a lease shorter than the work", schedule, wrong, right }])
}

/// Each client leaves when the third one behind it has come in: that is three leases, by the clock of the server.
async fn overrun(stage: &Stage) -> Result<Harm> {
    let store = stage.store().await?;
    let mut inside: Vec<String> = Vec::new();
    let mut entries = 0;
    for _ in 0..CLIENTS {
        let id = new_id();
        while !try_lock(&store, "d3", &id).await? {
            sleep(POLL).await;
        }
        entries += u32::from(!inside.is_empty());
        inside.push(id);
        if inside.len() > WORK {
            let found = store.compare_and_delete("d3", &inside.remove(0)).await?;
            ensure!(!found, "its lease was over long ago");
        }
    }
    ensure!(entries == CLIENTS - 1, "each of them came in while another one worked");
    let what = format!("entries while somebody works; {} at once", WORK + 1);
    Ok(Harm::new(entries, CLIENTS - 1, what))
}

async fn renewed(stage: &Stage) -> Result<Harm> {
    let first = stage.client_with(RENEWED).await?.lock("d3").lock().await?;
    let end = Instant::now() + RENEWED * WORK as u32;
    let others = (1..CLIENTS).map(|_| async {
        let lock = stage.client_with(RENEWED).await?.lock("d3");
        let wait = end.saturating_duration_since(Instant::now());
        anyhow::Ok(u32::from(lock.try_lock_for(wait).await?.is_some()))
    });
    let entries: u32 = try_join_all(others).await?.into_iter().sum();
    first.unlock().await.context("the first one worked for three leases")?;
    ensure!(entries == 0, "somebody came in while the first one worked");
    let what =
        format!("one holds for {WORK} leases of {RENEWED:.0?}, renewed; nobody else comes in");
    Ok(Harm::new(entries, CLIENTS - 1, what))
}
