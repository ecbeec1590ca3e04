//! Each side counts its own holds, and the other neither changes them nor gets in before the last one has ended.

use parklock::Owner;

use crate::common::fixture::is_pending;
use crate::scene::{Scene, USUAL, granted};

#[tokio::test]
async fn holds_of_rust_are_not_touched_by_java() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.client().await.reentrant_lock("a"), scene.thread("java"));
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();

    assert_eq!(java.result("count a").await, "0");
    assert_eq!(java.result("trylock a").await, "false");
    assert_eq!(java.refusal("unlock a").await, "IllegalMonitorStateException");
    assert_eq!(scene.holds("a").await, [2]);
    assert_eq!(inner.hold_count(), 2);

    java.order("lock a").await;
    scene.awaited_by("a", 1).await;
    inner.unlock().await.unwrap();
    assert!(java.is_busy().await);
    assert_eq!(scene.holds("a").await, [1]);
    outer.unlock().await.unwrap();
    java.answer().await;
    assert_eq!(java.result("count a").await, "1");
    scene.nothing_is_eternal().await;
}

#[tokio::test]
async fn holds_of_java_are_not_touched_by_rust() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    java.ask("lock a").await;
    java.ask("lock a").await;
    java.ask("trylock a 100").await;

    let owner = Owner::new();
    let lock = client.reentrant_lock("a").owned_by(&owner);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(java.result("count a").await, "3");

    let mut waiting = Box::pin(lock.lock());
    for left in [2, 1] {
        java.ask("unlock a").await;
        assert_eq!(java.result("count a").await, left.to_string());
        assert!(is_pending(&mut waiting).await);
    }
    java.ask("unlock a").await;
    let guard = granted(waiting).await;
    let nested = lock.lock().await.unwrap();
    assert_eq!(scene.holds("a").await, [2]);
    nested.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    scene.nothing_is_eternal().await;
}

/// Redisson's owner is the thread, so that two of one JVM exclude each other as they exclude us.
#[tokio::test]
async fn threads_of_java_and_owners_of_rust_are_all_strangers() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let client = scene.client().await;
    let (mut one, mut other) = (scene.thread("one"), scene.thread("other"));
    let (mine, yours) = (Owner::new(), Owner::new());
    one.ask("lock a").await;
    assert_eq!(other.result("trylock a").await, "false");
    assert!(client.reentrant_lock("a").owned_by(&mine).try_lock().await.unwrap().is_none());
    one.ask("unlock a").await;

    let _guard = client.reentrant_lock("a").owned_by(&mine).lock().await.unwrap();
    assert_eq!(one.result("trylock a").await, "false");
    assert!(client.reentrant_lock("a").owned_by(&yours).try_lock().await.unwrap().is_none());
    assert_eq!(scene.holds("a").await, [1]);
}
