//! One client, one name, nobody else.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use super::Plan;
use crate::contenders::{self, Contender, Terms};
use crate::rows::Row;
use crate::table::Column;

pub const COLUMNS: [Column; 3] =
    [Column::Rate("pairs/s"), Column::Time("p50 of a pair"), Column::Time("p99 of a pair")];

const WARM_UP: Duration = Duration::from_millis(200);

pub async fn run(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<Vec<Option<f64>>> {
    // In a task of the runtime, as the code of a service is.
    let mut contender = contenders::open(row, terms).await?;
    let timed = plan.timed;
    tokio::spawn(async move {
        pairs(contender.as_mut(), WARM_UP).await?;
        let since = Instant::now();
        let times = pairs(contender.as_mut(), timed).await?;
        let rate = times.len() as f64 / since.elapsed().as_secs_f64();
        let quantile = |part| Some(times.value_at_quantile(part) as f64 / 1e9);
        Ok(vec![Some(rate), quantile(0.5), quantile(0.99)])
    })
    .await?
}

async fn pairs(contender: &mut dyn Contender, time: Duration) -> Result<Histogram<u64>> {
    let mut times = Histogram::new(3)?;
    let end = Instant::now() + time;
    loop {
        let begin = Instant::now();
        if begin >= end && !times.is_empty() {
            return Ok(times);
        }
        contender.lock().await?;
        contender.unlock().await?;
        times.record(begin.elapsed().as_nanos() as u64)?;
    }
}
