//! The holder's id in a field of an object that several callers share: the try of one overwrites the id of another.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::stage::Stage;
use crate::store::{POLL, Store, new_id};
use crate::{Harm, Row};

const LEASE: Duration = Duration::from_secs(3);

/// The wrong way.
struct Shared {
    store: Store,
    id: Mutex<String>,
}

impl Shared {
    async fn try_lock(&self) -> Result<bool> {
        let id = new_id();
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&id);
        self.store.set_nx_px("d6", &id, LEASE).await
    }

    async fn unlock(&self) -> Result<bool> {
        let id = self.id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.store.compare_and_delete("d6", &id).await
    }
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let wrong = overwritten(stage).await?;
    let right = each_its_own(stage).await?;
    let (way, schedule) =
        ("the id in a shared field", "B tries while A holds, A releases, C waits");
    Ok(vec![Row { number: "D6", way, schedule, wrong, right }])
}

async fn overwritten(stage: &Stage) -> Result<Harm> {
    let lock = Shared { store: stage.store().await?, id: Mutex::default() };
    ensure!(lock.try_lock().await?, "A is in");
    ensure!(!lock.try_lock().await?, "B is refused");
    let released = lock.unlock().await?;
    ensure!(!released, "A cannot release: the id is that of B");
    let since = Instant::now();
    while !lock.try_lock().await? {
        sleep(POLL).await;
    }
    let waited = since.elapsed();
    Ok(Harm::new(
        1,
        1,
        format!("the release frees nothing; nobody in for {waited:.1?}, until the lease ends"),
    ))
}

async fn each_its_own(stage: &Stage) -> Result<Harm> {
    let lock = stage.client().await?.lock("d6");
    let guard = lock.lock().await?;
    ensure!(lock.try_lock().await?.is_none(), "B is refused");
    guard.unlock().await.context("A releases")?;
    let since = Instant::now();
    let next = lock.lock().await?;
    let waited = since.elapsed();
    next.unlock().await?;
    Ok(Harm::new(0, 1, format!("A releases; the next is in after {waited:.1?}")))
}
