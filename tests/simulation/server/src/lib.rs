//! A Redis server as a state machine: bytes in, bytes out, at a virtual time.
//!
//! For parklock's simulation, and no part of the library. It runs the project's real scripts in a real Lua 5.1, and
//! is held against real servers by `tests/differential.rs`: Redis 6.2, Redis 7.0 and Valkey 9.1.

mod commands;
mod connection;
mod glob;
mod keys;
mod lua;
mod number;
mod reply;
mod resp;
mod server;
mod snapshot;
mod state;
mod version;

pub use connection::Conn;
pub use reply::Reply;
pub use server::Server;
pub use snapshot::{Content, Entry, Snapshot};
pub use version::Version;
