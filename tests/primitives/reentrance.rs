//! An owner takes its lock again; all others wait.

use crate::common;

use std::time::Duration;

use common::fixture::{
    SOON, channel, client, client_with, comes_in, is_pending, key, lock_keys, parked,
    server_and_client,
};
use common::rights::untold;
use common::{Proxy, Server, Site, eventually, timeout};
use parklock::{Client, Config, Ended, Error, Guard, Owner};

/// The hold count in Redis; 0 if nobody holds the lock.
async fn count(server: &Site, name: &str) -> u32 {
    let holders = server.admin().await.hgetall(&key(name)).await;
    assert!(holders.len() <= 1, "two holders: {holders:?}");
    holders.into_values().next().map_or(0, |count| count.parse().expect("a number"))
}

async fn nested(client: &Client, name: &str, holds: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for _ in 0..holds {
        guards.push(client.reentrant_lock(name).lock().await.expect("its owner enters"));
    }
    guards
}

/// Puts another holder in the place of ours.
async fn replace_holder(server: &Site, name: &str) {
    let admin = server.admin().await;
    let ours = admin.hgetall(&key(name)).await.into_keys().next().expect("it is held");
    admin.cmd::<i64>(&["HSET", &key(name), "somebody else", "1"]).await;
    admin.cmd::<i64>(&["HDEL", &key(name), &ours]).await;
}

/// A server of HTTP/1.1 runs the requests of a connection one after the other, in one task.
#[tokio::test]
async fn a_guard_that_outlives_its_request_lets_the_next_one_of_its_task_nest() {
    let (_server, client) = server_and_client().await;
    let request = async || client.reentrant_lock("a").lock().await.expect("its owner enters");
    let kept = request().await;
    let next = request().await;
    assert_eq!(next.token(), kept.token());
    assert!(
        client.lock("a").try_lock().await.expect("an answer").is_none(),
        "a lock is not fooled"
    );
    assert!(
        tokio::spawn(async move { client.reentrant_lock("a").try_lock().await })
            .await
            .expect("no panic")
            .expect("an answer")
            .is_none()
    );
}

#[tokio::test]
async fn the_owner_enters_through_another_handle_and_only_the_last_unlock_frees_the_lock() {
    let (server, client) = server_and_client().await;
    let outer = client.reentrant_lock("a").lock().await.unwrap();
    let inner = client.reentrant_lock("a").lock().await.unwrap();
    assert_eq!((outer.hold_count(), inner.hold_count()), (2, 2));
    assert_eq!(inner.token(), outer.token());
    assert_eq!(count(&server, "a").await, 2);

    inner.unlock().await.unwrap();
    assert_eq!((count(&server, "a").await, outer.hold_count()), (1, 1));
    assert_eq!(server.admin().await.command_calls("publish").await, 0);

    outer.unlock().await.unwrap();
    assert!(lock_keys(&server.admin().await).await.is_empty());
}

#[tokio::test]
async fn an_owner_that_has_lost_the_lock_has_no_holds() {
    let (_server, client) = server_and_client().await;
    let lock = client.reentrant_lock("a");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    assert!(lock.force_unlock().await.unwrap());
    assert_eq!(timeout(SOON, outer.ended()).await.expect("it is told"), Ended::Lost);
    assert_eq!((outer.hold_count(), inner.hold_count()), (0, 0));
}

#[tokio::test]
async fn try_lock_enters_too_and_costs_one_script() {
    let (server, client) = server_and_client().await;
    let lock = client.reentrant_lock("a");
    let _outer = lock.lock().await.unwrap();
    let admin = server.admin().await;
    let before = admin.command_calls("evalsha").await;

    let _one = lock.try_lock().await.unwrap().unwrap();
    let _two = lock.try_lock_for(SOON).await.unwrap().unwrap();

    assert_eq!(admin.command_calls("evalsha").await, before + 2);
    assert_eq!(count(&server, "a").await, 3);
}

/// `ride_out` says for how long a call bears an outage. It is no limit for the answer of a server that is there.
#[tokio::test]
async fn a_nested_call_waits_for_its_answer_though_it_rides_out_nothing() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_counts();
    let config = Config::default().watchdog_timeout(SOON * 8).response_timeout(SOON);
    let client = comes_in(proxy.url(), config.ride_out(Duration::ZERO)).await;
    let lock = client.reentrant_lock("a");
    let _outer = lock.lock().await.unwrap();
    let late = proxy.script("count").delay_reply(Duration::from_millis(50), Duration::ZERO);

    let mut nested = vec![lock.lock().await.unwrap()];
    nested.push(lock.try_lock().await.unwrap().unwrap());
    nested.push(lock.try_lock_for(SOON).await.unwrap().unwrap());

    assert_eq!((late.fired(), nested[0].hold_count()), (3, 4));
}

