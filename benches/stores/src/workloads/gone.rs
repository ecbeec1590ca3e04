//! The holder goes: how long until the next one has the lock?

use std::time::Instant;

use anyhow::Result;
use tokio::time::{sleep, timeout};

use super::Plan;
use crate::contenders::{self, Terms};
use crate::holder::Holder;
use crate::report::Column;
use crate::rows::Row;

pub fn columns(plan: &Plan) -> Vec<Column> {
    let cap = plan.cap().as_secs_f64();
    vec![
        Column::Capped("holder killed", cap),
        Column::Capped("holder stopped", cap),
        Column::Capped("released, a waiter in front killed", cap),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    /// `kill -9`: the kernel closes its connections.
    Killed,
    /// SIGSTOP: its connections stay open and silent, as those of a host that is gone.
    Stopped,
}

pub async fn run(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<Vec<Option<f64>>> {
    let stopped = format!("{}-stopped", terms.name);
    let killed = wait_behind(row, terms, plan, Fate::Killed).await?;
    let stopped = wait_behind(row, Terms { name: &stopped, ..terms }, plan, Fate::Stopped).await?;
    let in_front = format!("{}-in-front", terms.name);
    let in_front = wait_behind_a_dead_waiter(row, Terms { name: &in_front, ..terms }, plan).await?;
    Ok(vec![Some(killed), Some(stopped), Some(in_front)])
}

/// One holds, a process waits, then the next one; the process is killed, and the holder releases. Seconds from the release until
/// the next one has the lock.
async fn wait_behind_a_dead_waiter(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<f64> {
    let mut first = contenders::open(row, terms).await?;
    let mut next = contenders::open(row, terms).await?;
    first.lock().await?;
    let (lead, cap) = (plan.lease / 10, plan.cap());
    let mut in_front = Holder::ask(&plan.program, row, terms)?;
    sleep(lead).await;
    let waiter = tokio::spawn(async move {
        let locked = timeout(lead * 2 + cap, next.lock()).await;
        (locked.map(|locked| locked.map(|()| Instant::now())), next)
    });
    sleep(lead).await;
    in_front.kill();
    let released = Instant::now();
    first.unlock().await?;
    let (Ok(locked), mut next) = waiter.await? else { return Ok(cap.as_secs_f64()) };
    let seconds = locked?.duration_since(released).as_secs_f64();
    next.unlock().await?;
    Ok(seconds)
}

/// Seconds from the fate of the holder until the next one has the lock. What is not over by then is as long as the cap.
async fn wait_behind(row: Row, terms: Terms<'_>, plan: &Plan, fate: Fate) -> Result<f64> {
    let mut next = contenders::open(row, terms).await?;
    let mut holder = Holder::start(&plan.program, row, terms).await?;
    let lead = plan.lease / 10;
    let limit = lead + plan.cap();
    let waiter = tokio::spawn(async move {
        let locked = timeout(limit, next.lock()).await;
        (locked.map(|locked| locked.map(|()| Instant::now())), next)
    });
    // The next one is in line by then, wherever there is one.
    sleep(lead).await;
    let gone = Instant::now();
    match fate {
        Fate::Killed => holder.kill(),
        Fate::Stopped => holder.stop(),
    }
    let (Ok(locked), mut next) = waiter.await? else { return Ok(plan.cap().as_secs_f64()) };
    let seconds = locked?.duration_since(gone).as_secs_f64();
    next.unlock().await?;
    Ok(seconds)
}
