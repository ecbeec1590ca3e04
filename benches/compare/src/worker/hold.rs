//! W7 in a worker, and the other side of W6: locks many names and keeps them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use tokio::task::JoinSet;

use super::Wire;
use super::protocol::{Hold, Reply, name};
use crate::variants::Contender;

/// Tasks that lock at the same time.
const LANES: usize = 64;

pub async fn run<C: Contender>(job: Hold, wire: &mut Wire) -> Result<()> {
    let client = C::connect(&job.setup).await?;
    wire.ready().await?;
    wire.go().await?;
    let held = take_all(&client, job.names).await?;
    wire.say(&Reply::Held).await?;
    wire.stop().await?;
    let valid = held.iter().filter(|guard| C::is_valid(guard)).count();
    wire.say(&Reply::Stopped { valid }).await
}

/// What is held lies in one place of the right size, so that the memory taken for it is no other's.
async fn take_all<C: Contender>(client: &C, names: usize) -> Result<Vec<C::Guard>> {
    let next = Arc::new(AtomicUsize::new(0));
    let all = Arc::new(Mutex::new(Vec::with_capacity(names)));
    let mut lanes = JoinSet::new();
    for _ in 0..LANES.min(names) {
        let (client, next, all) = (client.clone(), next.clone(), all.clone());
        lanes.spawn(async move { take_some(&client, &next, names, &all).await });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    let held = std::mem::take(&mut *all.lock().expect("no lane panicked"));
    Ok(held)
}

async fn take_some<C: Contender>(
    client: &C,
    next: &AtomicUsize,
    names: usize,
    all: &Mutex<Vec<C::Guard>>,
) -> Result<()> {
    loop {
        let number = next.fetch_add(1, Relaxed);
        if number >= names {
            return Ok(());
        }
        let guard = client.acquire(&client.handle(&name(number))).await?;
        all.lock().expect("no lane panicked").push(guard);
    }
}
