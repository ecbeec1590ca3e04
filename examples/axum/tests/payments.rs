//! Two servers of the service behind one Redis, and real requests over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use axum_handler::{Bank, app};
use parklock::testing::RedisServer;
use parklock::{Client, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Longer than anything here takes on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(20);

struct Answer {
    status: u16,
    retries: bool,
    body: String,
}

async fn serve(client: &Client, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let app = app(client, Bank(delay));
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends a request on a connection of its own.
async fn sent(to: SocketAddr, what: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.expect("it listens");
    let request =
        format!("{what} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    stream
}

async fn answer(mut stream: TcpStream) -> Answer {
    let mut text = String::new();
    let read = timeout(SOON, stream.read_to_string(&mut text)).await;
    read.expect("in time").expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let retries = head.to_lowercase().contains("retry-after: 1");
    Answer { status: status.expect("a status"), retries, body: body.to_owned() }
}

async fn asked(to: SocketAddr, what: &str) -> Answer {
    answer(sent(to, what).await).await
}

async fn held(client: &Client, name: &str) {
    let is_held = async {
        while !client.lock(name).is_locked().await.expect("an answer") {
            sleep(Duration::from_millis(3)).await;
        }
    };
    timeout(SOON, is_held).await.expect("the request holds the lock");
}

fn token(answer: &Answer) -> u64 {
    let (_, token) = answer.body.trim().rsplit_once(' ').expect("a token");
    token.parse().expect("a number")
}

#[tokio::test]
async fn one_payment_of_an_order_at_a_time_on_all_servers() {
    let redis = RedisServer::start().await.expect("a server");
    let (a, b) = (redis.client().await.unwrap(), redis.client().await.unwrap());
    let slow = serve(&a, Duration::from_secs(600)).await;
    let quick = serve(&b, Duration::ZERO).await;

    let paying = sent(slow, "POST /orders/42/payment").await;
    held(&b, "payment:42").await;
    let refused = asked(quick, "POST /orders/42/payment").await;
    assert_eq!((refused.status, refused.retries), (423, true));
    assert_eq!(refused.body, "another request holds the lock\n");
    let other = asked(quick, "POST /orders/7/payment").await;
    assert_eq!(other.status, 200, "another order does not wait");
    assert_eq!(asked(quick, "GET /health").await.status, 200);
    let encoded = asked(quick, "POST /orders/%34%32/payment").await;
    assert_eq!(encoded.status, 500, "it has no lock, and so it does not pay");

    drop(paying); // the caller hangs up
    let retried = async {
        loop {
            let answer = asked(quick, "POST /orders/42/payment").await;
            if answer.status != 423 {
                return answer;
            }
        }
    };
    let paid = timeout(SOON, retried).await.expect("the lock was given back");
    assert_eq!(paid.status, 200);
    assert!(paid.body.starts_with("order 42 is paid, token ") && token(&paid) > 0);
}

#[tokio::test]
async fn a_request_that_waits_gets_the_lock_from_the_one_before() {
    let redis = RedisServer::start().await.expect("a server");
    let (a, b) = (redis.client().await.unwrap(), redis.client().await.unwrap());
    let (first, second) =
        (serve(&a, Duration::from_millis(200)).await, serve(&b, Duration::ZERO).await);
    let paying = sent(first, "POST /orders/42/payment").await;
    held(&b, "payment:42").await;
    let waited = asked(second, "POST /orders/42/payment").await;
    let before = answer(paying).await;
    assert_eq!(before.status, 200);
    // On a very slow machine the second one may have given up.
    assert!(waited.status == 423 || token(&waited) > token(&before));
}

#[tokio::test]
async fn a_payment_whose_lock_is_lost_is_stopped_and_not_to_be_repeated() {
    let redis = RedisServer::start().await.expect("a server");
    let config = Config::default().watchdog_timeout(Duration::from_secs(1));
    let client = redis.client_with(config).await.unwrap();
    let slow = serve(&client, Duration::from_secs(600)).await;
    let paying = sent(slow, "POST /orders/42/payment").await;
    held(&client, "payment:42").await;
    redis.client().await.unwrap().lock("payment:42").force_unlock().await.unwrap();
    let stopped = answer(paying).await;
    assert_eq!((stopped.status, stopped.retries), (500, false));
    assert_eq!(stopped.body, "the lock of the request was lost\n");
}

#[tokio::test]
async fn without_redis_the_caller_is_asked_to_come_again() {
    let mut redis = RedisServer::start().await.expect("a server");
    let client = redis.client().await.unwrap();
    let service = serve(&client, Duration::ZERO).await;
    assert_eq!(asked(service, "POST /orders/42/payment").await.status, 200);
    redis.kill().await;
    let refused = asked(service, "POST /orders/42/payment").await;
    assert_eq!((refused.status, refused.retries), (503, true), "{}", refused.body);
    assert_eq!(asked(service, "GET /health").await.status, 200);
}
