//! A release of one side wakes the waiters of the other, long before the lease is over.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::common::fixture::LONG;
use crate::common::timeout;
use crate::scene::{AT_ONCE, Scene, USUAL, granted};

const ROUNDS: u32 = 150;

/// How much later each round's release comes than that of the round before.
const FURTHER: Duration = Duration::from_micros(100);

#[tokio::test]
async fn java_is_woken_by_a_release_of_rust() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let mut java = scene.thread("java");
    let guard = scene.client().await.lock("a").lock().await.unwrap();
    java.order("lock a").await;
    scene.awaited_by("a", 1).await;
    assert!(java.is_busy().await);

    let released = Instant::now();
    guard.unlock().await.unwrap();

    let took = java.answer().await.heard - released;
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(java.result("isheld a").await, "true");
    java.ask("unlock a").await;
    scene.nothing_is_eternal().await;
}

#[tokio::test]
async fn java_is_woken_when_a_guard_of_rust_is_dropped() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let mut java = scene.thread("java");
    let guard = scene.client().await.lock("a").lock().await.unwrap();
    java.order("lock a").await;
    scene.awaited_by("a", 1).await;

    let released = Instant::now();
    drop(guard);

    assert!(java.answer().await.heard - released < AT_ONCE);
}

#[tokio::test]
async fn rust_is_woken_by_a_release_of_java() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let mut java = scene.thread("java");
    java.ask("lock a").await;
    let lock = scene.client().await.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    scene.awaited_by("a", 1).await;
    assert!(!waiter.is_finished());

    java.ask("unlock a").await;

    let guard = granted(async { waiter.await.unwrap() }).await;
    guard.unlock().await.unwrap();
    assert!(scene.admin.hgetall("a").await.is_empty());
    scene.nothing_is_eternal().await;
}

/// Each round lets the waiter get a little further before the release: from before its first look until it has parked.
/// A release that is not heard would cost a lease.
#[tokio::test]
async fn a_release_is_never_missed_whenever_it_comes() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    for round in 0..ROUNDS {
        let guard = client.lock("a").lock().await.unwrap();
        java.order("lock a").await;
        sleep(FURTHER * round).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        assert!(java.answer().await.heard - released < AT_ONCE, "round {round}");

        let lock = client.lock("a");
        let waiter = tokio::spawn(async move { lock.lock().await });
        sleep(FURTHER * round).await;
        java.ask("unlock a").await;
        granted(async { waiter.await.unwrap() }).await.unlock().await.unwrap();
    }
    scene.nothing_is_eternal().await;
}

/// A watchdog renews a hold long before half of its timeout is over. A fixed lease is twice as long as that timeout.
#[tokio::test]
async fn each_side_sees_what_the_other_holds() {
    let Some(scene) = Scene::begin(LONG).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    let fixed = format!("lock a {}", (LONG * 2).as_millis());
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(java.result("islocked a").await, "false");

    for (order, most) in [("lock a", LONG), (&*fixed, LONG * 2)] {
        java.ask(order).await;
        assert!(lock.is_locked().await.unwrap());
        let left = lock.ttl().await.unwrap().expect("it is held");
        assert!(left > most / 2 && left <= most, "{order}: {left:?}");
        java.ask("unlock a").await;
        assert_eq!(lock.ttl().await.unwrap(), None);
    }

    for (lock, most) in [(lock.clone(), LONG), (lock.lease(LONG * 2), LONG * 2)] {
        let guard = lock.lock().await.unwrap();
        assert_eq!(java.result("islocked a").await, "true");
        assert_eq!(java.result("isheld a").await, "false");
        let left = Duration::from_millis(java.result("ttl a").await.parse().unwrap());
        assert!(left > most / 2 && left <= most, "{left:?} of {most:?}");
        assert_eq!(java.refusal("unlock a").await, "IllegalMonitorStateException");
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
        assert_eq!(java.result("ttl a").await, "-2", "it is free");
    }
}

/// A spin lock asks again and again, and publishes nothing.
#[tokio::test]
async fn a_spin_lock_of_java_and_a_lock_of_rust_exclude_each_other() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    java.ask("spinlock a").await;
    assert!(lock.try_lock().await.unwrap().is_none());
    java.ask("spinunlock a").await;

    let guard = lock.try_lock().await.unwrap().expect("it is free");
    assert_eq!(java.result("spintrylock a").await, "false");
    assert_eq!(java.refusal("spinunlock a").await, "IllegalMonitorStateException");
    java.order("spinlock a").await;
    assert!(java.is_busy().await);
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    timeout(AT_ONCE, java.answer()).await.expect("it asks again");
    assert!(lock.try_lock().await.unwrap().is_none());
    java.ask("spinunlock a").await;
    scene.is_clean().await;
}
