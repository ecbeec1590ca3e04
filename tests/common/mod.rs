//! The support of all tests: real servers, worker processes, a proxy that breaks things, and a way to wait.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]
#![allow(unreachable_pub, reason = "a binary exports nothing")]

pub mod admin;
pub mod authority;
pub mod child;
pub mod clock;
pub mod cluster;
pub mod fixture;
pub mod forger;
pub mod impostor;
pub mod parrot;
pub mod port;
pub mod process;
pub mod proxy;
pub mod rights;
pub mod sentinels;
pub mod server;
pub mod site;
pub mod wait;

pub use admin::{Admin, connect};
pub use cluster::Cluster;
pub use parrot::{Parrot, Quote, Role};
pub use process::{Worker, WorkerSide};
pub use proxy::{Class, Fault, Proxy};
pub use sentinels::Watched;
pub use server::Server;
pub use site::{Front, Site};
pub use wait::{Watch, eventually, judged, judged_beside_its_load, timeout};
