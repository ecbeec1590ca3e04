//! Distributed locks for Tokio on Redis and Valkey. Waiters sleep until they are notified; they do not poll.
//!
//! Several processes share a lock through Redis. A waiter parks until Redis wakes it. It does not poll, except while no
//! message can reach its client: then it asks every 250 ms. The client renews a lock while you hold it, and tells you
//! when the lock is lost. Every hold has a fencing token, except that of a [`RedLock`]. Every future may be dropped at
//! any `await`.
//!
//! parklock runs on Redis 6.2 or later and on Valkey: one server, a cluster, or a primary behind Sentinel. It needs
//! Rust 1.89. Before you exit, call [`Client::drain`], so that work under locks ends, and nobody waits for a lease to end; or
//! [`Client::close`], which takes the locks away at once. `docs/guarantees.md` in the repository says what is promised and
//! what is not.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
//! let client = parklock::Client::connect(&url).await?;
//! let guard = client.lock("orders:42").lock().await?;   // parks until it is ours
//! // ... the critical section; the watchdog renews ...
//! guard.unlock().await?;                                // or drop it: released in the background
//! # Ok::<(), parklock::Error>(()) }).unwrap();
//! ```
//!
//! # Which lock when
//!
//! | you want | take |
//! |---|---|
//! | one at a time, as with `tokio::sync::Mutex` | [`Lock`] |
//! | a lock that the same piece of work can take again in a nested call | [`ReentrantLock`] |
//! | work that must stop when the lock is lost | [`Lock::run`] |
//! | a time limit for the holder instead of automatic renewal | [`Lock::lease`] |
//! | strictly first come, first served, across all processes and tasks | [`Client::fair_lock`] |
//! | many readers or one writer, as with `tokio::sync::RwLock` | [`RwLock`] |
//! | the same, with nested calls | [`ReentrantRwLock`] |
//! | at most N holders at a time | [`Semaphore`] |
//! | tasks that wait for N completions | [`CountDownLatch`] |
//! | holders that wait until another process changes something, as with `std::sync::Condvar` | [`Condition`] |
//! | several locks at once, all or none of them | [`MultiLock`] |
//! | one leader in a fleet of processes, and a new one when the leader fails | [`Election`] |
//! | a job that one process of a fleet does in each interval | [`Every`] |
//! | one lock on several servers that survives the loss of a minority of them | [`RedLock`], but read first when not to use it |
//!
//! # Coming from `tokio::sync`
//!
//! | `tokio::sync` | here |
//! |---|---|
//! | a mutex owns its data | a lock has a name and no data: it protects something outside the process |
//! | `lock().await` cannot fail | it can fail: Redis may be unreachable. [`Error`] says what the caller may believe |
//! | `try_lock()` is synchronous | it asks Redis: `try_lock().await` is `Ok(None)` if the lock is held, or a waiter ahead may still take it |
//! | a guard borrows; `lock_owned` does not | every [`Guard`] is `'static` and `Send` |
//! | a guard is valid until it is dropped | its lease may be lost before: [`Guard::ended`], [`Guard::is_valid`] |
//! | `Semaphore::forget`, `add_permits` | permits are leased; [`Semaphore::set_permits`] sets how many there are |
//!
//! A guard *keeps* the lock until it is dropped. A [`Hold`], a [`MultiHold`], a [`RedHold`] or a [`Term`] is only a
//! *view* of a guard's hold and keeps nothing. Methods such as [`Lock::run`] pass one to your work.
//!
//! # Panics
//!
//! The section *Panics* of many methods says "outside a Tokio runtime with time enabled". If the future of such a method
//! is polled there, it panics as soon as it has to send a request or to wait. A call that returns before that does not
//! panic, for example one that fails with an [`Error::InvalidName`]. The client releases in the background whatever a
//! call had taken when it panicked. [`Client::connect`] needs I/O too, since the client's connections belong to the
//! runtime on which it connected.
//!
//! Methods without this section do not panic there. Nor do drops: you may drop a future, a guard or a client anywhere.
//!
//! # What a lease cannot promise
//!
//! A lock may be lost while its holder works under it, and no guard can stop a write that is already on its way. Where two
//! holders at once would do damage, pass [`Guard::token`] to the protected resource, and let the resource reject any token
//! smaller than the greatest that it has seen. `docs/loss.md` says when a lock is lost, and how its holder learns of it.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | `rediss://`, `rediss-cluster://`, `rediss-sentinel://` with rustls: public root certificates or your own CA, and client certificates |
//! | `metrics` | counters, gauges and histograms for the program's `metrics` recorder |
//! | `blocking` | the module `blocking`: locks for code without a runtime |
//! | `serde` | `Settings` from files and from the environment, with durations such as `"30s"` |
//! | `rustls-0_23` | `Tls::from_rustls_0_23`: a configuration of rustls of your own |
//! | `redis-1` | `ClientBuilder::redis_1`: the server of a `redis::Client` of version 1 |
//! | `tower` | the module `tower`: a layer that holds a lock for each request |
//! | `axum` | handlers of axum 0.8 take the [`Hold`] of their request as an argument |
//! | `test-util` | the module `testing`: a private Redis server for your own tests, on Unix, where `redis-server` or `valkey-server` is installed |
//!
//! Most tests need no real server: the crate `parklock-testing` has one inside the test, on Tokio's paused clock.
//!
//! # Where time comes from
//!
//! Deadlines are measured on this machine's monotonic clock, starting before the request is sent. The system clock is
//! never read.
//!
//! # Where the ideas come from
//!
//! | idea | source |
//! |---|---|
//! | a lock that frees itself when its holder falls silent: a lease | Cary Gray and David Cheriton, *Leases*, 1989 |
//! | messages that wake waiters, a watchdog that renews, re-entrant locks; keys of [`Layout::Redisson`] | [Redisson](https://redisson.pro/docs/data-and-services/locks-and-synchronizers/) |
//! | a release that checks, in one step on the server, who holds the lock; [`RedLock`] and its allowance for clocks | redis.io, *Distributed locks with Redis* |
//! | [`FencingToken`] | Martin Kleppmann, [*How to do distributed locking*](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html), 2016; the *sequencer* of Mike Burrows, *The Chubby lock service for loosely-coupled distributed systems*, 2006 |
//! | [`Condition`], and waits that end spuriously | Butler Lampson and David Redell, *Experience with processes and monitors in Mesa*, 1980 |
//! | [`CountDownLatch`] | Java's `java.util.concurrent` |
//! | [`Config::replicas`] | the command [`WAIT`](https://redis.io/docs/latest/commands/wait/) of Redis |
//! | [`Every`] | [ShedLock](https://github.com/lukas-krecan/ShedLock) |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(all(feature = "test-util", unix))]
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;

