//! Benches without a server: waking a waiter, handing a lock on, the watchdog's wheel, reading an answer.
//!
//! It starts a private `redis-server`, and ends with the measurement that decided for a wheel of our own: against
//! `tokio_util`'s `DelayQueue`, alternated round by round, medians.

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../src/error.rs"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "a module of the crate, of which this uses a part"
)]
mod error;
#[path = "../../src/mutex.rs"]
#[allow(dead_code, reason = "a module of the crate, of which this uses a part")]
mod mutex;
#[path = "../../src/slot.rs"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "a module of the crate, of which this uses a part"
)]
mod slot;
#[path = "../../src/core/wheel.rs"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "a module of the crate, of which this uses a part"
)]
mod wheel;
#[path = "../../src/wire"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "modules of the crate, of which this uses a part"
)]
mod wire {
    pub(crate) mod fault;
    pub(crate) mod passwords;
    pub(crate) mod replies;
    pub(crate) mod socket {
        mod broken;
        pub(crate) use broken::Broken;
    }
}

use std::future::poll_fn;
use std::hint::black_box;
use std::time::{Duration, Instant};

use common::Server;
use criterion::{BatchSize, Criterion};
pub use parklock::FencingToken; // named in the documentation of the errors
use parklock::{Client, Config, HandOff};
use redis::Value;
use tokio::runtime::{Builder, Runtime};
use tokio_util::time::DelayQueue;
use wheel::Wheel;

/// Entries of the wheel and its rival.
const ENTRIES: u64 = 100_000;

/// Over how long the entries are spread: a period of the watchdog at the default timeout.
const SPREAD_MS: u64 = 10_000;

/// Milliseconds to a tick of the wheel.
const TICK_MS: u64 = 8;

const ROUNDS: usize = 9;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let server = runtime.block_on(Server::start());
    wake_up(&mut criterion, &runtime, &server);
    hand_off(&mut criterion, &server);
    reply(&mut criterion);
    wheel_alone(&mut criterion);
    criterion.final_summary();
    decision();
}

async fn connect(server: &Server, config: Config) -> Client {
    Client::connect_with(server.url(), config).await.expect("the server is there")
}

/// Two clients take turns on one lock: one turn is a release, its message, and the other's acquire.
fn wake_up(criterion: &mut Criterion, runtime: &Runtime, server: &Server) {
    let clients = runtime.block_on(async {
        [connect(server, Config::default()).await, connect(server, Config::default()).await]
    });
    criterion.bench_function("relay: unlock in one client to lock in the other", |bench| {
        bench.iter_custom(|turns| {
            runtime.block_on(async {
                let started = Instant::now();
                let sides = clients.clone().map(|client| tokio::spawn(relay(client, turns)));
                for side in sides {
                    side.await.expect("no panic");
                }
                started.elapsed() / 2
            })
        });
    });
}

async fn relay(client: Client, turns: u64) {
    let lock = client.lock("relay");
    for _ in 0..turns {
        lock.lock().await.expect("its turn comes").unlock().await.expect("it is ours");
    }
}

/// Tasks of one client pass a lock around; one thread, so that no wake-up crosses to another.
fn hand_off(criterion: &mut Criterion, server: &Server) {
    const TASKS: u64 = 8;
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let endless = HandOff { max_consecutive: 1023, max_time: Duration::from_secs(60) };
    for (name, hand_off) in [("default budget", HandOff::default()), ("1,023 turns", endless)] {
        let client = runtime.block_on(connect(server, Config::default().hand_off(hand_off)));
        criterion.bench_function(&format!("hand-off per turn, {name}"), |bench| {
            bench.iter_custom(|turns| {
                runtime.block_on(async {
                    let started = Instant::now();
                    let tasks: Vec<_> = (0..TASKS)
                        .map(|_| tokio::spawn(relay(client.clone(), turns.div_ceil(TASKS))))
                        .collect();
                    for task in tasks {
                        task.await.expect("no panic");
                    }
                    started.elapsed()
                })
            });
        });
    }
}

fn reply(criterion: &mut Criterion) {
    let answer = || Value::Array((0..128).map(Value::Int).collect());
    criterion.bench_function("read the answer to 64 acquires", |bench| {
        bench.iter_batched(answer, decoded, BatchSize::SmallInput);
    });
}

fn decoded(answer: Value) -> i64 {
    let items = wire::replies::items(answer).expect("an array");
    items.iter().map(|item| wire::replies::entry(item).expect("a number")).sum()
}

