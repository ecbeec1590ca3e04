//! A process that dies with many places in a line costs those behind and between them little more than one dead waiter does.

use crate::common;

use std::time::Duration;

use common::fixture::{A_WHILE, SOON, client_with};
use common::{Site, Watch, Worker, WorkerSide, eventually, judged, timeout};
use futures_util::future::join_all;
use parklock::{Client, Config, Layout, Result};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The dead cost two times a `waiter_ttl`, with the pauses between two looks. One window of 64 places after the other, they cost
/// ten seconds and more.
const MOST: Duration = Duration::from_secs(6);

const LIVING: u32 = 20;

const PERMITS: u32 = 10;

/// A `watchdog_timeout` and a `max_park`, which a boss tells its worker. A quarter of the first is the `waiter_ttl`, or a second if
/// that is less.
#[derive(Clone, Copy)]
struct Times {
    watchdog: Duration,
    park: Duration,
}

impl Times {
    const USUAL: Self = Self::of(3, 10);

    const fn of(watchdog: u64, park: u64) -> Self {
        Self { watchdog: Duration::from_secs(watchdog), park: Duration::from_secs(park) }
    }

    fn config(self) -> Config {
        Config::default().watchdog_timeout(self.watchdog).max_park(self.park)
    }

    fn words(self) -> String {
        format!("{} {}", self.watchdog.as_millis(), self.park.as_millis())
    }

    fn read(words: &str) -> Self {
        let mut times = words.split(' ').map(|ms| Duration::from_millis(ms.parse().expect("ms")));
        let mut next = || times.next().expect("two times");
        Self { watchdog: next(), park: next() }
    }
}

/// Waits for its turn, and ends it at once.
async fn turn(client: Client, kind: String, number: u32) -> Result<()> {
    match &*kind {
        "plain" => client.lock("a").lock().await?.unlock().await,
        "fair" | "queue" => client.fair_lock("a").lock().await?.unlock().await,
        "write" => client.rw_lock("a").write().await?.unlock().await,
        "permits" => {
            let permits = client.semaphore("a", PERMITS);
            permits.acquire_many(number % PERMITS + 1).await?.unlock().await
        }
        other => panic!("there is no kind {other}"),
    }
}

/// Whether each waiter of a client has a place of its own.
fn has_places(kind: &str) -> bool {
    matches!(kind, "fair" | "queue")
}

/// The settings of everybody who wants this kind: `queue` is a fair lock in Redisson's layout.
fn config(kind: &str, times: Times) -> Config {
    let layout = if kind == "queue" { Layout::Redisson } else { Layout::Native };
    times.config().layout(layout)
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_is_a_crowd() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let (url, kind) = (boss.variable("URL"), boss.variable("KIND"));
    let count: u32 = boss.variable("COUNT").parse().expect("a number");
    let times = Times::read(&boss.variable("TIMES"));
    let come = || common::fixture::comes_in(&url, config(&kind, times));
    let one = come().await;
    let mut callers = Vec::new();
    for number in 0..count {
        let client = if has_places(&kind) { one.clone() } else { come().await };
        callers.push(tokio::spawn(turn(client, kind.clone(), number)));
    }
    boss.tell("all have come");
    boss.order().await;
}

async fn dies_with_many_places(kind: &str, count: u32, times: Times) {
    judged(async || {
        let server = Site::start().await;
        let admin = server.admin().await;
        let (holder, living) = (
            client_with(&server, config(kind, times)).await,
            client_with(&server, config(kind, times)).await,
        );
        let held = match kind {
            "plain" => holder.lock("a").lock().await.expect("it is free"),
            "fair" | "queue" => holder.fair_lock("a").lock().await.expect("it is free"),
            "write" => holder.rw_lock("a").write().await.expect("it is free").into_guard(),
            _ => holder.semaphore("a", PERMITS).acquire_many(PERMITS).await.expect("they are free"),
        };
        let connections = async || admin.info("clients", "connected_clients").await;
        let without_the_crowd = connections().await;
        let (number, words) = (count.to_string(), times.words());
        let variables =
            [("URL", &*server.url()), ("KIND", kind), ("COUNT", &*number), ("TIMES", &*words)];
        let mut crowd = Worker::start("dead_crowds::worker_that_is_a_crowd", &variables);
        assert_eq!(crowd.hear().await, "all have come");
        let line = match kind {
            "queue" => ["LLEN", "redisson_lock_queue:{a}"],
            _ => ["ZCARD", "lock_queue:{a}"],
        };
        let places = async || admin.cmd::<u32>(&line).await;
        eventually(SOON, "the crowd stands in line", async || places().await == count).await;
        let callers =
            (0..LIVING).map(|number| tokio::spawn(turn(living.clone(), kind.to_owned(), number)));
        let callers: Vec<_> = callers.collect();
        eventually(SOON, "the living stand behind it", async || places().await > count).await;
        crowd.kill9();
        // A server that reads the unlock before the ends of these connections takes the head for alive, and grants it the lock.
        let is_noticed = async || connections().await == without_the_crowd;
        eventually(SOON, "the server notices that the crowd has died", is_noticed).await;

        let watch = Watch::start();
        held.unlock().await.expect("it was ours");
        let done = timeout(SOON, join_all(callers)).await.expect("all have their turns");
        done.into_iter().for_each(|done| done.expect("no panic").expect("a turn"));
        let took = watch.passed();
        println!("{count} dead places of a {kind} lock: {LIVING} living callers after {took:?}");
        assert!(took < MOST, "{took:?}");
    })
    .await;
}

