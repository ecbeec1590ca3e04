//! Very many names at once: each has its waiter, and nothing stays when the waiters have gone.

use crate::common;

use std::time::Duration;

use common::fixture::comes_in;
use common::{Admin, Server, eventually, judged, timeout};
use futures_util::{StreamExt, stream};
use parklock::{Client, Config, Guard, Layout};
use tokio::task::{JoinHandle, JoinSet};

/// As long as ten thousand of anything may take on a machine that has other things to do. Leases live longer.
const LONG: Duration = Duration::from_secs(200);
const LEASE: Duration = Duration::from_secs(600);

const MANY: usize = 10_000;

fn patient(linger: Duration) -> Config {
    Config::default().watchdog_timeout(LEASE).max_park(LEASE).subscription_linger(linger)
}

/// Ten thousand grants by message come at once. A client that is slow to take them up needs them to last.
async fn connect(server: &Server, linger: Duration) -> Client {
    let config = patient(linger).watchdog_timeout(Duration::from_secs(120));
    comes_in(server.url(), config.waiter_ttl(Duration::from_secs(30))).await
}

fn name(number: usize) -> String {
    format!("name-{number}")
}

/// Takes each name, many at a time.
async fn all_taken(client: &Client, names: usize) -> Vec<Guard> {
    let taken = (0..names).map(|number| {
        let lock = client.lock(name(number));
        async move { lock.lock().await.expect("it is free") }
    });
    timeout(LONG, stream::iter(taken).buffer_unordered(256).collect()).await.expect("all are taken")
}

async fn all_given_back(guards: Vec<Guard>) {
    let released = stream::iter(guards).for_each_concurrent(256, async |guard| {
        guard.unlock().await.expect("it is ours");
    });
    timeout(LONG, released).await.expect("all are given back");
}

async fn field(admin: &Admin, section: &str, field: &str) -> usize {
    let value = admin.info(section, field).await.expect("redis knows it");
    value.parse().expect("a number")
}

async fn keys(admin: &Admin) -> usize {
    admin.cmd(&["DBSIZE"]).await
}

#[tokio::test]
async fn ten_thousand_names_have_a_waiter_each_that_gets_its_lock_and_leaves_nothing() {
    let linger = Duration::from_millis(30);
    let server = Server::start().await;
    let admin = server.admin().await;
    let [holder, client] = [connect(&server, linger).await, connect(&server, linger).await];
    for _ in 0..2 {
        let held = all_taken(&holder, MANY).await;
        let mut waiters = JoinSet::new();
        for number in 0..MANY {
            let lock = client.lock(name(number));
            waiters.spawn(async move {
                let guard = lock.lock().await.expect("its turn comes");
                guard.unlock().await.expect("it is ours");
            });
        }
        // The locks, a line with its notes for each, and the counter.
        let in_line = async || keys(&admin).await == 3 * MANY + 1;
        eventually(LONG, "each name has a line", in_line).await;
        // Each name's own, and the client's own of it.
        let heard = async || admin.channels().await.len() == 2 * MANY;
        eventually(LONG, "each name is listened to", heard).await;

        all_given_back(held).await;
        timeout(LONG, waiters.join_all()).await.expect("everybody is served");

        let clean = async || keys(&admin).await == 1 && admin.channels().await.is_empty();
        eventually(LONG, "keys and channels are gone", clean).await;
    }
    // All were called, and nobody asked again: an attempt, a second one, the granted one, a release.
    eprintln!("{} scripts for 2 x {MANY} waiters", admin.command_calls("evalsha").await);
}

