//! Servers of one's own, of every kind that people keep locks in: on a free port, in a fresh folder, ended by their
//! process id.
//!
//! Nothing here needs a client of the store: a server is ready when it answers a few bytes of its own protocol.

#[path = "../../../tests/common/child.rs"]
pub mod child;
mod etcd;
mod folder;
mod mariadb;
#[path = "../../../tests/common/port.rs"]
#[allow(dead_code, reason = "the tests of the library use the rest")]
mod port;
mod postgres;
mod program;
mod redis;
mod server;
mod zookeeper;

pub use etcd::Etcd;
pub use folder::Medium;
pub use mariadb::MariaDb;
pub use postgres::Postgres;
pub use program::Program;
pub use redis::{Persistence, Redis};
pub use server::Server;
pub use zookeeper::ZooKeeper;
