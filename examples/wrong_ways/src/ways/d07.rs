//! The end of the lease as the value, by the clock of whoever writes it, and `GETSET` when it is over.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::right::{self, LONG, TURNS, inside};
use crate::stage::Stage;
use crate::store::Store;
use crate::{Harm, Row};

const WAY: &str = "the end of the lease as the value, then GETSET";

/// Milliseconds of a clock that only this schedule sets.
type Time = u64;
const NOW: Time = 1_000_000;
const LEASE: Time = LONG.as_millis() as Time;
/// How far the clock of another machine is ahead.
const AHEAD: Time = 5_000;

/// The wrong way. `now` is what the clock of this client shows.
async fn try_lock(store: &Store, key: &str, now: Time) -> Result<bool> {
    let end = (now + LEASE).to_string();
    if store.set_nx(key, &end).await? {
        return Ok(true);
    }
    let Some(found) = store.get(key).await? else { return Ok(false) };
    if found.parse::<Time>()? >= now {
        return Ok(false);
    }
    overtake(store, key, &end, &found).await
}

/// Whoever finds the old value has it. The others have written theirs all the same.
async fn overtake(store: &Store, key: &str, end: &str, found: &str) -> Result<bool> {
    Ok(store.get_set(key, end).await?.as_deref() == Some(found))
}

pub(super) async fn show(stage: &Stage) -> Result<Vec<Row>> {
    let row = |number, schedule, wrong, right| Row { number, way: WAY, schedule, wrong, right };
    Ok(vec![
        row(
            "D7 i",
            "the clock of B is a lease ahead",
            clocks_apart(stage).await?,
            no_clocks(stage).await?,
        ),
        row(
            "D7 ii",
            "B and C find the lease over; C loses, its clock is 5 s ahead",
            loser_writes(stage).await?,
            loser_changes_nothing(stage).await?,
        ),
        row(
            "D7 iii",
            "A overruns, B enters, A deletes, C tries",
            overrun(stage).await?,
            right::late_release(stage, "d7iii").await?,
        ),
    ])
}

async fn clocks_apart(stage: &Stage) -> Result<Harm> {
    let [a, b] = [stage.store().await?, stage.store().await?];
    let mut two_inside = 0;
    for _ in 0..TURNS {
        let lease_a = Instant::now() + LONG;
        ensure!(try_lock(&a, "d7", NOW).await?, "A is in");
        let lease_b = Instant::now() + LONG;
        ensure!(try_lock(&b, "d7", NOW + LEASE + 1).await?, "B is in too");
        two_inside += u32::from(inside(&[lease_a, lease_b]) == 2);
        a.del("d7").await?;
    }
    ensure!(two_inside == TURNS, "both are inside in each turn");
    Ok(Harm::new(two_inside, TURNS, "A and B inside, neither past its lease"))
}

/// Only the server counts the lease, so there is no clock of a client to set.
async fn no_clocks(stage: &Stage) -> Result<Harm> {
    let [a, b] = [stage.client().await?.lock("d7i"), stage.client().await?.lock("d7i")];
    let mut two_inside = 0;
    for _ in 0..TURNS {
        let guard = a.lock().await?;
        two_inside += u32::from(b.try_lock().await?.is_some() && guard.is_valid());
        guard.unlock().await?;
    }
    ensure!(two_inside == 0, "both are inside");
    Ok(Harm::new(two_inside, TURNS, "B is refused: the server alone counts the lease"))
}

/// Both have read the same old end. B wins by `GETSET`; C loses, and the end is that of C.
async fn loser_writes(stage: &Stage) -> Result<Harm> {
    let [b, c] = [stage.store().await?, stage.store().await?];
    b.set_nx("d7ii", &(NOW - 1).to_string()).await?;
    let old = b.get("d7ii").await?.context("an end that is over")?;
    ensure!(c.get("d7ii").await?.as_ref() == Some(&old), "both find the same");
    ensure!(overtake(&b, "d7ii", &(NOW + LEASE).to_string(), &old).await?, "B is in");
    let late = (NOW + AHEAD + LEASE).to_string();
    ensure!(!overtake(&c, "d7ii", &late, &old).await?, "C is not");
    let end: Time = b.get("d7ii").await?.context("the end")?.parse()?;
    let moved = Duration::from_millis(end - (NOW + LEASE));
    ensure!(moved == Duration::from_millis(AHEAD), "the loser has moved the end");
    Ok(Harm::new(1, 1, format!("the loser moves the end of B's lease by {moved:.1?}")))
}

async fn loser_changes_nothing(stage: &Stage) -> Result<Harm> {
    let [b, c] = [stage.client().await?.lock("d7ii"), stage.client().await?.lock("d7ii")];
    let guard = b.lease(LONG).lock().await?;
    let before = c.ttl().await?.context("it is held")?;
    ensure!(c.try_lock().await?.is_none(), "C is refused");
    let after = c.ttl().await?.context("it is still held")?;
    ensure!(after <= before, "the loser has moved the end");
    guard.unlock().await?;
    Ok(Harm::new(0, 1, "the loser moves nothing"))
}

async fn overrun(stage: &Stage) -> Result<Harm> {
    let [a, b, c] = [stage.store().await?, stage.store().await?, stage.store().await?];
    let mut two_inside = 0;
    for _ in 0..TURNS {
        ensure!(try_lock(&a, "d7iii", NOW).await?, "A is in");
        let later = NOW + LEASE + 1; // on all clocks: A is past its lease
        let lease_b = Instant::now() + LONG;
        ensure!(try_lock(&b, "d7iii", later).await?, "B is in");
        a.del("d7iii").await?;
        let lease_c = Instant::now() + LONG;
        ensure!(try_lock(&c, "d7iii", later).await?, "A has let C in");
        two_inside += u32::from(inside(&[lease_b, lease_c]) == 2);
        c.del("d7iii").await?;
    }
    ensure!(two_inside == TURNS, "B and C are inside in each turn");
    Ok(Harm::new(two_inside, TURNS, "B and C inside, neither past its lease"))
}
