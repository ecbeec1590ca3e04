//! Messages that are too many, forged or forbidden: none is trusted as proof.

use std::time::Duration;

use tokio::time::sleep;
use tracing::Level;

use crate::common::fixture::settled;
use crate::common::{Admin, connect, eventually, judged};
use crate::log::Log;
use crate::scene::*;

/// F39: messages about a lock that nobody waits for any more.
#[tokio::test]
async fn messages_that_nobody_waits_for_cost_nothing() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient().waiter_ttl(LONG / 2)).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let looks = scene.proxy.script("acquire").count();
    let waiter = scene.parked(&client, "a").await;
    looks.happened_times(2).await; // once it listens, it looks again
    settled(&scene.admin).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    let asked = scene.proxy.command("EVALSHA").count();

    for _ in 0..50 {
        assert_eq!(scene.admin.publish(&channel("a"), "somebody").await, 1, "it lingers");
    }
    theirs.unlock().await.unwrap();

    sleep(A_WHILE).await;
    assert!(asked.fired() <= 1, "asked {} times", asked.fired()); // one to leave the line, if there is one
}

/// F39: a burst of messages about a lock that is still held.
#[tokio::test]
async fn a_burst_of_messages_is_one_wake_up() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let looks = scene.proxy.script("acquire").count();
    let heard = scene.proxy.messages().delay_reply(Duration::ZERO, Duration::ZERO);

    let burst = "for i = 1, 500 do redis.call('publish', ARGV[1], 'somebody') end";
    scene.admin.cmd::<()>(&["EVAL", burst, "0", &channel("a")]).await;
    heard.happened_times(500).await;
    looks.happened().await;
    sleep(2 * A_WHILE).await;

    assert!(looks.fired() < 50, "{} looks for 500 messages", looks.fired());
    assert!(!waiter.is_finished());
    theirs.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
}

/// F43: the user may not listen to the channel.
#[tokio::test]
async fn a_waiter_that_may_not_listen_looks_for_itself() {
    let (log, _listening) = Log::of(Level::WARN);
    let scene = Scene::new().await;
    let user = ["ACL", "SETUSER", "deaf", "on", ">pass", "~*", "resetchannels", "+@all"];
    scene.admin.cmd::<()>(&user).await;
    let url = scene.server.url().replace("redis://", "redis://deaf:pass@");
    let deaf = Admin::connect(&url).await;
    let refused = deaf.try_cmd::<()>(&["PUBLISH", &channel("a"), "x"]).await;
    assert_eq!(refused.unwrap_err().code(), Some("NOPERM"));

    let (client, other) = (client(&url, patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = waiting(client.lock("a"));
    let said = async || log.lines_with("the user may not subscribe") > 0;
    eventually(SOON, "the log tells", said).await;
    theirs.unlock().await.unwrap();

    let ours = granted(waiter).await;
    assert!(scene.admin.channels().await.is_empty());
    soon(ours.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F44: forged messages, in all shapes.
#[tokio::test]
async fn a_forged_message_is_never_believed() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let owner = scene.admin.hgetall(&key("a")).await.into_keys().next().unwrap();
    let long = "x".repeat(100_000);
    let forged: [&[u8]; 9] = [
        b"",
        b"0",
        b"-1",
        b"\xff\xfe\x00",
        b"\r\n$1\r\n",
        b" ",
        owner.as_bytes(),
        owner.split(':').next().unwrap().as_bytes(),
        long.as_bytes(),
    ];

    let mut forger = connect(&scene.server.url()).await;
    let heard = scene.proxy.messages().delay_reply(Duration::ZERO, Duration::ZERO);
    for message in forged {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel("a")).arg(message);
        assert!(publish.query_async::<u32>(&mut forger).await.unwrap() > 0);
    }
    heard.happened_times(forged.len()).await;
    sleep(A_WHILE).await;

    assert!(!waiter.is_finished() && theirs.is_valid());
    is_held_once(&scene.admin, "a").await;
    theirs.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
}

/// F44: forged messages to the client that holds the lock itself make it look, and no more.
#[tokio::test]
async fn forged_messages_do_not_multiply_renewals() {
    judged(async || {
        let scene = Scene::new().await;
        let (client, other) = (scene.client(brisk()).await, scene.other().await);
        let theirs = other.lock("a").lock().await.unwrap();
        let waiter = scene.parked(&client, "a").await;
        theirs.unlock().await.unwrap();
        let guard = granted(waiter).await; // a client that has waited still listens
        let renewals = scene.proxy.script("renew").count();
        let late =
            scene.proxy.script("renew").delay_reply(Duration::from_millis(40), Duration::ZERO);

        for _ in 0..100 {
            assert_eq!(scene.admin.publish(&channel("a"), "somebody").await, 1);
            sleep(Duration::from_millis(3)).await;
        }
        renewals.happened().await;
        late.lift();
        sleep(A_WHILE).await;

        let before = renewals.fired();
        sleep(Duration::from_secs(2)).await; // two periods
        let renewed = renewals.fired() - before;
        assert!(guard.is_valid());
        assert!((1..=4).contains(&renewed), "{renewed} renewals in two periods");
    })
    .await;
}
