//! A holder that loses the lock is told, no longer believes that it holds, and leaves the next holder alone.

use std::time::Duration;

use parklock::{Client, Config, Ended, Error, Guard, Result};
use tokio::time::sleep;

use crate::common::fixture::{LONG, SOON};
use crate::common::judged;
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_held_as, soon};

/// A loss is seen within three seconds, and a machine that stands still for two loses nothing.
fn watchful() -> Config {
    Config::default().watchdog_timeout(Duration::from_secs(9)).waiter_ttl(Duration::from_secs(4))
}

/// The former holder knows of its loss. Whatever it does, `next` keeps the lock and can give it back.
async fn has_lost(scene: &Scene, name: &str, guard: Guard, next: Guard) {
    assert!(next.token() > guard.token());
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    assert!(!guard.is_valid());
    assert_err!(guard.unlock().await, Error::Lost { .. });
    assert!(next.is_valid());
    is_held_as(scene, name).await;
    next.unlock().await.unwrap();
}

/// All at once: a waiter that looked in between would find a semaphore without permits.
async fn delete(scene: &Scene, name: &str) {
    let keys = scene.pair.keys(name);
    let delete: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    scene.admin.cmd::<()>(&delete).await;
}

async fn key_is_gone(scene: &Scene, name: &str, is_awaited: bool) {
    let guard = scene.pair.of(&scene.ours, name).lock().await.unwrap();
    let next = scene.pair.of(&scene.theirs, name);
    let waiter = if is_awaited { Some(Waiter::parked(next.clone()).await) } else { None };
    delete(scene, name).await;
    let next = match waiter {
        Some(waiter) => waiter.gets_it().await,
        None => soon(next.lock()).await.unwrap(),
    };
    has_lost(scene, name, guard, next).await;
}

pub(crate) async fn a_holder_whose_key_is_gone_has_lost_it(pair: Pair) {
    judged(async || {
        // Nobody tells the waiters.
        let scene = Scene::with(pair, watchful().max_park(Duration::from_millis(500))).await;
        tokio::join!(key_is_gone(&scene, "awaited", true), key_is_gone(&scene, "alone", false));
        scene.is_clean().await;
    })
    .await;
}

/// A waiter that nobody tells sleeps for longer than the test takes.
fn sleepers() -> Config {
    Config::default().watchdog_timeout(LONG).max_park(LONG).waiter_ttl(LONG / 4)
}

/// Waits until no client has asked anything for a while.
async fn all_rest(scene: &Scene) {
    let mut asked = None;
    while asked != Some(scene.admin.command_calls("evalsha").await) {
        asked = Some(scene.admin.command_calls("evalsha").await);
        sleep(Duration::from_millis(500)).await;
    }
}

async fn learns_of_its_loss(
    scene: &Scene,
    name: &str,
    learn: impl AsyncFnOnce(Guard) -> Result<()>,
) {
    let guard = scene.pair.of(&scene.ours, name).lock().await.unwrap();
    let waiter = Waiter::parked(scene.pair.of(&scene.theirs, name)).await;
    all_rest(scene).await;
    delete(scene, name).await;
    assert_err!(learn(guard).await, Error::Lost { .. });
    waiter.gets_it().await.unlock().await.unwrap();
}

pub(crate) async fn a_holder_that_learns_of_its_loss_tells_the_waiters(pair: Pair) {
    let scene = Scene::with(pair, sleepers()).await;
    learns_of_its_loss(&scene, "extends", async |guard| guard.extend(LONG).await).await;
    learns_of_its_loss(&scene, "unlocks", async |guard| guard.unlock().await).await;
    scene.is_clean().await;
}

async fn forced_out(scene: &Scene, name: &str, by: &Client) {
    let guard = scene.pair.of(&scene.ours, name).lock().await.unwrap();
    let waiter = Waiter::parked(scene.pair.of(&scene.theirs, name)).await;
    assert!(scene.pair.of(by, name).force_unlock().await.unwrap());
    let next = waiter.gets_it().await;
    has_lost(scene, name, guard, next).await;
}

pub(crate) async fn a_holder_that_is_forced_out_is_told_and_the_waiter_comes_in(pair: Pair) {
    judged(async || {
        let scene = Scene::with(pair, watchful().ride_out(SOON)).await;
        assert!(!scene.ours().force_unlock().await.unwrap(), "nobody holds it");
        tokio::join!(
            forced_out(&scene, "by another", &scene.theirs),
            forced_out(&scene, "by its own", &scene.ours)
        );
        scene.is_clean().await;
    })
    .await;
}
