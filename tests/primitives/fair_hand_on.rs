//! A fair lock within one client: its holder hands it on to the caller right behind in the line, without a request, and the
//! order stays exact.

use crate::common;
use crate::fair_lock::{
    ByHand, granted, grow_strictly, is_clean, next_in_queue, patient, queue, queued, soon, waiting,
};

use std::time::Duration;

use common::fixture::{LONG, SOON, client, client_with, is_pending, scripts, settled};
use common::{Admin, Site, eventually};
use parklock::{Client, Config, Error, Guard, HandOff, Result};
use tokio::task::JoinHandle;

/// Only the number of hand-overs limits how long a lock is handed on.
fn handing_on(config: Config) -> Config {
    config.hand_off(HandOff { max_time: LONG, ..HandOff::default() })
}

/// A caller has the lock, and others of its client stand right behind it. Nobody else waits.
struct Row {
    server: Site,
    admin: Admin,
    client: Client,
    first: Guard,
    others: Vec<JoinHandle<Result<Guard>>>,
}

impl Row {
    async fn of(others: usize) -> Self {
        Self::with(handing_on(patient()), others).await
    }

    async fn with(config: Config, others: usize) -> Self {
        let server = Site::start().await;
        let (admin, client) = (server.admin().await, client_with(&server, config).await);
        // The first one in an empty line stands behind nobody: so a caller of another client holds the lock while they
        // come.
        let elsewhere = other(&server).await;
        let before = elsewhere.fair_lock("a").lock().await.expect("it is free");
        let first = next_in_queue(&client, &admin).await;
        let mut callers = Vec::new();
        for _ in 0..others {
            callers.push(next_in_queue(&client, &admin).await);
        }
        before.unlock().await.expect("it was ours");
        Self { server, admin, client, first: granted(first).await, others: callers }
    }
}

async fn other(server: &Site) -> Client {
    client(server).await
}

