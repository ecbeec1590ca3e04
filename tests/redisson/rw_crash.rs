//! A reader or writer that is killed keeps the other side out for its lease and no longer.

use std::time::Instant;

use crate::common::fixture::A_WHILE;
use crate::common::{Watch, Worker, WorkerSide, judged};
use crate::crash::{in_time, rest_of_lease};
use crate::rw::{reading, somebody, writing};
use crate::scene::{FURTHER, QUICK, Scene, WORK, client};
use crate::version::OWN_READERS;

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_holds() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let lock = somebody(&client(&boss.variable("URL"), QUICK).await);
    let _guard = match &*boss.variable("MODE") {
        "read" => lock.read().await.unwrap(),
        _ => lock.write().await.unwrap().into_guard(),
    };
    boss.tell("granted");
    boss.order().await;
}

async fn worker(scene: &Scene, mode: &str) -> Worker {
    let url = scene.server.url();
    let mut worker = Worker::start("rw_crash::worker_that_holds", &[("URL", &url), ("MODE", mode)]);
    assert_eq!(worker.hear().await, "granted");
    worker
}

#[tokio::test]
async fn java_follows_a_reader_and_a_writer_of_rust_that_were_killed() {
    judged(async || {
        let Some(scene) = Scene::begin(QUICK).await else { return };
        let mut java = scene.thread("java");
        for [mode, order] in [["read", "writelock a"], ["write", "readlock a"]] {
            let mut worker = worker(&scene, mode).await;
            java.order(order).await;
            scene.rw_awaited_by(1).await;
            assert!(java.is_busy().await);

            worker.kill9();

            let rest = rest_of_lease(&scene).await;
            in_time(java.answer().await.heard, rest);
            java.ask(&order.replace("lock", "unlock")).await;
            scene.nothing_is_eternal().await;
        }
    })
    .await;
}

/// Redisson's watchdog has nothing to do with a reader of ours that is dead, nor is it in its reader's way.
#[tokio::test]
async fn a_reader_of_rust_that_was_killed_is_not_kept_alive_by_one_of_java() {
    judged(async || {
        let Some(scene) = Scene::begin(QUICK).await else { return };
        let mut java = scene.thread("java");
        java.ask("readlock a").await;
        let mut worker = worker(&scene, "read").await;
        worker.kill9();
        let writer = writing(somebody(&scene.client().await));
        tokio::time::sleep(WORK).await;
        assert!(!writer.is_finished());
        assert_eq!(java.result("readisheld a").await, "true");
        // Before that version, Java's watchdog renews the dead reader too, for as long as Java reads.
        let keys: Vec<String> = scene.admin.cmd(&["KEYS", "*:rwlock_timeout:1"]).await;
        assert_eq!(keys.len(), if scene.has(OWN_READERS) { 1 } else { 2 }, "{keys:?}");
        java.ask("readunlock a").await;
        let left = Watch::start();
        writer.await.unwrap().unwrap().unlock().await.unwrap();
        let most = if scene.has(OWN_READERS) { QUICK / 2 } else { QUICK + FURTHER };
        assert!(left.passed() < most, "{:?}", left.passed());
        scene.nothing_is_eternal().await;
    })
    .await;
}

#[tokio::test]
async fn rust_follows_a_reader_of_java_that_was_killed() {
    judged(async || {
        let Some(mut scene) = Scene::begin(QUICK).await else { return };
        let client = scene.client().await;
        let alive = somebody(&client).read().await.unwrap();
        scene.thread("java").ask("readlock a").await;
        let writer = writing(somebody(&client));
        scene.rw_awaited_by(1).await;

        scene.jvm.kill9().await;

        tokio::time::sleep(WORK).await;
        assert!(!writer.is_finished() && alive.is_valid());
        let left = Watch::start();
        alive.unlock().await.unwrap();
        writer.await.unwrap().unwrap().unlock().await.unwrap();
        assert!(left.passed() < QUICK / 2, "{:?}", left.passed());
        scene.nothing_is_eternal().await;
    })
    .await;
}

#[tokio::test]
async fn rust_follows_a_writer_of_java_that_was_killed() {
    judged(async || {
        let Some(mut scene) = Scene::begin(QUICK).await else { return };
        let mut java = scene.thread("java");
        java.ask("writelock a").await;
        java.ask("readlock a").await;
        let client = scene.client().await;
        let waiting = reading(somebody(&client));
        scene.rw_awaited_by(1).await;
        tokio::time::sleep(A_WHILE).await;
        assert!(!waiting.is_finished());

        scene.jvm.kill9().await;

        let rest = rest_of_lease(&scene).await;
        let read = waiting.await.unwrap().unwrap();
        in_time(Instant::now(), rest);
        read.unlock().await.unwrap();
        scene.nothing_is_eternal().await;
    })
    .await;
}
