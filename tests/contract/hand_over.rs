//! A waiter gets the lock when it is given back, because it is told: no waiter looks by itself for long.

use crate::pair::Pair;
use crate::scene::{Scene, Waiter, is_held, only_told};

pub(crate) async fn a_release_lets_the_waiter_in(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    for holder in [scene.theirs(), scene.ours()] {
        let held = holder.lock().await.unwrap();
        let waiter = Waiter::parked(scene.ours()).await;
        let token = held.token();
        held.unlock().await.unwrap();
        let guard = waiter.gets_it().await;
        assert!(guard.token() > token);
        is_held(&scene).await;
        guard.unlock().await.unwrap();
    }
    scene.is_clean().await;
}

pub(crate) async fn a_guard_that_is_dropped_lets_the_waiter_in(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    for holder in [scene.theirs(), scene.ours()] {
        let held = holder.lock().await.unwrap();
        let waiter = Waiter::parked(scene.ours()).await;
        drop(held);
        drop(waiter.gets_it().await);
        scene.is_clean().await;
    }
}

pub(crate) async fn a_crowd_comes_through(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let held = scene.theirs().lock().await.unwrap();
    let both = (0..10).flat_map(|_| [scene.ours(), scene.theirs()]);
    let waiters: Vec<_> = both.map(Waiter::begin).collect();
    let last = Waiter::parked(scene.ours()).await;
    held.unlock().await.unwrap();
    // In any order: each of them keeps the lock until the test asks for it.
    let each = waiters.into_iter().chain([last]).map(async |waiter| {
        waiter.gets_it().await.unlock().await.unwrap();
    });
    futures_util::future::join_all(each).await;
    scene.is_clean().await;
}
