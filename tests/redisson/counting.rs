//! The proof of exclusion, for each kind that can be one's alone: a counter that is read and then written by everybody, and
//! misses nothing.

use std::time::Instant;

use parklock::{Client, Guard, Result, RwLock, WriteGuard};
use tokio::task::JoinSet;

use crate::common::{Admin, Worker, WorkerSide};
use crate::peer::{Jvm, Thread};
use crate::scene::{FIVE_MINUTES, Scene, USUAL, client};

const PROCESSES: usize = 4;
const TASKS: usize = 4;

const JVMS: usize = 2;
const THREADS: usize = 2;

/// How often a task says that it goes on.
const SIGN_OF_LIFE: usize = 20;

/// So many each task and each thread.
#[derive(Debug, Clone, Copy)]
struct Each {
    task: usize,
    thread: usize,
}

impl Each {
    const fn total(self) -> usize {
        PROCESSES * TASKS * self.task + JVMS * THREADS * self.thread
    }
}

const TWENTY_THOUSAND: Each = Each { task: 750, thread: 2000 };
const FOUR_THOUSAND: Each = Each { task: 150, thread: 400 };

/// Takes what Java takes with the order of this name.
async fn alone(client: &Client, kind: &str) -> Result<Guard> {
    match kind {
        "fenced" => client.redisson().fenced_lock("a").lock().await,
        "fair" => client.fair_lock("a").lock().await,
        "write" => book(client).write().await.map(WriteGuard::into_guard),
        "sem" => client.semaphore("a", 1).acquire().await,
        "permit" => client.redisson().expirable_semaphore("a", 1).acquire().await,
        _ => client.lock("a").lock().await,
    }
}

fn book(client: &Client) -> RwLock {
    client.rw_lock("a")
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_counts() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = client(&boss.variable("URL"), USUAL).await;
    let admin = Admin::connect(&boss.variable("URL")).await;
    let each: usize = boss.variable("EACH").parse().expect("a number");
    boss.tell("ready");
    boss.order().await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(count(client.clone(), admin.clone(), boss.variable("KIND"), each));
    }
    tasks.join_all().await;
    boss.tell("done");
    boss.order().await;
}

async fn count(client: Client, admin: Admin, kind: String, each: usize) {
    for done in 0..each {
        let guard = alone(&client, &kind).await.expect("it is granted");
        let next = value(&admin).await + 1;
        admin.cmd::<()>(&["SET", "counter", &next.to_string()]).await;
        guard.unlock().await.expect("it was ours");
        if done % SIGN_OF_LIFE == 0 {
            println!("worker says: {done}");
            if kind == "write" {
                look(&client, &admin).await;
            }
        }
    }
}

async fn value(admin: &Admin) -> u64 {
    admin.cmd::<Option<u64>>(&["GET", "counter"]).await.unwrap_or(0)
}

/// Nobody writes while somebody reads, nor while somebody goes on to read.
async fn look(client: &Client, admin: &Admin) {
    let writing = book(client).write().await.expect("it is granted");
    let before = value(admin).await;
    let reading = writing.downgrade().await.expect("it writes");
    assert_eq!(value(admin).await, before, "somebody wrote while we read");
    reading.unlock().await.expect("it was ours");
    let reading = book(client).read().await.expect("it is granted");
    let before = value(admin).await;
    tokio::task::yield_now().await;
    assert_eq!(value(admin).await, before, "somebody wrote while we read");
    reading.unlock().await.expect("it was ours");
}

fn threads(jvm: &Jvm) -> impl Iterator<Item = Thread> {
    (0..THREADS).map(|n| jvm.thread(&format!("t{n}")))
}

async fn lose_no_increment(kind: &str, each: Each) {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    if kind == "fenced" && scene.has_no_fenced_locks().await {
        return;
    }
    let url = scene.server.url();
    let second = Jvm::start(&url, USUAL, FIVE_MINUTES).await.expect("as the first one");
    // The first to come says how many permits there are: that is one of ours.
    let ours = scene.client().await;
    alone(&ours, kind).await.expect("it is granted").unlock().await.expect("it was ours");
    let task = each.task.to_string();
    let variables = [("URL", &*url), ("KIND", kind), ("EACH", &task)];
    let mut workers: Vec<Worker> =
        (0..PROCESSES).map(|_| Worker::start("counting::worker_that_counts", &variables)).collect();
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "ready");
    }
    let started = Instant::now();
    let mut threads: Vec<Thread> = [&scene.jvm, &second].into_iter().flat_map(threads).collect();
    for thread in &threads {
        thread.order(&format!("{kind}increment a counter {}", each.thread)).await;
    }
    for worker in &mut workers {
        worker.order("go").await;
    }
    for worker in &mut workers {
        while worker.hear().await != "done" {
            // Of the others something stays, as Redisson has it: a counter, a queue, a number of permits.
            if matches!(kind, "" | "write") {
                scene.nothing_is_eternal().await;
            }
        }
    }
    println!("Rust is done after {:?}", started.elapsed());
    for thread in &mut threads {
        let took = thread.answer().await.took;
        println!("a thread of Java is done after {took:?}");
    }
    assert_eq!(scene.admin.cmd::<usize>(&["GET", "counter"]).await, each.total());
    alone(&ours, kind).await.expect("nobody has it").unlock().await.expect("it was ours");
}

#[tokio::test]
async fn two_jvms_and_four_rust_processes_lose_no_increment() {
    lose_no_increment("", TWENTY_THOUSAND).await;
}

#[tokio::test]
async fn no_increment_is_lost_under_a_fenced_lock() {
    lose_no_increment("fenced", FOUR_THOUSAND).await;
}

#[tokio::test]
async fn no_increment_is_lost_under_a_fair_lock() {
    lose_no_increment("fair", FOUR_THOUSAND).await;
}

#[tokio::test]
async fn no_increment_is_lost_under_a_write_lock() {
    lose_no_increment("write", FOUR_THOUSAND).await;
}

#[tokio::test]
async fn no_increment_is_lost_under_one_permit() {
    lose_no_increment("sem", FOUR_THOUSAND).await;
}

#[tokio::test]
async fn no_increment_is_lost_under_one_expirable_permit() {
    lose_no_increment("permit", FOUR_THOUSAND).await;
}
