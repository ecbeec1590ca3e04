//! A worker process: a client or two, a few tasks, and a record of what they held.

pub mod buffer;
mod desk;
mod events;
mod handle;
mod hold;
mod manner;
mod ops;
pub mod record;

use std::panic;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clocks;
use crate::common::clock;
use crate::pulse::{self, patiently};
use crate::settings::{LOCKS, STUCK, TASKS, Topology};
use desk::Desk;

/// What the conductor tells a worker.
#[derive(Debug)]
pub struct Orders {
    /// Unique in the run.
    pub name: String,
    pub url: String,
    pub topology: Topology,
    pub namespace: Option<String>,
    pub seed: u64,
    /// When the run began, on the clock of all processes.
    pub started: u64,
    pub record: PathBuf,
    /// Whether it is the keeper.
    pub keeps: bool,
}

/// Between two looks at a lock; a client lives for a dozen of them.
const PAUSE: Duration = Duration::from_millis(300);

/// A panic that is part of the run.
const ON_PURPOSE: &str = "on purpose";

/// Where the run takes place, and since when.
static RUN: OnceLock<(Topology, u64)> = OnceLock::new();

/// Whether a task may do what keeps others waiting longer than they should.
fn may_dawdle() -> bool {
    let (topology, started) = RUN.get().expect("it goes on");
    topology.is_bout(Duration::from_nanos(clock::now().saturating_sub(*started)))
}

pub fn run(orders: &Orders) {
    let _ = RUN.set((orders.topology, orders.started));
    record::open(&orders.record, orders.namespace.clone());
    buffer::open(&orders.record, orders.namespace.as_deref());
    events::count();
    pulse::watch_ourselves(|from, to| record::line(&format!("l\t{from}\t{to}")));
    panic::set_hook(Box::new(|info| {
        let said = info.to_string();
        if !said.contains(ON_PURPOSE) {
            record::violation(&format!("panic: {said}"));
        }
    }));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(work(orders));
}

async fn work(orders: &Orders) {
    let stop = CancellationToken::new();
    let told = stop.clone();
    // A thread of Tokio's own reads the pipe, so it is counted from the start.
    let boss = tokio::spawn(async move {
        let _ = tokio::io::stdin().read_u8().await;
        told.cancel();
    });
    sleep(Duration::from_millis(5)).await;
    let before = descriptors();
    let desk = Arc::new(Desk::new(orders));
    if desk.open(&stop).await {
        let tasks = TaskTracker::new();
        for task in 0..TASKS {
            let seed = orders.seed.wrapping_mul(1_000_003).wrapping_add(task as u64);
            let (desk, stop) = (Arc::clone(&desk), stop.clone());
            let name = orders.name.clone();
            tasks.spawn(async move { ops::endless(&name, &desk, seed, &stop).await });
        }
        if orders.keeps {
            let (name, stop, seed) = (orders.name.clone(), stop.clone(), orders.seed);
            let desk = Desk::new(orders);
            tasks.spawn(async move { ops::keep(&name, &desk, seed, &stop).await });
        }
        tasks.close();
        let mut rng = fastrand::Rng::with_seed(orders.seed);
        let mut clocks = clocks::Witness::new();
        while stop.run_until_cancelled(sleep(PAUSE)).await.is_some() {
            look(&desk, &mut rng).await;
            clocks.look();
            let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
            record::line(&format!("s\t{tasks}"));
            if rng.u32(..12) == 0 {
                desk.replace(&stop).await;
            }
        }
        if patiently(STUCK, tasks.wait()).await.is_none() {
            record::violation(&format!("{} tasks never came to an end", tasks.len()));
        }
    }
    desk.close().await;
    let _ = boss.await;
    // The connections' own tasks end a moment after the client.
    let back = async {
        while descriptors().len() > before.len() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    if patiently(Duration::from_secs(3), back).await.is_none() {
        record::violation(&format!("descriptors left: {before:?}, then {:?}", descriptors()));
    }
    record::reached("worker ended in order");
}

/// What anybody may ask of a lock.
async fn look(desk: &Desk, rng: &mut fastrand::Rng) {
    let Some(seat) = desk.seat() else { return };
    match seat.client.lock(any_lock(rng)).ttl().await {
        Ok(Some(Duration::MAX)) => record::violation("a lock has no TTL"),
        Ok(_) => record::reached("looked at a TTL"),
        Err(error) => manner::heard(&error, &seat),
    }
}

/// What each descriptor of this process is.
fn descriptors() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let link = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok();
    let links = entries.flatten().filter_map(link);
    links.map(|link| link.display().to_string()).filter(|link| !link.starts_with("/proc")).collect()
}

/// The first locks are asked for most, and the last one is left to those who hold it for long.
fn any_lock(rng: &mut fastrand::Rng) -> &'static str {
    let most = LOCKS.len() - 1;
    let (one, other) = (rng.usize(..most), rng.usize(..most));
    LOCKS[one.min(other)]
}
