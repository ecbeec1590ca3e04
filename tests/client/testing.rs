//! The server that users start for their own tests.

use std::time::Duration;

use crate::common::{eventually, fixture::SOON};
use parklock::testing::RedisServer;
use parklock::{Config, Error};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn each_server_is_empty_and_ends_with_its_test() {
    let (a, b) = (RedisServer::start().await.unwrap(), RedisServer::start().await.unwrap());
    let (ours, theirs) = (a.client().await.unwrap(), b.client().await.unwrap());
    let _held = ours.lock("a").lock().await.unwrap();
    assert!(theirs.lock("a").try_lock().await.unwrap().is_some());
    assert!(a.client().await.unwrap().lock("a").try_lock().await.unwrap().is_none());
    let port = a.port();

    drop(a);

    let refuses = async || TcpStream::connect(("127.0.0.1", port)).await.is_err();
    eventually(SOON, "nobody listens any more", refuses).await;
}

#[tokio::test]
async fn a_server_can_be_paused_killed_and_started_again() {
    let mut server = RedisServer::start().await.unwrap();
    let config = Config::default().watchdog_timeout(Duration::from_secs(1));
    let client = server.client_with(config).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();

    server.pause().await.unwrap();
    timeout(SOON, guard.ended()).await.expect("the lease runs out");
    assert!(matches!(guard.unlock().await, Err(Error::Lost)));
    server.resume().await.unwrap();
    let free = async || client.lock("a").try_lock().await.is_ok_and(|guard| guard.is_some());
    eventually(SOON, "it answers again", free).await;

    server.kill().await;
    assert!(client.lock("a").try_lock().await.is_err());
    assert!(server.pause().await.is_err(), "there is nothing to pause");
    server.restart().await.unwrap();
    eventually(SOON, "the client is back", free).await;
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let refused = timeout(SOON, RedisServer::start_with(["--no-such-setting", "1"])).await;
    let error = refused.expect("at once").unwrap_err().to_string();
    assert!(error.contains("no-such-setting"), "{error}");
    let small = RedisServer::start_with(["--maxmemory", "1mb"]).await.unwrap();
    assert!(small.url().ends_with(&small.port().to_string()));
}
