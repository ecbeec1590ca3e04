//! A server that is busy with something else: a script that does not end, a sleep.

use std::time::{Duration, Instant};

use parklock::{Client, Error, Owner};
use tokio::task::JoinHandle;

use crate::common::{Server, eventually, judged};
use crate::scene::*;

/// Has the server run a script that does not end, until it is killed.
async fn occupy(scene: &Scene) -> JoinHandle<()> {
    let busy = scene.server.admin().await;
    let busy = tokio::spawn(async move {
        let killed = busy.try_cmd::<()>(&["EVAL", "while true do end", "0"]).await;
        assert!(killed.is_err());
    });
    let is_busy = async || ping(&scene.server).await.starts_with("-BUSY");
    eventually(SOON, "the server is busy", is_busy).await;
    busy
}

async fn free(scene: &Scene, busy: JoinHandle<()>) {
    scene.admin.cmd::<()>(&["SCRIPT", "KILL"]).await;
    busy.await.expect("no panic");
}

async fn scene() -> Scene {
    Scene::on(Server::builder().set("lua-time-limit", "50").start().await).await
}

/// F23: a foreign script keeps the server busy.
#[tokio::test]
async fn a_busy_server_is_waited_for() {
    let scene = scene().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();

    let busy = occupy(&scene).await;
    assert_err!(client.lock("b").try_lock().await, Error::Unavailable { .. });
    let waiter = waiting(client.lock("b"));
    let mut unlock = tokio::spawn(guard.unlock());
    assert!(is_pending(&mut unlock).await);
    assert!(!waiter.is_finished());
    free(&scene, busy).await;

    soon(unlock).await.unwrap().unwrap();
    granted(waiter).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// F23: a foreign script keeps the server busy for a part of a lease.
#[tokio::test]
async fn a_hold_outlives_a_busy_server() {
    judged(async || {
        let scene = scene().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();
        let refused = scene.proxy.script("renew").count();

        let busy = occupy(&scene).await;
        tokio::time::sleep(Duration::from_millis(1200)).await; // a renewal falls due
        assert!(guard.is_valid());
        free(&scene, busy).await;

        is_renewed(&guard).await;
        assert!(refused.fired() > 0);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// F23: a busy server refuses a PING and a SUBSCRIBE too.
#[tokio::test]
async fn a_busy_server_is_not_stormed() {
    let scene = scene().await;
    let (_client, redials) = (scene.client(patient()).await, scene.proxy.command("HELLO").count());
    let busy = occupy(&scene).await;
    assert_no_storm(&redials).await;
    free(&scene, busy).await;
}

/// F11: the server is stopped while a client wants to connect.
#[tokio::test]
async fn connecting_to_a_stopped_server_is_unavailable() {
    let scene = Scene::new().await;
    scene.stop().await;
    let config = patient().connect_timeout(Duration::from_millis(200));
    let connected = soon(Client::connect_with(scene.proxy.url(), config)).await;
    assert_err!(connected, Error::Unavailable { .. });
}

/// F11: the server is stopped under two callers that nest with one owner.
#[tokio::test]
async fn an_impatient_nested_call_does_not_wait_for_a_patient_one() {
    let scene = Scene::new().await;
    let client = scene.client(attentive()).await;
    let owner = Owner::new();
    let lock = client.reentrant_lock("a").owned_by(&owner);
    let outer = lock.lock().await.unwrap();
    scene.stop().await;

    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    assert!(is_pending(std::pin::pin!(outer.ended())).await);
    let limited = soon(lock.try_lock_for(Duration::from_millis(100))).await;
    assert_err!(limited, Error::Unavailable { .. } | Error::Indeterminate { .. });
    let attempt = soon(lock.try_lock()).await;
    assert_err!(attempt, Error::Unavailable { .. } | Error::Indeterminate { .. });
    assert!(!waits.is_finished());
    scene.server.resume();

    assert_eq!(granted(waits).await.hold_count(), 2);
    assert!(outer.is_valid());
}

/// F27: the server's only thread is stuck for less than a lease.
#[tokio::test]
async fn a_renewal_that_is_late_but_in_time_keeps_the_lock() {
    judged(async || {
        let scene = Scene::on(debuggable().start().await).await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();

        let asleep = Instant::now();
        let mut sleeper = tokio::spawn({
            let admin = scene.server.admin().await;
            async move { admin.cmd::<()>(&["DEBUG", "SLEEP", "1.4"]).await }
        });
        let lost = tokio::select! {
            _ = guard.ended() => true,
            slept = &mut sleeper => { slept.unwrap(); false }
        };
        assert!(asleep.elapsed() >= Duration::from_millis(1400));

        assert!(!lost && guard.is_valid());
        is_renewed(&guard).await;
        is_held_once(&scene.admin, "a").await;
        guard.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}
