//! W12 in a worker: tasks take turns without a pause while the servers are rearranged, and some locks are held all the time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Wire;
use super::protocol::{Reply, Steadied, Steady};
use crate::measure::clock::now_ns;
use crate::variants::Contender;

/// Turns that take longer than this are told one by one, with when they were over. If there are too many of them, only those
/// that take twice as long.
const LONG: Duration = Duration::from_millis(5);
const TOLD: usize = 20_000;

pub async fn run<C: Contender>(job: Steady, wire: &mut Wire) -> Result<()> {
    let client = C::connect(&job.setup).await?;
    let held = take_all(&client, &job).await?;
    wire.ready().await?;
    wire.go().await?;
    let tally = Arc::new(Mutex::new(Tally::new(&job)));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for name in &job.names {
        let (client, handle) = (client.clone(), client.handle(job.setup.kind, name));
        let (tally, is_over) = (Arc::clone(&tally), Arc::clone(&is_over));
        tasks.spawn(async move { take_turns(&client, &handle, &is_over, &tally).await });
    }
    wire.stop().await?;
    is_over.store(true, Relaxed);
    tally.lock().expect("no task panicked").end();
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    let mut steadied = std::mem::take(&mut tally.lock().expect("no task panicked").steadied);
    steadied.lost = held.iter().filter(|guard| !C::is_valid(guard)).count() as u64;
    for guard in held.into_iter().filter(C::is_valid) {
        // One that is believed in, and is not there any more, is lost as well.
        if let Err(error) = client.release(guard).await {
            steadied.lost += 1;
            steadied
                .first_error
                .get_or_insert_with(|| format!("to give back what was held: {error:#}"));
        }
    }
    wire.say(&Reply::Steadied(steadied)).await
}

async fn take_all<C: Contender>(client: &C, job: &Steady) -> Result<Vec<C::Guard>> {
    let mut held = Vec::with_capacity(job.held.len());
    for name in &job.held {
        held.push(client.acquire(&client.handle(job.setup.kind, name)).await?);
    }
    Ok(held)
}

async fn take_turns<C: Contender>(
    client: &C,
    handle: &C::Handle,
    is_over: &AtomicBool,
    tally: &Mutex<Tally>,
) {
    while !is_over.load(Relaxed) {
        let begun = Instant::now();
        let turn = async {
            let guard = client.acquire(handle).await?;
            client.release(guard).await
        };
        let result = turn.await;
        tally.lock().expect("no task panicked").note(begun, result);
    }
}

struct Tally {
    start: Instant,
    tick: Duration,
    steadied: Steadied,
}

impl Tally {
    fn new(job: &Steady) -> Self {
        let told_from_ns = LONG.as_nanos() as u64;
        let steadied = Steadied { start_ns: now_ns(), told_from_ns, ..Steadied::default() };
        Self { start: Instant::now(), tick: Duration::from_millis(job.tick_ms), steadied }
    }

    /// Turns that end from here on do not count.
    fn end(&mut self) {
        self.steadied.end_ns = now_ns();
    }

    fn note(&mut self, begun: Instant, result: Result<()>) {
        let (now, all) = (Instant::now(), &mut self.steadied);
        let took = now - begun;
        if let Err(error) = result {
            all.errors += 1;
            all.first_error.get_or_insert_with(|| format!("{error:#}"));
        } else if all.end_ns == 0 {
            let tick = ((now - self.start).as_nanos() / self.tick.as_nanos()) as usize;
            if tick >= all.ticks.len() {
                all.ticks.resize(tick + 1, 0);
            }
            all.ticks[tick] += 1;
        }
        let took_ns = took.as_nanos() as u64;
        all.longest_ns = all.longest_ns.max(took_ns);
        if took_ns > all.told_from_ns {
            all.long.push((now_ns(), took_ns));
        }
        while all.long.len() > TOLD {
            all.told_from_ns *= 2;
            all.long.retain(|(_, took)| *took > all.told_from_ns);
        }
    }
}
