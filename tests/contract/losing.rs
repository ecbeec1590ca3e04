//! A holder that loses the lock is told, no longer believes that it holds, and leaves the next holder alone.

use std::time::Duration;

use parklock::{Client, Config, Ended, Error, Guard};

use crate::common::fixture::SOON;
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_held_as, soon};

/// A loss is seen within three seconds, and a machine that stands still for two loses nothing.
fn watchful() -> Config {
    Config::default().watchdog_timeout(Duration::from_secs(9)).waiter_ttl(Duration::from_secs(4))
}

/// It knows; and whatever it does, `next` holds on, and gives it back.
async fn has_lost(scene: &Scene, name: &str, guard: Guard, next: Guard) {
    assert!(next.token() > guard.token());
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    assert!(!guard.is_valid());
    assert_err!(guard.unlock().await, Error::Lost);
    assert!(next.is_valid());
    is_held_as(scene, name).await;
    next.unlock().await.unwrap();
}

async fn key_is_gone(scene: &Scene, name: &str, is_awaited: bool) {
    let guard = scene.pair.of(&scene.ours, name).lock().await.unwrap();
    let next = scene.pair.of(&scene.theirs, name);
    let waiter = if is_awaited { Some(Waiter::parked(next.clone()).await) } else { None };
    // All at once: a waiter that looked in between would find a semaphore without permits.
    let keys = scene.pair.keys(name);
    let delete: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    scene.admin.cmd::<()>(&delete).await;
    let next = match waiter {
        Some(waiter) => waiter.gets_it().await,
        None => soon(next.lock()).await.unwrap(),
    };
    has_lost(scene, name, guard, next).await;
}

pub(crate) async fn a_holder_whose_key_is_gone_has_lost_it(pair: Pair) {
    // Nobody tells the waiters.
    let scene = Scene::with(pair, watchful().max_park(Duration::from_millis(500))).await;
    tokio::join!(key_is_gone(&scene, "awaited", true), key_is_gone(&scene, "alone", false));
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
    let scene = Scene::with(pair, watchful().ride_out(SOON)).await;
    assert!(!scene.ours().force_unlock().await.unwrap(), "nobody holds it");
    tokio::join!(
        forced_out(&scene, "by another", &scene.theirs),
        forced_out(&scene, "by its own", &scene.ours)
    );
    scene.is_clean().await;
}
