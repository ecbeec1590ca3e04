//! Futures that are dropped at each of their awaits: nothing stays behind for longer than a few answers take.

use std::time::Duration;

use parklock::{Client, Guard, Owner};
use tokio::time::sleep;

use crate::common::{Admin, eventually};
use crate::stage::{A_RESPONSE, Drops, Stage, joined, polled};
use crate::{SOON, connect, fields, is_clean, is_deserted, key, patient, tasks};

/// F57: `lock()` of a free lock, and of one that becomes free.
#[tokio::test]
async fn a_dropped_lock_leaves_nothing() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("a");
    let prepare = async || ((), lock.lock());
    let dropped = stage.dropping_at_every_poll(prepare, async |()| ()).await;
    assert!(dropped >= 3, "{dropped}: unpolled, and twice while it was asked for");

    let prepare = async || (stage.held_for_a_moment().await, lock.lock());
    let dropped = stage.dropping_at_every_poll(prepare, joined).await;
    assert!(dropped >= 7, "{dropped}: asked, subscribed, asked again, parked, asked at last");
}

/// F57: `lock()` behind another caller of the same client.
#[tokio::test]
async fn a_dropped_lock_in_the_queue_leaves_nothing() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("a");
    let prepare = async || {
        let guard = lock.lock().await.expect("it is free");
        let first = tokio::spawn(async move {
            sleep(Duration::from_millis(10)).await;
            guard.unlock().await.expect("it is ours");
        });
        (first, lock.lock())
    };
    let dropped = stage.dropping_at_every_poll(prepare, async |first| first.await.unwrap()).await;
    assert!(dropped >= 3, "{dropped}: unpolled, and in the queue");
}

/// F57: `try_lock_for()`, which also drops its own work when its limit is over.
#[tokio::test]
async fn a_dropped_try_lock_for_leaves_nothing() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("a");
    let prepare = async || (stage.held_for_a_moment().await, lock.try_lock_for(SOON));
    let dropped = stage.dropping_at_every_poll(prepare, joined).await;
    assert!(dropped >= 7, "{dropped}");

    let mut came_too_late = 0;
    for micros in (0..30_000).step_by(700) {
        let holder = stage.held_for_a_moment().await;
        let got = lock.try_lock_for(Duration::from_micros(micros)).await;
        came_too_late += usize::from(!matches!(got, Ok(Some(_))));
        drop(got);
        joined(holder).await;
        stage.is_clean(0, Drops::AtOnce).await;
    }
    assert!(came_too_late > 20, "{came_too_late}");
}

/// F57: `unlock()`, of the last hold and of a nested one.
#[tokio::test]
async fn a_dropped_unlock_gives_the_lock_back() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("a");
    let prepare = async || ((), lock.lock().await.expect("it is free").unlock());
    let dropped = stage.dropping_at_every_poll(prepare, async |()| ()).await;
    assert!(dropped >= 3, "{dropped}");

    let lock = stage.client.reentrant_lock("a").owned_by(&Owner::new());
    let prepare = async || {
        let outer = lock.lock().await.expect("it is free");
        let inner = lock.lock().await.expect("it is the owner's");
        (outer, inner.unlock())
    };
    let settle = async |outer: Guard| holds_once(&stage.admin, outer).await;
    let dropped = stage.dropping_at_every_poll(prepare, settle).await;
    assert!(dropped >= 3, "{dropped}");
}

/// F57: a nested `lock()`.
#[tokio::test]
async fn a_dropped_nested_lock_adds_no_hold() {
    let stage = Stage::set().await;
    let lock = stage.client.reentrant_lock("a").owned_by(&Owner::new());
    let prepare = async || (lock.lock().await.expect("it is free"), lock.lock());
    let settle = async |outer: Guard| holds_once(&stage.admin, outer).await;
    let dropped = stage.dropping_at_every_poll(prepare, settle).await;
    assert!(dropped >= 3, "{dropped}");
}

/// The guard is the only hold, here and in Redis; then it is unlocked.
async fn holds_once(admin: &Admin, guard: Guard) {
    assert_eq!(guard.hold_count(), 1);
    let once = async || admin.hgetall(&key("a")).await.into_values().eq(["1"]);
    eventually(A_RESPONSE, "redis counts one hold", once).await;
    assert!(guard.is_valid());
    guard.unlock().await.expect("it is still ours");
}

/// F57: `run()`, before, within and after its work.
#[tokio::test]
async fn a_dropped_run_leaves_nothing() {
    let stage = Stage::set().await;
    let (lock, reentrant) = (stage.client.lock("a"), stage.client.reentrant_lock("a"));
    let prepare = async || {
        let work = lock.run(async |_| sleep(Duration::from_millis(5)).await);
        (stage.held_for_a_moment().await, work)
    };
    let dropped = stage.dropping_at_every_poll(prepare, joined).await;
    assert!(dropped >= 9, "{dropped}: as lock, then in its work, then in its unlock");

    // What it nests in its work goes with it.
    let nesting = async |_| {
        let _inner = reentrant.lock().await.expect("it is the owner's");
        sleep(Duration::from_millis(5)).await;
    };
    let prepare = async || ((), reentrant.run(nesting));
    let dropped = stage.dropping_at_every_poll(prepare, async |()| ()).await;
    assert!(dropped >= 7, "{dropped}");
}

