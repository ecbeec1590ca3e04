//! All code that speaks to Redis. No other folder names the `redis` crate.

mod address;
mod args;
mod calls;
mod clock;
mod coalesce;
mod commands;
mod dial;
mod family;
mod fault;
mod latch;
mod link;
mod message;
mod questions;
mod replies;
mod requests;
mod scripts;
mod subscriber;

pub(crate) use address::Address;
pub(crate) use calls::{Acquire, Acquired, Manner, Release, Renewal};
pub(crate) use coalesce::Answered;
pub(crate) use commands::{Commands, Connection, Terms};
#[cfg(parklock_sim)]
pub use dial::{Dial, Stream};
pub(crate) use fault::Fault;
pub(crate) use latch::Order;
pub(crate) use message::{What, Word, publisher, words};
pub(crate) use questions::Status;
pub(crate) use requests::{Acquires, Requests};
pub(crate) use subscriber::{Heard, Subscriber, Subscription};
