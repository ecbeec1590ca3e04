//! A latch that either side sets, counts down and waits for.

use std::time::Instant;

use parklock::{Client, CountDownLatch};
use tokio::task::JoinHandle;

use crate::common::{Worker, WorkerSide, timeout};
use crate::peer::{Jvm, Thread};
use crate::scene::{AT_ONCE, FIVE_MINUTES, Scene, USUAL, client};

const CHANNEL: &str = "redisson_countdownlatch__channel__{a}";

fn waiter(latch: &CountDownLatch) -> JoinHandle<parklock::Result<()>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

async fn passes(waiter: JoinHandle<parklock::Result<()>>) {
    timeout(AT_ONCE, waiter).await.expect("it is told").expect("no panic").expect("it is open");
}

async fn awaited_by(scene: &Scene, clients: usize) {
    scene.listened_to(CHANNEL, clients).await;
}

#[tokio::test]
async fn java_passes_at_once_when_rust_has_counted_to_zero() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let latch = scene.client().await.count_down_latch("a");
    assert!(latch.set(2).await.unwrap());
    let mut threads: Vec<Thread> = (0..5).map(|n| scene.thread(&format!("t{n}"))).collect();
    assert_eq!(threads[0].result("latchset a 7").await, "false", "it is set");
    assert_eq!(threads[0].result("latchcount a").await, "2");
    assert_eq!(threads[0].result("latchawait a 50").await, "false");
    for thread in &threads {
        thread.order("latchawait a").await;
    }
    awaited_by(&scene, 1).await;

    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert!(threads[4].is_busy().await);
    let opened = Instant::now();
    assert_eq!(latch.count_down().await.unwrap(), 0);

    for thread in &mut threads {
        assert!(thread.answer().await.heard - opened < AT_ONCE);
    }
    assert_eq!(threads[0].result("latchcount a").await, "0");
    assert_eq!(latch.count_down().await.unwrap(), 0, "not below zero");
    assert_eq!(threads[0].result("latchset a 1").await, "true");
    assert_eq!(latch.count().await.unwrap(), Some(1));
}

#[tokio::test]
async fn rust_passes_at_once_when_java_has_counted_to_zero() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (latch, mut java) = (scene.client().await.count_down_latch("a"), scene.thread("java"));
    assert_eq!(java.result("latchset a 2").await, "true");
    assert!(!latch.set(7).await.unwrap());
    let other = scene.client().await.count_down_latch("a");
    let waiters: Vec<_> = [&latch, &latch, &other].into_iter().map(waiter).collect();
    awaited_by(&scene, 2).await;

    java.ask("latchdown a").await;
    assert_eq!(latch.count().await.unwrap(), Some(1));
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    java.ask("latchdown a").await;

    for waiter in waiters {
        passes(waiter).await;
    }
    java.ask("latchdown a").await;
    assert_eq!(java.result("latchcount a").await, "0");
    assert!(latch.wait_for(AT_ONCE).await.unwrap());
    scene.nothing_is_eternal().await;
}

/// Redisson's own waiters get another message, and go on waiting.
#[tokio::test]
async fn rust_passes_at_once_when_java_deletes_it() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (latch, mut java) = (scene.client().await.count_down_latch("a"), scene.thread("java"));
    java.ask("latchset a 2").await;
    let waiting = waiter(&latch);
    awaited_by(&scene, 1).await;

    assert_eq!(java.result("latchdelete a").await, "true");

    passes(waiting).await;
    assert!(!latch.delete().await.unwrap());
    latch.set(1).await.unwrap();
    assert!(latch.delete().await.unwrap());
    assert_eq!(java.result("latchdelete a").await, "false");
}

/// Java sets the latch anew while callers wait for it: only an open latch can be set.
#[tokio::test]
async fn a_latch_that_is_set_again_is_waited_for_again() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (latch, mut java) = (scene.client().await.count_down_latch("a"), scene.thread("java"));
    for _ in 0..3 {
        assert_eq!(java.result("latchset a 1").await, "true");
        let waiting = waiter(&latch);
        awaited_by(&scene, 1).await;
        assert!(!waiting.is_finished());
        java.ask("latchdown a").await;
        passes(waiting).await;
    }
}

/// A set of ours has a TTL, and so has what we keep beside it; Java's has none.
#[tokio::test]
async fn nothing_of_ours_stays_for_ever() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (latch, mut java) = (scene.client().await.count_down_latch("a"), scene.thread("java"));
    latch.set(3).await.unwrap();
    latch.count_down().await.unwrap();
    java.ask("latchdown a").await;
    scene.nothing_is_eternal().await;
    assert_eq!(java.result("latchdelete a").await, "true");
    assert_eq!(java.result("latchset a 3").await, "true");
    latch.count_down().await.unwrap();
    assert_eq!(scene.admin.pttl("a").await, -1, "it is Java's as before");
}

const COUNTS: usize = 300;

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_counts_down() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client: Client = client(&boss.variable("URL"), USUAL).await;
    let latch = client.count_down_latch("a");
    let waiting = waiter(&latch);
    boss.tell("ready");
    boss.order().await;
    for _ in 0..COUNTS {
        latch.count_down().await.unwrap();
    }
    boss.tell("done");
    waiting.await.unwrap().unwrap();
    boss.tell("passed");
    boss.order().await;
}

/// The last count opens the latch, whichever side makes it. A process that dies in between takes no count back.
#[tokio::test]
async fn two_jvms_and_two_rust_processes_count_exactly() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let url = scene.server.url();
    let second = Jvm::start(&url, USUAL, FIVE_MINUTES).await.expect("as the first one");
    let mut workers: Vec<Worker> =
        (0..2).map(|_| Worker::start("latch::worker_that_counts_down", &[("URL", &url)])).collect();
    let latch = scene.client().await.count_down_latch("a");
    latch.set(2 * COUNTS as u64 + 2 * COUNTS as u64 + 1).await.unwrap();
    let (mut waits, mut counts) = (scene.thread("waits"), scene.thread("counts"));
    let mut other = second.thread("counts");
    waits.order("latchawait a").await;
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "ready");
        worker.order("go").await;
    }
    for _ in 0..COUNTS {
        counts.order("latchdown a").await;
        other.order("latchdown a").await;
    }
    for _ in 0..COUNTS {
        counts.answer().await;
        other.answer().await;
    }
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "done");
    }
    workers[1].kill9();
    drop(second);

    assert_eq!(latch.count().await.unwrap(), Some(1));
    assert!(waits.is_busy().await);
    let opened = Instant::now();
    assert_eq!(latch.count_down().await.unwrap(), 0);

    assert!(waits.answer().await.heard - opened < AT_ONCE);
    assert_eq!(workers[0].hear().await, "passed");
    scene.nothing_is_eternal().await;
}
