//! A Redis server inside your test, for services that take [`parklock`]'s locks.
//!
//! [`Redis`] is a server in memory that runs the library's real scripts. It needs no `redis-server` and no port. Its time is
//! Tokio's: in a test whose clock is paused, a lease of thirty seconds runs out at once. Its faults have names.
//!
//! ```
//! use parklock::{Config, Ended};
//! use parklock_testing::Redis;
//!
//! // In a test of your own: #[tokio::test(start_paused = true)]
//! # let paused = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
//! # paused().unwrap().block_on(async {
//! let redis = Redis::start();
//! let client = redis.client(Config::default()).await?;
//! let guard = client.lock("orders:42").lock().await?;
//!
//! redis.lose("orders:42");
//! assert_eq!(guard.ended().await, Ended::Lost); // ten seconds of the paused clock
//! # Ok::<(), parklock::Error>(()) }).unwrap();
//! ```
//!
//! # What it is not
//!
//! The server is the one of parklock's own simulation, which is compared with Redis 6.2, 7.0 and 8.2 and Valkey 9.1. It has
//! the commands that parklock uses, and a few more. Messages take no time. It evicts nothing, writes nothing to disk, has no
//! users and no TLS, and is no cluster. It has no `CLIENT TRACKING`: the holder of a lock that a test takes away learns of it at its
//! next renewal here, and at once on a real server. Nobody acknowledges a write: a lock that needs a number of replicas
//! ([`Config::replicas`](parklock::Config::replicas)) fails, and [`Replicas::Connected`](parklock::Replicas::Connected) needs none.

mod host;
mod near;
mod port;
mod process;
mod redis;
mod stream;

pub use redis::Redis;
