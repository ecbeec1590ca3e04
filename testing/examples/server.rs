//! A server of one's own for a shell: prints its URL, and serves until it is killed. `scripts/quickstart` uses it where there
//! is no `redis-server`.

use parklock_testing::Redis;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let redis = Redis::start();
    println!("{}", redis.url());
    std::future::pending().await
}
