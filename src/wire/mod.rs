//! All code that speaks to Redis. No other folder names the `redis` crate.
//!
//! | what happens | where |
//! |---|---|
//! | a URL is read, a connection is made and made again | `target.rs`, `address.rs`, `address/dial.rs`, `address/encryption.rs`, `address/hello.rs`, `link.rs` |
//! | the connection of a lock is found | `commands.rs`, `cluster.rs`, `shard.rs` |
//! | a script is called | `calls.rs` and `calls/questions.rs` write the call, word by word into the bytes of `args.rs`; `connection.rs` finds the way, sends the text of a script that the server has forgotten, and follows redirections; `socket.rs` sends the bytes. Callers that share one: `calls/gathering.rs`, and when: `calls/company.rs`. A call that takes effect once, however often it is sent: `calls/orders.rs` |
//! | the server's time is known | `shard/clock.rs` |
//! | a leader or an interval is marked | `calls/marks.rs` |
//! | the client describes itself | `card.rs` |
//! | a message arrives, a channel is subscribed, its connection breaks | `subscriber.rs` with `subscriber/channel_link.rs` and `subscriber/message.rs`, `link.rs`. How the server proves a grant by message, and the client checks it: `proof.rs` |
//! | a message of Redisson arrives | It comes on a channel that is not for this client alone, so `hear_of_all` in `engine/listener.rs` makes every contender on that channel ask; the channels: `src/kinds.rs` |
//! | the client hears that it is listened for | `session.rs` |
//! | a server has forgotten a script | `connection.rs` sends its text; `scripts.rs` |
//! | a request fails | `fault.rs`. What may be shown of a server's text: `passwords.rs` |
//! | a cluster answers `MOVED` or `ASK` | `cluster/redirect.rs`; the map of slots: `cluster.rs`, `cluster/map.rs`, `guide.rs` |
//! | Sentinel names another primary | `failover_watch.rs`, `sentinels.rs` |
//! | the key of a held lock changes | `tracking.rs` |
//! | replicas acknowledge | `shard/acks.rs` |

mod address;
mod args;
mod calls;
mod card;
mod cluster;
mod commands;
mod connection;
mod destination;
mod failover_watch;
mod family;
mod fault;
mod guide;
mod link;
mod node;
mod passwords;
mod proof;
mod replies;
mod scripts;
mod sentinels;
mod session;
mod shard;
mod socket;
mod subscriber;
mod target;
mod tracking;

#[cfg(feature = "operator")]
pub(crate) use address::understood;
pub(crate) use address::{Address, Addresses};
pub(crate) use calls::{
    Acquire, Acquired, Answer, Answered, Batch, Claim, Gathering, Limits, Manner, Order, Release,
    Renewal, Requests, Status, result_of_each,
};
pub(crate) use card::Card;
#[cfg(feature = "operator")]
pub(crate) use card::host;
pub(crate) use cluster::{Cluster, Crew};
pub(crate) use commands::Commands;
pub(crate) use connection::{CommonArgs, Connection};
pub(crate) use destination::Destination;
pub(crate) use failover_watch::watch_failovers;
pub(crate) use fault::Fault;
#[cfg(feature = "operator")]
pub(crate) use fault::{NOT_REDIS, hint};
pub(crate) use node::Node;
#[cfg(feature = "operator")]
pub use passwords::{Password, shown, shown_type};
pub(crate) use proof::{Secret, Secrets};
#[cfg(feature = "redis-1")]
pub(crate) use redis::ConnectionInfo;
pub(crate) use sentinels::Sentinels;
pub(crate) use session::Session;
pub(crate) use subscriber::{Heard, News, Subscriber, Subscription, Word, publisher, words};
pub(crate) use target::Endpoint;
#[cfg(not(feature = "operator"))]
pub(crate) use target::Target;
#[cfg(feature = "operator")]
pub use target::{Target, Watched};
pub(crate) use tracking::{Changed, OnChange};
