//! A process that is killed keeps the other side out for its lease and no longer.

use std::time::{Duration, Instant};

use parklock::Client;

use crate::common::{Watch, Worker, WorkerSide, judged};
use crate::scene::{FURTHER, QUICK, Scene, client};

/// How much of the lease is left, and since when.
pub(crate) async fn rest_of_lease(scene: &Scene) -> (Instant, Watch, Duration) {
    let (asked, watch) = (Instant::now(), Watch::start());
    let ttl = u64::try_from(scene.admin.pttl("a").await).expect("it is held, with a TTL");
    (asked, watch, Duration::from_millis(ttl))
}

/// Asserts that the lock changed hands when the lease was over. Time in which the machine does not run the test does not make that late.
pub(crate) fn in_time(granted: Instant, (asked, watch, rest): (Instant, Watch, Duration)) {
    let took = granted - asked;
    let most = took.saturating_sub(watch.stalled());
    assert!(rest <= QUICK, "{rest:?}: a lease is no longer than that");
    assert!(took + Duration::from_millis(5) >= rest, "{took:?} of {rest:?}: too early");
    assert!(most <= rest + FURTHER, "{most:?} instead of {rest:?}: too late");
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_locks() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client: Client = client(&boss.variable("URL"), QUICK).await;
    let _guard = client.lock("a").lock().await.unwrap();
    boss.tell("granted");
    boss.order().await;
}

#[tokio::test]
async fn java_follows_a_rust_process_that_was_killed() {
    judged(async || {
        let Some(scene) = Scene::begin(QUICK).await else { return };
        let mut java = scene.thread("java");
        let url = scene.server.url();
        let mut worker = Worker::start("crash::worker_that_locks", &[("URL", &url)]);
        assert_eq!(worker.hear().await, "granted");
        java.order("lock a").await;
        scene.awaited_by("a", 1).await;
        assert!(java.is_busy().await);

        worker.kill9();

        let rest = rest_of_lease(&scene).await;
        in_time(java.answer().await.heard, rest);
        java.ask("unlock a").await;
        scene.nothing_is_eternal().await;
    })
    .await;
}

#[tokio::test]
async fn rust_follows_a_jvm_that_was_killed() {
    judged(async || {
        let Some(mut scene) = Scene::begin(QUICK).await else { return };
        let lock = scene.client().await.lock("a");
        scene.thread("java").ask("lock a").await;
        let waiter =
            tokio::spawn(async move { lock.lock().await.map(|guard| (guard, Instant::now())) });
        scene.awaited_by("a", 1).await;

        scene.jvm.kill9().await;

        let rest = rest_of_lease(&scene).await;
        let (guard, at) = waiter.await.unwrap().unwrap();
        in_time(at, rest);
        guard.unlock().await.unwrap();
        scene.nothing_is_eternal().await;
    })
    .await;
}

/// A JVM that waits leaves nothing that could hold anybody up.
#[tokio::test]
async fn a_jvm_that_is_killed_while_it_waits_is_not_waited_for() {
    let Some(mut scene) = Scene::begin(QUICK).await else { return };
    let lock = scene.client().await.lock("a");
    let guard = lock.lock().await.unwrap();
    scene.thread("java").order("lock a").await;
    scene.awaited_by("a", 1).await;

    scene.jvm.kill9().await;

    guard.unlock().await.unwrap();
    let free = lock.try_lock().await.unwrap();
    assert!(free.is_some(), "nobody else is there");
}
