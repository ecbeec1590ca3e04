//! Several locks at once on Rust's side, and the same locks on Redisson's: its `getMultiLock` takes them one after the
//! other, each as its `RLock`.

use std::time::Duration;

use parklock::MultiGuard;

use crate::common::fixture::{A_WHILE, SOON};
use crate::common::site::left_out_in_a_cluster;
use crate::common::{eventually, timeout};
use crate::scene::{AT_ONCE, Scene, USUAL, not_in_time};

const ABC: [&str; 3] = ["a", "b", "c"];

async fn granted(waiting: impl Future<Output = parklock::Result<MultiGuard>>) -> MultiGuard {
    timeout(AT_ONCE, waiting).await.expect("the wake-up comes").expect("the locks are granted")
}

#[tokio::test]
async fn a_lock_of_java_keeps_rust_from_all_of_them() {
    if left_out_in_a_cluster("there a caller takes one after the other, and gives back what it has")
    {
        return;
    }
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    for held in ABC {
        java.ask(&format!("lock {held}")).await;
        let multi = client.multi_lock(ABC);
        assert!(multi.try_lock().await.unwrap().is_none());
        let waiter = tokio::spawn(async move { multi.lock().await });
        scene.awaited_by(held, 1).await;
        for free in ABC.iter().filter(|name| **name != held) {
            assert!(scene.holds(free).await.is_empty(), "a waiter holds nothing");
        }

        java.ask(&format!("unlock {held}")).await;

        let guard = granted(async { waiter.await.unwrap() }).await;
        for name in ABC {
            assert_eq!(scene.holds(name).await, [1]);
        }
        guard.unlock().await.unwrap();
    }
    scene.nothing_is_eternal().await;
}

#[tokio::test]
async fn java_waits_for_each_lock_of_a_multi_lock_of_rust() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let client = scene.client().await;
    let guard = client.multi_lock(ABC).lock().await.unwrap();
    let mut threads = Vec::new();
    for name in ABC {
        let mut thread = scene.thread(name);
        assert_eq!(thread.result(&format!("islocked {name}")).await, "true");
        thread.order(&format!("lock {name}")).await;
        scene.awaited_by(name, 1).await;
        assert!(thread.is_busy().await);
        threads.push(thread);
    }

    guard.unlock().await.unwrap();

    for (thread, name) in threads.iter_mut().zip(ABC) {
        thread.answer().await;
        assert_eq!(thread.result(&format!("isheld {name}")).await, "true");
    }
    not_in_time(client.multi_lock(ABC).try_lock_for(A_WHILE).await);
    for (thread, name) in threads.iter_mut().zip(ABC) {
        thread.ask(&format!("unlock {name}")).await;
    }
    client.multi_lock(ABC).lock().await.unwrap().unlock().await.unwrap();
}

/// Redisson's own multi-lock, which takes them one after the other, in the other order than ours.
#[tokio::test]
async fn the_multi_locks_of_both_take_turns_in_opposite_orders() {
    const ROUNDS: u32 = 40;
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    java.ask("multilock b,a").await;
    for name in ["a", "b"] {
        assert_eq!(scene.holds(name).await, [1]);
        assert!(client.multi_lock([name, "z"]).try_lock().await.unwrap().is_none());
    }
    java.ask("multiunlock b,a").await;

    let ours = client.clone();
    let ours = tokio::spawn(async move {
        for _ in 0..ROUNDS {
            let guard = ours.multi_lock(["a", "b"]).lock().await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(guard.is_valid());
            guard.unlock().await.unwrap();
        }
    });
    for _ in 0..ROUNDS {
        java.ask("multilock b,a").await;
        assert!(client.multi_lock(["a", "b"]).try_lock().await.unwrap().is_none());
        java.ask("multiunlock b,a").await;
    }
    timeout(SOON * 3, ours).await.expect("callers do not block each other").unwrap();
    eventually(SOON, "both are free", async || {
        scene.holds("a").await.is_empty() && scene.holds("b").await.is_empty()
    })
    .await;
}
