//! The example checks itself: here it runs, beside a Redis of its own.

use std::process::Command;

use parklock::testing::RedisServer;

#[tokio::test]
async fn the_example_ends_well() {
    let redis = RedisServer::start().await.expect("a server");
    let mut example = Command::new(env!("CARGO_BIN_EXE_actix-payments"));
    let ended = example.env("REDIS_URL", redis.url()).status().expect("it runs");
    assert!(ended.success());
}
