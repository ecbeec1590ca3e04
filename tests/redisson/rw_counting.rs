//! The proof of exclusion for writers: a counter that is read and then written under the write lock by everybody, and
//! under the read lock is the same whenever it is looked at.

use parklock::{Client, Owner, RwLock};
use tokio::task::JoinSet;

use crate::common::{Admin, Worker, WorkerSide};
use crate::peer::{Jvm, Thread};
use crate::scene::{Scene, USUAL, client};

const PROCESSES: usize = 2;
const TASKS: usize = 3;
const TASK: usize = 200;

const JVMS: usize = 2;
const THREADS: usize = 2;
const THREAD: usize = 400;

const TOTAL: usize = PROCESSES * TASKS * TASK + JVMS * THREADS * THREAD;

/// How often a task says that it goes on, and also reads.
const SIGN_OF_LIFE: usize = 20;

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

async fn value(admin: &Admin) -> u64 {
    admin.cmd::<Option<u64>>(&["GET", "counter"]).await.unwrap_or(0)
}

async fn count(client: Client, admin: Admin) {
    let lock = client.rw_lock("a").owned_by(&Owner::new());
    for done in 0..TASK {
        let guard = lock.write().await.expect("it is granted");
        let next = value(&admin).await + 1;
        admin.cmd::<()>(&["SET", "counter", &next.to_string()]).await;
        if done % SIGN_OF_LIFE == 0 {
            let guard = guard.downgrade().await.expect("it writes");
            assert_eq!(value(&admin).await, next, "somebody wrote while we read");
            guard.unlock().await.expect("it was ours");
            look(&lock, &admin).await;
            println!("worker says: {done}");
        } else {
            guard.unlock().await.expect("it was ours");
        }
    }
}

async fn look(lock: &RwLock, admin: &Admin) {
    let guard = lock.read().await.expect("it is granted");
    let before = value(admin).await;
    tokio::task::yield_now().await;
    assert_eq!(value(admin).await, before, "somebody wrote while we read");
    guard.unlock().await.expect("it was ours");
}

fn threads(jvm: &Jvm) -> impl Iterator<Item = Thread> {
    (0..THREADS).map(|n| jvm.thread(&format!("t{n}")))
}

#[tokio::test]
async fn writers_of_two_jvms_and_two_rust_processes_lose_no_increment() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let url = scene.server.url();
    let second = Jvm::start(&url, USUAL).await.expect("as the first one");
    let mut workers: Vec<Worker> = (0..PROCESSES)
        .map(|_| Worker::start("rw_counting::worker_that_counts", &[("URL", &url)]))
        .collect();
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "ready");
    }
    let mut threads: Vec<Thread> = [&scene.jvm, &second].into_iter().flat_map(threads).collect();
    for thread in &threads {
        thread.order(&format!("writeincrement a counter {THREAD}")).await;
    }
    for worker in &mut workers {
        worker.order("go").await;
    }
    for worker in &mut workers {
        while worker.hear().await != "done" {
            scene.nothing_is_eternal().await;
        }
    }
    for thread in &mut threads {
        let took = thread.answer().await.took;
        println!("a thread of Java is done after {took:?}");
    }
    assert_eq!(scene.admin.cmd::<usize>(&["GET", "counter"]).await, TOTAL);
    assert!(scene.admin.hgetall("a").await.is_empty());
    scene.nothing_is_eternal().await;
}
