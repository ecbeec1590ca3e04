//! One at a time: a number that nothing protects but the lock comes out exact, and tokens grow with each turn.

use parklock::{Client, FencingToken};
use redis::aio::MultiplexedConnection;
use redis::pipe;
use tokio::task::JoinSet;

use crate::common::{Admin, Worker, WorkerSide, connect};
use crate::pair::Pair;
use crate::scene::{Scene, only_told, soon};

const CLIENTS: u64 = 3;
const PROCESSES: u64 = 3;
const HOLDERS: u64 = 3;
const TURNS: u64 = 12;

/// What the lock protects lies in one slot of a cluster. The words before the colon say that it is the test's own.
const VALUE: &str = "test:{own}:value";

/// One turn: read, then write, in two requests.
async fn increment(redis: &mut MultiplexedConnection, token: FencingToken) {
    let (inside, value): (u32, Option<u64>) =
        pipe().incr("test:{own}:inside", 1).get(VALUE).query_async(redis).await.expect("an answer");
    assert_eq!(inside, 1, "two hold it at once");
    let (before, left): (Option<u64>, u32) = pipe()
        .set(VALUE, value.unwrap_or(0) + 1)
        .ignore()
        .cmd("SET")
        .arg(&["test:{own}:token", &token.get().to_string(), "GET"])
        .decr("test:{own}:inside", 1)
        .query_async(redis)
        .await
        .expect("an answer");
    assert!(before.unwrap_or(0) < token.get(), "the token of a later turn is not greater");
    assert_eq!(left, 0, "two hold it at once");
}

async fn take_turns(pair: Pair, client: Client, mut redis: MultiplexedConnection) {
    let mutex = pair.of(&client, "a");
    for turn in 0..TURNS {
        let guard = soon(mutex.lock()).await.expect("a turn");
        increment(&mut redis, guard.token()).await;
        match turn % 3 {
            0 => drop(guard), // given back in the background
            _ => guard.unlock().await.expect("it was ours all the time"),
        }
    }
}

/// Several holders of one client.
async fn crowd(pair: Pair, client: Client, store: &str) -> JoinSet<()> {
    let redis = connect(store).await;
    (0..HOLDERS).map(|_| take_turns(pair, client.clone(), redis.clone())).collect()
}

async fn counted(admin: &Admin) -> u64 {
    admin.cmd(&["GET", VALUE]).await
}

pub(crate) async fn holders_of_several_clients_take_turns(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let mut crowds = Vec::new();
    for _ in 0..CLIENTS {
        let client = pair.client(&scene.server.url(), only_told()).await;
        crowds.push(crowd(pair, client, &scene.server.store_of(VALUE)).await);
    }
    for crowd in crowds {
        crowd.join_all().await;
    }
    assert_eq!(counted(&scene.admin).await, CLIENTS * HOLDERS * TURNS);
    scene.is_clean().await;
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_takes_turns() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let (pair, url) = (Pair::named(&boss.variable("PAIR")), boss.variable("URL"));
    let client = pair.client(&url, only_told()).await;
    boss.tell("ready");
    boss.order().await;
    crowd(pair, client.clone(), &boss.variable("STORE")).await.join_all().await;
    client.close().await;
    boss.tell("done");
}

pub(crate) async fn holders_of_several_processes_take_turns(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let (url, store) = (scene.server.url(), scene.server.store_of(VALUE));
    let variables = [("URL", &*url), ("STORE", &*store), ("PAIR", pair.name)];
    let start = |_| Worker::start("exclusion::worker_that_takes_turns", &variables);
    let mut workers: Vec<_> = (0..PROCESSES).map(start).collect();
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "ready");
    }
    for worker in &mut workers {
        worker.order("go").await;
    }
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "done");
    }
    assert_eq!(counted(&scene.admin).await, PROCESSES * HOLDERS * TURNS);
    scene.is_clean().await;
}
