//! The server is killed and started again while somebody holds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use private_servers::Server;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::Plan;
use crate::contenders::{self, Contender, Terms};
use crate::holder::Holder;
use crate::hosts;
use crate::report::Column;
use crate::rows::Row;

/// Between two tries to connect to a server that has come back.
const BETWEEN: Duration = Duration::from_millis(20);
/// Some servers refuse to start until the last process of the old one has gone.
const STARTS: u32 = 20;

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
    let server = spawn_blocking(move || hosts::launch(kind, medium)).await??;
    let address = server.address().to_string();
    let terms = Terms { address: &address, ..terms };
    let mut holder = Holder::start(&plan.program, row, terms).await?;
    // What is synced each second is on disk by then, and the lease has most of its time to go.
    sleep(plan.lease / 10).await;
    let server = spawn_blocking(|| restart(server)).await??;
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
    drop((next, server));
    Ok(vec![until, still_writes, told])
}

fn restart(mut server: Server) -> Result<Server> {
    server.kill();
    let mut last = None;
    for _ in 0..STARTS {
        match server.start_again() {
            Ok(()) => return Ok(server),
            Err(error) => last = Some(error),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(last.context("no start")?)
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
