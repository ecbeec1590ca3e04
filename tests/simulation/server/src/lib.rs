//! A Redis server as a state machine: bytes in, bytes out, at a virtual time.
//!
//! For parklock's simulation and for [`parklock-testing`](https://docs.rs/parklock-testing): any version may change what is
//! public here. It runs the project's real scripts in a real Lua 5.1, and is held against real servers by
//! `tests/differential/`: Redis 6.2, Redis 7.0 and Valkey 9.1.
//!
//! # Not modelled
//!
//! - Eviction, scripts that run for long, and users of the access list: switches stand for what clients see of them.
//! - The memory itself: `INFO memory` says a constant.
//! - Large hashes: fields keep the order in which they came, as in a small one, whatever their number.
//! - Expired keys that still lie in memory: `DBSIZE` does not count them, and `SCAN` gives everything at once.
//! - MULTI, patterns of channels (`PSUBSCRIBE`), blocking commands but for WAIT: the library uses none.
//! - Scripts that touch keys of two slots of which one stands open, on Valkey.
//! - How the nodes of a cluster, replicas and sentinels talk among themselves: whoever owns the servers carries what they
//!   have to say. Replicas answer no reader, and no script is held while its slot is handed over.
//! - `ZRANGE ... BYLEX`, and types other than strings, hashes, lists and sorted sets.
//! - Tables that Lua may not change: setting a global that exists, or a field of `string`, is not refused.
//! - Libraries of scripts that ours do not use: `cjson`, `bit`, `cmsgpack`, most of `struct`, `os`, `math.random`.
//! - The line in an error of `local call = redis.call; return call(...)`: only a direct `return redis.call(...)` has it.
//! - Keys that are over, which scripts on a replica of Redis 6.2 still see.
//! - The end of a listener's connection when the access list takes its channels away.
//! - What `CLIENT` and `PUBSUB` have beside the few subcommands that the library and the simulation use.
//! - How a long inline request is refused whose end comes with the bytes that make it too long.
//! - The crash of Redis 7.0 over an uncaught `error({})`.

mod admission;
mod channels;
mod clients;
mod cluster;
mod commands;
mod connection;
mod denial;
mod glob;
mod keys;
mod lua;
mod number;
mod outbox;
mod refusal;
mod replication;
mod reply;
mod resp;
mod sentinel;
mod server;
mod snapshot;

mod state;
mod version;

pub use cluster::{NodeInfo, SLOTS, slot_of};
pub use connection::Conn;
pub use keys::Parcel;
pub use replication::Batch;
pub use reply::Reply;
pub use sentinel::Watched;
pub use server::Server;
pub use snapshot::{Content, Entry, Snapshot};
pub use version::Version;
