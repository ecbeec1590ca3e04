//! One at a time: many processes change one value that nothing protects but the lock.

use crate::common;

use std::time::Duration;

use common::fixture::{client_with, comes_in};
use common::{Admin, Site, Worker, WorkerSide, connect, timeout};
use parklock::{Client, Config, FencingToken};
use redis::aio::MultiplexedConnection;
use redis::pipe;
use tokio::task::JoinSet;

const PROCESSES: usize = 8;
const TASKS: usize = 16;
const TOTAL: u64 = 20_000;

/// A lock that a message has granted is lost unless its holder confirms it in this time. Nothing stops a worker that has lost
/// the lock from writing, so none may lose it, even on a machine that lets it rest for seconds.
fn patient() -> Config {
    let long = Duration::from_secs(60);
    Config::default().watchdog_timeout(long * 2).waiter_ttl(long)
}

/// What the lock protects lies in one slot of a cluster.
const VALUE: &str = "{own}:value";

/// Far more than it takes.
const PATIENCE: Duration = Duration::from_secs(240);

/// One turn under the lock: read, then write, in two requests; `None` when the total was reached before.
async fn increment(redis: &mut MultiplexedConnection, token: FencingToken) -> Option<u64> {
    let (inside, value): (u32, Option<u64>) =
        pipe().incr("{own}:inside", 1).get(VALUE).query_async(redis).await.expect("an answer");
    assert_eq!(inside, 1, "two hold the lock at once");
    let value = value.unwrap_or(0);
    let after = if value < TOTAL { value + 1 } else { value };
    let (token_before, left): (Option<u64>, u32) = pipe()
        .set(VALUE, after)
        .ignore()
        .cmd("SET")
        .arg(&["{own}:token", &token.get().to_string(), "GET"])
        .decr("{own}:inside", 1)
        .query_async(redis)
        .await
        .expect("an answer");
    assert!(token_before.unwrap_or(0) < token.get(), "the token of a later turn is not greater");
    assert_eq!(left, 0, "two hold the lock at once");
    (after > value).then_some(after)
}

/// Counts up together with all other callers. Returns how many of the increments it made itself.
async fn count_up(client: Client, mut redis: MultiplexedConnection) -> u64 {
    let mut done = 0;
    loop {
        let guard = client.lock("a").lock().await.expect("a turn");
        let counted = increment(&mut redis, guard.token()).await;
        guard.unlock().await.expect("it was ours all the time");
        match counted {
            Some(_) => done += 1,
            None => return done,
        }
    }
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_counts_up() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let url = boss.variable("URL");
    let client = comes_in(&url, patient()).await;
    let redis = connect(&boss.variable("STORE")).await;
    boss.tell("ready");
    boss.order().await;
    let tasks: JoinSet<u64> = (0..TASKS).map(|_| count_up(client.clone(), redis.clone())).collect();
    let done: Vec<_> = tasks.join_all().await.iter().map(u64::to_string).collect();
    boss.tell(&done.join(" "));
}

/// What each task of the worker has done, when it is finished.
async fn result(worker: &mut Worker) -> Vec<u64> {
    let line = worker.hear().await;
    line.split(' ').map(|done| done.parse().expect("a number")).collect()
}

#[tokio::test]
async fn no_increment_of_many_processes_is_lost() {
    let server = Site::start().await;
    let (url, store) = (server.url(), server.store_of(VALUE));
    let variables = [("URL", &*url), ("STORE", &*store)];
    let start = |_| Worker::start("exclusion::worker_that_counts_up", &variables);
    let mut workers: Vec<_> = (0..PROCESSES).map(start).collect();
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "ready");
    }
    let admin = server.admin().await;
    let held = client_with(&server, patient()).await.lock("a").lock().await.unwrap();
    for worker in &mut workers {
        worker.order("go").await;
    }
    let in_line = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await >= PROCESSES;
    common::eventually(PATIENCE, "each process stands in line", in_line).await;
    held.unlock().await.unwrap();
    reached(&admin).await;
    let mut done = Vec::new();
    for worker in &mut workers {
        done.extend(result(worker).await);
    }

    assert_eq!(done.len(), PROCESSES * TASKS);
    assert!(done.iter().all(|done| *done > 0), "somebody never had a turn: {done:?}");
    assert_eq!(done.iter().sum::<u64>(), TOTAL);
    assert_eq!(admin.cmd::<u64>(&["GET", VALUE]).await, TOTAL);
}

async fn reached(admin: &Admin) {
    let all = async || admin.cmd::<Option<u64>>(&["GET", VALUE]).await == Some(TOTAL);
    common::eventually(PATIENCE, "all increments are done", all).await;
}

#[tokio::test]
async fn no_increment_is_lost_between_two_clients_of_one_process() {
    let server = Site::start().await;
    let ours = comes_in(server.url(), patient()).await;
    let theirs = comes_in(server.url(), patient()).await;
    let redis = connect(&server.store_of(VALUE)).await;
    let turns = async |client: &Client| {
        for _ in 0..200 {
            let guard = client.lock("a").lock().await.unwrap();
            increment(&mut redis.clone(), guard.token()).await.unwrap();
            drop(guard); // given back in the background
        }
    };
    let all = async { tokio::join!(turns(&ours), turns(&ours), turns(&theirs), turns(&theirs)) };
    timeout(PATIENCE, all).await.unwrap();
    assert_eq!(server.admin().await.cmd::<u64>(&["GET", VALUE]).await, 800);
}
