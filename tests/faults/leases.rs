//! Leases and waits that nobody should ask for, and the shortest that anybody may.

use std::time::Duration;

use parklock::{Client, Config, Error, Owner};

use crate::common::{Proxy, Server, Watch};
use crate::scene::LONG;
use crate::{
    SOON, channel, connect, is_clean, key, last_request_with, left, patient, somebody_waits,
};

const TOO_SHORT: Duration = Duration::from_millis(9);
const TOO_LONG: Duration = Duration::from_secs(24 * 60 * 60 + 1);

/// F69: a lease of zero, or one that is too long.
#[tokio::test]
async fn an_impossible_lease_is_refused_before_any_request() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let guard = client.lock("held").lock().await.unwrap();
    let connections = admin.info("stats", "total_connections_received").await;
    let evals = admin.command_calls("evalsha").await;
    for lease in [Duration::ZERO, TOO_SHORT, TOO_LONG, Duration::MAX] {
        let refused = |result: Option<Error>| {
            assert!(
                matches!(&result, Some(Error::InvalidLease { lease: it }) if *it == lease),
                "{result:?}"
            );
        };
        let lock = client.lock("a").lease(lease);
        refused(lock.lock().await.err());
        refused(lock.try_lock().await.err());
        refused(lock.try_lock_for(SOON).await.err());
        refused(lock.run(async |_| ()).await.err());
        refused(client.reentrant_lock("a").lease(lease).lock().await.err());
        refused(guard.extend(lease).await.err());
        let connected =
            Client::connect_with(server.url(), Config::default().watchdog_timeout(lease));
        let error = connected.await.unwrap_err();
        assert!(
            matches!(&error, Error::Config { reason } if reason.contains("timeout")),
            "{error}"
        );
    }
    assert_eq!(admin.command_calls("evalsha").await, evals, "nothing was asked");
    let then = admin.info("stats", "total_connections_received").await;
    assert_eq!(then, connections, "nobody connected");
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

/// F69: somebody calls our scripts with a lease that no client of ours would send.
#[tokio::test]
async fn no_script_leaves_a_lock_without_a_ttl() {
    let server = Server::builder()
        .set("slowlog-log-slower-than", "0")
        .set("slowlog-max-len", "1000")
        .start()
        .await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let lock = client.lock("a").lease(Duration::from_millis(7_654));
    lock.lock().await.unwrap().unlock().await.unwrap();
    let acquire = last_request_with(&admin, "7654").await;
    assert!(acquire.contains(&key("a")), "{acquire:?}");
    assert_eq!(left(&admin).await, Vec::<String>::new());

    let too_much = (24 * 60 * 60 * 1000 + 1).to_string();
    let leases = ["0", "-1", "", "abc", "nan", "inf", "1e18", "9223372036854775807", &too_much];
    for lease in leases {
        let words: Vec<&str> =
            acquire.iter().map(|word| if word == "7654" { lease } else { word }).collect();
        // An error, or a refusal as one of the items.
        let _: redis::RedisResult<redis::Value> = admin.try_cmd(&words).await;
        assert_eq!(left(&admin).await, Vec::<String>::new(), "a lease of {lease:?}");
    }
    let words: Vec<&str> = acquire.iter().map(String::as_str).collect();
    let _: redis::Value = admin.cmd(&words).await;
    assert!(admin.pttl(&key("a")).await > 0, "the same request with its own lease is granted");
}

/// F70: a wait of zero, for a lock that somebody holds.
#[tokio::test]
async fn a_wait_of_zero_is_one_attempt_and_no_subscription() {
    let server = Server::start().await;
    let [holder, client] =
        [connect(&server.url(), patient()).await, connect(&server.url(), patient()).await];
    let (guard, admin) = (holder.lock("a").lock().await.unwrap(), server.admin().await);
    assert!(client.lock("a").is_locked().await.unwrap());
    admin.reset_stats().await;

    assert!(client.lock("a").try_lock_for(Duration::ZERO).await.unwrap().is_none());

    assert_eq!(admin.command_calls("evalsha").await, 1);
    assert_eq!(admin.command_calls("subscribe").await, 0);
    guard.unlock().await.unwrap();
    let guard = client.lock("a").try_lock_for(Duration::ZERO).await.unwrap();
    assert!(guard.is_some(), "and one attempt is enough for a free lock");
}

