//! W1 to W4 in a worker: each task locks and unlocks its name, and notes how long each lock took.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Wire;
use super::protocol::{Reply, Setup, Turned, Turns};
use super::section::Section;
use crate::measure::Waits;
use crate::variants::Contender;

/// How long a task may still wait for the lock when the time is over, so that long waits are seen.
const GRACE: Duration = Duration::from_secs(20);

/// A server that is asked for more connections at once than this lets some of them wait too long.
const CONNECT_AT_ONCE: usize = 8;
const TRIES: usize = 10;

/// Connects and warms up, then runs the timed part at the word of the main process.
pub async fn run<C: Contender>(job: Turns, wire: &mut Wire) -> Result<()> {
    let clients = connect::<C>(&job).await?;
    take_turns(&clients, &job, Duration::from_millis(job.warm_ms)).await?;
    wire.ready().await?;
    wire.go().await?;
    let turned = take_turns(&clients, &job, Duration::from_millis(job.timed_ms)).await?;
    wire.say(&Reply::Turned(turned)).await
}

/// One client for all tasks, or one for each.
async fn connect<C: Contender>(job: &Turns) -> Result<Vec<C>> {
    let count = if job.own_clients { job.names.len() } else { 1 };
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        let mut batch = JoinSet::new();
        for _ in 0..CONNECT_AT_ONCE.min(count - clients.len()) {
            let setup = job.setup.clone();
            batch.spawn(async move { connect_one(&setup).await });
        }
        while let Some(connected) = batch.join_next().await {
            clients.push(connected??);
        }
    }
    Ok(clients)
}

/// The last of many may wait longer for a busy server than its library has patience.
async fn connect_one<C: Contender>(setup: &Setup) -> Result<C> {
    for _ in 1..TRIES {
        if let Ok(client) = C::connect(setup).await {
            return Ok(client);
        }
    }
    C::connect(setup).await
}

async fn take_turns<C: Contender>(clients: &[C], job: &Turns, time: Duration) -> Result<Turned> {
    let section = Arc::new(Section::new(&job.check)?);
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for (number, name) in job.names.iter().enumerate() {
        let client = clients[number % clients.len()].clone();
        let handle = client.handle(job.setup.kind, name);
        let task = Turner { client, handle, section: section.clone(), end };
        tasks.spawn(async move { (number, task.run().await) });
    }
    let mut total = Turned { turns: vec![0; job.names.len()], ..Turned::default() };
    while let Some(ended) = tasks.join_next().await {
        let (number, tally) = ended?;
        let tally = tally?;
        total.turns[number] = tally.in_time;
        total.entered += tally.entered;
        total.unfinished += u64::from(tally.is_unserved);
        total.errors += tally.errors;
        total.first_error = total.first_error.or(tally.first_error);
        total.waits.add(&tally.waits);
    }
    total.lost = section.lost(total.entered);
    Ok(total)
}

/// One task.
struct Turner<C: Contender> {
    client: C,
    handle: C::Handle,
    section: Arc<Section>,
    end: Instant,
}

/// What it saw.
#[derive(Default)]
struct Tally {
    in_time: u64,
    entered: u64,
    is_unserved: bool,
    errors: u64,
    first_error: Option<String>,
    waits: Waits,
}

impl Tally {
    fn note(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| format!("{error:#}"));
    }
}

impl<C: Contender> Turner<C> {
    async fn run(self) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut too_late = std::pin::pin!(sleep_until(self.end + GRACE));
        let mut now = Instant::now();
        while now < self.end {
            let asked = now;
            let guard = self.wait(too_late.as_mut()).await;
            tally.waits.record(asked.elapsed());
            match guard {
                Ok(Some(guard)) => self.turn(guard, &mut tally).await?,
                Ok(None) => {
                    tally.is_unserved = true;
                    break;
                }
                Err(error) => tally.note(&error),
            }
            now = Instant::now();
        }
        Ok(tally)
    }

    async fn turn(&self, guard: C::Guard, tally: &mut Tally) -> Result<()> {
        self.section.pass(tally.entered).await?;
        if let Err(error) = self.client.release(guard).await {
            tally.note(&error);
        }
        tally.entered += 1;
        tally.in_time += u64::from(Instant::now() <= self.end);
        Ok(())
    }

    /// The lock, or nothing if it is too late. The timer is the task's own, made once, so that a turn pays little for it.
    async fn wait(&self, too_late: Pin<&mut Sleep>) -> Result<Option<C::Guard>> {
        tokio::select! {
            biased;
            acquired = self.client.acquire(&self.handle) => acquired.map(Some),
            () = too_late => Ok(None),
        }
    }
}
