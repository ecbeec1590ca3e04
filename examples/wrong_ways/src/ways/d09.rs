//! Re-entrance by an id that the thread keeps: "it has an id, so it has the lock". A failed try leaves an id too, and so
//! does a release.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::right::{LONG, inside};
use crate::stage::Stage;
use crate::store::{Store, new_id};
use crate::{Harm, Row};

const WAY: &str = "\"the thread has an id, so it has the lock\"";

/// The wrong way, as one thread sees it.
struct Thread {
    store: Store,
    id: Option<String>,
}

impl Thread {
    async fn try_lock(&mut self, key: &str) -> Result<bool> {
        if self.id.is_some() {
            return Ok(true); // "nested"
        }
        let id = self.id.insert(new_id());
        self.store.set_nx_px(key, id, LONG).await
    }

    async fn unlock(&self, key: &str) -> Result<bool> {
        let id = self.id.as_deref().unwrap_or_default();
        self.store.compare_and_delete(key, id).await
    }
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let row = |number, schedule, wrong, right| Row { number, way: WAY, schedule, wrong, right };
    Ok(vec![
        row(
            "D9 i",
            "A holds, B tries and tries again",
            again(stage).await?,
            twice_refused(stage).await?,
        ),
        row(
            "D9 ii",
            "A releases, B enters, A locks again",
            after_a_release(stage).await?,
            refused_after_a_release(stage).await?,
        ),
        row(
            "D9 iii",
            "A nests, its inner release comes, B tries",
            inner_release(stage).await?,
            counted(stage).await?,
        ),
    ])
}

async fn thread(stage: &Stage) -> Result<Thread> {
    Ok(Thread { store: stage.store().await?, id: None })
}

async fn again(stage: &Stage) -> Result<Harm> {
    let [mut a, mut b] = [thread(stage).await?, thread(stage).await?];
    let lease_a = Instant::now() + LONG;
    ensure!(a.try_lock("d9i").await?, "A is in");
    ensure!(!b.try_lock("d9i").await?, "B is refused");
    ensure!(b.try_lock("d9i").await?, "and then it is not");
    ensure!(inside(&[lease_a]) == 1, "A is past its lease");
    Ok(Harm::new(1, 1, "A and B inside; B was told so without a request"))
}

async fn twice_refused(stage: &Stage) -> Result<Harm> {
    let [a, b] =
        [stage.client().await?, stage.client().await?].map(|one| one.reentrant_lock("d9i"));
    let guard = a.lock().await?;
    ensure!(b.try_lock().await?.is_none(), "B is refused");
    ensure!(b.try_lock().await?.is_none(), "B is refused again");
    guard.unlock().await?;
    Ok(Harm::new(0, 1, "B is refused twice"))
}

async fn after_a_release(stage: &Stage) -> Result<Harm> {
    let [mut a, mut b] = [thread(stage).await?, thread(stage).await?];
    ensure!(a.try_lock("d9ii").await?, "A is in");
    ensure!(a.unlock("d9ii").await?, "A is out");
    let lease_b = Instant::now() + LONG;
    ensure!(b.try_lock("d9ii").await?, "B is in");
    ensure!(a.try_lock("d9ii").await?, "A believes that it nests");
    ensure!(inside(&[lease_b]) == 1, "B is past its lease");
    Ok(Harm::new(1, 1, "A and B inside; A was told so without a request"))
}

async fn refused_after_a_release(stage: &Stage) -> Result<Harm> {
    let [a, b] =
        [stage.client().await?, stage.client().await?].map(|one| one.reentrant_lock("d9ii"));
    a.lock().await?.unlock().await?;
    let guard = b.lock().await?;
    ensure!(a.try_lock().await?.is_none(), "A is refused");
    guard.unlock().await?;
    Ok(Harm::new(0, 1, "A is refused"))
}

async fn inner_release(stage: &Stage) -> Result<Harm> {
    let [mut a, mut b] = [thread(stage).await?, thread(stage).await?];
    let lease_a = Instant::now() + LONG;
    ensure!(a.try_lock("d9iii").await?, "A is in");
    ensure!(a.try_lock("d9iii").await?, "A nests");
    ensure!(a.unlock("d9iii").await?, "the inner release deletes the lock");
    let lease_b = Instant::now() + LONG;
    ensure!(b.try_lock("d9iii").await?, "B is in");
    ensure!(inside(&[lease_a, lease_b]) == 2, "both are inside");
    Ok(Harm::new(1, 1, "A and B inside, neither past its lease"))
}

async fn counted(stage: &Stage) -> Result<Harm> {
    let [a, b] =
        [stage.client().await?, stage.client().await?].map(|one| one.reentrant_lock("d9iii"));
    let outer = a.lock().await?;
    let inner = a.try_lock().await?.context("A nests")?;
    inner.unlock().await?;
    ensure!(b.try_lock().await?.is_none(), "B is refused");
    outer.unlock().await?;
    Ok(Harm::new(0, 1, "the inner release counts down; B is refused"))
}