mod client;

mod fleet;

mod locks;

mod guards;

mod engine;

mod core;

mod wire;

mod compact_instant;
mod config;
mod credentials;
mod error;
mod failures;
mod keys;
mod kinds;
mod log;
mod meters;
mod mutex;
mod owner;
mod pause;
mod slot;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod wakers;

#[cfg(feature = "operator")]
#[doc(hidden)]
pub mod operator;

/// What `parklock-testing` and the project's own simulation need from the internals: connections to servers that lie in the
/// same process. It is not part of the API: any version may change it.
#[cfg(feature = "streams")]
#[doc(hidden)]
pub mod streams;

/// The Rust blocks of these pages are compiled with the examples of the documentation.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/getting-started.md")]
    mod getting_started {}
    #[doc = include_str!("../docs/waiting.md")]
    mod waiting {}
    #[doc = include_str!("../docs/loss.md")]
    mod loss {}
    #[cfg(feature = "tower")]
    #[doc = include_str!("../docs/fleets.md")]
    mod fleets {}
    #[cfg(all(feature = "test-util", unix))]
    #[doc = include_str!("../docs/testing.md")]
    mod testing {}
    #[doc = include_str!("../docs/from-other-locks.md")]
    mod from_other_locks {}
    #[doc = include_str!("../docs/from-postgres.md")]
    mod from_postgres {}
    #[doc = include_str!("../docs/from-redisson.md")]
    mod from_redisson {}
    #[cfg(feature = "serde")]
    #[doc = include_str!("../docs/settings.md")]
    mod settings {}
}

pub use crate::core::tenure::Ended;
pub use client::{Client, ClientBuilder};
#[cfg(feature = "serde")]
pub use config::Settings;
pub use config::{Config, HandOff, Layout, Replicas};
pub use credentials::Credentials;
pub use engine::{Awaited, Held, Hold, Holds, Woken};
pub use error::{Error, Result};
pub use fleet::{Changes, Election, Every, Leader, Leadership, Observer, Term};
pub use guards::{Guard, MultiGuard, MultiHold, RedGuard, RedHold, WriteGuard};
pub use locks::{
    Condition, CountDownLatch, Lock, MultiLock, RedLock, Redisson, ReentrantLock, ReentrantRwLock,
    RwLock, Semaphore,
};
pub use owner::Owner;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use token::FencingToken;
