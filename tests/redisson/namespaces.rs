//! A namespace of ours is what Redisson's `NameMapper` does with a prefix.

use std::time::Duration;

use parklock::{Client, Config, Guard, Layout};
use tokio::time::sleep;

use crate::common::fixture::comes_in;
use crate::common::{Site, timeout};
use crate::scene::{AT_ONCE, FIVE_MINUTES, Scene, USUAL, granted};
use crate::version::FENCED_LOCKS;

/// The longest that a waiter sleeps, if nobody tells it anything.
const LONG: Duration = Duration::from_secs(600);

async fn begin() -> Option<(Scene, Client)> {
    let scene = Scene::begin_mapped(Site::start().await, USUAL, FIVE_MINUTES, "billing:").await?;
    let config = Config::default().layout(Layout::Redisson).namespace("billing");
    let config = config.max_park(LONG).subscription_linger(Duration::ZERO);
    let client = comes_in(&scene.server.url(), config).await;
    Some((scene, client))
}

/// The call of each kind that takes the lock of this name for us, once it is free.
async fn taken(client: &Client, kind: &str, name: &str) -> parklock::Result<Guard> {
    match kind {
        "fair" => client.fair_lock(name).lock().await,
        "fenced" => client.redisson().fenced_lock(name).lock().await,
        "read" => client.rw_lock(name).read().await,
        "write" => client.rw_lock(name).write().await.map(|guard| guard.into_guard()),
        _ => client.lock(name).lock().await,
    }
}

/// Whoever holds the lock, the other side waits, and is told.
#[tokio::test]
async fn a_mapper_with_the_prefix_shares_every_kind_of_lock() {
    let Some((scene, client)) = begin().await else { return };
    let elsewhere = scene.client().await;
    let mut java = scene.thread("java");
    for (kind, channel) in [
        ("", "redisson_lock__channel:"),
        ("fair", "redisson_lock__channel:"),
        ("fenced", "redisson_lock__channel:"),
        ("read", "redisson_rwlock:"),
        ("write", "redisson_rwlock:"),
    ] {
        if kind == "fenced" && !scene.has(FENCED_LOCKS) {
            continue;
        }
        for name in ["a", "a{b}c"] {
            let mapped = if name == "a" { "{billing:a}" } else { "billing:a{b}c" };
            let channel = format!("{channel}{mapped}");
            // A reader lets the readers of the other side in.
            let against = if kind == "read" { "write" } else { kind };
            let ours = taken(&client, kind, name).await.expect("it is free");
            java.order(&format!("{against}lock {name}")).await;
            match kind {
                "fair" => scene.java_parks(1).await,
                // The message of a read-write lock wakes only the threads that are parked.
                "read" | "write" => {
                    scene.listened_to(&channel, 1).await;
                    scene.java_parks(1).await;
                }
                _ => scene.listened_to(&channel, 1).await,
            }
            ours.unlock().await.expect("it is ours");
            java.answer().await;

            let waiting = taken(&client, kind, name);
            tokio::pin!(waiting);
            let listens = async {
                match kind {
                    "fair" => sleep(Duration::from_millis(500)).await,
                    _ => scene.listened_to(&channel, 1).await,
                }
            };
            tokio::select! {
                _ = &mut waiting => panic!("Java holds {kind} {name}"),
                () = listens => {}
            }
            if kind.is_empty() {
                let meets = elsewhere.lock(name).is_locked().await.expect("an answer");
                assert!(!meets, "{name} is another lock without the prefix");
            }
            java.ask(&format!("{against}unlock {name}")).await;
            let ours = granted(waiting).await;
            ours.unlock().await.expect("it is ours");
        }
    }
    for key in scene.keys().await {
        assert!(key.contains("billing:"), "{key}");
    }
}

#[tokio::test]
async fn a_mapper_with_the_prefix_shares_permits_and_latches() {
    let Some((scene, client)) = begin().await else { return };
    let mut java = scene.thread("java");
    let (permits, latch) = (client.semaphore("s", 2), client.count_down_latch("l"));
    let expirable = client.redisson().expirable_semaphore("e", 2);
    let held = permits.acquire_many(2).await.expect("they are free");
    java.order("semacquire s").await;
    scene.listened_to("redisson_sc:{billing:s}", 1).await;
    held.unlock().await.expect("they are ours");
    java.answer().await;
    assert_eq!(permits.available_permits().await.expect("an answer"), 1);

    let held = expirable.acquire_many(2).await.expect("they are free");
    assert_eq!(java.result("permitavailable e").await, "0");
    held.unlock().await.expect("they are ours");
    assert_eq!(java.result("permitavailable e").await, "2");

    assert_eq!(java.result("latchset l 1").await, "true");
    let waiter = tokio::spawn(async move { latch.wait().await });
    scene.listened_to("redisson_countdownlatch__channel__{billing:l}", 1).await;
    java.ask("latchdown l").await;
    let opened = timeout(AT_ONCE, waiter).await.expect("it is told");
    opened.expect("no panic").expect("it is open");
    for key in scene.keys().await {
        assert!(key.contains("billing:"), "{key}");
    }
}
