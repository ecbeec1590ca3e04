//! The server's memory is full: holders can keep and give back their locks, nobody can take one, and holders are told
//! of evictions.

use std::time::{Duration, Instant};

use parklock::{Ended, Error};
use tracing::Level;

use crate::common::{Admin, Class, eventually, judged};
use crate::log::Log;
use crate::scene::*;

async fn fill(admin: &Admin) {
    admin.config_set("maxmemory", "1").await;
    let refused = admin.try_cmd::<()>(&["SET", "x", "1"]).await;
    assert_eq!(refused.expect_err("it is full").code(), Some("OOM"));
}

/// F21: the server's memory is full.
#[tokio::test]
async fn a_held_lock_is_renewed_and_given_back_when_memory_is_full() {
    judged(async || {
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();
        let lock = client.reentrant_lock("nested");
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();

        fill(&scene.admin).await;
        guard.extend(Duration::from_secs(4)).await.unwrap();
        is_renewed(&guard).await;
        guard.unlock().await.unwrap();
        assert!(is_free(&scene.admin, "a").await);

        inner.unlock().await.unwrap();
        lock.lock().await.unwrap().unlock().await.unwrap();
        assert!(outer.is_valid());
        outer.unlock().await.unwrap();
        assert!(is_free(&scene.admin, "nested").await);
        assert!(!client.lock("a").is_locked().await.unwrap());
    })
    .await;
}

/// F21: the server's memory is full.
#[tokio::test]
async fn a_lock_is_unavailable_while_memory_is_full() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;

    fill(&scene.admin).await;
    let refused = client.lock("a").try_lock().await;
    let Err(Error::Unavailable { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("OOM"), "{source}");
    assert!(is_free(&scene.admin, "a").await);
    let mut waiter = waiting(client.lock("a"));
    assert!(is_pending(&mut waiter).await);

    scene.admin.config_set("maxmemory", "0").await;
    granted(waiter).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// F21: the server's memory is full, and somebody begins to wait.
#[tokio::test]
async fn a_waiter_that_came_when_memory_was_full_is_told() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();

    fill(&scene.admin).await;
    let waiter = scene.parked(&client, "a").await;
    theirs.unlock().await.unwrap();
    assert!(scene.admin.hgetall(&key("a")).await.len() <= 1);
    scene.admin.config_set("maxmemory", "0").await;

    granted(waiter).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// F21: the server's memory is full, and the connections break.
#[tokio::test]
async fn connections_are_made_again_when_memory_is_full() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();

    fill(&scene.admin).await;
    assert_eq!(scene.proxy.reset(Class::Command).await, 1);

    soon(guard.unlock()).await.unwrap();
    assert!(is_free(&scene.admin, "a").await);
}

/// F22: the server evicts a lock that is held.
#[tokio::test]
async fn a_holder_whose_lock_was_evicted_is_told_before_its_deadline() {
    judged(async || {
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();
        let until = deadline(&guard);

        scene.admin.config_set("maxmemory-policy", "volatile-lru").await;
        scene.admin.config_set("maxmemory", "1").await;
        let evicted = async || scene.admin.info("stats", "evicted_keys").await.unwrap() != "0";
        eventually(SOON, "the lock is evicted", evicted).await;
        assert!(is_free(&scene.admin, "a").await);

        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert!(Instant::now() < until, "only its deadline told it");
        assert_err!(guard.unlock().await, Error::Lost { .. });
    })
    .await;
}

/// F22: the server may evict what has a TTL, as all locks have.
#[tokio::test]
async fn a_server_that_may_evict_locks_is_warned_of() {
    let (log, _listening) = Log::of(Level::WARN);
    let scene = Scene::new().await;
    let _client = scene.client(patient()).await;
    assert!(log.lines_with("may evict") == 0, "warned of a server that may not");
    scene.admin.config_set("maxmemory-policy", "volatile-lru").await;
    scene.admin.config_set("maxmemory", "1gb").await;

    let _client = scene.client(patient()).await;

    assert!(log.lines_with("the server may evict locks that are held") > 0);
}
