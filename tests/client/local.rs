//! Within one client: which caller waits for which, in what order, and what it costs the server.

use crate::common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::fixture::{
    LONG, SOON, client, client_with, got_nothing, is_pending, parked, scripts, server_and_client,
    settled,
};
use common::{Server, Watch, timeout};
use parklock::{Client, Config, Error};
use tokio::{join, task::JoinSet};

/// Yields until the spawned callers wait. These tests have one thread.
async fn they_wait() {
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn two_futures_of_one_task_exclude_each_other() {
    let (_server, client) = server_and_client().await;
    let (lock, log) = (client.lock("a"), Mutex::new(Vec::new()));
    let turn = async |name: &'static str| {
        let guard = lock.lock().await.unwrap();
        log.lock().unwrap().push(name);
        tokio::time::sleep(Duration::from_millis(50)).await;
        log.lock().unwrap().push(name);
        guard.unlock().await.unwrap();
    };
    timeout(SOON, async { join!(turn("a"), turn("b"), turn("c")) }).await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["a", "a", "b", "b", "c", "c"]);
}

#[tokio::test]
async fn a_guard_does_not_let_its_own_task_in_twice() {
    let (_server, client) = server_and_client().await;
    let _guard = client.lock("a").lock().await.unwrap();
    assert!(is_pending(client.lock("a").lock()).await);
    assert!(client.lock("a").try_lock().await.unwrap().is_none());
    assert!(client.lock("b").try_lock().await.unwrap().is_some(), "another lock is another lock");
}

#[tokio::test]
async fn callers_are_served_in_the_order_in_which_they_asked() {
    let (_server, client) = server_and_client().await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let guard = client.lock("a").lock().await.unwrap();
    let mut callers = JoinSet::new();
    for number in 0..100 {
        let (lock, served) = (client.lock("a"), Arc::clone(&served));
        callers.spawn(async move {
            let guard = lock.lock().await.unwrap();
            served.lock().unwrap().push(number);
            guard.unlock().await.unwrap();
        });
        they_wait().await;
    }
    guard.unlock().await.unwrap();
    timeout(SOON, callers.join_all()).await.unwrap();
    assert!(served.lock().unwrap().iter().copied().eq(0..100), "{served:?}");
}

#[tokio::test]
async fn a_forgotten_guard_whose_lease_ran_out_does_not_stop_its_own_process() {
    let (_server, client) = server_and_client().await;
    let lock = client.lock("a").lease(Duration::from_millis(300));
    std::mem::forget(lock.lock().await.unwrap());
    let kept = timeout(SOON, lock.lock()).await.unwrap().unwrap();
    let next = timeout(SOON, client.lock("a").lock()).await.unwrap().unwrap();
    assert!(!kept.is_valid() && next.is_valid());
    assert!(matches!(kept.unlock().await, Err(Error::Lost { .. })));
    assert!(next.is_valid(), "it was not the kept guard's to give back");
}

