//! The port, for clients that need one. Its time runs.

use std::time::Duration;

use parklock::{Client, Error};
use parklock_testing::Redis;
use redis::{AsyncConnectionConfig, cmd};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client;

#[tokio::test]
async fn clients_over_the_port_and_within_the_process_share_the_server() {
    let redis = Redis::start();
    assert_eq!(redis.url(), redis.url());
    let (near, far) = (client(&redis).await, Client::connect(redis.url()).await.unwrap());
    let guard = far.lock("a").lock().await.unwrap();
    assert!(near.lock("a").try_lock().await.unwrap().is_none());
    let waiter = tokio::spawn(async move { near.lock("a").lock().await.map(|_| ()) });
    guard.unlock().await.unwrap();
    waiter.await.unwrap().unwrap();
}

#[tokio::test]
async fn other_programs_read_and_write_over_the_port() {
    let redis = Redis::start();
    let other = redis::Client::open(redis.url()).unwrap();
    // Its default, half a second, is short on a busy machine.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let mut other = other.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    cmd("SET").arg("key").arg("value").exec_async(&mut other).await.unwrap();
    let value: String = cmd("GET").arg("key").query_async(&mut other).await.unwrap();
    assert_eq!(value, "value");
    let replicas: u64 = cmd("WAIT").arg(1).arg(10).query_async(&mut other).await.unwrap();
    assert_eq!(replicas, 0, "it answers when the time is over");

    redis.restart_empty();
    assert!(cmd("PING").exec_async(&mut other).await.is_err(), "its connection is gone");
}

#[tokio::test]
async fn a_port_is_closed_to_clients_that_are_refused_and_when_the_server_ends() {
    let redis = Redis::start();
    let url = redis.url();
    redis.refuse();
    assert!(matches!(Client::connect(&url).await, Err(Error::Unavailable { .. })));
    redis.allow();
    Client::connect(&url).await.unwrap();
    drop(redis);
    let address = url.trim_start_matches("redis://");
    let closed = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(Duration::from_secs(20), closed).await.expect("nobody listens any more");
}
