//! A release that does not look whose lock it is: `DEL`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::right::{self, LONG, SHORT, TURNS, inside};
use crate::stage::Stage;
use crate::store::{Store, new_id};
use crate::{Harm, Row};

/// The wrong way.
async fn try_lock(store: &Store, key: &str, lease: Duration) -> Result<bool> {
    store.set_nx_px(key, &new_id(), lease).await
}

async fn unlock(store: &Store, key: &str) -> Result<()> {
    store.del(key).await.map(drop)
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let wrong = overrun(stage).await?;
    let right = right::late_release(stage, "d4").await?;
    ensure!(right.times == 0, "parklock: {right}");
    let schedule = "A overruns its lease, B enters, A releases, C tries";
    Ok(vec![Row { number: "D4", way: "DEL without a look at the owner", schedule, wrong, right }])
}

async fn overrun(stage: &Stage) -> Result<Harm> {
    let [a, b, c] = [stage.store().await?, stage.store().await?, stage.store().await?];
    let mut two_inside = 0;
    for _ in 0..TURNS {
        ensure!(try_lock(&a, "d4", SHORT).await?, "A is in");
        a.until_gone("d4").await?;
        let lease_b = Instant::now() + LONG;
        ensure!(try_lock(&b, "d4", LONG).await?, "B is in");
        unlock(&a, "d4").await?;
        let lease_c = Instant::now() + LONG;
        ensure!(try_lock(&c, "d4", LONG).await?, "A has let C in");
        two_inside += u32::from(inside(&[lease_b, lease_c]) == 2);
        c.del("d4").await?;
    }
    ensure!(two_inside == TURNS, "B and C are inside in each turn");
    Ok(Harm::new(two_inside, TURNS, "B and C inside, neither past its lease"))
}
