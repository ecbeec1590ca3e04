//! A release in two steps: `GET` and compare, then `DEL`. The lock may change hands between them.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::points::Points;
use crate::right::{self, LONG, SHORT, TURNS, inside};
use crate::stage::Stage;
use crate::store::{Store, new_id};
use crate::{Harm, Row};

const BETWEEN: &str = "between GET and DEL";

/// The wrong way.
async fn unlock(store: &Store, key: &str, id: &str, at: &Points) -> Result<()> {
    if store.get(key).await?.as_deref() == Some(id) {
        at.reach(BETWEEN).await;
        store.del(key).await?;
    }
    Ok(())
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let wrong = stopped_between(stage).await?;
    // parklock looks and deletes in one script: A can only be late as a whole.
    let right = right::late_release(stage, "d5").await?;
    ensure!(right.times == 0, "parklock: {right}");
    let schedule = "A stops between the two, its lease ends, B enters, A goes on, C tries";
    Ok(vec![Row { number: "D5", way: "GET and compare, then DEL", schedule, wrong, right }])
}

async fn stopped_between(stage: &Stage) -> Result<Harm> {
    let [a, b, c] = [stage.store().await?, stage.store().await?, stage.store().await?];
    let (mut turns, mut two_inside) = (0, 0);
    while turns < TURNS {
        let id = new_id();
        ensure!(a.set_nx_px("d5", &id, SHORT).await?, "A is in");
        let (points, stop) = Points::stop(BETWEEN);
        let a_store = a.clone();
        let mut release = tokio::spawn(async move { unlock(&a_store, "d5", &id, &points).await });
        tokio::select! {
            () = stop.reached() => turns += 1,
            // The machine was so slow that the lease was over before A looked: this was no turn.
            _ = &mut release => continue,
        }
        a.until_gone("d5").await?;
        let lease_b = Instant::now() + LONG;
        ensure!(b.set_nx_px("d5", &new_id(), LONG).await?, "B is in");
        stop.go_on();
        release.await??;
        let lease_c = Instant::now() + LONG;
        ensure!(c.set_nx_px("d5", &new_id(), LONG).await?, "A has let C in");
        two_inside += u32::from(inside(&[lease_b, lease_c]) == 2);
        c.del("d5").await?;
    }
    ensure!(two_inside == TURNS, "B and C are inside in each turn");
    Ok(Harm::new(two_inside, TURNS, "B and C inside, neither past its lease"))
}
