//! W1 to W4, W9 and W10 are one thing in several shapes: tasks of some processes that lock and unlock for a time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::measure::stats::{jain, least_over_greatest, least_over_mean};
use crate::measure::{Pushes, Quantity, Sample, Waits};
use crate::proxy::Proxy;
use crate::stage::{Reading, Stage};
use crate::variants::Variant;
use crate::worker::process::Worker;
use crate::worker::protocol::{Check, Order, Reply, Turned, Turns};
use crate::worker::section;

/// The name that all want.
const ONE: &str = "bench:one";

/// What a client that is 2 ms away has more on each way.
const ONE_WAY: Duration = Duration::from_millis(1);

/// How many take part, and what they want.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub processes: usize,
    /// Of all processes together.
    pub tasks: usize,
    /// All want the same name, or each its own.
    pub contended: bool,
    /// The first process is 2 ms away from the server.
    pub far: bool,
    /// Each task is a client of its own.
    pub own_clients: bool,
}

impl Shape {
    /// One task of one process.
    pub const ALONE: Self =
        Self { processes: 1, tasks: 1, contended: false, far: false, own_clients: false };

    /// What cannot wait for a lock runs alone, as the measure of a single round of work.
    fn fit_for(self, variant: Variant) -> Self {
        if self.contended && !variant.waits() { Self::ALONE } else { self }
    }

    /// The tasks of one process: one more for the first ones if they do not share out evenly.
    fn tasks_of(self, process: usize) -> usize {
        self.tasks / self.processes + usize::from(process < self.tasks % self.processes)
    }

    /// Whether two of its tasks may never be inside at once.
    fn excludes(self, variant: Variant) -> bool {
        self.contended && !variant.kind.shares()
    }
}

/// One run.
pub async fn run(stage: &mut Stage, variant: Variant, shape: Shape) -> Result<Sample> {
    let shape = shape.fit_for(variant);
    stage.observer.empty().await?;
    let proxy = if shape.far { Some(Proxy::start(stage.server.port(), ONE_WAY)?) } else { None };
    let is_shared = shape.excludes(variant) && shape.processes > 1;
    let number = if is_shared { Some(SharedNumber::new()?) } else { None };
    let mut crew = stage.hire(variant, shape.processes).await?;
    for (i, worker) in crew.iter_mut().enumerate() {
        let mut job = job(stage, variant, shape, i, worker.is_warm);
        if let (0, Some(proxy)) = (i, &proxy) {
            job.setup.url = proxy.url();
        }
        if let Some(number) = &number {
            job.check = Check::File { path: number.path.clone() };
        }
        worker.tell(&Order::Turns(job)).await?;
        if shape.own_clients {
            // A process that warms up already would keep the next one's many clients from connecting in time.
            worker.hear_ready().await?;
        }
    }
    if !shape.own_clients {
        for worker in &mut crew {
            worker.hear_ready().await?;
        }
    }
    let before = number.as_ref().map_or(Ok(0), SharedNumber::value)?;
    let pushes = listen(stage, variant, shape).await?;
    let meter = stage.meter(&crew.iter().collect::<Vec<_>>()).await?;
    let turned = go(&mut crew).await?;
    let used = meter.used(&mut stage.observer).await?;
    let after = number.as_ref().map_or(Ok(0), SharedNumber::value)?;
    stage.thank(variant, crew);
    tell_errors(&turned, shape)?;

    let mut sample = sample(&turned, &used, stage.plan.timed, variant);
    if shape.own_clients {
        let published = used.commands.published();
        let delivered = pushes.map_or(published as f64, |pushes| pushes.delivered(published));
        sample.set(Quantity::Clients, shape.tasks as f64);
        sample.set(Quantity::PushesPerPair, delivered / pairs(&turned));
    }
    if number.is_some() {
        let entered: u64 = turned.iter().map(|one| one.entered).sum();
        sample.violations += entered.saturating_sub(after - before);
    }
    Ok(sample)
}

/// In a crowd that is too large for a lock, errors are a result. Elsewhere they are a fault.
fn tell_errors(turned: &[Turned], shape: Shape) -> Result<()> {
    let Some(error) = turned.iter().find_map(|one| one.first_error.as_ref()) else {
        return Ok(());
    };
    ensure!(shape.own_clients, "{error}");
    eprintln!("calls ended with an error: {error}");
    Ok(())
}

/// Counts deliveries among clients, where a channel has many of them.
async fn listen(stage: &Stage, variant: Variant, shape: Shape) -> Result<Option<Pushes>> {
    match variant.shared_channel(ONE) {
        Some(channel) if shape.own_clients => {
            Ok(Some(Pushes::listen(&stage.server.url(), &channel).await?))
        }
        _ => Ok(None),
    }
}

