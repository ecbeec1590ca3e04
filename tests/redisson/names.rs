//! A name means the same lock on both sides, whatever it is made of.

use std::time::Instant;

use parklock::Error;

use crate::common::site::left_out_in_a_cluster;
use crate::scene::{AT_ONCE, Scene, USUAL, granted};

/// Names and their channels. A name with an opening brace anywhere is taken to bring its own hash tag.
const NAMES: [(&str, &str); 13] = [
    ("orders", "redisson_lock__channel:{orders}"),
    ("orders:42", "redisson_lock__channel:{orders:42}"),
    ("100%", "redisson_lock__channel:{100%}"),
    ("%7Ba%7D", "redisson_lock__channel:{%7Ba%7D}"),
    ("{a}", "redisson_lock__channel:{a}"),
    ("a{b}c", "redisson_lock__channel:a{b}c"),
    ("a{b}c{d}", "redisson_lock__channel:a{b}c{d}"),
    ("{}a", "redisson_lock__channel:{}a"),
    ("a{b", "redisson_lock__channel:a{b"),
    ("a}b", "redisson_lock__channel:{a}b}"),
    ("a}b{", "redisson_lock__channel:a}b{"),
    ("{{a}}", "redisson_lock__channel:{{a}}"),
    ("käse☂𝕏", "redisson_lock__channel:{käse☂𝕏}"),
];

#[tokio::test]
async fn java_waits_for_any_name_that_rust_holds() {
    if left_out_in_a_cluster(
        "names whose keys lie in several slots are refused there: see cluster.rs",
    ) {
        return;
    }
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    for (name, channel) in NAMES {
        let guard = client.lock(name).lock().await.unwrap();
        assert_eq!(scene.holds(name).await, [1], "{name} is the key");
        java.order(&format!("lock {name}")).await;
        scene.listened_to(channel, 1).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        assert!(java.answer().await.heard - released < AT_ONCE, "{name}");
        assert!(client.lock(name).is_locked().await.unwrap(), "{name}");
        java.ask(&format!("unlock {name}")).await;
    }
    scene.nothing_is_eternal().await;
}

#[tokio::test]
async fn rust_waits_for_any_name_that_java_holds() {
    if left_out_in_a_cluster(
        "names whose keys lie in several slots are refused there: see cluster.rs",
    ) {
        return;
    }
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    for (name, channel) in NAMES {
        java.ask(&format!("lock {name}")).await;
        assert_eq!(scene.holds(name).await, [1], "{name} is the key");
        let lock = client.lock(name);
        let waiter = tokio::spawn(async move { lock.lock().await });
        scene.listened_to(channel, 1).await;
        java.ask(&format!("unlock {name}")).await;
        granted(async { waiter.await.unwrap() }).await.unlock().await.unwrap();
    }
}

/// The two names share a channel, so a release of one wakes the waiters of the other. They share nothing else.
#[tokio::test]
async fn a_name_and_the_same_in_braces_are_two_locks() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    java.ask("lock a").await;
    let braced = client.lock("{a}").try_lock().await.unwrap().expect("another lock");
    let lock = client.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    scene.listened_to("redisson_lock__channel:{a}", 1).await;

    braced.unlock().await.unwrap();
    assert!(client.lock("{a}").try_lock().await.unwrap().is_some());
    assert!(!waiter.is_finished(), "the message was for the other");
    java.ask("unlock a").await;

    granted(async { waiter.await.unwrap() }).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_name_that_cannot_be_shared_is_refused_before_anything_is_sent() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let client = scene.client().await;
    for name in ["", "lock:grants", &"x".repeat(1025)] {
        let refused = client.lock(name).lock().await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })), "{name}: {refused:?}");
    }
}

/// What Redisson keeps under the name is no lock: it is neither waited for nor overwritten.
#[tokio::test]
async fn a_semaphore_of_java_is_not_taken_for_a_lock() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    java.ask("semset a 1").await;
    let refused = client.lock("a").lock().await;
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert_eq!(java.result("semavailable a").await, "1");
}

/// Redisson may use any key. Where it uses that of the token counter no lock can be granted, and the error says why.
#[tokio::test]
async fn a_lock_of_java_in_the_place_of_the_token_counter_is_reported() {
    if left_out_in_a_cluster("each slot has a counter of its own") {
        return;
    }
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    java.ask("lock lock:grants").await;
    let refused = client.lock("a").lock().await;
    let Err(Error::Conflict { key, kind, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((&*key, &*kind), ("lock:grants", "hash"));
    assert!(!client.lock("a").is_locked().await.unwrap());
    java.ask("unlock lock:grants").await;
    client.lock("a").lock().await.unwrap().unlock().await.unwrap();
}
