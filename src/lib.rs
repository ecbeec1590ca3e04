//! Redisson-style pub/sub waiting locks for Tokio.
//!
//! Several processes share a lock through Redis. A waiter parks until Redis tells it to go on; it never polls. The
//! client renews a lock while you hold it, and tells you when it is lost. Every hold but that of a [`RedLock`] has a
//! fencing token. Every future may be dropped at any `await`.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
//! let client = parklock::Client::connect(&url).await?;
//! let guard = client.lock("orders:42").lock().await?;   // parks until it is ours
//! // ... the critical section; the watchdog renews ...
//! guard.unlock().await?;                                // or drop it: given back in the background
//! # Ok::<(), parklock::Error>(()) }).unwrap();
//! ```
//!
//! # Which lock when
//!
//! | you want | take |
//! |---|---|
//! | one at a time, as with `tokio::sync::Mutex` | [`Lock`] |
//! | the same work to lock again in a nested call | [`ReentrantLock`] |
//! | work that must stop when the lock is lost | [`Lock::run`] |
//! | a time limit for the holder instead of renewal | [`Lock::lease`] |
//! | strictly first come, first served, across all processes and tasks | [`Client::fair_lock`] |
//! | many readers or one writer, as with `tokio::sync::RwLock` | [`RwLock`] |
//! | the same, locked again in nested calls | [`ReentrantRwLock`] |
//! | at most so many holders at a time | [`Semaphore`] |
//! | tasks that wait for N completions | [`CountDownLatch`] |
//! | holders that wait until another process changes something, as with `std::sync::Condvar` | [`Condition`] |
//! | several locks at once, all or none of them | [`MultiLock`] |
//! | one process of a fleet that leads, and another one when it is gone | [`Election`] |
//! | a job that one process of a fleet does in each interval | [`Every`] |
//! | one lock on several servers, of which some may be lost | [`RedLock`], but read when not to |
//!
//! # Coming from `tokio::sync`
//!
//! | `tokio::sync` | here |
//! |---|---|
//! | a mutex owns its data | a lock has a name and no data: what it protects lies elsewhere |
//! | `lock().await` cannot fail | it can: Redis may be gone. [`Error`] says what the caller may believe |
//! | `try_lock()` is synchronous | it asks Redis: `try_lock().await` is `Ok(None)` if the lock is held |
//! | a guard borrows; `lock_owned` does not | every [`Guard`] is `'static` and `Send` |
//! | a guard is valid until it is dropped | until its lease is lost: [`Guard::ended`], [`Guard::is_valid`] |
//! | `Semaphore::forget`, `add_permits` | permits are leased; [`Semaphore::set_permits`] sets how many there are |
//!
//! A guard *keeps* the lock until it is dropped. A [`Hold`], a [`MultiHold`], a [`RedHold`] or a [`Term`] only *looks at*
//! what a guard keeps: work that [`Lock::run`] calls gets one.
//!
//! # Panics
//!
//! Methods that talk to Redis or wait panic if they are polled outside of a Tokio runtime with time and I/O enabled.
//!
//! # What a lease cannot promise
//!
//! A process can sleep through its lease: it was stopped, or its executor was blocked. When it wakes, it still thinks
//! that it holds the lock, until it looks. If its whole machine was suspended, even a look does not tell, since the
//! monotonic clock of Linux stood still: only the next renewal does. A primary that fails over to a replica may
//! forget a lock that it had granted. A server whose clock is set forward frees locks early. Where two holders at
//! once would do damage, pass [`Guard::token`] to the resource that you protect, and let the resource refuse smaller
//! numbers than it has seen.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | `rediss://`, `rediss-cluster://`, `rediss-sentinel://`: rustls, with the web's roots or your own CA, and client certificates |
//! | `metrics` | counters, gauges and histograms for the recorder of the program |
//! | `serde` | `Settings` from files, with times such as `"30s"` |
//! | `tower` | the module `tower`: a layer that holds a lock for each request |
//! | `test-util` | the module `testing`: a private Redis server for your own tests, on Unix, where `redis-server` or `valkey-server` is installed |
//!
//! # Where time comes from
//!
//! Deadlines are counted on this machine's monotonic clock, from before a request was sent. The
//! system's clock is never read.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "test-util", unix))]
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;

mod client;

mod fleet;

mod locks;

mod guards;

mod engine;
mod wire;

mod config;
mod credentials;
mod error;
mod keys;
mod kinds;
mod meters;
mod owner;
#[cfg(feature = "serde")]
mod settings;
mod slot;
#[cfg(feature = "tls")]
mod tls;
mod token;

#[cfg(feature = "operator")]
#[doc(hidden)]
pub mod operator;

/// What the project's own simulation (`tests/simulation`) needs to know of the inside. It is there under
/// `cfg(parklock_sim)` only, which no build of a user sets.
#[cfg(parklock_sim)]
#[doc(hidden)]
pub mod sim {
    pub use crate::wire::{Dial, Stream};
    use crate::{Client, Config, Result};

    /// A client of this id, over streams that `dial` makes to the servers of this URL.
    pub async fn connect_over(dial: Dial, url: &str, id: String, config: Config) -> Result<Client> {
        Client::connect_over(dial, url, id, config).await
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use client::Client;
pub use config::{Config, HandOff, Layout};
pub use credentials::Credentials;
pub use engine::{Ended, Hold, Woken};
pub use error::{Error, Result};
pub use fleet::{Changes, Election, Every, Leader, Leadership, Observer, Term};
pub use guards::{Guard, MultiGuard, MultiHold, RedGuard, RedHold, WriteGuard};
pub use locks::{
    Condition, CountDownLatch, Lock, MultiLock, RedLock, Redisson, ReentrantLock, ReentrantRwLock,
    RwLock, Semaphore,
};
pub use owner::Owner;
#[cfg(feature = "serde")]
pub use settings::Settings;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use token::FencingToken;