/// No answer can come any more, so the call need not wait for one.
#[tokio::test]
async fn a_nested_call_without_a_server_ends_at_once_if_it_rides_out_nothing() {
    let server = Server::start().await;
    let config = Config::default().watchdog_timeout(SOON * 8).response_timeout(SOON * 2);
    let client = client_with(&server, config.ride_out(Duration::ZERO)).await;
    let lock = client.reentrant_lock("a");
    let _outer = lock.lock().await.unwrap();
    server.kill();
    for nested in [
        timeout(SOON, lock.lock()).await.expect("at once").map(Some),
        timeout(SOON, lock.try_lock_for(SOON * 4)).await.expect("at once"),
    ] {
        assert!(matches!(nested, Err(Error::Unavailable { .. })), "{nested:?}");
    }
}

#[tokio::test]
async fn another_task_and_another_client_wait_for_the_last_unlock() {
    let (server, ours) = server_and_client().await;
    let theirs = client(&server).await;
    let mut guards = nested(&ours, "a", 2).await;
    assert!(theirs.reentrant_lock("a").try_lock().await.unwrap().is_none());
    let locks = [ours.reentrant_lock("a"), theirs.reentrant_lock("a")];
    let mut waiters =
        locks.map(|lock| tokio::spawn(async move { lock.lock().await?.unlock().await }));
    parked(&server.admin().await, "a", 1).await;

    guards.pop().unwrap().unlock().await.unwrap();
    for waiter in &mut waiters {
        assert!(is_pending(waiter).await);
    }
    guards.pop().unwrap().unlock().await.unwrap();
    for waiter in waiters {
        timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn guards_may_go_in_any_order_on_any_task() {
    let (server, client) = server_and_client().await;
    for order in [[0, 0, 0], [2, 1, 0], [1, 0, 0], [0, 1, 0]] {
        let mut guards = nested(&client, "a", 3).await;
        for (left, place) in [2, 1, 0].into_iter().zip(order) {
            let guard = guards.remove(place);
            tokio::spawn(guard.unlock()).await.unwrap().unwrap();
            assert_eq!(count(&server, "a").await, left, "in order {order:?}");
        }
    }
}

#[tokio::test]
async fn a_dropped_inner_guard_is_counted_down_in_the_background() {
    let (server, client) = server_and_client().await;
    let mut guards = nested(&client, "a", 3).await;
    guards.truncate(1);
    eventually(SOON, "one hold is left", async || count(&server, "a").await == 1).await;
    assert_eq!(guards[0].hold_count(), 1);
    drop(guards);
    eventually(SOON, "none is left", async || count(&server, "a").await == 0).await;
}

#[tokio::test]
async fn an_explicit_owner_enters_from_any_task_and_two_owners_of_one_task_do_not() {
    let (server, client) = server_and_client().await;
    let (owner, other) = (Owner::new(), Owner::new());
    let lock = client.reentrant_lock("a");
    let outer = lock.clone().owned_by(&owner).lock().await.unwrap();

    let inner = tokio::spawn({
        let lock = lock.clone().owned_by(&owner);
        async move { lock.lock().await.unwrap() }
    });
    let inner = timeout(SOON, inner).await.unwrap().unwrap();
    assert_eq!(count(&server, "a").await, 2);
    assert!(lock.clone().owned_by(&other).try_lock().await.unwrap().is_none());
    assert!(lock.try_lock().await.unwrap().is_none(), "the task is yet another owner");

    drop((outer, inner));
    assert!(timeout(SOON, lock.owned_by(&other).lock()).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_lock_and_a_reentrant_lock_of_one_name_exclude_each_other() {
    let (server, ours) = server_and_client().await;
    let theirs = client(&server).await;
    for (holds, waits) in [(&ours, &ours), (&ours, &theirs)] {
        let plain = holds.lock("a").lock().await.unwrap();
        assert!(waits.reentrant_lock("a").try_lock().await.unwrap().is_none());
        plain.unlock().await.unwrap();
        let nested = nested(holds, "a", 2).await;
        assert!(waits.lock("a").try_lock().await.unwrap().is_none());
        for guard in nested {
            guard.unlock().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_hold_whose_field_was_replaced_is_lost_at_unlock_and_the_other_is_untouched() {
    let (server, client) = server_and_client().await;
    let plain = client.lock("plain").lock().await.unwrap();
    let mut nested = nested(&client, "nested", 2).await;
    replace_holder(&server, "plain").await;
    replace_holder(&server, "nested").await;

    assert!(matches!(plain.unlock().await, Err(Error::Lost { .. })));
    assert!(matches!(nested.pop().unwrap().unlock().await, Err(Error::Lost { .. })));
    assert!(matches!(nested.pop().unwrap().unlock().await, Err(Error::Lost { .. })));

    let admin = server.admin().await;
    for name in ["plain", "nested"] {
        assert_eq!(admin.hgetall(&key(name)).await["somebody else"], "1");
        assert!(admin.pttl(&key(name)).await > 0);
    }
}

#[tokio::test]
async fn a_nested_call_that_finds_its_lock_gone_is_lost_with_all_holds() {
    let server = Server::start().await;
    // A holder that was told has no lock in which the next call nests.
    let client = comes_in(untold(&server).await, Config::default()).await;
    let outer = client.reentrant_lock("a").lock().await.unwrap();
    let lost = outer.ended();
    server.admin().await.cmd::<i64>(&["DEL", &key("a")]).await;

    let nested = client.reentrant_lock("a").lock().await;

    assert!(matches!(nested, Err(Error::Lost { .. })), "{nested:?}");
    assert!(!outer.is_valid());
    assert_eq!(timeout(SOON, lost).await.unwrap(), Ended::Lost);
    assert!(matches!(outer.unlock().await, Err(Error::Lost { .. })));
    assert!(server.admin().await.hgetall(&key("a")).await.is_empty(), "nobody has it");
}

#[tokio::test]
async fn a_shorter_nested_lease_takes_nothing_from_the_outer_one() {
    let (server, client) = server_and_client().await;
    let (long, short) = (Duration::from_secs(600), Duration::from_secs(5));
    let lock = client.reentrant_lock("a");
    let outer = lock.clone().lease(long).lock().await.unwrap();

    let inner = lock.clone().lease(short).lock().await.unwrap();
    assert!(server.admin().await.pttl(&key("a")).await > 500_000);
    assert!(outer.remaining() > short * 10 && inner.remaining() > short * 10);

    inner.unlock().await.unwrap();
    assert!(server.admin().await.pttl(&key("a")).await > 500_000);
    assert!(outer.is_valid());
}

#[tokio::test]
async fn a_longer_nested_lease_is_for_all_holds() {
    let (server, client) = server_and_client().await;
    let lock = client.reentrant_lock("a");
    let outer = lock.clone().lease(Duration::from_secs(20)).lock().await.unwrap();
    let inner = lock.clone().lease(Duration::from_secs(600)).lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert!(server.admin().await.pttl(&key("a")).await > 500_000);
    assert!(outer.remaining() > Duration::from_secs(500));
}

#[tokio::test]
async fn nesting_over_and_over_does_not_lengthen_the_lease() {
    let (server, client) = server_and_client().await;
    let (admin, lease) = (server.admin().await, Duration::from_secs(30));
    let watched = client.reentrant_lock("watched");
    let fixed = client.reentrant_lock("fixed").lease(lease);
    for (lock, name) in [(watched, "watched"), (fixed, "fixed")] {
        let outer = lock.lock().await.unwrap();
        for _ in 0..200 {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        assert!(outer.remaining() < lease, "{name}: {:?}", outer.remaining());
        let ttl = admin.pttl(&key(name)).await;
        assert!(ttl < 31_000, "{name}: a TTL of {ttl} ms");
    }
}

#[tokio::test]
async fn more_than_65535_holds_are_refused_and_the_server_is_not_told() {
    let (server, client) = server_and_client().await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let mut guards = Vec::new();
    for _ in 0..65_535 {
        guards.push(lock.lock().await.unwrap());
    }
    assert!(matches!(lock.lock().await, Err(Error::TooManyHolds { limit: 65_535, .. })));
    assert!(matches!(lock.try_lock().await, Err(Error::TooManyHolds { .. })));
    assert_eq!(count(&server, "a").await, 65_535);
    assert_eq!(guards[0].hold_count(), 65_535);

    guards.pop().unwrap().unlock().await.unwrap();
    guards.push(lock.lock().await.unwrap());
    assert_eq!(count(&server, "a").await, 65_535);
    drop(guards);
    eventually(SOON, "it is free", async || count(&server, "a").await == 0).await;
}

#[tokio::test]
async fn only_the_last_unlock_of_nested_holds_is_published() {
    let (server, client) = server_and_client().await;
    let admin = server.admin().await;
    let mut guards = nested(&client, "a", 2).await;
    let lock = common::fixture::client(&server).await.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    parked(&admin, "a", 1).await;

    guards.pop().unwrap().unlock().await.unwrap();
    assert_eq!(admin.command_calls("publish").await, 0);
    guards.pop().unwrap().unlock().await.unwrap();

    assert!(timeout(SOON, waiter).await.unwrap().unwrap().is_ok());
    assert!(admin.command_calls("publish").await >= 1, "on {}", channel("a"));
}