#[tokio::test]
async fn waiters_that_go_leave_no_name_behind() {
    let linger = Duration::from_millis(30);
    let server = Server::start().await;
    let admin = server.admin().await;
    let [holder, client] = [connect(&server, linger).await, connect(&server, linger).await];
    let many = MANY / 10;
    let held = all_taken(&holder, many).await;
    for _ in 0..3 {
        let waiters: Vec<JoinHandle<()>> = (0..many)
            .map(|number| {
                let lock = client.lock(name(number));
                tokio::spawn(async move { drop(lock.lock().await) })
            })
            .collect();
        let in_line = async || keys(&admin).await == 3 * many + 1;
        eventually(LONG, "each name has a line", in_line).await;
        for waiter in &waiters {
            waiter.abort();
        }
        let gone = async || keys(&admin).await == many + 1 && admin.channels().await.is_empty();
        eventually(LONG, "lines and channels are gone", gone).await;
    }
    all_given_back(held).await;
    assert_eq!(keys(&admin).await, 1);
    assert_eq!(admin.command_calls("publish").await, 0, "nobody was there to be called");
}

#[tokio::test]
async fn names_that_come_and_go_while_they_linger_are_subscribed_once() {
    const NAMES: usize = 10;
    const ROUNDS: usize = 30;
    let server = Server::start().await;
    let admin = server.admin().await;
    let clients = [connect(&server, LONG).await, connect(&server, LONG).await];
    for round in 0..ROUNDS {
        let [holder, client] = [&clients[round % 2], &clients[(round + 1) % 2]];
        let held = all_taken(holder, NAMES).await;
        let mut waiters = JoinSet::new();
        for number in 0..NAMES {
            let lock = client.lock(name(number));
            waiters.spawn(async move { lock.lock().await.expect("its turn comes").unlock().await });
        }
        let in_line = async || keys(&admin).await == 3 * NAMES + 1;
        eventually(LONG, "each name is waited for", in_line).await;
        all_given_back(held).await;
        for released in timeout(LONG, waiters.join_all()).await.expect("everybody is served") {
            released.unwrap();
        }
    }
    let subscribes = admin.command_calls("subscribe").await;
    assert!(subscribes as usize <= NAMES * clients.len(), "{subscribes}");
    assert_eq!(admin.command_calls("unsubscribe").await, 0);
    // One of the name, and one of each client's own.
    assert_eq!(field(&admin, "stats", "pubsub_channels").await, NAMES * (1 + clients.len()));
    assert_eq!(keys(&admin).await, 1);
}

/// C7: in the native layout locks of all kinds share requests. In Redisson's layout only plain locks do, also if there are others.
#[tokio::test]
async fn locks_of_different_kinds_are_renewed_and_given_back_in_a_few_requests() {
    judged(async || {
        const PLAIN: usize = 1_000;
        const OTHERS: u64 = 64;
        let watchdog = Duration::from_secs(6);
        for layout in [Layout::Native, Layout::Redisson] {
            let server = Server::start().await;
            let admin = server.admin().await;
            let config = Config::default().layout(layout).watchdog_timeout(watchdog);
            let client = comes_in(server.url(), config).await;
            let mut guards = all_taken(&client, PLAIN).await;
            for number in 0..OTHERS {
                let semaphore = client.semaphore(format!("permits-{number}"), 3);
                guards.push(semaphore.acquire().await.expect("one is free"));
            }

            admin.reset_stats().await;
            tokio::time::sleep(watchdog).await;
            let renewals = admin.command_calls("evalsha").await;
            assert!(guards.iter().all(Guard::is_valid), "{layout:?}: they are renewed");
            // Three times in that time; 64 times in each third, what is due at about the same time is renewed together.
            let alone = if layout == Layout::Redisson { OTHERS } else { 0 };
            assert!(renewals <= 4 * (alone + 64), "{layout:?}: {renewals} renewals");

            admin.reset_stats().await;
            drop(guards);
            client.close().await;
            let releases = admin.command_calls("evalsha").await;
            assert!(releases <= alone + 40, "{layout:?}: {releases} releases");
            eprintln!("{layout:?}: {renewals} renewals, {releases} releases");
        }
    })
    .await;
}
