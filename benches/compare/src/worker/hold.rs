//! W7 in a worker, and the other side of W6: locks many names and keeps them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use anyhow::{Result, bail};
use tokio::task::JoinSet;

use super::Wire;
use super::protocol::{Hold, Order, Reply, name};
use crate::measure::clock::now_ns;
use crate::variants::{Contender, Kind};

/// Tasks that lock at the same time.
const LANES: usize = 64;

pub async fn run<C: Contender>(job: Hold, wire: &mut Wire) -> Result<()> {
    let client = C::connect(&job.setup).await?;
    wire.ready().await?;
    wire.go().await?;
    let held = take_all(&client, &job).await?;
    wire.say(&Reply::Held).await?;
    match wire.next().await? {
        Some(Order::Unlock) => {
            let called_ns = now_ns();
            let errors = give_all(&client, held).await?;
            wire.say(&Reply::Unlocked { called_ns, errors }).await
        }
        Some(Order::Stop) | None => {
            let valid = held.iter().filter(|guard| C::is_valid(guard)).count();
            wire.say(&Reply::Stopped { valid }).await
        }
        Some(other) => bail!("{other:?} to who holds"),
    }
}

/// The guards lie in one allocation of the right size, so that no other memory counts.
async fn take_all<C: Contender>(client: &C, job: &Hold) -> Result<Vec<C::Guard>> {
    let (kind, names) = (job.setup.kind, job.names);
    let next = Arc::new(AtomicUsize::new(0));
    let all = Arc::new(Mutex::new(Vec::with_capacity(names)));
    let mut lanes = JoinSet::new();
    for _ in 0..LANES.min(names) {
        let (client, next, all) = (client.clone(), next.clone(), all.clone());
        lanes.spawn(async move { take_some(&client, kind, &next, names, &all).await });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    let held = std::mem::take(&mut *all.lock().expect("no lane panicked"));
    Ok(held)
}

/// Gives everything back, so many at the same time as were taken at the same time; tells how often that ended with an
/// error: a server that is full of the waiters' work may have let a lock run out.
async fn give_all<C: Contender>(client: &C, held: Vec<C::Guard>) -> Result<usize> {
    let held = Arc::new(Mutex::new(held));
    let mut lanes = JoinSet::new();
    for _ in 0..LANES {
        let (client, held) = (client.clone(), held.clone());
        lanes.spawn(async move {
            let mut errors = 0;
            while let Some(guard) = last_of(&held) {
                errors += usize::from(client.release(guard).await.is_err());
            }
            errors
        });
    }
    let mut errors = 0;
    while let Some(lane) = lanes.join_next().await {
        errors += lane?;
    }
    Ok(errors)
}

fn last_of<T>(all: &Mutex<Vec<T>>) -> Option<T> {
    all.lock().expect("no lane panicked").pop()
}

async fn take_some<C: Contender>(
    client: &C,
    kind: Kind,
    next: &AtomicUsize,
    names: usize,
    all: &Mutex<Vec<C::Guard>>,
) -> Result<()> {
    loop {
        let number = next.fetch_add(1, Relaxed);
        if number >= names {
            return Ok(());
        }
        let guard = client.acquire_whole(&client.handle(kind, &name(number))).await?;
        all.lock().expect("no lane panicked").push(guard);
    }
}
