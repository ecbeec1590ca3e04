//! Everything that speaks to Redis; the only folder that names the `redis` crate.

mod address;
mod calls;
mod clock;
mod commands;
mod fault;
mod link;
mod replies;
mod scripts;
mod subscriber;

pub(crate) use address::Address;
pub(crate) use calls::{Acquire, Acquired, Manner, Release, Renewal};
pub(crate) use commands::{Commands, Line};
pub(crate) use fault::Fault;
pub(crate) use subscriber::{Heard, Seat, Subscriber};
