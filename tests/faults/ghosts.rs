//! Ghosts: an acquire that runs after its caller has gone. It is found and given back long before its lease is over.

use std::time::Duration;

use parklock::{Client, Error};
use tokio::task::JoinHandle;

use crate::common::{eventually, timeout};
use crate::scene::*;
use crate::somebody_waits;

/// A caller on its way, which is then dropped.
fn caller(client: &Client) -> JoinHandle<()> {
    let lock = client.lock("a");
    tokio::spawn(async move { drop(lock.lock().await) })
}

async fn gone(caller: JoinHandle<()>) {
    caller.abort();
    assert!(caller.await.is_err_and(|error| error.is_cancelled()));
}

async fn runs_late(scene: &Scene, grant: u64) {
    let ran = async || grants(&scene.admin).await >= grant;
    eventually(SOON, "the old acquire runs", ran).await;
}

/// F5: the caller goes while its acquire is on the way.
#[tokio::test]
async fn a_ghost_on_the_same_connection_is_cleaned_up() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let held = scene.proxy.script("acquire").nth(1).hold_request();
    let caller = caller(&client);
    held.happened().await;

    gone(caller).await;
    held.lift();

    runs_late(&scene, 1).await;
    scene.is_clean().await;
}

/// F5: the caller goes when its acquire has run and the reply is on the way.
#[tokio::test]
async fn a_grant_that_nobody_waits_for_any_more_is_given_back() {
    let scene = Scene::new().await;
    let config = patient().watchdog_timeout(LONG * 4).response_timeout(LONG);
    let client = scene.client(config).await;
    let held = scene.proxy.script("acquire").nth(1).hold_reply();
    let caller = caller(&client);
    held.happened().await;
    is_held_once(&scene.admin, "a").await;

    gone(caller).await;
    // The release follows the acquire. So the next caller does not wait for an answer to somebody who has gone.
    let is_free = async || is_free(&scene.admin, "a").await;
    eventually(SOON, "it is given back before it is answered", is_free).await;
    held.lift();

    scene.is_clean().await;
}

/// F5: an acquire runs when its connection has long been given up, and the caller has gone.
#[tokio::test]
async fn a_ghost_on_an_older_connection_is_cleaned_up() {
    let scene = Scene::new().await;
    let client = scene.client(attentive()).await;
    let held = scene.proxy.script("acquire").nth(1).hold_request();
    let caller = caller(&client);
    held.happened().await;
    gone(caller).await;

    // A release that finds nothing on the new connection must not be the last one.
    let released = scene.proxy.script("release").count();
    soon(client.lock("b").lock()).await.unwrap().unlock().await.unwrap();
    released.happened_times(4).await;
    assert!(is_free(&scene.admin, "a").await);
    held.lift();

    runs_late(&scene, 2).await;
    scene.is_clean().await;
}

/// F5: an acquire runs when its connection has been given up, and the caller has asked again.
#[tokio::test]
async fn a_ghost_is_not_a_second_hold() {
    let scene = Scene::new().await;
    let client = scene.client(attentive()).await;
    let held = scene.proxy.script("acquire").nth(1).hold_request();
    let waiter = waiting(client.lock("a"));
    held.happened().await;

    let guard = granted(waiter).await;
    held.lift();
    let gone = async || scene.proxy.connections(None) == 2;
    eventually(SOON, "the old connection has delivered all it had", gone).await;

    is_held_once(&scene.admin, "a").await;
    soon(guard.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F5: the server is stopped for longer than a caller waits, and then runs what it was sent.
#[tokio::test]
async fn a_stopped_server_that_runs_an_old_acquire_is_cleaned_up() {
    let scene = Scene::new().await;
    let client = scene.client(attentive()).await;
    scene.stop().await;

    let attempt = client.lock("a").try_lock().await;
    assert_err!(attempt, Error::Indeterminate { .. });
    scene.server.resume();

    runs_late(&scene, 1).await;
    scene.is_clean().await;
}

/// F5: the server holds writes back for longer than a caller waits, and then runs what it was sent.
#[tokio::test]
async fn an_acquire_that_the_server_held_back_is_cleaned_up() {
    let scene = Scene::new().await;
    let client = scene.client(attentive()).await;
    scene.admin.cmd::<()>(&["CLIENT", "PAUSE", "60000", "WRITE"]).await;

    let attempt = client.lock("a").try_lock().await;
    assert_err!(attempt, Error::Indeterminate { .. });
    assert_eq!(grants(&scene.admin).await, 0, "it is not held back");
    scene.admin.cmd::<()>(&["CLIENT", "UNPAUSE"]).await;

    // Version 7 forgets what it held back when the client hangs up, version 6 runs it: both must be asked.
    let released = async || scene.admin.command_calls("hdel").await > 0;
    eventually(SOON, "the release runs", released).await;
    scene.is_clean().await;
}

/// F5: a waiter asks for a short lease, its sign of life gets no answer, and it goes while its client has no connection. Its
/// place in line would last for a `waiter_ttl`.
#[tokio::test]
async fn a_waiter_with_a_short_lease_that_goes_during_an_outage_leaves_no_place() {
    const LEASE: Duration = Duration::from_millis(100);
    let scene = Scene::new().await;
    let client = scene.client(patient().waiter_ttl(LONG / 2)).await;
    let other = scene.other().await;
    let _guard = other.lock("a").lock().await.unwrap();
    let lock = client.lock("a").lease(LEASE);
    let waiter = tokio::spawn(async move { drop(lock.lock().await) });
    somebody_waits(&scene.admin, "a").await;

    let cut = scene.proxy.script("wait").nth(1).cut_after();
    scene.proxy.refuse().await;
    // It shows a sign of life when its channels are live again, or known to be gone.
    scene.admin.client_kill("pubsub").await;
    cut.happened().await;
    // The lease of that request is over.
    tokio::time::sleep(LEASE * 2).await;
    gone(waiter).await;
    // The client cannot release anything meanwhile.
    tokio::time::sleep(LEASE * 2).await;
    scene.proxy.accept_again().await;

    let left = async || scene.admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == 0;
    eventually(SOON, "nobody stands in line", left).await;
}

/// F5: a nested hold is asked for, the caller goes, and the count is written late.
#[tokio::test]
async fn a_count_that_arrives_late_leaves_the_count_right() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let lock = client.reentrant_lock("a");
    let outer = lock.lock().await.unwrap();
    let counts = scene.proxy.script("count").count();
    let held = scene.proxy.script("count").nth(1).hold_request();
    let nested = timeout(Duration::from_millis(50), lock.lock()).await;
    held.happened().await;
    assert!(nested.is_err(), "{nested:?}");

    held.lift();
    counts.happened_times(2).await;

    assert_eq!(outer.hold_count(), 1);
    let counted = async || scene.admin.hgetall(&key("a")).await.values().eq(["1"]);
    eventually(SOON, "the server counts one hold", counted).await;
    soon(outer.unlock()).await.unwrap();
    scene.is_clean().await;
}
