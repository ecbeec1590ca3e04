//! The holder sleeps past its lease, somebody else takes the lock and writes, and then the first one goes on writing.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::timeout;

use super::Plan;
use crate::contenders::{self, Terms};
use crate::holder::Holder;
use crate::rows::Row;
use crate::table::Column;

/// Writes of the old holder after it has woken up.
const WRITES: u32 = 100;

pub fn columns(plan: &Plan) -> Vec<Column> {
    vec![
        Column::Capped("until somebody else is in", plan.cap().as_secs_f64()),
        Column::Count("late writes accepted, of 100"),
        Column::Count(".. if the holder asks its lock before each"),
        Column::Count(".. if the resource compares tokens"),
    ]
}

pub async fn run(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<Vec<Option<f64>>> {
    let mut next = contenders::open(row, terms).await?;
    let mut old = Holder::start(&plan.program, row, terms).await?;
    old.stop();
    let stopped = Instant::now();
    let Ok(locked) = timeout(plan.cap(), next.lock()).await else {
        // Nobody else ever comes in, so nothing is late.
        return Ok(vec![Some(plan.cap().as_secs_f64()), None, None, None]);
    };
    locked?;
    let until = stopped.elapsed().as_secs_f64();
    let current = next.token().await?;
    // What was written before it stopped may still lie in the pipe.
    drain(&mut old).await;
    old.go_on();
    let (mut checked, mut fenced, mut can_ask) = (0, 0, false);
    for _ in 0..WRITES {
        let late = old.write().await?;
        checked += u32::from(late.believes == Some(true));
        can_ask = late.believes.is_some();
        fenced += u32::from(late.token >= current);
    }
    let has_token = current.is_some();
    drop(old);
    // Of a way that does not renew, the lease may be over by now.
    let _ = next.unlock().await;
    let checked = can_ask.then(|| f64::from(checked));
    let fenced = has_token.then(|| f64::from(fenced));
    Ok(vec![Some(until), Some(f64::from(WRITES)), checked, fenced])
}

/// Reads what a stopped process has written.
async fn drain(holder: &mut Holder) {
    let silence = Duration::from_millis(50);
    while let Ok(Ok(_)) = timeout(silence, holder.write()).await {}
}