#[tokio::test]
async fn callers_one_behind_another_take_turns_without_a_request() {
    let Row { server: _server, admin, first, others, .. } = Row::of(5).await;
    let (before, mut tokens, mut holder) = (settled(&admin).await, Vec::new(), first);
    for caller in others {
        tokens.push(holder.token().get());
        holder.unlock().await.unwrap();
        holder = granted(caller).await;
        assert!(holder.is_valid());
    }
    tokens.push(holder.token().get());
    assert!(grow_strictly(&tokens), "{tokens:?}");
    assert_eq!(scripts(&admin).await, before, "nobody asked the server");
    assert_eq!(queue(&admin).await.len(), 5, "they stand in line until the release");
    holder.unlock().await.unwrap();
    assert_eq!(scripts(&admin).await, before + 1, "one release");
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_caller_of_another_client_between_them_gets_its_turn() {
    let Row { server, admin, client, first, others } = Row::of(1).await;
    let elsewhere = other(&server).await;
    // So its waiter has the same number as the second caller of our client.
    elsewhere.fair_lock("b").lock().await.unwrap().unlock().await.unwrap();
    let between = next_in_queue(&elsewhere, &admin).await;
    let mut last = next_in_queue(&client, &admin).await;
    let [second] = others.try_into().expect("one");
    first.unlock().await.unwrap();
    let second = granted(second).await;
    let token = second.token();
    second.unlock().await.unwrap();
    let between = granted(between).await;
    assert!(between.token() > token);
    assert!(is_pending(&mut last).await, "it came after the other client");
    between.unlock().await.unwrap();
    granted(last).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_lock_is_handed_on_64_times_before_the_server_is_asked() {
    let Row { server: _server, admin, client, first, .. } = Row::of(0).await;
    // Behind the only one in line, which holds the lock now, nobody stands: the first of these gets the lock by a release.
    let mut callers = Vec::new();
    for place in 1..=70 {
        callers.push(waiting(&client));
        queued(&admin, place).await;
    }
    first.unlock().await.unwrap();
    let (mut grants, mut tokens) = (Vec::new(), Vec::new());
    for caller in callers {
        let guard = granted(caller).await;
        tokens.push(guard.token().get());
        grants.push(guard.token().get() >> 10);
        guard.unlock().await.unwrap();
    }
    assert!(grow_strictly(&tokens), "{tokens:?}");
    let of_one: Vec<_> = grants.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
    assert_eq!(of_one, [65, 5], "holders of each grant");
    is_clean(&admin).await;
}

/// A caller that stands in the queue, has had its answer, and is no longer polled.
async fn by_hand(client: &Client, admin: &Admin) -> ByHand {
    let lock = client.fair_lock("a");
    let mut waiter: ByHand = Box::pin(async move { lock.lock().await });
    let before = queue(admin).await.len();
    let answered = async {
        queued(admin, before + 1).await;
        settled(admin).await;
    };
    tokio::select! {
        _ = &mut waiter => panic!("nobody gave it the lock"),
        () = answered => {}
    }
    waiter
}

#[tokio::test]
async fn a_caller_that_goes_when_the_lock_was_left_to_it_lets_the_next_one_in() {
    let config = handing_on(patient()).pickup_timeout(LONG);
    let Row { server: _server, admin, client, first, others } = Row::with(config, 1).await;
    let third = by_hand(&client, &admin).await;
    let mut next = next_in_queue(&client, &admin).await;
    let [second] = others.try_into().expect("one");
    first.unlock().await.unwrap();
    granted(second).await.unlock().await.unwrap();
    assert!(is_pending(&mut next).await, "the third one has not looked yet");
    drop(third);
    granted(next).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

/// Then nobody holds the lock, so no holder can give up the places of the callers that have had it.
#[tokio::test]
async fn a_lock_lost_while_it_is_left_to_a_caller_takes_those_that_had_it_out_of_the_line() {
    // A grant by message is renewed within two seconds.
    let config = handing_on(patient().waiter_ttl(Duration::from_secs(6))).pickup_timeout(LONG);
    let Row { server: _server, admin, client, first, others } = Row::with(config, 1).await;
    let third = by_hand(&client, &admin).await;
    let [second] = others.try_into().expect("one");
    first.unlock().await.unwrap();
    granted(second).await.unlock().await.unwrap();
    assert_eq!(queue(&admin).await.len(), 2, "the second one has had it, the third one comes next");
    let deleted: i64 = admin.cmd(&["DEL", "lock:{a}"]).await;
    assert_eq!(deleted, 1);
    // The server grants it to the third one then, which leaves the line too.
    let is_let_in = async || queue(&admin).await.is_empty();
    eventually(SOON, "the second one has left the line", is_let_in).await;
    soon(third).await.expect("it is free").unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_caller_that_is_not_polled_when_the_lock_was_left_to_it_stops_nobody() {
    let config = handing_on(Config::default());
    let Row { server: _server, admin, client, first, others } = Row::with(config, 1).await;
    let third = by_hand(&client, &admin).await;
    let next = next_in_queue(&client, &admin).await;
    let [second] = others.try_into().expect("one");
    first.unlock().await.unwrap();
    granted(second).await.unlock().await.unwrap();
    granted(next).await.unlock().await.unwrap();
    drop(third);
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_cancelled_caller_in_the_row_is_skipped() {
    let Row { server: _server, admin, first, others, .. } = Row::of(3).await;
    let [second, cancelled, last] = others.try_into().expect("three");
    cancelled.abort();
    queued(&admin, 2).await;
    first.unlock().await.unwrap();
    granted(second).await.unlock().await.unwrap();
    granted(last).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_guard_that_is_dropped_hands_the_lock_on_too() {
    let Row { server: _server, admin, first, others, .. } = Row::of(2).await;
    let before = settled(&admin).await;
    drop(first);
    let [second, third] = others.try_into().expect("two");
    drop(granted(second).await);
    let third = granted(third).await;
    assert_eq!(scripts(&admin).await, before);
    drop(third);
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_caller_with_a_lease_of_its_own_gets_it_from_the_server() {
    let Row { server: _server, admin, client, first, .. } = Row::of(0).await;
    let lease = Duration::from_secs(60);
    let watched = next_in_queue(&client, &admin).await;
    let lock = client.fair_lock("a").lease(lease);
    let leased = tokio::spawn(async move { lock.lock().await });
    queued(&admin, 2).await;
    first.unlock().await.unwrap();
    granted(watched).await.unlock().await.unwrap();
    let leased = granted(leased).await;
    assert!(leased.remaining() <= lease);
    leased.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn force_ends_the_hold_of_a_caller_to_which_the_lock_was_handed_on() {
    let Row { server, admin, first, others, .. } = Row::of(2).await;
    let [second, third] = others.try_into().expect("two");
    first.unlock().await.unwrap();
    let second = granted(second).await;
    assert!(other(&server).await.fair_lock("a").force_unlock().await.unwrap());
    eventually(SOON, "the holder hears of it", async || !second.is_valid()).await;
    assert!(matches!(second.unlock().await, Err(Error::Lost { .. })));
    granted(third).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_client_that_closes_gives_up_the_places_of_callers_that_had_the_lock() {
    let Row { server, admin, client, first, others } = Row::of(2).await;
    let [second, third] = others.try_into().expect("two");
    let behind = next_in_queue(&other(&server).await, &admin).await;
    first.unlock().await.unwrap();
    let second = granted(second).await;
    client.close().await;
    assert!(!second.is_valid());
    assert!(matches!(soon(third).await.unwrap(), Err(Error::Closed)));
    granted(behind).await.unlock().await.unwrap();
    is_clean(&admin).await;
}
