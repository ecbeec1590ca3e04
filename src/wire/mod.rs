//! All code that speaks to Redis. No other folder names the `redis` crate.
//!
//! | what happens | where |
//! |---|---|
//! | a URL is read, a connection is made and made again | `target.rs`, `address.rs` (also TLS), `address/hello.rs`, `link.rs` |
//! | a script is called | `calls.rs` and `calls/questions.rs` by `connection.rs`; together with others: `calls/gathering.rs`; so that it runs once: `calls/orders.rs` |
//! | a message arrives, a channel is subscribed, its connection breaks | `subscriber.rs` with `subscriber/channel_link.rs` and `subscriber/message.rs`, `link.rs` |
//! | a message of Redisson arrives | `subscriber/message.rs` finds no word of ours in it, so `hear_of_all` in `engine/listener.rs` makes every contender of the name ask; its channels: `kinds.rs` |
//! | a server has forgotten a script | `connection.rs` sends its text; `scripts.rs` |
//! | a request fails | `fault.rs` |
//! | a cluster answers `MOVED` or `ASK` | `cluster/redirect.rs`; the map of slots: `cluster.rs`, `cluster/map.rs`, `guide.rs` |
//! | Sentinel names another primary | `failover_watch.rs`, `sentinels.rs` |
//! | replicas acknowledge | `shard/acks.rs` |

mod address;
mod args;
mod calls;
mod card;
mod cluster;
mod commands;
mod common_args;
mod connection;
mod destination;
mod failover_watch;
mod family;
mod fault;
mod guide;
mod link;
mod node;
mod replies;
mod scripts;
mod sentinels;
mod shard;
mod subscriber;
mod target;

pub(crate) use address::{Address, Addresses};
#[cfg(parklock_sim)]
pub use address::{Dial, Stream};
pub(crate) use calls::{
    Acquire, Acquired, Answer, Answered, Batch, Claim, Gathering, Manner, Order, Release, Renewal,
    Requests, Status,
};
pub(crate) use card::Card;
pub(crate) use cluster::{Cluster, Crew};
pub(crate) use commands::Commands;
pub(crate) use common_args::CommonArgs;
pub(crate) use connection::{Connection, SentOn};
pub(crate) use destination::Destination;
pub(crate) use failover_watch::FailoverWatch;
pub(crate) use fault::Fault;
pub(crate) use guide::Guide;
pub(crate) use sentinels::Sentinels;
pub(crate) use subscriber::{Heard, Subscriber, Subscription, What, Word, publisher, words};
pub(crate) use target::Target;
