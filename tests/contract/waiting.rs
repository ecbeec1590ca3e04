//! A guard that waits for a condition gives back what it holds, and has it again. What is no turn of a lock cannot wait.

use std::time::Duration;

use parklock::{Condition, Error, Guard, Result, Woken};
use tokio::task::JoinHandle;

use crate::common::eventually;
use crate::common::fixture::{A_WHILE, SOON};
use crate::pair::Pair;
use crate::scene::{Scene, assert_err, is_free_soon, is_held, only_told, soon};

const LINE: &str = "lock_queue:{c}";

impl Scene {
    fn condition(&self) -> Condition {
        self.ours.condition("c")
    }

    /// So many stand in the line of the condition.
    async fn lined_up(&self, waiters: usize) {
        let all = async || self.admin.cmd::<usize>(&["ZCARD", LINE]).await == waiters;
        eventually(SOON, &format!("{waiters} wait for the condition"), all).await;
    }

    /// All is gone, but the note that a request to the condition was carried out.
    async fn is_clean_but_requests(&self) {
        let left = async || self.keys().await.iter().all(|key| key.ends_with(":requests"));
        eventually(SOON, "no key is left", left).await;
        self.nothing_stayed();
    }
}

fn waiting(guard: Guard, condition: Condition) -> JoinHandle<Result<Guard>> {
    tokio::spawn(async move { guard.wait(&condition).await })
}

pub(crate) async fn a_guard_that_cannot_wait_says_so(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let guard = scene.ours().lock().await.unwrap();
    assert_err!(soon(guard.wait(&scene.condition())).await, Error::Unsupported { .. });
    is_free_soon(scene.theirs()).await;
}

pub(crate) async fn a_waiter_gives_the_lock_back_and_has_it_again(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    for (holder, notifier) in [(scene.theirs(), &scene.theirs), (scene.ours(), &scene.ours)] {
        let guard = scene.ours().lock().await.unwrap();
        let first = guard.token();
        let waiter = waiting(guard, scene.condition());
        // It waits, so the others have their turn.
        let between = soon(holder.lock()).await.unwrap();
        assert!(between.token() > first);
        notifier.condition("c").notify_one().await.unwrap();
        tokio::time::sleep(A_WHILE).await;
        assert!(!waiter.is_finished(), "it is held");
        let token = between.token();
        between.unlock().await.unwrap();
        let guard = soon(waiter).await.unwrap().unwrap();
        assert!(guard.is_valid() && guard.token() > token && guard.hold_count() == 1);
        is_held(&scene).await;
        guard.unlock().await.unwrap();
    }
    is_free_soon(scene.theirs()).await;
    scene.is_clean_but_requests().await;
}

/// The request to line up is held back. Until it has run, nobody may have the lock: it could notify nobody.
pub(crate) async fn nobody_comes_in_before_the_waiter_stands_in_line(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let guard = scene.ours().lock().await.unwrap();
    let late = scene.proxy.command("EVALSHA").about("lock:{c}").nth(1).hold_request();
    let waiter = waiting(guard, scene.condition());
    late.happened().await;
    tokio::time::sleep(A_WHILE).await;
    let tried = scene.theirs().try_lock().await.unwrap();
    assert!(tried.is_none(), "the lock is free, and the waiter is not in line");
    late.lift();
    let between = soon(scene.theirs().lock()).await.unwrap();
    scene.lined_up(1).await;
    scene.theirs.condition("c").notify_one().await.unwrap();
    between.unlock().await.unwrap();
    soon(waiter).await.unwrap().unwrap().unlock().await.unwrap();
    scene.is_clean_but_requests().await;
}

pub(crate) async fn a_wait_that_nobody_ends_is_over_in_time(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let guard = scene.ours().lock().await.unwrap();
    let (token, limit) = (guard.token(), Duration::from_millis(100));
    let (guard, woken) = soon(guard.wait_for(&scene.condition(), limit)).await.unwrap();
    assert_eq!(woken, Woken::TimedOut);
    assert!(guard.is_valid() && guard.token() > token);
    is_held(&scene).await;
    guard.unlock().await.unwrap();
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

/// At any moment: the lock is free, and a notification is for the next waiter.
pub(crate) async fn a_wait_that_is_dropped_leaves_nothing(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    // Before it stands in line, in line, and after it was notified.
    for waiter in [None, Some(false), Some(true)] {
        let guard = scene.ours().lock().await.unwrap();
        let dropped = waiting(guard, scene.condition());
        if waiter.is_some() {
            scene.lined_up(1).await;
        }
        if waiter == Some(true) {
            let between = soon(scene.theirs().lock()).await.unwrap();
            let next = waiting(between, scene.theirs.condition("c"));
            scene.lined_up(2).await;
            let between = soon(scene.theirs().lock()).await.unwrap();
            scene.theirs.condition("c").notify_one().await.unwrap();
            scene.lined_up(1).await;
            dropped.abort();
            // It was notified, and could not get the lock.
            between.unlock().await.unwrap();
            soon(next).await.unwrap().unwrap().unlock().await.unwrap();
        }
        dropped.abort();
        is_free_soon(scene.theirs()).await;
        scene.lined_up(0).await;
    }
    scene.is_clean_but_requests().await;
}

pub(crate) async fn a_holder_that_has_lost_the_lock_does_not_wait(pair: Pair) {
    let scene = Scene::with(pair, only_told()).await;
    let guard = scene.ours().lock().await.unwrap();
    assert!(scene.theirs().force_unlock().await.unwrap());
    assert_err!(soon(guard.wait(&scene.condition())).await, Error::Lost { .. });
    is_free_soon(scene.theirs()).await;
    scene.lined_up(0).await;
    scene.is_clean().await;
}
