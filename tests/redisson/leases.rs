//! A watchdog keeps the other side out for as long as the work takes; a lease does not.

use std::time::{Duration, Instant};

use crate::common::fixture::SOON;
use crate::common::{Watch, judged};
use crate::scene::{FURTHER, QUICK, Scene, USUAL, WORK, granted, not_in_time};

const LEASE: Duration = Duration::from_millis(1500);

/// A lease may end so much before its time. Its holder relies on it for 1 % and 2 ms less, and gives the lock back then.
/// And Redis counts whole milliseconds, from when it woke up for a request.
const COARSE: Duration = Duration::from_millis(15 + 2 + 5);

#[tokio::test]
async fn the_watchdog_of_java_keeps_rust_out() {
    judged(async || {
        let Some(scene) = Scene::begin(QUICK).await else { return };
        let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
        java.ask("lock a").await;

        not_in_time(lock.try_lock_for(WORK).await);

        assert_eq!(java.result("isheld a").await, "true");
        scene.nothing_is_eternal().await;
        java.ask("unlock a").await;
        assert!(lock.try_lock().await.unwrap().is_some(), "it is free");
    })
    .await;
}

#[tokio::test]
async fn the_watchdog_of_rust_keeps_java_out() {
    judged(async || {
        let Some(scene) = Scene::begin(QUICK).await else { return };
        let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
        let guard = lock.lock().await.unwrap();

        assert_eq!(java.result(&format!("trylock a {}", WORK.as_millis())).await, "false");

        assert!(guard.is_valid());
        scene.nothing_is_eternal().await;
        guard.unlock().await.unwrap();
        assert_eq!(java.result("trylock a").await, "true");
    })
    .await;
}

/// Nobody publishes when a key expires: the waiter has to know by itself.
#[tokio::test]
async fn rust_takes_over_when_a_lease_of_java_is_over() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    let asked = Instant::now();
    java.ask(&format!("lock a {}", LEASE.as_millis())).await;
    let had = Watch::start();

    let guard = lock.try_lock_for(SOON).await.unwrap().expect("the lease is over");

    assert!(asked.elapsed() + COARSE >= LEASE, "{:?}: too early", asked.elapsed());
    assert!(had.passed() < LEASE + FURTHER, "{:?}: too late", had.passed());
    assert_eq!(java.refusal("unlock a").await, "IllegalMonitorStateException");
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn java_takes_over_when_a_lease_of_rust_is_over() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    let asked = Instant::now();
    let guard = client.lock("a").lease(LEASE).lock().await.unwrap();
    let had = Watch::start();

    java.ask("lock a").await;

    assert!(asked.elapsed() + COARSE >= LEASE, "{:?}: too early", asked.elapsed());
    assert!(had.passed() < LEASE + FURTHER, "{:?}: too late", had.passed());
    assert!(!guard.is_valid());
    assert!(matches!(guard.unlock().await, Err(parklock::Error::Lost { .. })));
    assert_eq!(java.result("isheld a").await, "true");
}

/// The next holder's lease is its own, not what the last one of the other side has left.
#[tokio::test]
async fn leases_do_not_outlive_their_holder() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    java.ask("lock a").await;
    let lock = client.lock("a").lease(LEASE);
    let waiter = tokio::spawn(async move { lock.lock().await });
    scene.awaited_by("a", 1).await;
    java.ask("unlock a").await;
    let _guard = granted(async { waiter.await.unwrap() }).await;
    assert!(scene.admin.pttl("a").await <= LEASE.as_millis().try_into().unwrap());
}
