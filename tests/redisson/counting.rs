//! The proof of exclusion: a counter that is read and then written under one lock by everybody, and misses nothing.

use std::time::Instant;

use parklock::Client;
use tokio::task::JoinSet;

use crate::common::{Admin, Worker, WorkerSide};
use crate::peer::{Jvm, Thread};
use crate::scene::{Scene, USUAL, client};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const TASK: usize = 750;

const JVMS: usize = 2;
const THREADS: usize = 2;
const THREAD: usize = 2000;

const TOTAL: usize = PROCESSES * TASKS * TASK + JVMS * THREADS * THREAD;

/// How often a task says that it goes on.
const SIGN_OF_LIFE: usize = 50;

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_counts() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = client(&boss.variable("URL"), USUAL).await;
    let admin = Admin::connect(&boss.variable("URL")).await;
    boss.tell("ready");
    boss.order().await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(count(client.clone(), admin.clone()));
    }
    tasks.join_all().await;
    boss.tell("done");
    boss.order().await;
}

async fn count(client: Client, admin: Admin) {
    let lock = client.lock("a");
    for done in 0..TASK {
        let guard = lock.lock().await.expect("it is granted");
        let value: Option<u64> = admin.cmd(&["GET", "counter"]).await;
        let next = value.unwrap_or(0) + 1;
        admin.cmd::<()>(&["SET", "counter", &next.to_string()]).await;
        guard.unlock().await.expect("it was ours");
        if done % SIGN_OF_LIFE == 0 {
            println!("worker says: {done}");
        }
    }
}

fn threads(jvm: &Jvm) -> impl Iterator<Item = Thread> {
    (0..THREADS).map(|n| jvm.thread(&format!("t{n}")))
}

#[tokio::test]
async fn two_jvms_and_four_rust_processes_lose_no_increment() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let url = scene.server.url();
    let second = Jvm::start(&url, USUAL).await.expect("as the first one");
    let mut workers: Vec<Worker> = (0..PROCESSES)
        .map(|_| Worker::start("counting::worker_that_counts", &[("URL", &url)]))
        .collect();
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "ready");
    }
    let started = Instant::now();
    let mut threads: Vec<Thread> = [&scene.jvm, &second].into_iter().flat_map(threads).collect();
    for thread in &threads {
        thread.order(&format!("increment a counter {THREAD}")).await;
    }
    for worker in &mut workers {
        worker.order("go").await;
    }
    for worker in &mut workers {
        while worker.hear().await != "done" {
            scene.nothing_is_eternal().await;
        }
    }
    println!("Rust is done after {:?}", started.elapsed());
    for thread in &mut threads {
        let took = thread.answer().await.took;
        println!("a thread of Java is done after {took:?}");
    }
    assert_eq!(scene.admin.cmd::<usize>(&["GET", "counter"]).await, TOTAL);
    assert!(scene.admin.hgetall("a").await.is_empty());
    scene.nothing_is_eternal().await;
}
