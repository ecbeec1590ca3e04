//! The fenced lock: tokens of Java and of Rust are one sequence.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::scene::{AT_ONCE, Scene, USUAL, granted};
use crate::version::{FENCED_LOCKS, NOT_THERE};

const COUNTER: &str = "redisson_lock_token:{a}";

impl Scene {
    /// Whether Redisson is too old to have them. Then it says so.
    pub(crate) async fn has_no_fenced_locks(&self) -> bool {
        let has = self.has(FENCED_LOCKS);
        if !has {
            assert_eq!(self.thread("old").refusal("fencedlock a").await, NOT_THERE);
        }
        !has
    }
}

/// Asserts that no key stays for ever but the counter, which is Redisson's.
async fn only_the_counter_is_eternal(scene: &Scene) {
    for key in scene.admin.keys().await {
        assert!(key == COUNTER || scene.admin.pttl(&key).await != -1, "{key} never expires");
    }
}

#[tokio::test]
async fn tokens_are_counted_together_from_one() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    if scene.has_no_fenced_locks().await {
        return;
    }
    let (lock, mut java) = (scene.client().await.redisson().fenced_lock("a"), scene.thread("java"));
    let mut tokens = Vec::new();
    for _ in 0..2 {
        for order in ["fencedlock a", "fencedlock a 10000", "fencedtrylock a 5000"] {
            tokens.push(java.result(order).await.parse().unwrap());
            java.ask("fencedunlock a").await;
            let guard = match tokens.len() % 3 {
                0 => lock.lock().await.unwrap(),
                1 => lock.try_lock().await.unwrap().expect("it is free"),
                _ => lock.clone().lease(Duration::from_secs(10)).lock().await.unwrap(),
            };
            tokens.push(guard.token().get());
            only_the_counter_is_eternal(&scene).await;
            guard.unlock().await.unwrap();
        }
    }
    assert_eq!(tokens, (1..=12).collect::<Vec<u64>>());
    assert_eq!(scene.admin.cmd::<u64>(&["GET", COUNTER]).await, 12);
    assert_eq!(scene.keys().await, [COUNTER]);
}

#[tokio::test]
async fn each_side_keeps_the_other_out_and_wakes_it() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    if scene.has_no_fenced_locks().await {
        return;
    }
    let (lock, mut java) = (scene.client().await.redisson().fenced_lock("a"), scene.thread("java"));
    for round in 0..10 {
        let guard = lock.lock().await.unwrap();
        if round == 0 {
            // Long enough for Redisson to subscribe: otherwise it ends with an error.
            assert_eq!(java.result("fencedtrylock a 10000").await, "null");
        }
        java.order("fencedlock a").await;
        scene.awaited_by("a", if round == 0 { 1 } else { 2 }).await;
        assert!(java.is_busy().await);
        let (released, before) = (Instant::now(), guard.token().get());
        guard.unlock().await.unwrap();
        let answer = java.answer().await;
        assert!(answer.heard - released < AT_ONCE);
        let theirs: u64 = answer.result.parse().unwrap();
        assert!(theirs > before);

        assert!(lock.try_lock().await.unwrap().is_none());
        let waiting = lock.clone();
        let waiter = tokio::spawn(async move { waiting.lock().await });
        scene.awaited_by("a", 1).await;
        java.ask("fencedunlock a").await;
        let ours = granted(async { waiter.await.unwrap() }).await;
        assert!(ours.token().get() > theirs);
        only_the_counter_is_eternal(&scene).await;
        ours.unlock().await.unwrap();
    }
}

/// The holder writes it down while it holds the lock, so the order is that of the holds.
#[tokio::test]
async fn tokens_grow_in_the_order_of_holding() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    if scene.has_no_fenced_locks().await {
        return;
    }
    let tokens = Arc::<Mutex<Vec<u64>>>::default();
    let mut crowd = JoinSet::new();
    for _ in 0..2 {
        let client = scene.client().await;
        for _ in 0..4 {
            let (lock, tokens) = (client.redisson().fenced_lock("a"), Arc::clone(&tokens));
            crowd.spawn(async move {
                for _ in 0..40 {
                    let guard = lock.lock().await.expect("its turn comes");
                    tokens.lock().expect("no panic").push(guard.token().get());
                    guard.unlock().await.expect("it was ours");
                }
            });
        }
    }
    for n in 0..3 {
        let (mut thread, tokens) = (scene.thread(&format!("t{n}")), Arc::clone(&tokens));
        crowd.spawn(async move {
            for _ in 0..40 {
                let token = thread.result("fencedlock a").await.parse().expect("a token");
                tokens.lock().expect("no panic").push(token);
                thread.ask("fencedunlock a").await;
            }
        });
    }
    crowd.join_all().await;
    let tokens = tokens.lock().expect("no panic").clone();
    assert_eq!(tokens.len(), (2 * 4 + 3) * 40);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    assert_eq!(scene.admin.cmd::<u64>(&["GET", COUNTER]).await, *tokens.last().unwrap());
}
