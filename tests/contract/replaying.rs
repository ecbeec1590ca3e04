//! Requests whose replies are lost, and requests that run late: one tenure, a clean release, never two holders.

use std::time::Duration;

use parklock::{Config, Error};
use tokio::time::sleep;

use crate::common::fixture::{A_WHILE, SOON};
use crate::common::{eventually, judged};
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_free_soon, is_held, soon};

/// Leases of thirty seconds, and a missing answer is noticed soon.
fn attentive() -> Config {
    Config::default()
        .response_timeout(Duration::from_millis(500))
        .waiter_ttl(Duration::from_secs(6))
}

/// The requests that were held back have arrived: their connections are gone.
async fn delivered(scene: &Scene) {
    let gone = async || scene.proxy.connections(None) <= scene.server.links();
    eventually(SOON, "the old connection has delivered all it had", gone).await;
    sleep(A_WHILE).await;
}

pub(crate) async fn an_acquire_whose_reply_is_lost_is_one_tenure(pair: Pair) {
    let scene = Scene::apart(pair, attentive(), Config::default()).await;
    let lost = scene.proxy.script("acquire").nth(1).cut_after();
    let guard = soon(scene.ours().lock()).await.unwrap();
    assert_eq!(lost.fired(), 1);
    is_held(&scene).await;
    guard.unlock().await.unwrap();
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

pub(crate) async fn a_waiter_whose_reply_is_lost_still_gets_it_once(pair: Pair) {
    let scene = Scene::apart(pair, attentive(), Config::default()).await;
    let held = scene.theirs().lock().await.unwrap();
    let lost = scene.proxy.script("acquire").nth(2).cut_after();
    let waiter = Waiter::parked(scene.ours()).await;
    lost.happened().await;
    held.unlock().await.unwrap();
    let guard = waiter.gets_it().await;
    is_held(&scene).await;
    guard.unlock().await.unwrap();
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

pub(crate) async fn a_release_whose_reply_is_lost_is_a_release(pair: Pair) {
    let scene = Scene::apart(pair, attentive(), Config::default()).await;
    let guard = scene.ours().lock().await.unwrap();
    let waiter = Waiter::parked(scene.theirs()).await;
    let lost = scene.proxy.script("release").nth(1).cut_after();
    soon(guard.unlock()).await.unwrap();
    lost.happened().await;
    let next = waiter.gets_it().await;
    is_held(&scene).await;
    next.unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_renewal_whose_reply_is_lost_is_repeated(pair: Pair) {
    let lease = Duration::from_secs(9);
    let scene = Scene::with(pair, Config::default().watchdog_timeout(lease)).await;
    let guard = scene.ours().lock().await.unwrap();
    let lost = scene.proxy.script("renew").nth(1).cut_after();
    let renewals = scene.proxy.script("renew").count();
    lost.happened().await;
    renewals.happened_times(2).await;
    assert!(guard.is_valid());
    is_held(&scene).await;
    guard.unlock().await.unwrap();
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

/// A waiter that a message let in holds no longer than its sign of life lasts, until it confirms the grant.
pub(crate) async fn a_fixed_lease_is_confirmed_though_the_first_word_is_lost(pair: Pair) {
    let place = Duration::from_secs(6);
    let scene = Scene::apart(pair, attentive().waiter_ttl(place), Config::default()).await;
    let held = scene.theirs().lock().await.unwrap();
    let lost = scene.proxy.script("renew").nth(1).cut_before();
    // It asks again once a message can reach it. After that, only a message lets it in.
    let again = scene.proxy.script("acquire").nth(2).hold_reply();
    let waiter = Waiter::begin(scene.ours().lease(SOON * 2));
    again.happened().await;
    again.lift();
    held.unlock().await.unwrap();
    let guard = waiter.gets_it().await;
    sleep(place + A_WHILE).await;
    assert!(guard.is_valid());
    // Only parklock's messages grant a lock. In Redisson's layout the client checks a hold only if a message came just before it.
    assert!(lost.fired() > 0 || !scene.pair.is_native(), "the grant was confirmed at once");
    guard.unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_caller_that_is_never_answered_is_told_so(pair: Pair) {
    let scene =
        Scene::apart(pair, attentive().ride_out(Duration::from_millis(400)), Config::default())
            .await;
    let held = scene.theirs().lock().await.unwrap();
    let silent = scene.proxy.script("acquire").hold_reply();
    assert_err!(soon(scene.ours().lock()).await, Error::Unavailable { .. });
    silent.lift();
    held.unlock().await.unwrap();
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

pub(crate) async fn a_wait_that_was_answered_again_knows_that_it_is_held(pair: Pair) {
    judged(async || {
        let scene = Scene::apart(pair, attentive(), Config::default()).await;
        let held = scene.theirs().lock().await.unwrap();
        let lost = scene.proxy.script("acquire").nth(1).cut_after();
        let tried = scene.ours().try_lock_for(Duration::from_secs(5)).await;
        assert_eq!(lost.fired(), 1);
        assert!(tried.unwrap().is_none());
        held.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// Its caller has gone on, on a new connection, and has come and gone.
pub(crate) async fn an_acquire_that_runs_late_blocks_nobody(pair: Pair) {
    let scene = Scene::apart(pair, attentive(), Config::default()).await;
    let late = scene.proxy.script("acquire").nth(1).hold_request();
    let guard = soon(scene.ours().lock()).await.unwrap();
    late.happened().await;
    guard.unlock().await.unwrap();
    late.lift();
    delivered(&scene).await;
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

/// As before, for a waiter whose first request was answered.
pub(crate) async fn a_sign_of_life_that_runs_late_blocks_nobody(pair: Pair) {
    let scene =
        Scene::apart(pair, attentive().max_park(Duration::from_millis(200)), Config::default())
            .await;
    let held = scene.theirs().lock().await.unwrap();
    let waiter = Waiter::parked(scene.ours()).await;
    let late = scene.proxy.script("acquire").nth(2).hold_request();
    // What would clear it away comes on a newer connection only, before it.
    let never = scene.proxy.script("release").nth(1).cut_before();
    late.happened().await;
    sleep(Duration::from_millis(700)).await;
    held.unlock().await.unwrap();
    waiter.gets_it().await.unlock().await.unwrap();
    assert!(never.fired() == 1 || !scene.pair.is_native());
    late.lift();
    delivered(&scene).await;
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

pub(crate) async fn a_release_that_runs_late_hurts_nobody(pair: Pair) {
    let scene = Scene::apart(pair, attentive(), Config::default()).await;
    let guard = scene.ours().lock().await.unwrap();
    let late = scene.proxy.script("release").nth(1).hold_request();
    soon(guard.unlock()).await.unwrap();
    late.happened().await;
    let next = soon(scene.ours().lock()).await.unwrap();
    late.lift();
    delivered(&scene).await;
    is_held(&scene).await;
    next.unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_renewal_that_runs_late_brings_nothing_back(pair: Pair) {
    let scene = Scene::apart(pair, attentive(), Config::default()).await;
    let guard = scene.ours().lock().await.unwrap();
    let late = scene.proxy.script("renew").nth(1).hold_request();
    assert!(guard.extend(SOON * 2).await.is_err());
    late.happened().await;
    soon(guard.unlock()).await.unwrap();
    let next = soon(scene.theirs().lock()).await.unwrap();
    late.lift();
    delivered(&scene).await;
    next.unlock().await.unwrap();
    scene.is_clean().await;
}