#[tokio::test]
async fn a_process_dies_with_two_hundred_places_in_the_line_of_a_fair_lock() {
    dies_with_many_places("fair", 200, Times::USUAL).await;
}

/// A script of Redisson's layout removes all of the dead at the head in one call, however many they are.
#[tokio::test]
async fn a_process_dies_with_two_hundred_places_in_redissons_queue() {
    dies_with_many_places("queue", 200, Times::USUAL).await;
}

#[tokio::test]
async fn a_process_dies_with_a_hundred_clients_in_the_line_of_a_plain_lock() {
    dies_with_many_places("plain", 100, Times::USUAL).await;
}

#[tokio::test]
async fn a_process_dies_with_a_hundred_clients_that_want_to_write() {
    dies_with_many_places("write", 100, Times::USUAL).await;
}

#[tokio::test]
async fn a_process_dies_with_a_hundred_clients_that_want_different_numbers_of_permits() {
    dies_with_many_places("permits", 100, Times::USUAL).await;
}

/// The dead cost a `waiter_ttl`, and neither a lease nor a park.
#[tokio::test]
async fn the_dead_cost_the_same_whatever_the_watchdog_and_the_longest_park() {
    for (watchdog, park) in [(3, 1), (3, 60), (30, 1), (30, 60)] {
        dies_with_many_places("fair", 100, Times::of(watchdog, park)).await;
    }
}

/// How many permits 500 callers share, a hundred of which die.
const MANY_PERMITS: u32 = 1_000;
const CALLERS: u32 = 100;

/// Takes different numbers of permits again and again, and sends a word after each turn. A server that stands still for a lease takes
/// the permits of all: whoever has lost them comes again.
async fn takes_turns(client: Client, number: u32, turns: UnboundedSender<()>) {
    let permits = client.semaphore("a", MANY_PERMITS);
    loop {
        let turn = async {
            let held = permits.acquire_many(number % 100 + 1).await?;
            sleep(A_WHILE / 4).await;
            held.unlock().await
        };
        if turn.await.is_ok() && turns.send(()).is_err() {
            return;
        }
    }
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_shares_permits() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = common::fixture::comes_in(&boss.variable("URL"), Times::USUAL.config()).await;
    let (turns, mut taken) = unbounded_channel();
    for number in 0..CALLERS {
        tokio::spawn(takes_turns(client.clone(), number, turns.clone()));
    }
    taken.recv().await.expect("they take turns");
    boss.tell("they take turns");
    boss.order().await;
}

/// What the dead hold comes back after a lease, and what they wait for is nobody's after a `waiter_ttl`. The others share the
/// rest all the while.
#[tokio::test]
async fn a_hundred_of_five_hundred_callers_die_and_the_others_go_on() {
    judged(async || {
        let server = Site::start().await;
        let (turns, mut taken) = unbounded_channel();
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let client = client_with(&server, Times::USUAL.config()).await;
            for number in 0..CALLERS {
                callers.spawn(takes_turns(client.clone(), number, turns.clone()));
            }
        }
        let variables = [("URL", &*server.url())];
        let mut crowd = Worker::start("dead_crowds::worker_that_shares_permits", &variables);
        assert_eq!(crowd.hear().await, "they take turns");
        let mut turns_in = async |time: Duration| {
            let (watch, mut count) = (Watch::start(), 0);
            while watch.passed() < time {
                timeout(SOON, taken.recv()).await.expect("they go on").expect("they are here");
                count += 1;
            }
            count
        };
        let time = Times::USUAL.watchdog;
        let before: u32 = turns_in(time).await;
        crowd.kill9();
        let after = turns_in(time * 3).await;
        println!("{before} turns in {time:?}, and {after} in three times that after the kill");
        // They lose about two times a `waiter_ttl`, which is half of that. One window of dead places after the other, they
        // got a tenth of what was usual.
        assert!(after > before, "{after} turns after {before}");
        callers.shutdown().await;
    })
    .await;
}
