//! A caller that waits with a limit gives up in time, or has the lock before.

use std::time::Duration;

use crate::common::Watch;
use crate::common::fixture::{LONG, SOON};
use crate::scene::{AT_ONCE, FURTHER, QUICK, Scene, USUAL, not_in_time};

const LIMIT: Duration = Duration::from_millis(500);

#[tokio::test]
async fn java_gives_up_on_a_lock_of_rust() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let mut java = scene.thread("java");
    let guard = scene.client().await.lock("a").lock().await.unwrap();

    assert_eq!(java.result("trylock a").await, "false");
    let answer = java.ask("trylock a 500").await;
    assert_eq!(answer.result, "false");
    assert!(answer.took >= LIMIT && answer.took < LIMIT + AT_ONCE, "{:?}", answer.took);

    guard.unlock().await.unwrap();
    assert_eq!(
        scene.holds("a").await,
        [0; 0],
        "a caller that gave up is not granted the lock later"
    );
}

#[tokio::test]
async fn rust_gives_up_on_a_lock_of_java() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    java.ask("lock a").await;

    assert!(lock.try_lock().await.unwrap().is_none());
    let asked = Watch::start();
    not_in_time(lock.try_lock_for(LIMIT).await);
    assert!(asked.elapsed() >= LIMIT && asked.passed() < LIMIT + FURTHER, "{asked:?}");

    java.ask("unlock a").await;
    assert_eq!(
        scene.holds("a").await,
        [0; 0],
        "a caller that gave up is not granted the lock later"
    );
}

#[tokio::test]
async fn java_gets_a_lock_of_rust_within_its_limit_and_with_its_lease() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    let guard = lock.lock().await.unwrap();
    java.order(&format!("trylock a {} {}", LONG.as_millis(), QUICK.as_millis())).await;
    scene.awaited_by("a", 1).await;

    guard.unlock().await.unwrap();

    assert_eq!(java.answer().await.result, "true");
    assert!(lock.ttl().await.unwrap().is_some_and(|ttl| ttl <= QUICK));
}

#[tokio::test]
async fn rust_gets_a_lock_of_java_within_its_limit() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.lock("a"), scene.thread("java"));
    java.ask("lock a").await;
    let waiter = tokio::spawn(async move { lock.try_lock_for(SOON).await });
    scene.awaited_by("a", 1).await;

    java.ask("unlock a").await;

    let guard = waiter.await.unwrap().unwrap().expect("it was freed in time");
    guard.unlock().await.unwrap();
}
