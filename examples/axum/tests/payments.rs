//! Servers of the service behind one Redis, which lies within the test: no `redis-server`, no port, and a clock that is paused.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::{Request, StatusCode};
use axum_handler::{Bank, app};
use parklock::{Client, Config};
use parklock_testing::Redis;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

/// The paused clock moves on only when everybody waits for something.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A payment that takes longer than any test.
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

const PAY: &str = "/orders/42/payment";

struct Answer {
    status: StatusCode,
    retries: bool,
    body: String,
}

async fn client(redis: &Redis) -> Client {
    redis.client(Config::default()).await.expect("it is there")
}

/// A server of the service, whose bank takes so long.
async fn server(redis: &Redis, delay: Duration) -> Router {
    app(&client(redis).await, Bank(delay))
}

async fn answer(to: Router, request: Request<Body>) -> Answer {
    let Ok(response) = to.oneshot(request).await;
    let (status, retries) = (response.status(), response.headers().contains_key(RETRY_AFTER));
    let body = to_bytes(response.into_body(), 1024).await.expect("a body");
    Answer { status, retries, body: String::from_utf8(body.into()).expect("text") }
}

async fn get(to: Router, path: &str) -> Answer {
    answer(to, Request::get(path).body(Body::empty()).expect("a request")).await
}

async fn post(to: Router, path: &str) -> Answer {
    answer(to, Request::post(path).body(Body::empty()).expect("a request")).await
}

/// A payment that has its lock, and waits for its bank.
async fn paying(redis: &Redis) -> JoinHandle<Answer> {
    let paying = tokio::spawn(post(server(redis, ENDLESS).await, PAY));
    sleep(A_MOMENT).await;
    assert!(client(redis).await.lock("payment:42").is_locked().await.expect("an answer"));
    paying
}

fn token(answer: &Answer) -> u64 {
    let (_, token) = answer.body.trim().rsplit_once(' ').expect("a token");
    token.parse().expect("a number")
}

#[tokio::test(start_paused = true)]
async fn one_payment_of_an_order_at_a_time_on_all_servers() {
    let redis = Redis::start();
    let (paying, other) = (paying(&redis).await, server(&redis, Duration::ZERO).await);

    let refused = post(other.clone(), PAY).await;
    assert_eq!((refused.status, refused.retries), (StatusCode::LOCKED, true));
    assert_eq!(refused.body, "another request holds the lock\n");
    let beside = post(other.clone(), "/orders/7/payment").await;
    assert_eq!(beside.status, StatusCode::OK, "another order does not wait");
    assert_eq!(get(other.clone(), "/health").await.status, StatusCode::OK);
    let encoded = post(other.clone(), "/orders/%34%32/payment").await;
    assert_eq!(encoded.status, StatusCode::INTERNAL_SERVER_ERROR, "it has no lock");
    assert!(encoded.body.contains("no lock layer"), "{}", encoded.body);

    paying.abort(); // the caller hangs up
    sleep(A_MOMENT).await;
    let paid = post(other, PAY).await;
    assert_eq!(paid.status, StatusCode::OK);
    assert!(paid.body.starts_with("order 42 is paid, token ") && token(&paid) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_one_before_but_not_for_longer_than_a_second() {
    let redis = Redis::start();
    let half = server(&redis, Duration::from_millis(600)).await;
    let began = Instant::now();
    let (first, second, third) =
        tokio::join!(post(half.clone(), PAY), post(half.clone(), PAY), post(half, PAY));
    assert!(began.elapsed() < Duration::from_millis(1_300));
    let statuses = [&first, &second, &third].map(|answer| answer.status.as_u16());
    assert_eq!(statuses, [200, 200, 423], "the third would wait for 1.2 s");
    assert!(token(&second) > token(&first));
}

#[tokio::test(start_paused = true)]
async fn a_payment_whose_lock_is_lost_is_stopped_and_not_to_be_repeated() {
    let redis = Redis::start();
    let (began, paying) = (Instant::now(), paying(&redis).await);
    redis.lose("payment:42");
    let stopped = paying.await.expect("no panic");
    assert_eq!((stopped.status, stopped.retries), (StatusCode::INTERNAL_SERVER_ERROR, false));
    assert_eq!(stopped.body, "the lock of the request was lost\n");
    assert!(began.elapsed() < Duration::from_secs(30), "long before its lease is over");
}

#[tokio::test(start_paused = true)]
async fn a_payment_is_stopped_when_its_lease_is_over_and_redis_is_silent() {
    let redis = Redis::start();
    let paying = paying(&redis).await;
    redis.silent_for(ENDLESS);
    let stopped = paying.await.expect("no panic");
    assert_eq!((stopped.status, stopped.retries), (StatusCode::INTERNAL_SERVER_ERROR, false));
}

/// The new primary does not know of the first payment, and lets a second one in. The token tells the bank which is older.
#[tokio::test(start_paused = true)]
async fn after_a_failover_the_bank_can_tell_which_payment_is_older() {
    let redis = Redis::start();
    let first = client(&redis).await.lock("payment:42").lock().await.expect("it is free");
    redis.fail_over();
    let second = post(server(&redis, Duration::ZERO).await, PAY).await;
    assert_eq!(second.status, StatusCode::OK);
    assert!(token(&second) > first.token().get());
}

#[tokio::test(start_paused = true)]
async fn a_failover_does_not_disturb_a_payment_that_the_replica_knows() {
    let redis = Redis::start();
    let slow = server(&redis, Duration::from_secs(60)).await;
    let paying = tokio::spawn(post(slow, PAY));
    sleep(Duration::from_secs(2)).await;
    redis.fail_over();
    let refused = post(server(&redis, Duration::ZERO).await, PAY).await;
    assert_eq!(refused.status, StatusCode::LOCKED);
    assert_eq!(paying.await.expect("no panic").status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn without_redis_the_caller_is_asked_to_come_again() {
    let redis = Redis::start();
    let service = server(&redis, Duration::ZERO).await;
    assert_eq!(post(service.clone(), PAY).await.status, StatusCode::OK);
    redis.refuse();
    let refused = post(service.clone(), PAY).await;
    assert_eq!((refused.status, refused.retries), (StatusCode::SERVICE_UNAVAILABLE, true));
    assert_eq!(get(service.clone(), "/health").await.status, StatusCode::OK);
    redis.allow();
    sleep(Duration::from_secs(3)).await; // it connects again
    assert_eq!(post(service, PAY).await.status, StatusCode::OK);
}