/// F57: `extend()`.
#[tokio::test]
async fn a_dropped_extend_does_not_harm_the_hold() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("a").lease(SOON);
    for polls in 0..3 {
        for drops in [Drops::AtOnce, Drops::WhenWoken] {
            let guard = lock.lock().await.unwrap();
            let extended = polled(polls, drops, guard.extend(SOON * 2)).await;
            assert!(extended.is_none() || polls > 0);
            assert!(guard.is_valid());
            guard.unlock().await.unwrap();
            stage.is_clean(polls, drops).await;
        }
    }
}

/// F57: `connect()`.
#[tokio::test]
async fn a_dropped_connect_leaves_no_connection_and_no_task() {
    let stage = Stage::set().await;
    stage.client.close().await;
    stage.other.close().await;
    is_deserted(&stage.admin).await;
    let (idle, url, mut dropped) = (tasks(), stage.proxy.url(), 0);
    for polls in 0.. {
        let client = polled(polls, Drops::AtOnce, Client::connect_with(&url, patient())).await;
        match client {
            Some(client) => client.unwrap().close().await,
            None => dropped += 1,
        }
        is_deserted(&stage.admin).await;
        eventually(A_RESPONSE, "no task is left", async || tasks() == idle).await;
        if dropped <= polls {
            break;
        }
    }
    assert!(dropped >= 5, "{dropped}");
    // The proxy notices the end of a connection a moment after the server.
    let ended = async || stage.proxy.connections(None) == 0;
    eventually(A_RESPONSE, "the connections end at the proxy too", ended).await;
    drop(stage.server);
}

/// F57: `close()`.
#[tokio::test]
async fn a_dropped_close_has_closed_the_client_once_it_was_polled() {
    let mut dropped = 0;
    for polls in 1..4 {
        let stage = Stage::set().await;
        let guard = stage.client.lock("a").lock().await.unwrap();
        dropped += usize::from(polled(polls, Drops::AtOnce, stage.client.close()).await.is_none());
        assert!(!guard.is_valid());
        assert!(stage.client.lock("a").lock().await.is_err());
        is_clean(&stage.admin, A_RESPONSE, "the held locks are given back").await;
        let others = async || stage.proxy.connections(None) == 0;
        eventually(A_RESPONSE, "its connections end", others).await;
    }
    assert!(dropped >= 1, "{dropped}");
}

/// F58: a timeout wins the race after Redis has granted the lock.
#[tokio::test]
async fn a_grant_that_nobody_waits_for_any_more_is_given_back() {
    let stage = Stage::set().await;
    stage.proxy.name_acquires();
    let client = connect(&stage.proxy.url(), patient()).await;
    for answered in [true, false] {
        let held = stage.proxy.script("acquire").nth(1).hold_reply();
        let lock = client.lock("a");
        // Looks before the caller gives up: the client takes the grant back at once.
        let granted = async {
            held.happened().await;
            fields(&stage.admin, "a").await.len()
        };
        tokio::select! {
            biased;
            _ = lock.lock() => panic!("its answer is held back"),
            granted = granted => assert_eq!(granted, 1, "redis has granted it"),
        }

        // With the answer, or with a connection that is found to be dead.
        if answered {
            held.lift();
        }
        is_clean(&stage.admin, A_RESPONSE, "it is given back long before its lease is over").await;
        held.lift();
        lock.try_lock_for(SOON).await.unwrap().expect("free").unlock().await.unwrap();
    }
}

/// F58: the grant and the timeout come at almost the same moment, again and again.
#[tokio::test]
async fn a_close_race_between_lock_and_timeout_leaves_nothing() {
    let stage = Stage::set().await;
    let (mut won, mut lost) = (0, 0);
    let lock = stage.client.lock("a");
    // About as long as a lock takes here: whoever wins makes it harder for itself, on a quick machine and on a busy one.
    let mut longest = 8_000;
    while won < 20 || lost < 20 {
        assert!(won + lost < 5_000, "{won} won, {lost} lost: no race");
        let limit = Duration::from_micros(fastrand::u64(0..longest));
        tokio::select! {
            guard = lock.lock() => {
                won += 1;
                longest = (longest * 9 / 10).max(100);
                // Half of them are dropped.
                let guard = guard.unwrap();
                if won % 2 == 0 { guard.unlock().await.unwrap() } else { drop(guard) }
            }
            () = sleep(limit) => {
                lost += 1;
                longest = (longest * 11 / 10).min(2_000_000);
            }
        }
    }
    is_clean(&stage.admin, A_RESPONSE, "all is given back").await;
    stage.is_clean(0, Drops::AtOnce).await;
}
