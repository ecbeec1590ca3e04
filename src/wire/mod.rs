//! All code that speaks to Redis. No other folder names the `redis` crate.
//!
//! | what happens | where |
//! |---|---|
//! | a URL is read, a connection is made and made again | `target.rs`, `address.rs` (also TLS), `hello.rs`, `link.rs` |
//! | a script is called | `calls.rs` and `questions.rs` by `connection.rs`; together with others: `gathering.rs`; so that it runs once: `orders.rs` |
//! | a message arrives, a channel is subscribed, its connection breaks | `subscriber.rs` with `subscriber/channel_link.rs`, `message.rs`, `link.rs` |
//! | a server has forgotten a script | `connection.rs` sends its text; `scripts.rs` |
//! | a request fails | `fault.rs` |
//! | a cluster answers `MOVED` or `ASK` | `redirect.rs`; the map of slots: `cluster.rs`, `map.rs`, `guide.rs` |
//! | Sentinel names another primary | `failover_watch.rs`, `sentinels.rs` |
//! | replicas acknowledge | `acks.rs` |

mod acks;
mod address;
mod args;
mod calls;
mod card;
mod clock;
mod cluster;
mod commands;
mod common_args;
mod connection;
mod destination;
mod dial;
mod failover_watch;
mod family;
mod fault;
mod gathering;
mod guide;
mod hello;
mod link;
mod map;
mod marks;
mod message;
mod node;
mod orders;
mod questions;
mod redirect;
mod replies;
mod requests;
mod scripts;
mod sentinels;
mod servers;
mod shard;
mod subscriber;
mod target;

pub(crate) use address::{Address, Addresses};
pub(crate) use calls::{Acquire, Acquired, Manner, Release, Renewal};
pub(crate) use card::Card;
pub(crate) use cluster::{Cluster, Crew};
pub(crate) use commands::Commands;
pub(crate) use common_args::CommonArgs;
pub(crate) use connection::{Connection, SentOn};
pub(crate) use destination::Destination;
#[cfg(parklock_sim)]
pub use dial::{Dial, Stream};
pub(crate) use failover_watch::FailoverWatch;
pub(crate) use fault::Fault;
pub(crate) use gathering::{Answer, Answered, Batch, Gathering};
pub(crate) use guide::Guide;
pub(crate) use marks::Claim;
pub(crate) use message::{What, Word, publisher, words};
pub(crate) use orders::Order;
pub(crate) use questions::Status;
pub(crate) use requests::Requests;
pub(crate) use sentinels::Sentinels;
pub(crate) use subscriber::{Heard, Subscriber, Subscription};
pub(crate) use target::Target;
