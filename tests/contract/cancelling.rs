//! Whatever is dropped, whenever: nothing is left, and the next one gets it soon.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::common::fixture::SOON;
use crate::common::{eventually, timeout};
use crate::pair::{Mutex, Pair};
use crate::scene::{Scene, is_free_soon, only_told, soon};

const GIVEN_UP: usize = 1_000;

/// Polls a future so many times, each time when it asks for it, and then drops it; its output if it was done by then.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(move |context| match left {
        0 => Poll::Ready(None),
        _ => {
            left -= 1;
            future.as_mut().poll(context).map(Some)
        }
    })
    .await
}

async fn is_free(scene: &Scene) {
    is_free_soon(scene.theirs()).await;
    is_free_soon(scene.ours()).await;
    scene.is_clean().await;
}

/// Waits for a lock that its holder gives back in a moment, and is dropped after so many polls. Returns whether it
/// was done before.
async fn waits(scene: &Scene, holder: Mutex, polls: usize) -> bool {
    let held = soon(holder.lock()).await.unwrap();
    let given_back = tokio::spawn(async move {
        sleep(Duration::from_millis(3)).await;
        held.unlock().await.unwrap();
    });
    let done = polled(polls, soon(scene.ours().lock())).await.is_some();
    given_back.await.unwrap();
    done
}

pub(crate) async fn a_wait_that_is_dropped_at_any_poll_leaves_nothing(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    for (free, holder) in [(true, None), (false, Some(scene.theirs())), (false, Some(scene.ours()))]
    {
        for polls in 0.. {
            let done = match &holder {
                Some(holder) => waits(&scene, holder.clone(), polls).await,
                None => polled(polls, scene.ours().lock()).await.is_some(),
            };
            is_free(&scene).await;
            if done {
                assert!(polls > 1, "it never waited; free: {free}");
                break;
            }
        }
    }
}

/// A random time of the order of one hold.
async fn a_moment() {
    match fastrand::u64(0..4) {
        0 => yield_now().await,
        _ => sleep(Duration::from_micros(fastrand::u64(0..3_000))).await,
    }
}

/// Goes on until so many waits were given up, by all together.
async fn give_up(mutex: impl Fn() -> Mutex, given_up: Arc<AtomicUsize>) {
    while given_up.load(Ordering::Relaxed) < GIVEN_UP {
        let patience = Duration::from_micros(fastrand::u64(0..3_000));
        let mutex = mutex();
        let Ok(guard) = timeout(patience, mutex.lock()).await else {
            given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let guard = guard.expect("a lock");
        a_moment().await;
        match fastrand::bool() {
            true => drop(guard),
            false => drop(timeout(patience, guard.unlock()).await),
        }
    }
}

pub(crate) async fn many_waits_that_are_given_up_under_contention_leave_nothing(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let (given_up, mut crowd) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for client in [&scene.ours, &scene.theirs] {
        for _ in 0..5 {
            let client = client.clone();
            crowd.spawn(give_up(move || pair.of(&client, "a"), Arc::clone(&given_up)));
        }
    }
    timeout(SOON * 3, crowd.join_all()).await.expect("they give up");
    is_free(&scene).await;
    let deaf = async || scene.admin.channels().await.is_empty();
    eventually(SOON, "nobody listens any more", deaf).await;
}
