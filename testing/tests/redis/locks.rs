//! Locks on a server within the test, whose clock is paused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use parklock::{Config, Ended, Error, FencingToken, Hold, Replicas};
use parklock_testing::Redis;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::client;

/// Far less than a lease, and more than a message takes.
const AT_ONCE: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn each_server_is_empty_and_is_shared_by_its_clients() {
    let (ours, theirs) = (Redis::start(), Redis::start());
    let guard = client(&ours).await.lock("a").lock().await.unwrap();
    assert!(client(&ours).await.lock("a").try_lock().await.unwrap().is_none());
    assert!(client(&theirs).await.lock("a").try_lock().await.unwrap().is_some());
    guard.unlock().await.unwrap();
    assert!(client(&ours).await.lock("a").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_waiter_of_another_client_at_once() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let guard = ours.lock("a").lock().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.lock("a").lock().await.map(|_| Instant::now()) });
    sleep(Duration::from_secs(7)).await;
    assert!(!waiter.is_finished());

    let released = Instant::now();
    guard.unlock().await.unwrap();
    assert!(waiter.await.unwrap().unwrap() - released < AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_fair_lock_are_served_in_their_order() {
    let redis = Redis::start();
    let guard = client(&redis).await.fair_lock("a").lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut callers = Vec::new();
    for number in 0..5 {
        let (client, served) = (client(&redis).await, Arc::clone(&served));
        callers.push(tokio::spawn(async move {
            let _guard = client.fair_lock("a").lock().await.unwrap();
            served.lock().unwrap().push(number);
        }));
        sleep(Duration::from_secs(1)).await;
    }
    guard.unlock().await.unwrap();
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_has_so_many_permits_for_all_clients() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let (here, there) = (ours.semaphore("a", 2), theirs.semaphore("a", 2));
    let first = here.acquire().await.unwrap();
    let _second = there.acquire().await.unwrap();
    assert!(there.try_acquire().await.unwrap().is_none());
    first.unlock().await.unwrap();
    assert!(there.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_over_on_the_server_when_it_is_over_on_the_paused_clock() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let lease = Duration::from_secs(40);
    let guard = ours.lock("a").lease(lease).lock().await.unwrap();
    advance(lease - Duration::from_secs(1)).await;
    assert!(theirs.lock("a").try_lock().await.unwrap().is_none());

    advance(Duration::from_secs(1) + AT_ONCE).await;
    assert!(theirs.lock("a").try_lock().await.unwrap().is_some());
    assert_eq!(guard.ended().await, Ended::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_lives_renews_its_lease() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let guard = ours.lock("a").lock().await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert!(guard.is_valid());
    assert!(theirs.lock("a").try_lock().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_the_limit_that_its_caller_gives_it() {
    let redis = Redis::start();
    let _guard = client(&redis).await.lock("a").lock().await.unwrap();
    let (other, began) = (client(&redis).await, Instant::now());
    let limit = Duration::from_secs(600);
    assert!(timeout(limit, other.lock("a").lock()).await.is_err());
    assert!(began.elapsed() - limit < AT_ONCE);
}

/// WAIT ends after its time, although nobody sends anything.
#[tokio::test(start_paused = true)]
async fn a_client_that_wants_replicas_is_told_that_there_are_none() {
    let redis = Redis::start();
    let strict = redis.client(Config::default().replicas(1)).await.unwrap();
    let refused = strict.lock("a").lock().await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_wants_all_connected_replicas_is_served_although_there_are_none() {
    let redis = Redis::start();
    let client = redis.client(Config::default().replicas(Replicas::Connected)).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_on_several_threads_share_a_server_in_real_time() {
    let redis = Redis::start();
    let counter = Arc::new(Mutex::new(0));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (client, counter) = (client(&redis).await, Arc::clone(&counter));
        clients.push(tokio::spawn(async move {
            for _ in 0..20 {
                let _guard = client.lock("a").lock().await.unwrap();
                let before = *counter.lock().unwrap();
                tokio::task::yield_now().await;
                *counter.lock().unwrap() = before + 1;
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(*counter.lock().unwrap(), 60);
}

/// What runs under a lock, and takes what it gets from there.
async fn handler(hold: Hold) -> Option<FencingToken> {
    tokio::task::yield_now().await;
    hold.is_valid().then(|| hold.token())
}

/// A handler is tested without the layer that usually gives it its hold.
#[tokio::test(start_paused = true)]
async fn a_test_makes_the_hold_that_a_handler_receives() {
    let redis = Redis::start();
    let client = redis.client(Config::default()).await.expect("it is there");
    let guard = client.lock("a").lock().await.expect("it is free");
    assert_eq!(handler(guard.hold()).await, Some(guard.token()));
    redis.lose("a");
    guard.ended().await;
    assert_eq!(handler(guard.hold()).await, None, "its lock is lost");
    let written: FencingToken = guard.token().to_string().parse().expect("a token");
    assert_eq!(written, guard.token());
}
