//! A holder learns that somebody used force, and a waiter gets the lock at once.

use std::time::Instant;

use parklock::{Ended, Error};

use crate::common::fixture::{A_WHILE, SOON};
use crate::common::timeout;
use crate::scene::{AT_ONCE, QUICK, Scene, USUAL, WORK, granted};

/// Redisson tells only clients that listen. So a holder learns of it at its next renewal.
#[tokio::test]
async fn rust_learns_that_java_took_its_lock_away() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    let guard = lock.lock().await.unwrap();

    assert_eq!(java.result("force a").await, "true");

    // Long before the lease is over.
    let ended = timeout(SOON, guard.ended()).await.expect("the watchdog notices");
    assert_eq!(ended, Ended::Lost);
    assert!(!guard.is_valid());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert_eq!(java.result("force a").await, "false");
}

/// The holder had to wait for the lock itself, so it still listens.
#[tokio::test]
async fn rust_learns_at_once_of_force_that_it_hears() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    java.ask("lock a").await;
    let waiter = tokio::spawn(async move { lock.lock().await });
    scene.awaited_by("a", 1).await;
    java.ask("unlock a").await;
    let guard = granted(async { waiter.await.unwrap() }).await;
    tokio::time::sleep(A_WHILE).await; // the release is no longer news

    java.ask("force a").await;

    assert_eq!(timeout(AT_ONCE, guard.ended()).await, Ok(Ended::Lost));
}

/// Other callers of this client wait for the lock, so it listens to the channel.
#[tokio::test]
async fn a_lock_that_java_takes_away_goes_to_a_waiter() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let mut java = scene.thread("java");
    let guard = scene.client().await.lock("a").lock().await.unwrap();
    let lock = scene.client().await.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    scene.awaited_by("a", 1).await;

    java.ask("force a").await;

    let next = granted(async { waiter.await.unwrap() }).await;
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(next.is_valid());
    assert_eq!(scene.holds("a").await, [1]);
}

#[tokio::test]
async fn java_learns_that_rust_took_its_lock_away() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut holder) = (scene.client().await.lock("a"), scene.thread("holder"));
    let mut waiter = scene.thread("waiter");
    holder.ask("lock a").await;
    waiter.order("lock a").await;
    scene.awaited_by("a", 1).await;

    let taken = Instant::now();
    assert!(lock.force_unlock().await.unwrap());

    assert!(waiter.answer().await.heard - taken < AT_ONCE);
    assert_eq!(holder.refusal("unlock a").await, "IllegalMonitorStateException");
    assert_eq!(waiter.result("isheld a").await, "true");
    waiter.ask("unlock a").await;
    assert!(!lock.force_unlock().await.unwrap());
    scene.nothing_is_eternal().await;
}

/// Redisson's watchdog must not keep a lock alive that is ours now.
#[tokio::test]
async fn rust_waits_for_a_lock_that_rust_takes_from_java() {
    let Some(scene) = Scene::begin(QUICK).await else { return };
    let mut java = scene.thread("java");
    java.ask("lock a").await;
    let lock = scene.client().await.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    scene.awaited_by("a", 1).await;

    scene.client().await.lock("a").force_unlock().await.unwrap();

    let guard = granted(async { waiter.await.unwrap() }).await;
    assert_eq!(java.result(&format!("trylock a {}", WORK.as_millis())).await, "false");
    assert!(guard.is_valid());
}
