//! Holders that do not give the lock back by themselves.

use crate::pair::Pair;
use crate::scene::{Scene, Waiter, is_free_soon, is_held, only_told};

pub(crate) async fn a_guard_that_is_leaked_ends_with_its_client(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    std::mem::forget(scene.ours().lock().await.unwrap());
    is_held(&scene).await;
    let waiter = Waiter::parked(scene.theirs()).await;
    scene.ours.close().await;
    waiter.gets_it().await.unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_task_that_panics_gives_it_back(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let mutex = scene.ours();
    let panicked = tokio::spawn(async move {
        let _guard = mutex.lock().await.unwrap();
        panic!("this panic is part of the test");
    });
    assert!(panicked.await.is_err_and(|error| error.is_panic()));
    is_free_soon(scene.theirs()).await;
    is_free_soon(scene.ours()).await;
    scene.is_clean().await;
}
