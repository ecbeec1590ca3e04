//! The client soon gives back locks in the background, whatever else goes on.

use crate::common;

use std::time::Duration;

use common::fixture::{LONG, SOON, client, comes_in, key, lock_keys, server_and_client};
use common::{Proxy, Site, eventually, judged, timeout};
use parklock::{Config, MultiLock};
use tokio::time::sleep;

#[tokio::test]
async fn a_dropped_guard_is_given_back_and_its_waiters_wake() {
    let (server, ours) = server_and_client().await;
    let theirs = client(&server).await;
    for (from, to) in [(&ours, &ours), (&ours, &theirs), (&theirs, &ours)] {
        let guard = from.lock("a").lock().await.unwrap();
        let lock = to.lock("a");
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
        tokio::task::yield_now().await;
        drop(guard);
        timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn ten_thousand_dropped_guards_are_given_back() {
    judged(async || {
        let (server, client) = server_and_client().await;
        let admin = server.admin().await;
        let mut guards = Vec::new();
        for number in 0..10_000 {
            guards.push(client.lock(format!("{number}")).lock().await.unwrap());
        }
        drop(guards);
        eventually(SOON, "all are free", async || lock_keys(&admin).await.is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn releases_that_fail_are_repeated_when_the_server_answers_again() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    let config = Config::default().response_timeout(Duration::from_millis(500));
    let client = comes_in(proxy.url(), config).await;
    let [dropped, unlocked] = [
        client.lock("dropped").lock().await.unwrap(),
        client.lock("unlocked").lock().await.unwrap(),
    ];
    let hole = proxy.blackhole(None);
    drop(dropped);
    let unlocking = tokio::spawn(unlocked.unlock());
    hole.happened().await;
    sleep(Duration::from_secs(1)).await;
    hole.lift();

    assert!(timeout(SOON, unlocking).await.unwrap().unwrap().is_ok());
    let admin = server.admin().await;
    eventually(SOON, "both are free", async || lock_keys(&admin).await.is_empty()).await;
}

#[tokio::test]
async fn an_attempt_that_runs_late_is_cleared_away() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    let client = comes_in(proxy.url(), Config::default()).await;
    let late = proxy.script("acquire").nth(1).hold_request();
    let lock = client.lock("a");
    let attempt = tokio::spawn(async move { lock.lock().await });
    late.happened().await;
    attempt.abort();
    let _ = attempt.await;

    late.lift();

    let admin = server.admin().await;
    let ran = async || admin.command_calls("hset").await == 1;
    eventually(SOON, "it runs after all", ran).await;
    eventually(SOON, "it is cleared away", async || lock_keys(&admin).await.is_empty()).await;
}

#[tokio::test]
async fn a_dropped_guard_does_not_wait_behind_the_hold_counts_of_others() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_counts();
    // A count without an answer occupies its task for longer than this test is willing to wait.
    let config = Config::default().watchdog_timeout(LONG).response_timeout(SOON * 2);
    let client = comes_in(proxy.url(), config).await;
    let nested = client.reentrant_lock("nested");
    let (_outer, inner) = (nested.lock().await.unwrap(), nested.lock().await.unwrap());
    let other = client.lock("other").lock().await.unwrap();
    let held = proxy.script("count").hold_reply();
    drop(inner);
    held.happened().await;

    drop(other);

    let admin = server.admin().await;
    let freed = async || lock_keys(&admin).await == [key("nested")];
    eventually(SOON / 2, "the other lock is free", freed).await;
}

#[tokio::test]
async fn many_dropped_holds_of_one_lock_are_written_in_a_few_requests() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_counts();
    let client = comes_in(proxy.url(), Config::default()).await;
    let nested = client.reentrant_lock("nested");
    let outer = nested.lock().await.unwrap();
    let mut inner = Vec::new();
    for _ in 0..200 {
        inner.push(nested.lock().await.unwrap());
    }
    let (told, held) = (proxy.script("count").count(), proxy.script("count").nth(1).hold_reply());
    drop(inner.pop());
    held.happened().await;
    drop(inner);
    held.lift();

    let admin = server.admin().await;
    let one = async || admin.hgetall(&key("nested")).await.into_values().eq(["1".to_owned()]);
    eventually(SOON, "Redis counts one hold", one).await;
    assert!(told.fired() <= 3, "{} counts for one lock", told.fired());
    outer.unlock().await.unwrap();
}

#[tokio::test]
async fn a_guard_that_was_dropped_is_not_in_the_way_of_the_next_try() {
    let (_server, client) = server_and_client().await;
    let lock = client.lock("a");
    let both = MultiLock::new([lock.clone(), client.lock("b")]);
    for round in 0..100 {
        let guard = lock.try_lock().await.unwrap();
        drop(guard.unwrap_or_else(|| panic!("round {round}: a lock")));
        let guards = both.try_lock().await.unwrap();
        drop(guards.unwrap_or_else(|| panic!("round {round}: two locks")));
        let guard = lock.try_lock_for(SOON).await.unwrap();
        drop(guard.unwrap_or_else(|| panic!("round {round}: a lock, with patience")));
    }
}

/// The client would ride out the outage for ten minutes.
#[tokio::test]
async fn finished_work_does_not_wait_until_the_server_is_back() {
    for way in 0..4 {
        let server = Site::start().await;
        let config =
            Config::default().watchdog_timeout(LONG).response_timeout(Duration::from_millis(500));
        let client = comes_in(server.url(), config).await;
        let work = async || {
            server.pause();
            7
        };
        let done = async {
            match way {
                0 => client.lock("a").run(|_| work()).await,
                1 => client.multi_lock(["a", "b"]).run(|_| work()).await,
                2 => client.every("a", LONG).run_if_due(|_| work()).await.map(Option::unwrap),
                _ => client.election("a").run(|_| work()).await,
            }
        };
        let done = timeout(SOON, done).await;
        assert!(matches!(done, Ok(Ok(7))), "way {way}: {done:?}");
        server.resume();
        let admin = server.admin().await;
        let only_marks = async || {
            let keys = lock_keys(&admin).await;
            keys.iter().all(|key| key.ends_with(":interval") || key.ends_with(":leader"))
        };
        eventually(SOON, "the lock is given back", only_marks).await;
    }
}

/// The client asked Redis to free the lock itself. Until it has the answer, `None` would say that somebody else has the lock.
#[tokio::test]
async fn a_try_beside_an_unlock_without_an_answer_does_not_say_that_the_lock_is_held() {
    let server = Site::start().await;
    let config = Config::default().response_timeout(Duration::from_millis(500));
    let client = comes_in(server.url(), config).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.pause();
    let unlocking = tokio::spawn(guard.unlock());
    tokio::task::yield_now().await;

    let lock = client.lock("a");
    let (tried, limited) =
        tokio::join!(lock.try_lock(), lock.try_lock_for(Duration::from_millis(100)));

    for tried in [tried, limited] {
        let error = tried.expect_err("nobody knows whether it is free");
        assert!(error.is_transient(), "{error:?}");
    }
    server.resume();
    assert!(timeout(SOON, unlocking).await.unwrap().unwrap().is_ok());
}

/// The connection breaks before the release arrives, and the client sends it again over the next one.
#[tokio::test]
async fn a_try_after_a_release_that_was_cut_off_gets_it() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("release", include_str!("../../lua/line/release.lua"));
    let config = Config::default().watchdog_timeout(LONG).response_timeout(LONG / 4);
    let client = comes_in(proxy.url(), config).await;
    let lock = client.lock("a");
    for round in 0..20 {
        let guard = lock.lock().await.unwrap();
        let cut = proxy.script("release").nth(1).cut_before();
        drop(guard);
        cut.happened().await;
        let again = lock.clone();
        let tried = tokio::spawn(async move { again.try_lock().await });
        let tried = timeout(SOON, tried).await.unwrap().unwrap().unwrap();
        drop(tried.unwrap_or_else(|| panic!("nobody else is there in round {round}")));
    }
}
