//! What the callers of one client do while a server cannot give them what they ask for. They wait side by side.

use crate::common;

use std::time::{Duration, Instant};

use common::fixture::{A_WHILE, LONG, SOON, client_with, parked};
use common::{Server, Site, timeout};
use futures_util::future::{BoxFuture, join_all};
use parklock::{Client, Config, Error, Guard, Result};
use parklock_testing::Redis;
use tokio::time::sleep;

const RIDE_OUT: Duration = Duration::from_secs(1);

/// If they waited one after the other, they would not end while a test runs.
const CALLERS: usize = 60;

type Lock = fn(Client) -> BoxFuture<'static, Result<Guard>>;

const LOCKS: [(&str, Lock); 5] = [
    ("lock", |client| Box::pin(async move { client.lock("lock").lock().await })),
    ("fair", |client| Box::pin(async move { client.fair_lock("fair").lock().await })),
    ("read", |client| Box::pin(async move { client.rw_lock("read").read().await })),
    ("write", |client| {
        Box::pin(async move { Ok(client.rw_lock("write").write().await?.into_guard()) })
    }),
    ("permit", |client| Box::pin(async move { client.semaphore("permit", 1).acquire().await })),
];

/// L3, R2: there is no replica that could acknowledge a grant.
#[tokio::test]
async fn callers_that_wait_for_the_same_replicas_end_side_by_side() {
    let server = Server::start().await;
    // One after the other, their requests would take half a minute.
    let config = Config::default().replicas(1).ack_timeout(Duration::from_millis(500));
    let kinds = LOCKS.map(async |(kind, lock)| {
        let client = client_with(&server, config.clone().ride_out(RIDE_OUT)).await;
        let asked = Instant::now();
        let callers = (0..CALLERS).map(|_| tokio::spawn(lock(client.clone())));
        let ended = timeout(SOON, join_all(callers)).await;
        let ended = ended.unwrap_or_else(|_| panic!("{kind}: one after the other"));
        for ended in ended {
            let ended = ended.expect("no panic");
            assert!(matches!(ended, Err(Error::Unavailable { .. })), "{kind}: {ended:?}");
        }
        let took = asked.elapsed();
        eprintln!("{kind}: {took:?}");
        assert!(took >= RIDE_OUT, "{kind}: they gave up after {took:?}");
    });
    join_all(kinds).await;
}

/// The same for callers that come at different times: each has its whole `ride_out`.
#[tokio::test]
async fn a_caller_that_comes_later_waits_for_replicas_for_as_long() {
    let server = Server::start().await;
    let config = Config::default().replicas(1).ack_timeout(Duration::from_millis(50));
    for (kind, lock) in LOCKS {
        let client = client_with(&server, config.clone().ride_out(RIDE_OUT)).await;
        let first = tokio::spawn(lock(client.clone()));
        sleep(RIDE_OUT / 2).await;
        let asked = Instant::now();
        let second = timeout(SOON, lock(client)).await.expect("it ends");
        assert!(matches!(second, Err(Error::Unavailable { .. })), "{kind}: {second:?}");
        assert!(asked.elapsed() >= RIDE_OUT, "{kind}: {:?}", asked.elapsed());
        assert!(first.await.expect("no panic").is_err(), "{kind}");
    }
}

/// L3: the time counts from when the server fell silent, and not from when the client noticed that.
#[tokio::test]
async fn a_parked_caller_ends_by_ride_out_and_one_answer_after_the_server_fell_silent() {
    const ANSWER: Duration = Duration::from_secs(12);
    let server = Server::start().await;
    let config =
        || Config::default().watchdog_timeout(LONG).response_timeout(ANSWER).ride_out(ANSWER);
    let (theirs, ours) =
        (client_with(&server, config()).await, client_with(&server, config()).await);
    let _held = theirs.lock("a").lock().await.expect("it is free");
    let waits = tokio::spawn(async move { ours.lock("a").lock().await });
    parked(&server.admin().await, "a", 1).await;
    sleep(A_WHILE).await;
    let silent = Instant::now();
    server.pause();
    let ended = timeout(ANSWER * 3, waits).await.expect("it ends").expect("no panic");
    let took = silent.elapsed();
    server.resume();
    assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
    assert!(took < ANSWER * 2, "{took:?}");
}

/// A call that does not wait says at once that the server refuses connections. The limit for an answer is longer than the test.
#[tokio::test]
async fn a_try_is_told_at_once_that_a_server_refuses_connections() {
    let config = || Config::default().watchdog_timeout(LONG).response_timeout(SOON * 2);
    for site in [Site::One(Server::start().await), Site::watched().await, Site::cluster().await] {
        let client = client_with(&site, config()).await;
        client.lock("a").lock().await.expect("it is free").unlock().await.expect("it is ours");
        site.kill();
        for _ in 0..3 {
            let tried =
                timeout(SOON, client.lock("a").try_lock()).await.expect("it is told at once");
            assert!(
                matches!(tried, Err(Error::Unavailable { .. } | Error::Indeterminate { .. })),
                "{tried:?}"
            );
            sleep(A_WHILE * 3).await;
        }
    }
}

/// When the connection is back, callers that have waited for it ask one after the other. Locks that are held count for nothing.
#[tokio::test(start_paused = true)]
async fn a_client_that_holds_many_locks_is_no_slower_to_ask_after_an_outage() {
    const HELD: usize = 20_000;
    let redis = Redis::start();
    let client = redis.client(Config::default()).await.expect("it is there");
    let mut held = Vec::with_capacity(HELD);
    for number in 0..HELD {
        held.push(client.lock(number.to_string()).lock().await.expect("it is free"));
    }
    redis.refuse();
    redis.cut();
    let asked = |number: usize| client.lock(format!("wanted {number}"));
    let callers = (0..10).map(|number| {
        let lock = asked(number);
        tokio::spawn(async move { lock.lock().await })
    });
    let callers: Vec<_> = callers.collect();
    sleep(Duration::from_secs(1)).await;
    redis.allow();
    while client.lock("another").is_locked().await.is_err() {
        sleep(Duration::from_millis(1)).await;
    }
    let back = tokio::time::Instant::now();
    for caller in callers {
        caller.await.expect("no panic").expect("it is free").unlock().await.expect("it is ours");
    }
    assert!(back.elapsed() < Duration::from_millis(100), "{:?}", back.elapsed());
    assert!(held.iter().all(Guard::is_valid));
}

/// The connection has just broken, and returns at once. The holder's own call is told no more than a call that does not hold the lock.
#[tokio::test(start_paused = true)]
async fn a_call_in_the_moment_after_a_connection_has_broken_waits_for_the_next_one() {
    let redis = Redis::start();
    let client = redis.client(Config::default()).await.expect("it is there");
    let held = client.reentrant_lock("a");
    let guard = held.lock().await.expect("it is free");
    let free = client.reentrant_lock("b");
    for (lock, who) in [(free, "a newcomer"), (held, "the holder")] {
        redis.cut();
        tokio::task::yield_now().await; // the client sees it
        let tried = lock.try_lock().await;
        assert!(matches!(tried, Ok(Some(_))), "{who}: {tried:?}");
    }
    redis.cut();
    tokio::task::yield_now().await;
    guard.extend(LONG).await.expect("it is held");
    // It counts from the request, and not from the call, which has waited. Two clocks may drift apart by one in a hundred and 2 ms.
    let counted = LONG * 99 / 100 - Duration::from_millis(2);
    assert!(guard.remaining() + Duration::from_millis(1) > counted, "{:?}", guard.remaining());
}
