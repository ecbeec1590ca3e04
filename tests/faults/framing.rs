//! Replies in odd pieces, replies behind a stall, and connections that die in the middle of one.

use std::time::Duration;

use parklock::{Config, Error};
use tokio::time::sleep;

use crate::common::{Class, eventually, timeout};
use crate::scene::*;

/// F7: every reply and message comes byte by byte, on connections made before and after it began.
#[tokio::test]
async fn replies_in_single_bytes_are_understood() {
    let scene = Scene::new().await;
    let slow = patient().response_timeout(LONG / 4).connect_timeout(LONG);
    let (client, other) = (scene.client(slow).await, scene.other().await);
    let slices = scene.proxy.everything().slice_reply(1);
    let messages = scene.proxy.messages().slice_reply(1);

    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let slept = theirs.token();
    theirs.unlock().await.unwrap();
    let ours = granted(waiter).await;
    assert!(slices.fired() > 0 && messages.fired() > 0);
    assert!(ours.token() > slept);

    scene.proxy.reset(None).await;
    // The greeting alone is thousands of bytes, each a segment of its own.
    let again = timeout(LONG, client.lock("b").lock()).await.expect("it connects again");
    again.unwrap().unlock().await.unwrap();
    assert!(soon(client.lock("a").is_locked()).await.unwrap());
    soon(ours.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F7: two replies come in one segment.
#[tokio::test]
async fn replies_that_come_together_go_to_their_callers() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let _theirs = other.lock("held").lock().await.unwrap();
    let first = scene.proxy.script("status").nth(1).hold_reply();

    let (held, free) = (client.lock("held"), client.lock("free"));
    let second = async {
        first.happened().await;
        let release = async {
            sleep(Duration::from_millis(20)).await; // for the second reply to line up behind the first
            first.lift();
        };
        tokio::join!(free.is_locked(), release).0
    };
    let (held, free) = soon(async { tokio::join!(held.is_locked(), second) }).await;

    assert!(held.unwrap());
    assert!(!free.unwrap());
}

/// F8: the connection dies in the middle of the reply of an acquire.
#[tokio::test]
async fn a_reply_that_breaks_off_leaves_one_hold() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    for bytes in [1, 3, 4, 6, 9] {
        let cut = scene.proxy.script("acquire").nth(1).cut_within(bytes);

        let guard = soon(client.lock("a").lock()).await.unwrap();

        assert_eq!(cut.fired(), 1);
        is_held_once(&scene.admin, "a").await;
        soon(guard.unlock()).await.unwrap();
        scene.is_clean().await;
    }
}

/// F8: the connection dies in the middle of a reply, with many requests under way behind it.
#[tokio::test]
async fn a_reply_that_breaks_off_mixes_nobody_up() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let cut = scene.proxy.script("acquire").nth(2).cut_within(5);
    let names: Vec<_> = (0..30).map(|n| format!("a{n}")).collect();
    let waiters: Vec<_> = names.iter().map(|name| waiting(client.lock(name))).collect();

    let mut guards = Vec::new();
    for waiter in waiters {
        guards.push(granted(waiter).await);
    }

    assert_eq!(cut.fired(), 1);
    let mut tokens: Vec<_> = guards.iter().map(|guard| guard.token()).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), names.len(), "two locks, one answer");
    for name in &names {
        is_held_once(&scene.admin, name).await;
    }
    drop(guards);
    scene.is_clean().await;
}

/// F9: replies come when their callers have given up, while others wait on the same connection.
#[tokio::test]
async fn late_replies_do_not_answer_other_requests() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(attentive()).await, scene.other().await);
    let mut theirs = Vec::new();
    for n in (0..20).step_by(2) {
        theirs.push(other.lock(format!("a{n}")).lock().await.unwrap());
    }
    let stalled = scene.proxy.script("acquire").nth(2).hold_reply();
    let attempt = |n: usize| {
        let lock = client.lock(format!("a{n}"));
        tokio::spawn(async move { (n, lock.try_lock().await) })
    };

    let attempts: Vec<_> = (0..20).map(attempt).collect();
    stalled.happened().await;
    let mut ours = Vec::new();
    let mut unanswered = 0;
    for attempt in attempts {
        match soon(attempt).await.unwrap() {
            (n, Ok(Some(guard))) if n % 2 == 1 => ours.push(guard),
            (n, Ok(None)) => assert!(n % 2 == 0, "a{n} is free"),
            (_, Err(Error::Indeterminate { .. })) => unanswered += 1,
            (n, answer) => panic!("a{n}: {answer:?}"),
        }
    }
    assert!(unanswered > 0, "the stall has hit nobody");
    stalled.lift();

    drop(ours);
    let each_its_own = async || {
        for n in 0..20 {
            let locked = client.lock(format!("a{n}")).is_locked().await;
            if !locked.is_ok_and(|locked| locked == (n % 2 == 0)) {
                return false;
            }
        }
        true
    };
    eventually(SOON, "each lock has its own answer", each_its_own).await;
}

/// F11: the server stalls for longer than the response timeout.
#[tokio::test]
async fn a_call_outlives_a_stall_beyond_its_response_timeout() {
    let scene = Scene::new().await;
    let client = scene.client(patient().response_timeout(Duration::from_millis(200))).await;
    let before = scene.proxy.script("acquire").count();
    let guard = client.lock("a").lock().await.unwrap();
    assert!(before.fired() >= 1);

    scene.stop().await;
    let waiter = waiting(client.lock("b"));
    let redialled = scene.proxy.command("HELLO").count();
    redialled.happened().await; // the stall was longer than we wait for an answer
    scene.server.resume();

    let next = granted(waiter).await;
    assert!(guard.is_valid());
    is_held_once(&scene.admin, "b").await;
    soon(guard.unlock()).await.unwrap();
    soon(next.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F11: the response timeout would leave no time to repeat a renewal.
#[tokio::test]
async fn a_response_timeout_that_a_lease_cannot_stand_is_refused() {
    let scene = Scene::new().await;
    let config = Config::default().response_timeout(Duration::from_secs(10));
    let refused = parklock::Client::connect_with(scene.proxy.url(), config).await;
    let Err(Error::Config { reason }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("a quarter of watchdog_timeout"), "{reason}");
    let nobody_came = async || scene.proxy.connections(Class::Command) == 0;
    eventually(SOON, "nobody connected", nobody_came).await;
}
