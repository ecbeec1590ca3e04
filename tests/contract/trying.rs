//! Callers that do not wait, or not for long.

use std::time::Duration;

use parklock::{Ended, Error};
use tokio::time::sleep;

use crate::common::fixture::{A_WHILE, SOON};
use crate::common::{Watch, timeout};
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, is_held, only_told, soon};

pub(crate) async fn a_try_while_it_is_held_is_none(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let held = scene.theirs().try_lock().await.unwrap().expect("it is free");
    is_held(&scene).await;
    assert!(scene.ours().is_held().await.unwrap());
    held.unlock().await.unwrap();
    assert!(!scene.ours().is_held().await.unwrap());
    scene.ours().try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_wait_with_a_limit_ends_in_time_and_holds_up_nobody(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let held = scene.theirs().lock().await.unwrap();
    for waiting in [scene.ours(), scene.theirs()] {
        let limit = Duration::from_millis(500);
        let ends = async {
            loop {
                let began = Watch::start();
                let tried = waiting.try_lock_for(limit).await;
                let (took, passed) = (began.elapsed(), began.passed());
                assert!(took >= limit && passed < SOON, "{took:?}");
                match tried {
                    // On a busy machine the limit may be over before the first answer.
                    Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {}
                    tried => return tried,
                }
            }
        };
        assert!(soon(ends).await.unwrap().is_none());
    }
    // The first waiter in line goes away just when it would get the lock.
    let going = Waiter::parked(scene.ours()).await;
    let (ours, theirs) = (Waiter::begin(scene.ours()), Waiter::parked(scene.theirs()).await);
    drop(going);
    held.unlock().await.unwrap();
    let (ours, theirs) = tokio::join!(async { ours.gets_it().await.unlock().await }, async {
        theirs.gets_it().await.unlock().await
    },);
    ours.and(theirs).unwrap();
    scene.is_clean().await;
}

/// Its own release that is on its way is not somebody else.
pub(crate) async fn a_try_after_a_dropped_guard_of_the_same_client_gets_it(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    for round in 0..20 {
        let guard = scene.ours().try_lock().await.unwrap();
        drop(guard.unwrap_or_else(|| panic!("nobody else is there in round {round}")));
    }
    scene.is_clean().await;
}

/// The server has run the release, and its answer is on its way.
pub(crate) async fn a_try_beside_an_unlock_of_the_same_client_gets_it(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let guard = scene.ours().lock().await.unwrap();
    let answer = scene.proxy.script("release").nth(1).hold_reply();
    let unlocking = tokio::spawn(guard.unlock());
    answer.happened().await;
    let mutex = scene.ours();
    let trying = tokio::spawn(async move { mutex.try_lock().await });
    sleep(A_WHILE).await;
    answer.lift();
    timeout(SOON, unlocking).await.unwrap().unwrap().unwrap();
    let tried = timeout(SOON, trying).await.unwrap().unwrap().unwrap();
    tried.expect("nobody else is there").unlock().await.unwrap();
    scene.is_clean().await;
}

/// Its own hold whose lease is over is not somebody else either. The server has it for a little longer than the holder believes in
/// it, since two clocks may differ.
pub(crate) async fn a_try_after_a_lost_hold_of_the_same_client_gets_it(pair: Pair) {
    let (scene, lease) = (Scene::with(pair, only_told()).await, Duration::from_secs(2));
    let loses = async |name: &str| {
        let mutex = pair.of(&scene.ours, name);
        let held = mutex.clone().lease(lease).lock().await.unwrap();
        assert_eq!(timeout(lease * 2, held.ended()).await.unwrap(), Ended::Lost);
        let next = pair.of(&scene.ours, name).try_lock().await.unwrap();
        next.expect("nobody else is there").unlock().await.unwrap();
    };
    tokio::join!(loses("a"), loses("b"), loses("c"), loses("d"));
    scene.is_clean().await;
}