fn job(stage: &Stage, variant: Variant, shape: Shape, process: usize, is_warm: bool) -> Turns {
    let cold_jvm = variant.on_the_jvm() && !is_warm;
    let warm = if cold_jvm { stage.plan.warm_jvm } else { stage.plan.warm };
    let name = |task: usize| match shape.contended {
        true => ONE.to_owned(),
        false => format!("bench:{process}:{task}"),
    };
    Turns {
        setup: stage.setup(variant),
        names: (0..shape.tasks_of(process)).map(name).collect(),
        warm_ms: warm.as_millis() as u64,
        timed_ms: stage.plan.timed.as_millis() as u64,
        check: if shape.excludes(variant) { Check::Memory } else { Check::None },
        own_clients: shape.own_clients,
    }
}

async fn go(crew: &mut [Worker]) -> Result<Vec<Turned>> {
    for worker in crew.iter_mut() {
        worker.tell(&Order::Go).await?;
    }
    let mut all = Vec::with_capacity(crew.len());
    for worker in crew {
        match worker.hear().await? {
            Reply::Turned(turned) => all.push(turned),
            other => bail!("turns ended with {other:?}"),
        }
    }
    Ok(all)
}

fn sample(turned: &[Turned], used: &Reading, timed: Duration, variant: Variant) -> Sample {
    let mut sample = Sample::default();
    let by_task: Vec<u64> = turned.iter().flat_map(|one| one.turns.iter().copied()).collect();
    sample.shares = turned.iter().map(|one| one.turns.iter().sum()).collect();
    let in_time: u64 = by_task.iter().sum();
    sample.set(Quantity::PairsPerSecond, in_time as f64 / timed.as_secs_f64());
    sample.set(Quantity::Jain, jain(&by_task));
    sample.set(Quantity::LeastOverGreatest, least_over_greatest(&sample.shares));
    sample.set(Quantity::LeastOverMean, least_over_mean(&by_task));

    // Costs are shared out over all turns that caused them, those included that ended late.
    let pairs = pairs(turned);
    sample.set(Quantity::ClientCpuPerPair, used.client_cpu / pairs);
    sample.set(Quantity::ServerCpuPerPair, used.server_cpu / pairs);
    sample.set(Quantity::CommandsPerPair, used.commands.run() as f64 / pairs);
    sample.set(Quantity::ScriptsPerPair, used.commands.scripts() as f64 / pairs);
    if let Some(time) = used.commands.script_seconds() {
        sample.set(Quantity::ScriptTime, time);
    }
    let sent = used.commands.sent(variant.sent_bare());
    sample.set(Quantity::RequestsPerPair, sent as f64 / pairs);
    let unserved: u64 = turned.iter().map(|one| one.unfinished).sum();
    sample.set(Quantity::Unfinished, unserved as f64);
    let errors: u64 = turned.iter().map(|one| one.errors).sum();
    sample.set(Quantity::Errors, errors as f64);

    let mut waits = Waits::default();
    turned.iter().for_each(|one| waits.add(&one.waits));
    // A rotation: the time in which each task could have had one turn.
    let rotation = by_task.len() as f64 * timed.as_secs_f64() / in_time.max(1) as f64;
    sample.set(Quantity::WaitMaxInRotations, waits.max() / rotation);
    sample.set_waits(waits);
    sample.commands = used.commands.clone();
    sample.violations = turned.iter().map(|one| one.lost).sum();
    sample
}

/// All turns, those included that ended late.
fn pairs(turned: &[Turned]) -> f64 {
    turned.iter().map(|one| one.entered).sum::<u64>().max(1) as f64
}

/// The number that processes add to in turn: a file in memory, gone with this value.
struct SharedNumber {
    path: PathBuf,
    file: File,
}

impl SharedNumber {
    fn new() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = folder.join(format!("parklock-compare-{:016x}", fastrand::u64(..)));
        fs::write(&path, 0_u64.to_le_bytes())?;
        let file = File::open(&path)?;
        Ok(Self { path, file })
    }

    fn value(&self) -> Result<u64> {
        section::read(&self.file)
    }
}

impl Drop for SharedNumber {
    fn drop(&mut self) {
        // Eight bytes may stay behind if somebody else has removed the folder.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_belongs_to_a_process() {
        let shape = Shape { processes: 4, tasks: 10, ..Shape::ALONE };
        assert_eq!([0, 1, 2, 3].map(|process| shape.tasks_of(process)), [3, 3, 2, 2]);
    }
}
