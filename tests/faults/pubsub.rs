//! Subscriptions that break, stall or come too late: no message is needed for progress.

use std::time::Duration;

use crate::common::{Class, eventually, judged};
use crate::scene::*;

/// F35: the subscriber's connection is killed; the one for commands lives.
#[tokio::test]
async fn a_waiter_whose_subscription_was_killed_is_woken_by_the_next_one() {
    judged(async || {
        let scene = Scene::new().await;
        let (client, other) = (scene.client(patient()).await, scene.other().await);
        let theirs = other.lock("a").lock().await.unwrap();
        let waiter = scene.parked(&client, "a").await;

        scene.proxy.refuse().await;
        assert_eq!(scene.admin.client_kill("pubsub").await, 1);
        let deaf = async || scene.admin.subscribers(&channel("a")).await == 0;
        eventually(SOON, "nobody listens", deaf).await;
        theirs.unlock().await.unwrap();
        // The message reaches nobody. It is the waiter's all the same.
        is_held_once(&scene.admin, "a").await;
        scene.proxy.accept_again().await;

        granted(waiter).await.unlock().await.unwrap();
    })
    .await;
}

/// F35: the subscriber's connection is killed and cannot be made again.
#[tokio::test]
async fn a_waiter_without_a_subscription_gets_the_lock_within_a_park() {
    let scene = Scene::new().await;
    let park = Duration::from_millis(300);
    let (client, other) = (scene.client(patient().max_park(park)).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;

    scene.proxy.refuse().await;
    assert_eq!(scene.admin.client_kill("pubsub").await, 1);
    let deaf = async || scene.admin.subscribers(&channel("a")).await == 0;
    eventually(SOON, "nobody listens", deaf).await;
    theirs.unlock().await.unwrap();

    granted(waiter).await.unlock().await.unwrap();
    assert_eq!(scene.proxy.connections(Class::Subscriber), 0);
}

/// F35: only the messages are lost.
#[tokio::test]
async fn a_waiter_that_hears_no_message_gets_the_lock_within_a_park() {
    let scene = Scene::new().await;
    let park = Duration::from_millis(300);
    let (client, other) = (scene.client(patient().max_park(park)).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let swallowed = scene.proxy.messages().swallow_reply();

    theirs.unlock().await.unwrap();
    swallowed.happened().await;

    granted(waiter).await.unlock().await.unwrap();
}

/// F36: the subscriber's connection is half open: it stands, and nothing comes through.
#[tokio::test]
async fn a_half_open_subscription_is_noticed_and_replaced() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(attentive()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let redialled = scene.proxy.command("HELLO").count();
    let hole = scene.proxy.blackhole(Class::Subscriber);

    theirs.unlock().await.unwrap();
    hole.happened().await;
    redialled.happened().await;
    hole.lift();

    granted(waiter).await.unlock().await.unwrap();
}

/// F36: a message is kept back on a connection that stands; the next connection is whole.
#[tokio::test]
async fn a_message_that_stalls_is_made_good_by_the_next_subscription() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(attentive()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let stalled = scene.proxy.messages().nth(1).hold_reply();

    theirs.unlock().await.unwrap();
    stalled.happened().await;

    granted(waiter).await.unlock().await.unwrap();
}

/// F36: the connection for commands is half open, the subscriber's is not.
#[tokio::test]
async fn a_half_open_command_connection_is_noticed_and_replaced() {
    let scene = Scene::new().await;
    let client = scene.client(attentive()).await;
    let guard = client.lock("a").lock().await.unwrap();
    let hole = scene.proxy.blackhole(Class::Command);

    let waiter = waiting(client.lock("b"));
    hole.happened().await;
    let redialled = scene.proxy.command("HELLO").count();
    redialled.happened().await;
    assert!(guard.is_valid());
    hole.lift();

    granted(waiter).await.unlock().await.unwrap();
    soon(guard.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F37: the server closes a subscriber that has more to read than it allows.
#[tokio::test]
async fn a_subscriber_that_the_server_dropped_comes_back() {
    let scene = Scene::new().await;
    scene.admin.config_set("client-output-buffer-limit", "pubsub 100kb 0 0").await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let redialled = scene.proxy.command("SUBSCRIBE").count();

    // All at once, so that none of it is delivered in between.
    let flood = "for i = 1, 5000 do redis.call('publish', ARGV[1], string.rep('x', 1000)) end";
    scene.admin.cmd::<()>(&["EVAL", flood, "0", &channel("a")]).await;
    let dropped = async || scene.server.log().contains("output buffer limits");
    eventually(SOON, "the server drops the subscriber", dropped).await;
    redialled.happened().await;
    assert!(!waiter.is_finished(), "a message is no grant");
    theirs.unlock().await.unwrap();

    granted(waiter).await.unlock().await.unwrap();
}

/// F38: the lock is given back between a waiter's first look and its subscription's acknowledgement.
#[tokio::test]
async fn an_unlock_before_the_subscription_is_acknowledged_is_seen() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let unacknowledged = scene.proxy.command("SUBSCRIBE").hold_reply();
    let waiter = waiting(client.lock("a"));

    unacknowledged.happened().await;
    theirs.unlock().await.unwrap();
    unacknowledged.lift();

    granted(waiter).await.unlock().await.unwrap();
}

/// F38: the subscription is never acknowledged.
#[tokio::test]
async fn a_waiter_whose_subscription_is_not_acknowledged_looks_for_itself() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let unacknowledged = scene.proxy.command("SUBSCRIBE").hold_reply();
    let looks = scene.proxy.script("acquire").count();
    let waiter = waiting(client.lock("a"));

    unacknowledged.happened().await;
    looks.happened_times(3).await;
    theirs.unlock().await.unwrap();

    granted(waiter).await.unlock().await.unwrap();
    unacknowledged.lift();
}
