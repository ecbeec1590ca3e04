//! The server is killed and started again while somebody holds; of several servers, one.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::Plan;
use crate::contenders::{self, Contender, Terms};
use crate::group::Group;
use crate::holder::Holder;
use crate::rows::Row;
use crate::table::Column;

/// Between two tries to connect to a server that has come back.
const BETWEEN: Duration = Duration::from_millis(20);

pub fn columns(plan: &Plan) -> Vec<Column> {
    let cap = plan.cap().as_secs_f64();
    vec![
        Column::Capped("until the next one is in, once the server is back", cap),
        Column::Count("the old holder still writes then (1: yes)"),
        Column::Capped("until its own lock tells it to stop", cap),
    ]
}

pub async fn run(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<Vec<Option<f64>>> {
    let (kind, medium) = (row.kind(), plan.medium);
    let mut group = spawn_blocking(move || Group::start(kind, medium)).await??;
    let address = group.address();
    let terms = Terms { address: &address, ..terms };
    let mut holder = Holder::start(&plan.program, row, terms).await?;
    // What is synced each second is on disk by then, and the lease has most of its time to go.
    sleep(plan.lead()).await;
    let group = spawn_blocking(move || group.restart().map(|()| group)).await??;
    let back = Instant::now();
    let next = timeout(plan.cap(), come_in(row, terms)).await;
    let waited = back.elapsed().min(plan.cap());
    let until = Some(waited.as_secs_f64());
    if next.is_err() {
        return Ok(vec![until, None, None]);
    }
    catch_up(&mut holder).await;
    let answer = holder.write().await?.believes;
    let still_writes = Some(f64::from(u8::from(answer != Some(false))));
    let told = match answer {
        Some(_) => Some(told(&mut holder, back, plan.cap()).await?),
        None => None,
    };
    drop((next, group));
    Ok(vec![until, still_writes, told])
}

/// Connects, and locks; again and again, if the connection breaks.
async fn come_in(row: Row, terms: Terms<'_>) -> Box<dyn Contender> {
    loop {
        if let Ok(mut next) = contenders::open(row, terms).await
            && next.lock().await.is_ok()
        {
            return next;
        }
        sleep(BETWEEN).await;
    }
}

/// Reads what the holder has written until now.
async fn catch_up(holder: &mut Holder) {
    while let Ok(Ok(_)) = timeout(Duration::from_millis(1), holder.write()).await {}
}

/// Seconds until the holder's own lock says that it is over; the cap, if nothing ever tells it.
async fn told(holder: &mut Holder, back: Instant, cap: Duration) -> Result<f64> {
    while back.elapsed() < cap {
        if holder.write().await?.believes == Some(false) {
            return Ok(back.elapsed().as_secs_f64());
        }
    }
    Ok(cap.as_secs_f64())
}
