//! Who loses it is told, believes no more, and leaves the next holder alone.

use parklock::{Ended, Error, Guard};

use crate::common::fixture::quick;
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_held, soon};

/// It knows; and whatever it does, `next` holds on.
async fn has_lost(scene: &Scene, guard: Guard, next: &Guard) {
    assert_eq!(soon(guard.lost()).await, Ended::Lost);
    assert!(!guard.is_valid());
    assert_err!(guard.unlock().await, Error::Lost);
    assert!(next.is_valid());
    is_held(scene).await;
}

pub(crate) async fn a_holder_whose_key_is_gone_has_lost_it(pair: Pair) {
    let scene = Scene::with(pair, quick()).await;
    let guard = scene.ours().lock().await.unwrap();
    scene.admin.cmd::<()>(&["DEL", &scene.key()]).await;
    let next = soon(scene.theirs().lock()).await.unwrap();
    assert!(next.token() > guard.token());
    has_lost(&scene, guard, &next).await;
    next.unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_waiter_comes_in_when_the_key_is_gone(pair: Pair) {
    let scene = Scene::with(pair, quick()).await;
    let guard = scene.ours().lock().await.unwrap();
    let waiter = Waiter::parked(scene.theirs()).await;
    scene.admin.cmd::<()>(&["DEL", &scene.key()]).await;
    let next = waiter.gets_it().await;
    has_lost(&scene, guard, &next).await;
    next.unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_holder_that_is_forced_out_is_told_and_the_waiter_comes_in(pair: Pair) {
    let scene = Scene::with(pair, quick()).await;
    assert!(!scene.ours().force_unlock().await.unwrap(), "nobody holds it");
    for forcing in [scene.theirs(), scene.ours()] {
        let guard = scene.ours().lock().await.unwrap();
        let waiter = Waiter::parked(scene.theirs()).await;
        assert!(forcing.force_unlock().await.unwrap());
        let next = waiter.gets_it().await;
        has_lost(&scene, guard, &next).await;
        next.unlock().await.unwrap();
    }
    scene.is_clean().await;
}
