//! A release that nobody hears is not missed, whenever it comes and wherever its message is lost.

use crate::common;

use std::time::Duration;

use common::fixture::{LONG, SOON, channel, client, comes_in, parked};
use common::proxy::Rule;
use common::{Class, Proxy, Server};
use parklock::{Client, Config, Error, Guard};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A server, and a client behind a proxy that would sleep through every test if it missed a release.
async fn sleepy() -> (Server, Proxy, Client) {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let config = Config::default().watchdog_timeout(LONG).max_park(LONG);
    let sleepy = comes_in(proxy.url(), config).await;
    (server, proxy, sleepy)
}

async fn held(client: &Client, name: &str) -> Guard {
    client.lock(name).lease(LONG).lock().await.expect("it is free")
}

fn wait(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await })
}

async fn granted(waiter: JoinHandle<Result<Guard, Error>>) -> Guard {
    let guard = timeout(SOON, waiter).await.expect("the release is not missed");
    guard.expect("no panic").expect("it is free")
}

#[tokio::test]
async fn a_release_between_the_failed_attempt_and_the_acknowledged_subscription() {
    let (server, proxy, sleepy) = sleepy().await;
    let holder = client(&server).await;
    for (kind, hold) in [("request", Rule::hold_request as fn(_) -> _), ("ack", Rule::hold_reply)] {
        for round in 0..5 {
            let name = format!("{kind}{round}");
            let guard = held(&holder, &name).await;
            let late = hold(proxy.command("SUBSCRIBE").about(&channel(&name)));
            let waiter = wait(&sleepy, &name);
            late.happened().await;

            guard.unlock().await.unwrap();
            late.lift();

            granted(waiter).await.unlock().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_release_while_the_waiters_look_again_is_on_its_way() {
    let (server, proxy, sleepy) = sleepy().await;
    proxy.name_script("acquire", include_str!("../../lua/lock/acquire.lua"));
    let guard = held(&client(&server).await, "a").await;
    let late = proxy.script("acquire").nth(2).hold_reply();
    let waiter = wait(&sleepy, "a");
    late.happened().await; // the server has said "held"

    guard.unlock().await.unwrap();
    late.lift();

    granted(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_while_the_subscriber_has_no_connection() {
    let (server, proxy, sleepy) = sleepy().await;
    let guard = held(&client(&server).await, "a").await;
    let waiter = wait(&sleepy, "a");
    let admin = server.admin().await;
    parked(&admin, "a", 1).await;

    proxy.refuse().await;
    assert_eq!(proxy.reset(Class::Subscriber).await, 1);
    parked(&admin, "a", 0).await;
    guard.unlock().await.unwrap();
    proxy.accept_again().await;

    granted(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_message_vanishes_is_noticed_within_max_park() {
    let (server, proxy, _) = sleepy().await;
    let config = Config::default().watchdog_timeout(LONG).max_park(Duration::from_secs(1));
    let light_sleeper = comes_in(proxy.url(), config).await;
    let vanishes = proxy.messages().swallow_reply();
    let guard = held(&client(&server).await, "a").await;
    let waiter = wait(&light_sleeper, "a");
    parked(&server.admin().await, "a", 1).await;

    guard.unlock().await.unwrap();

    vanishes.happened().await;
    granted(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_wake_up_goes_to_a_waiter_that_has_gone() {
    let (server, _proxy, sleepy) = sleepy().await;
    let (admin, holder) = (server.admin().await, client(&server).await);
    for steps in 0..40 {
        let name = format!("after {steps} steps");
        let guard = held(&holder, &name).await;
        let gone = wait(&sleepy, &name);
        parked(&admin, &name, 1).await;
        let next = wait(&sleepy, &name);

        let goes = async move {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            gone.abort();
        };
        tokio::join!(async { guard.unlock().await.unwrap() }, goes);

        granted(next).await.unlock().await.unwrap();
    }
}
