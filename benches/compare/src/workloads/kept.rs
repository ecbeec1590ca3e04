//! W13: a client that keeps its lock (`Config::keep`): W1 with it, and how long a second client waits for the lock.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::spawn;
use tokio::time::{Instant, sleep};

use super::relay::round_trip;
use super::turns::{self, Shape};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    ClientCpuPerPair, PairsPerSecond, RequestsPerPair, RoundTrip, ServerCpuPerPair, WaitP50,
    WaitP99, WaitRoundTrips,
};
use crate::measure::Sample;
use crate::measure::stats::{median, quantile};
use crate::stage::Stage;
use crate::variants::floor::Floor;
use crate::variants::{Contender, Variant};
use crate::worker::process::Worker;
use crate::worker::protocol::{self, Check, Order, Reply};

const CAST: [Variant; 3] = [Variant::PARKLOCK_KEPT, Variant::PARKLOCK, Variant::FLOOR];

/// One task that locks and unlocks one name.
#[derive(Debug)]
pub struct Alone;

impl Workload for Alone {
    fn card(&self) -> Card {
        Card {
            id: "W13",
            name: "kept".to_owned(),
            about: "one task, one name, lock and unlock in sequence; one client keeps its lock"
                .to_owned(),
            target: "at least 100 × the floor",
            quantities: &[PairsPerSecond, RequestsPerPair, ClientCpuPerPair, ServerCpuPerPair],
            rounds: 5,
            ratio: Ratio::ThisOver(Variant::FLOOR),
            left_out: &[],
        }
    }

    fn cast(&self, _asked: &[Variant]) -> Vec<Variant> {
        CAST.to_vec()
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(turns::run(stage, variant, Shape::ALONE))
    }
}

/// The same task, and a second process that asks for the lock at random moments.
#[derive(Debug)]
pub struct Asked;

impl Workload for Asked {
    fn card(&self) -> Card {
        Card {
            id: "W13",
            name: "kept-asked".to_owned(),
            about: "the same task, and a second process that asks for the name every 2 to 12 ms; RTT is one script \
                    call of the floor"
                .to_owned(),
            target: "the second process waits at most 2 RTT at p50",
            quantities: &[PairsPerSecond, WaitP50, WaitP99, RoundTrip, WaitRoundTrips],
            rounds: 5,
            ratio: Ratio::ThisOver(Variant::PARKLOCK),
            left_out: &[(Variant::FLOOR, "it cannot wait; it is the RTT of the others")],
        }
    }

    fn cast(&self, _asked: &[Variant]) -> Vec<Variant> {
        CAST.to_vec()
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(run(stage, variant))
    }
}

/// How long the second process pauses between its turns, in microseconds.
const PAUSE: Range<u64> = 2_000..12_000;

async fn run(stage: &mut Stage, variant: Variant) -> Result<Sample> {
    stage.observer.empty().await?;
    let floor = Floor::connect(&stage.setup(Variant::FLOOR)).await?;
    let mut crew = stage.hire(variant, 2).await?;
    let name = "bench:kept".to_owned();
    let [keeper, asker] = &mut crew[..] else { bail!("two processes were asked for") };
    asker
        .prepare(Order::Relay(protocol::Relay { setup: stage.setup(variant), name: name.clone() }))
        .await?;
    keeper
        .prepare(Order::Turns(protocol::Turns {
            setup: stage.setup(variant),
            names: vec![name],
            warm_ms: stage.plan.warm.as_millis() as u64,
            timed_ms: stage.plan.timed.as_millis() as u64,
            check: Check::None,
            own_clients: false,
        }))
        .await?;
    keeper.tell(&Order::Go).await?;
    let times = ask(asker, &floor, stage.plan.timed).await?;
    let Reply::Turned(turned) = keeper.hear().await? else {
        bail!("the keeper did not take turns")
    };
    asker.tell(&Order::Stop).await?;
    asker.hear().await?;
    stage.thank(variant, crew);
    let pairs = turned.turns.iter().sum::<u64>() as f64 / stage.plan.timed.as_secs_f64();
    Ok(sample(times, pairs))
}

/// Seconds of each wait, and of a round trip taken right after it.
#[derive(Default)]
struct Times {
    waits: Vec<f64>,
    round_trips: Vec<f64>,
}

async fn ask(asker: &mut Worker, floor: &Floor, time: Duration) -> Result<Times> {
    let (mut times, end) = (Times::default(), Instant::now() + time);
    loop {
        sleep(Duration::from_micros(fastrand::u64(PAUSE))).await;
        if Instant::now() >= end {
            return Ok(times);
        }
        asker.tell(&Order::Lock).await?;
        let Reply::Locked { asked_ns, at_ns } = asker.hear().await? else {
            bail!("told to lock, a worker said something else");
        };
        times.waits.push(at_ns.saturating_sub(asked_ns) as f64 / 1e9);
        asker.tell(&Order::Unlock).await?;
        asker.hear().await?;
        times.round_trips.push(spawn(round_trip(floor.clone(), PAUSE)).await??);
    }
}

fn sample(mut times: Times, pairs: f64) -> Sample {
    let mut sample = Sample::default();
    sample.set(PairsPerSecond, pairs);
    let round_trip = median(times.round_trips.iter().copied());
    let (p50, p99) = (median(times.waits.iter().copied()), quantile(&mut times.waits, 0.99));
    if let (Some(p50), Some(p99), Some(round_trip)) = (p50, p99, round_trip) {
        sample.set(WaitP50, p50);
        sample.set(WaitP99, p99);
        sample.set(RoundTrip, round_trip);
        sample.set(WaitRoundTrips, p50 / round_trip);
    }
    sample
}
