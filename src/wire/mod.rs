//! All code that speaks to Redis. No other folder names the `redis` crate.

mod acks;
mod address;
mod args;
mod calls;
mod clock;
mod cluster;
mod coalesce;
mod commands;
mod dial;
mod family;
mod fault;
mod guide;
mod hello;
mod latch;
mod link;
mod map;
mod message;
mod node;
mod place;
mod questions;
mod replies;
mod requests;
mod scripts;
mod sentinels;
mod sentry;
mod shard;
mod subscriber;
mod target;

pub(crate) use address::{Address, Addresses};
pub(crate) use calls::{Acquire, Acquired, Manner, Release, Renewal};
pub(crate) use cluster::{Cluster, Crew};
pub(crate) use coalesce::{Answer, Answered};
pub(crate) use commands::{Commands, Connection, SentOn, Terms};
#[cfg(parklock_sim)]
pub use dial::{Dial, Stream};
pub(crate) use fault::Fault;
pub(crate) use guide::Guide;
pub(crate) use latch::Order;
pub(crate) use message::{What, Word, publisher, words};
pub(crate) use place::Place;
pub(crate) use questions::Status;
pub(crate) use requests::Requests;
pub(crate) use sentinels::Sentinels;
pub(crate) use sentry::Sentry;
pub(crate) use subscriber::{Heard, Subscriber, Subscription};
pub(crate) use target::Target;