/// F69: leases so short that no renewal can come in time.
#[tokio::test]
async fn a_watchdog_timeout_that_is_accepted_can_be_kept() {
    let server = Server::start().await;
    let mut accepted = Vec::new();
    for millis in [50, 100, 150, 300] {
        let timeout = Duration::from_millis(millis);
        let config = patient().watchdog_timeout(timeout);
        let connected = Client::connect_with(server.url(), config.clone()).await;
        if matches!(connected, Err(Error::Config { .. })) {
            continue;
        }
        accepted.push(millis);
        let client = connect(&server.url(), config).await;
        // A busy machine may be too slow for it, but not each time.
        let began = Watch::start();
        while !is_kept(&client, timeout).await {
            let ever = began.passed() < LONG;
            assert!(ever, "with {millis} ms no lock was ever kept for three leases");
        }
    }
    assert_eq!(accepted, [100, 150, 300]);
}

/// Whether a lock with this watchdog timeout is still held after three leases.
async fn is_kept(client: &Client, timeout: Duration) -> bool {
    let Ok(Some(guard)) = client.lock("a").try_lock_for(SOON).await else { return false };
    tokio::time::sleep(3 * timeout).await;
    guard.is_valid()
}

/// F69: a lease that is as short as may be.
#[tokio::test]
async fn the_shortest_lease_frees_the_lock() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let lock = client.lock("a").lease(Duration::from_millis(10));
    let taken = Watch::start();
    let guard = loop {
        // On a busy machine it may be over before its answer arrives.
        if let Ok(Some(guard)) = lock.try_lock_for(SOON).await {
            break guard;
        }
        assert!(taken.passed() < SOON);
    };
    let remaining = guard.remaining();
    assert!(remaining < Duration::from_millis(10), "{remaining:?}");
    assert_eq!(guard.ended().await, parklock::Ended::Lost);
    is_clean(&admin, SOON, "redis frees it by itself").await;
}

/// F69: a lease is confirmed again and again: by nested holds, extensions, and messages that make the holder look.
#[tokio::test]
async fn a_lease_does_not_grow_by_being_confirmed() {
    const TIMES: u32 = 200;
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let (admin, other) = (server.admin().await, connect(&server.url(), patient()).await);
    let lingering = patient().subscription_linger(Duration::from_secs(60));
    let client = connect(&proxy.url(), lingering).await;
    let renewals = proxy.script("renew").count();
    let lease = 30_000; // the default

    let lock = client.reentrant_lock("nested").owned_by(&Owner::new());
    let mut nested = Vec::new();
    for _ in 0..TIMES {
        nested.push(lock.lock().await.unwrap());
    }
    assert_eq!(nested[0].hold_count(), TIMES);
    let after_nesting = admin.pttl(&key("nested")).await;

    let guard = client.lock("extended").lock().await.unwrap();
    for _ in 0..TIMES {
        guard.extend(Duration::from_secs(1)).await.unwrap();
    }
    renewals.happened_times(TIMES as usize).await;
    let after_extending = admin.pttl(&key("extended")).await;

    // A holder that had to wait listens for a while.
    let first = other.lock("talked about").lock().await.unwrap();
    let waiter = tokio::spawn({
        let lock = client.lock("talked about");
        async move { lock.lock().await }
    });
    somebody_waits(&admin, "talked about").await;
    first.unlock().await.unwrap();
    let listener = waiter.await.unwrap().unwrap();
    for _ in 0..TIMES {
        let before = renewals.fired();
        admin.publish(&channel("talked about"), "somebody").await;
        renewals.happened_times(before + 1).await;
    }
    let after_messages = admin.pttl(&key("talked about")).await;

    let all = [after_nesting, after_extending, after_messages];
    assert!(all.iter().all(|ttl| (1..=lease + 500).contains(ttl)), "{all:?}");
    assert!(listener.remaining() <= Duration::from_secs(30));
}