#[tokio::test]
async fn try_lock_asks_nobody_if_this_client_holds_the_lock_or_waits_for_it() {
    let server = Server::start().await;
    // The front of a line shows signs of life. Its next one is minutes away.
    let config = Config::default().watchdog_timeout(LONG).waiter_ttl(LONG / 2).max_park(LONG);
    let ours = client_with(&server, config).await;
    let (admin, other) = (server.admin().await, client(&server).await);
    let guard = ours.lock("held").lock().await.unwrap();
    let _theirs = other.lock("waited for").lock().await.unwrap();
    let waited_for = ours.lock("waited for");
    let waiter = tokio::spawn(async move { waited_for.lock().await });
    parked(&admin, "waited for", 1).await;
    let before = settled(&admin).await;

    for name in ["held", "waited for"] {
        assert!(ours.lock(name).try_lock().await.unwrap().is_none());
        assert!(ours.reentrant_lock(name).try_lock().await.unwrap().is_none());
        assert!(ours.lock(name).try_lock_for(Duration::ZERO).await.unwrap().is_none());
    }

    assert_eq!(scripts(&admin).await, before);
    waiter.abort();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn try_lock_asks_once_if_another_client_holds_the_lock_and_listens_to_nothing() {
    let (server, ours) = server_and_client().await;
    let (admin, other) = (server.admin().await, client(&server).await);
    let guard = other.lock("a").lock().await.unwrap();
    let before = scripts(&admin).await;

    assert!(ours.lock("a").try_lock().await.unwrap().is_none());
    assert_eq!(scripts(&admin).await, before + 1);
    guard.unlock().await.unwrap();
    assert!(ours.lock("a").try_lock().await.unwrap().is_some());
    assert!(ours.lock("b").lock().await.is_ok());

    assert_eq!(admin.command_calls("subscribe").await, 0);
}

#[tokio::test]
async fn try_lock_for_waits_its_limit_and_takes_a_lock_that_is_free_in_time() {
    let (server, ours) = server_and_client().await;
    let other = client(&server).await;
    let limit = Duration::from_secs(1);
    for holder in [&ours, &other] {
        let guard = holder.lock("a").lock().await.unwrap();
        let asked = Watch::start();
        got_nothing(ours.lock("a").try_lock_for(limit).await);
        assert!(asked.elapsed() >= limit, "gave up after {:?}", asked.elapsed());
        assert!(asked.passed() < SOON);

        let lock = ours.lock("a");
        let mut in_time = tokio::spawn(async move { lock.try_lock_for(SOON * 2).await });
        assert!(is_pending(&mut in_time).await);
        guard.unlock().await.unwrap();
        let granted = timeout(SOON, in_time).await.unwrap().unwrap().unwrap();
        granted.expect("it is free in time").unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_beyond_max_waiters_is_refused_at_once() {
    let server = Server::start().await;
    let client = client_with(&server, Config::default().max_waiters(2)).await;
    let guard = client.lock("a").lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..2 {
        let lock = client.lock("a");
        waiters.spawn(async move { lock.lock().await.unwrap().unlock().await });
    }
    they_wait().await;
    let one_more = client.lock("a").lock().await;
    assert!(matches!(one_more, Err(Error::TooManyWaiters { limit: 2 })), "{one_more:?}");
    assert!(client.lock("a").try_lock().await.unwrap().is_none(), "it does not wait");

    guard.unlock().await.unwrap();
    for waited in timeout(SOON, waiters.join_all()).await.unwrap() {
        waited.unwrap();
    }
    assert!(client.lock("a").try_lock_for(SOON).await.unwrap().is_some(), "there is room again");
}

#[tokio::test]
async fn max_waiters_also_counts_callers_that_wait_for_other_clients() {
    let server = Server::start().await;
    let (other, ours) = (client(&server).await, Config::default().max_waiters(2));
    let ours = client_with(&server, ours).await;
    let (mut held, mut waiters) = (Vec::new(), JoinSet::new());
    for name in ["a", "b", "c"] {
        held.push(other.lock(name).lock().await.unwrap());
    }
    for name in ["a", "b"] {
        let lock = ours.lock(name);
        waiters.spawn(async move { lock.lock().await });
        parked(&server.admin().await, name, 1).await;
    }
    let third = ours.lock("c").try_lock_for(SOON).await;
    assert!(matches!(third, Err(Error::TooManyWaiters { limit: 2 })), "{third:?}");
}

/// A client that is never in a hurry.
async fn patient(server: &Server) -> Client {
    let (day, config) = (Duration::from_secs(86_400), Config::default());
    let config = config.max_park(day).max_hold(day).ride_out(day).connect_timeout(day);
    client_with(server, config.subscription_linger(day)).await
}

#[tokio::test]
async fn duration_max_is_a_valid_limit_and_an_invalid_lease() {
    let (_server, client) = server_and_client().await;
    let (lock, most) = (client.lock("a"), Duration::MAX);
    let guard = lock.try_lock_for(most).await.unwrap().unwrap();
    assert!(is_pending(lock.try_lock_for(most)).await);
    let extended = guard.extend(most).await;
    assert!(matches!(extended, Err(Error::InvalidLease { lease: Duration::MAX })), "{extended:?}");
    let leased = lock.clone().lease(most).lock().await;
    assert!(matches!(leased, Err(Error::InvalidLease { lease: Duration::MAX })), "{leased:?}");
    assert!(guard.is_valid());
}

#[tokio::test]
async fn settings_may_be_as_long_as_a_day() {
    let server = Server::start().await;
    let (ours, theirs) = (patient(&server).await, patient(&server).await);
    let lock = ours.reentrant_lock("a");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    let waiting = theirs.lock("a");
    let waiter = tokio::spawn(async move { waiting.lock().await.unwrap().unlock().await });
    parked(&server.admin().await, "a", 1).await;
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    assert!(timeout(SOON, theirs.lock("a").lock()).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_setting_that_is_too_long_is_refused_and_no_panic() {
    let server = Server::start().await;
    let (config, most) = (Config::default, Duration::MAX);
    for config in [
        config().watchdog_timeout(most),
        config().response_timeout(most),
        config().connect_timeout(most),
        config().start_timeout(most),
        config().waiter_ttl(most),
        config().max_park(most),
        config().subscription_linger(most),
    ] {
        let shown = format!("{config:?}");
        let connecting = Client::connect_with(server.url(), config);
        let connected = tokio::spawn(connecting).await.expect("no panic");
        assert!(matches!(connected, Err(Error::Config { .. })), "{shown}: {connected:?}");
    }
    // To ride out everything and to hold for ever make sense.
    let endless = config().ride_out(most).max_hold(most);
    let client = client_with(&server, endless).await;
    let lock = client.reentrant_lock("a");
    let (_outer, _inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
}
