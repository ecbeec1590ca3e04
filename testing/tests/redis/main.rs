//! The server within a test: what locks do on it, its faults, and its port.

mod faults;
mod locks;
mod port;

use parklock::{Client, Config};
use parklock_testing::Redis;

async fn client(redis: &Redis) -> Client {
    redis.client(Config::default()).await.expect("it is there")
}
