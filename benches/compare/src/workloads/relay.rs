//! W5: two processes hand one name to and fro. From the call of `unlock` until the other side has the lock.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::spawn;
use tokio::time::{Instant, sleep};

use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{HandOverP50, HandOverP99, HandOverRoundTrips, RoundTrip};
use crate::measure::Sample;
use crate::measure::stats::{median, quantile};
use crate::stage::Stage;
use crate::variants::floor::Floor;
use crate::variants::{Contender, Kind, Variant};
use crate::worker::process::Worker;
use crate::worker::protocol::{self, Order, Reply};

/// How a relay is run: microseconds, of which each turn draws its own.
#[derive(Clone)]
struct Pace {
    kept: Range<u64>,
    rest: Range<u64>,
}

/// The lock is kept at least until the other side is parked, and up to a poller's whole pause longer, so that an unlock
/// meets a poller at any moment of its pause. A round trip, too, is measured after a rest: an idle process answers
/// later.
const TIMED: Pace = Pace { kept: 2_000..102_000, rest: 2_000..12_000 };

/// The warm-up has as many turns as it can.
const WARM: Pace = Pace { kept: 500..1_500, rest: 0..1 };

#[derive(Debug)]
pub struct Relay;

impl Workload for Relay {
    fn card(&self) -> Card {
        Card {
            id: "W5",
            name: "relay".to_owned(),
            about:
                "2 processes × 1 task, one name, taking turns; RTT is one script call of the floor"
                    .to_owned(),
            target: "at most 1.6 RTT at p50, a sixth of Redisson's",
            quantities: &[HandOverP50, HandOverP99, RoundTrip, HandOverRoundTrips],
            rounds: 5,
            ratio: Ratio::OursOverThis,
            left_out: &[(Variant::FLOOR, "it cannot wait; it is the RTT of the others")],
        }
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(run(stage, variant))
    }
}

async fn run(stage: &mut Stage, variant: Variant) -> Result<Sample> {
    stage.observer.empty().await?;
    let floor = Floor::connect(&stage.setup(Variant::FLOOR)).await?;
    let mut crew = stage.hire(variant, 2).await?;
    let job = protocol::Relay { setup: stage.setup(variant), name: "bench:relay".to_owned() };
    for worker in &mut crew {
        worker.prepare(Order::Relay(job.clone())).await?;
    }
    let warm = match variant.on_the_jvm() && !crew[0].is_warm {
        true => stage.plan.warm_jvm,
        false => stage.plan.warm,
    };
    hand_over(&mut crew, &floor, warm, WARM).await?;
    let times = hand_over(&mut crew, &floor, stage.plan.timed, TIMED).await?;
    for worker in &mut crew {
        worker.tell(&Order::Stop).await?;
        worker.hear().await?;
    }
    stage.thank(variant, crew);
    Ok(sample(times))
}

/// Seconds of each hand-over, and of a round trip taken right after it.
#[derive(Default)]
struct Times {
    hand_overs: Vec<f64>,
    round_trips: Vec<f64>,
    violations: u64,
}

impl Times {
    /// A lock that the other side got before it was given back is a violation, and no time at all.
    fn note(&mut self, called_ns: u64, locked_ns: u64) {
        match locked_ns.checked_sub(called_ns) {
            Some(ns) => self.hand_overs.push(ns as f64 / 1e9),
            None => self.violations += 1,
        }
    }
}

async fn hand_over(
    crew: &mut [Worker],
    floor: &Floor,
    time: Duration,
    pace: Pace,
) -> Result<Times> {
    let [here, there] = crew else {
        bail!("a relay has two sides");
    };
    let (mut holder, mut waiter) = (here, there);
    let mut times = Times::default();
    let end = Instant::now() + time;
    holder.tell(&Order::Lock).await?;
    locked_at(holder).await?;
    while Instant::now() < end {
        waiter.tell(&Order::Lock).await?;
        pause(&pace.kept).await;
        holder.tell(&Order::Unlock).await?;
        let called = called_at(holder).await?;
        let locked = locked_at(waiter).await?;
        times.note(called, locked);
        times.round_trips.push(spawn(round_trip(floor.clone(), pace.rest.clone())).await??);
        (holder, waiter) = (waiter, holder);
    }
    holder.tell(&Order::Unlock).await?;
    called_at(holder).await?;
    Ok(times)
}

async fn pause(range: &Range<u64>) {
    sleep(Duration::from_micros(fastrand::u64(range.clone()))).await;
}

async fn locked_at(worker: &mut Worker) -> Result<u64> {
    match worker.hear().await? {
        Reply::Locked { at_ns, .. } => Ok(at_ns),
        other => bail!("told to lock, a worker said {other:?}"),
    }
}

async fn called_at(worker: &mut Worker) -> Result<u64> {
    match worker.hear().await? {
        Reply::Unlocked { called_ns, .. } => Ok(called_ns),
        other => bail!("told to unlock, a worker said {other:?}"),
    }
}

/// In a task of its own, as the sides of the relay have.
pub(super) async fn round_trip(floor: Floor, rest: Range<u64>) -> Result<f64> {
    let free = floor.handle(Kind::Lock, "bench:rtt");
    pause(&rest).await;
    let asked = Instant::now();
    floor.call(&free).await?;
    let took = asked.elapsed();
    floor.release(free).await?;
    Ok(took.as_secs_f64())
}

fn sample(mut times: Times) -> Sample {
    let mut sample = Sample { violations: times.violations, ..Sample::default() };
    let round_trip = median(times.round_trips.iter().copied());
    if let (Some(p50), Some(p99)) =
        (median(times.hand_overs.iter().copied()), quantile(&mut times.hand_overs, 0.99))
    {
        sample.set(HandOverP50, p50);
        sample.set(HandOverP99, p99);
        if let Some(round_trip) = round_trip {
            sample.set(RoundTrip, round_trip);
            sample.set(HandOverRoundTrips, p50 / round_trip);
        }
    }
    sample
}
