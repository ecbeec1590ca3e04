//! Each fault, as a client sees it.

use std::time::Duration;

use parklock::{Client, Config, Ended, Error, Guard, Layout};
use parklock_testing::Redis;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::client;

/// The default one.
const LEASE: Duration = Duration::from_secs(30);

/// More than enough for a client to connect again.
const SOON: Duration = Duration::from_secs(3);

async fn held() -> (Redis, Client, Guard) {
    let redis = Redis::start();
    let client = client(&redis).await;
    let guard = client.lock("a").lock().await.expect("it is free");
    (redis, client, guard)
}

#[tokio::test(start_paused = true)]
async fn a_holder_learns_that_its_lock_is_gone_when_it_renews() {
    let (redis, client, guard) = held().await;
    let _another = client.lock("another").lock().await.expect("it is free");
    let began = Instant::now();
    redis.lose("another");
    sleep(LEASE).await;
    assert!(guard.is_valid());

    redis.lose("a");
    assert_eq!(timeout(LEASE, guard.ended()).await, Ok(Ended::Lost));
    assert!(began.elapsed() < LEASE + LEASE / 2, "by its next renewal");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
}

/// Otherwise a test with a mistaken name waits for a loss that never comes.
#[tokio::test(start_paused = true)]
#[should_panic(expected = "nobody holds a lock that is called \"b\"")]
async fn a_name_that_nobody_holds_cannot_be_lost() {
    let (redis, _client, _guard) = held().await;
    redis.lose("b");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_free_for_others() {
    let (redis, _client, _guard) = held().await;
    let other = client(&redis).await;
    assert!(other.lock("a").is_locked().await.unwrap());
    redis.lose("a");
    assert!(other.lock("a").try_lock().await.unwrap().is_some());
}

/// Braces in a name are encoded in its key.
#[tokio::test(start_paused = true)]
async fn locks_of_all_namespaces_and_layouts_can_be_lost() {
    let redis = Redis::start();
    let name = "a{b}%";
    let configs = [
        Config::default(),
        Config::default().namespace("billing"),
        Config::default().layout(Layout::Redisson),
        Config::default().layout(Layout::Redisson).namespace("billing"),
    ];
    for config in configs {
        let guard = redis.client(config.clone()).await.unwrap().lock(name).lock().await.unwrap();
        let token = guard.token();
        let other = redis.client(config).await.unwrap();
        assert!(other.lock(name).is_locked().await.unwrap());
        redis.lose(name);
        assert!(!other.lock(name).is_locked().await.unwrap());
        assert!(other.lock(name).lock().await.unwrap().token() > token, "the counter stays");
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_connections_break_keeps_its_locks_and_connects_again() {
    let (redis, client, guard) = held().await;
    let waiter = tokio::spawn({
        let other = crate::client(&redis).await;
        async move { other.lock("a").lock().await.map(|guard| guard.is_valid()) }
    });
    sleep(SOON).await;
    redis.cut();
    sleep(LEASE * 2).await;
    assert!(guard.is_valid());
    assert!(client.lock("a").is_locked().await.unwrap());
    guard.unlock().await.unwrap();
    assert!(timeout(SOON, waiter).await.unwrap().unwrap().unwrap());
}

/// Without an answer, a client does not know that its connection is gone: it sees it at once if it breaks.
#[tokio::test(start_paused = true)]
async fn a_request_whose_connection_is_cut_ends_at_once() {
    let (redis, client, guard) = held().await;
    redis.silent_for(LEASE);
    let asked = tokio::spawn(async move { client.lock("b").is_locked().await });
    sleep(Duration::from_millis(1)).await;
    assert!(!asked.is_finished());
    let began = Instant::now();
    redis.silent_for(Duration::ZERO);
    redis.cut();
    let _ = asked.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_is_unavailable_until_it_lets_clients_in() {
    let (redis, client, guard) = held().await;
    redis.refuse();
    sleep(Duration::from_secs(1)).await; // it notices
    let refused = client.lock("b").try_lock().await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    let connected = redis.client(Config::default()).await;
    assert!(matches!(connected, Err(Error::Unavailable { .. })), "{connected:?}");

    redis.allow();
    sleep(SOON).await;
    assert!(client.lock("b").try_lock().await.unwrap().is_some());
    assert!(client.lock("a").is_locked().await.unwrap(), "it has kept its keys");
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_lost_at_its_deadline_if_the_server_refuses() {
    let (redis, _client, guard) = held().await;
    let began = Instant::now();
    redis.refuse();
    assert_eq!(guard.ended().await, Ended::Lost);
    assert!(began.elapsed() > LEASE / 2 && began.elapsed() < LEASE);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_costs_the_lease_and_answers_afterwards() {
    let (redis, client, guard) = held().await;
    let began = Instant::now();
    redis.silent_for(LEASE * 2);
    assert!(client.lock("b").is_locked().await.is_err());
    assert_eq!(guard.ended().await, Ended::Lost);
    assert!(began.elapsed() < LEASE);
    sleep(LEASE * 2).await;
    assert!(client.lock("a").try_lock().await.unwrap().is_some());
}

/// A process that is stopped and continued reads what lies in its sockets.
#[tokio::test(start_paused = true)]
async fn what_a_silent_server_was_sent_is_carried_out_afterwards() {
    let (redis, client, guard) = held().await;
    redis.silent_for(Duration::from_millis(200));
    let began = Instant::now();
    assert!(client.lock("a").is_locked().await.unwrap());
    let (least, most) = (Duration::from_millis(200), Duration::from_millis(210));
    assert!((least..most).contains(&began.elapsed()), "{:?}", began.elapsed());
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_empty_server_has_no_locks_and_greater_tokens() {
    let (redis, _client, guard) = held().await;
    let token = guard.token();
    redis.restart_empty();
    let other = client(&redis).await;
    let later = other.lock("a").try_lock().await.unwrap().expect("it is free");
    assert!(later.token() > token);
    assert_eq!(guard.ended().await, Ended::Lost);
    assert!(later.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarted_empty_is_so_for_its_replica_too() {
    let (redis, _client, _guard) = held().await;
    sleep(SOON).await;
    redis.restart_empty();
    redis.fail_over();
    assert!(!client(&redis).await.lock("a").is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_takes_over_lacks_the_last_second() {
    let (redis, client, old) = held().await;
    advance(Duration::from_secs(2)).await;
    let young = client.lock("young").lock().await.unwrap();
    redis.fail_over();

    let other = crate::client(&redis).await;
    assert!(other.lock("a").is_locked().await.unwrap());
    let theirs = other.lock("young").try_lock().await.unwrap().expect("nobody knows of it");
    assert!(theirs.token() > young.token());
    assert_eq!(young.ended().await, Ended::Lost);
    assert!(old.is_valid() && theirs.is_valid());
    old.unlock().await.unwrap();
}

/// The second replica follows the first.
#[tokio::test(start_paused = true)]
async fn what_a_new_primary_has_written_survives_the_next_failover() {
    let (redis, _client, _guard) = held().await;
    redis.fail_over();
    let other = client(&redis).await;
    let later = other.lock("a").try_lock().await.unwrap().expect("nobody knows of it");
    advance(Duration::from_secs(2)).await;
    redis.fail_over();
    assert!(client(&redis).await.lock("a").is_locked().await.unwrap());
    later.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_dropped_is_gone() {
    let (redis, client, guard) = held().await;
    drop(redis);
    assert!(matches!(client.lock("b").lock().await, Err(Error::Unavailable { .. })));
    assert_eq!(guard.ended().await, Ended::Lost);
}
