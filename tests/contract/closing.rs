//! A client that is closed.

use parklock::{Ended, Error};

use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_free_soon, only_told, soon};

pub(crate) async fn a_client_that_is_closed_gives_back_what_it_held(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let guard = scene.ours().lock().await.unwrap();
    let (own, other) = (Waiter::begin(scene.ours()), Waiter::parked(scene.theirs()).await);
    soon(scene.ours.close()).await;
    assert!(!guard.is_valid());
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    assert_err!(own.ends().await, Error::Closed);
    other.gets_it().await.unlock().await.unwrap();
    assert_err!(guard.unlock().await, Error::Lost { .. });
    assert_err!(scene.ours().lock().await, Error::Closed);
    assert_err!(scene.ours().try_lock().await, Error::Closed);
    scene.is_clean().await;
}

pub(crate) async fn a_waiter_of_a_closed_client_is_told(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let held = scene.theirs().lock().await.unwrap();
    let (first, second) = (Waiter::begin(scene.ours()), Waiter::parked(scene.ours()).await);
    soon(scene.ours.close()).await;
    assert_err!(first.ends().await, Error::Closed);
    assert_err!(second.ends().await, Error::Closed);
    assert!(held.is_valid());
    held.unlock().await.unwrap();
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}