fn wheel_alone(criterion: &mut Criterion) {
    let mut wheel = filled();
    criterion.bench_function("wheel of 100,000: enter and leave", |bench| {
        bench.iter(|| {
            let place = wheel.enter(black_box(700), 0);
            black_box(wheel.leave(place))
        });
    });
}

fn filled() -> Wheel<u64> {
    let mut wheel = Wheel::new();
    for entry in 0..ENTRIES {
        wheel.enter(due(entry) / TICK_MS + 1, entry);
    }
    wheel
}

/// When an entry is due, in milliseconds: spread evenly, in no order.
fn due(entry: u64) -> u64 {
    1 + entry * 7_919 % SPREAD_MS
}

/// Nanoseconds for each entry: to enter all and take all out, to move all, to hand out all that is due.
#[derive(Debug, Clone, Copy)]
struct Costs {
    enter_and_leave: f64,
    move_on: f64,
    expire: f64,
}

fn decision() {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(wheel_costs());
        theirs.push(delay_queue_costs());
    }
    println!("\n{ENTRIES} entries, ns each   wheel   DelayQueue");
    for (name, cost) in [
        ("insert and remove", (|costs| costs.enter_and_leave) as fn(&Costs) -> f64),
        ("re-schedule", |costs| costs.move_on),
        ("expiry of all", |costs| costs.expire),
    ] {
        println!("{name:24} {:7.0} {:12.0}", median(&ours, cost), median(&theirs, cost));
    }
}

fn median(costs: &[Costs], cost: fn(&Costs) -> f64) -> f64 {
    let mut values: Vec<_> = costs.iter().map(cost).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn each(started: Instant) -> f64 {
    started.elapsed().as_nanos() as f64 / ENTRIES as f64
}

fn wheel_costs() -> Costs {
    let mut wheel = Wheel::new();
    let tick = |entry| due(entry) / TICK_MS + 1;
    let started = Instant::now();
    let mut places: Vec<_> = (0..ENTRIES).map(|entry| wheel.enter(tick(entry), entry)).collect();
    for place in places.drain(..) {
        black_box(wheel.leave(place));
    }
    let enter_and_leave = each(started);

    places = (0..ENTRIES).map(|entry| wheel.enter(tick(entry), entry)).collect();
    let started = Instant::now();
    for (entry, place) in (0..).zip(&mut places) {
        wheel.leave(*place);
        *place = wheel.enter(tick(entry + 1), entry);
    }
    let move_on = each(started);

    let started = Instant::now();
    let mut expired = 0;
    for tick in 1..=SPREAD_MS / TICK_MS + 1 {
        expired += wheel.advance(tick).len() as u64;
    }
    assert_eq!(expired, ENTRIES);
    Costs { enter_and_leave, move_on, expire: each(started) }
}

fn delay_queue_costs() -> Costs {
    // Time stands still but where we move it, so that only the queue's own work is measured.
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut queue = DelayQueue::new();
        let after = |entry| Duration::from_millis(due(entry));
        let started = Instant::now();
        let keys: Vec<_> = (0..ENTRIES).map(|entry| queue.insert(entry, after(entry))).collect();
        for key in &keys {
            black_box(queue.remove(key));
        }
        let enter_and_leave = each(started);

        let keys: Vec<_> = (0..ENTRIES).map(|entry| queue.insert(entry, after(entry))).collect();
        let started = Instant::now();
        for (entry, key) in (0..).zip(&keys) {
            queue.reset(key, after(entry + 1));
        }
        let move_on = each(started);

        let (mut expired, mut took) = (0, Duration::ZERO);
        while expired < ENTRIES {
            tokio::time::advance(Duration::from_millis(TICK_MS)).await;
            let started = Instant::now();
            expired += drained(&mut queue).await;
            took += started.elapsed();
        }
        Costs { enter_and_leave, move_on, expire: took.as_nanos() as f64 / ENTRIES as f64 }
    })
}

/// Takes out the items that are due now.
async fn drained(queue: &mut DelayQueue<u64>) -> u64 {
    let mut expired = 0;
    tokio::task::unconstrained(poll_fn(|cx| {
        while let std::task::Poll::Ready(Some(entry)) = queue.poll_expired(cx) {
            black_box(entry);
            expired += 1;
        }
        std::task::Poll::Ready(())
    }))
    .await;
    expired
}
