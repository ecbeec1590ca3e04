//! A lock that is handed on within a client, and exchanged with the server now and then, under the same faults.

use std::time::Duration;

use parklock::{Client, Config, Ended, Error, HandOff};
use tokio::task::JoinSet;

use crate::common::eventually;
use crate::common::proxy::Rule;
use crate::scene::*;

/// Every turn is an exchange.
fn exchanging() -> Config {
    patient().hand_off(HandOff { max_consecutive: 0, max_time: Duration::ZERO })
}

/// So many callers of one client, one after the other; tokens must grow.
async fn queue(client: &Client, callers: usize) -> JoinSet<()> {
    let last = std::sync::Arc::new(std::sync::Mutex::new(None));
    let mut queue = JoinSet::new();
    for _ in 0..callers {
        let (lock, last) = (client.lock("a"), last.clone());
        queue.spawn(async move {
            let guard = lock.lock().await.expect("the lock");
            let before = last.lock().expect("no panic under it").replace(guard.token());
            assert!(before < Some(guard.token()), "{:?} after {before:?}", guard.token());
            assert!(guard.is_valid());
            guard.unlock().await.expect("it was ours");
        });
    }
    queue
}

/// F1, F3: an exchange has given one tenure back and begun another, and its reply is lost.
#[tokio::test]
async fn an_exchange_whose_reply_is_lost_ends_as_one_hold() {
    let scene = Scene::new().await;
    let client = scene.client(exchanging()).await;
    let lost = scene.proxy.script("exchange").first(3).cut_after();

    let first = client.lock("a").lock().await.unwrap();
    let queue = queue(&client, 10).await;
    tokio::task::yield_now().await;
    first.unlock().await.unwrap();
    soon(queue.join_all()).await;

    assert_eq!(lost.fired(), 3);
    scene.is_clean().await;
}

/// F2: an exchange never reaches the server.
#[tokio::test]
async fn an_exchange_that_never_arrived_ends_as_one_hold() {
    let scene = Scene::new().await;
    let client = scene.client(exchanging()).await;
    let cut = scene.proxy.script("exchange").first(3).cut_before();

    let first = client.lock("a").lock().await.unwrap();
    let queue = queue(&client, 10).await;
    tokio::task::yield_now().await;
    first.unlock().await.unwrap();
    soon(queue.join_all()).await;

    assert_eq!(cut.fired(), 3);
    scene.is_clean().await;
}

/// F5: all callers go while an exchange is on the way.
#[tokio::test]
async fn an_exchange_that_nobody_waits_for_any_more_leaves_nothing() {
    let scene = Scene::new().await;
    let client = scene.client(exchanging()).await;
    let held = scene.proxy.script("exchange").nth(1).hold_request();
    let first = client.lock("a").lock().await.unwrap();
    let mut queue = queue(&client, 10).await;
    tokio::task::yield_now().await;
    first.unlock().await.unwrap();
    held.happened().await;

    queue.shutdown().await;
    held.lift();

    scene.is_clean().await;
}

/// F15: the server forgets the scripts before an exchange.
#[tokio::test]
async fn an_exchange_that_the_server_forgot_is_sent_again_unseen() {
    let scene = Scene::new().await;
    let client = scene.client(exchanging()).await;
    let sent = scene.proxy.command("EVAL").count();
    let first = client.lock("a").lock().await.unwrap();
    let queue = queue(&client, 3).await;
    tokio::task::yield_now().await;

    scene.admin.script_flush().await;
    first.unlock().await.unwrap();
    soon(queue.join_all()).await;

    assert!(sent.fired() > 0);
    scene.is_clean().await;
}

/// F5: all callers go while their acquires are on the way in one request.
#[tokio::test]
async fn gathered_acquires_whose_callers_have_gone_leave_nothing() {
    for stall in [Rule::hold_request, Rule::hold_reply] {
        let scene = Scene::new().await;
        let client = scene.client(patient()).await;
        let slow = scene.proxy.script("acquire").nth(1).delay_reply(A_WHILE, Duration::ZERO);
        let held = stall(scene.proxy.script("acquire").nth(2));
        let first = waiting(client.lock("first"));
        slow.happened().await;
        let mut callers = JoinSet::new();
        for n in 0..10 {
            let lock = client.lock(format!("a{n}"));
            callers.spawn(async move { drop(lock.lock().await) });
        }
        held.happened().await;

        callers.shutdown().await;
        held.lift();

        let ran = async || grants(&scene.admin).await > 10;
        eventually(SOON, "all of them run", ran).await;
        drop(granted(first).await);
        scene.is_clean().await;
    }
}

/// F12: the server forgets everything while the lock is being handed on.
#[tokio::test]
async fn a_queue_goes_on_when_the_server_forgot_everything() {
    let mut scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let first = client.lock("a").lock().await.unwrap();
    let queue = queue(&client, 10).await;
    tokio::task::yield_now().await;

    scene.server.restart().await;
    scene.admin = scene.server.admin().await;
    let lost = async || matches!(first.extend(LONG).await, Err(Error::Lost { .. }));
    eventually(SOON, "the loss is known", lost).await;
    assert_eq!(soon(first.ended()).await, Ended::Lost);

    soon(queue.join_all()).await;
    scene.is_clean().await;
}

/// F21: the server's memory is full while the lock is to be exchanged.
#[tokio::test]
async fn an_exchange_on_a_full_server_is_waited_for_or_granted() {
    let scene = Scene::new().await;
    let client = scene.client(exchanging()).await;
    let first = client.lock("a").lock().await.unwrap();
    let queue = queue(&client, 10).await;
    tokio::task::yield_now().await;

    scene.admin.config_set("maxmemory", "1").await;
    first.unlock().await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    scene.admin.config_set("maxmemory", "0").await;

    soon(queue.join_all()).await;
    scene.is_clean().await;
}

/// F30: a value of another type stands in the place of the line of one lock; others are asked for beside it.
#[tokio::test]
async fn a_line_of_another_type_harms_no_other_lock() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    scene.admin.cmd::<()>(&["SET", "lock_queue:{bad}", "text"]).await;

    // While the first is under way, the others gather.
    let slow = scene.proxy.script("acquire").nth(1).delay_reply(A_WHILE, Duration::ZERO);
    let first = waiting(client.lock("first"));
    slow.happened().await;
    let names = ["a0", "a1", "bad", "a2", "a3"];
    let attempts = names.map(|name| {
        let lock = client.lock(name);
        tokio::spawn(async move { lock.try_lock().await })
    });
    for (name, attempt) in names.into_iter().zip(attempts) {
        let attempt = soon(attempt).await.unwrap();
        match name {
            "bad" => match &attempt {
                Ok(Some(_)) => {}
                Err(Error::Conflict { key, kind, .. }) => {
                    assert_eq!((key.as_str(), kind.as_str()), ("lock_queue:{bad}", "string"));
                }
                other => panic!("{other:?}"),
            },
            _ => assert!(matches!(attempt, Ok(Some(_))), "{name}: {attempt:?}"),
        }
    }
    drop(granted(first).await);
    assert_eq!(scene.admin.cmd::<String>(&["GET", "lock_queue:{bad}"]).await, "text");
    scene.admin.cmd::<()>(&["DEL", "lock_queue:{bad}"]).await;
    scene.is_clean().await;
}
