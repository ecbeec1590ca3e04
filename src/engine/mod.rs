//! What moves, and knows no primitive: waiting, ownership, renewal, giving back.

mod acquire_all;
mod attempt;
mod backlog;
mod compact_instant;
mod connect;
mod core;
mod debts;
mod entry;
mod gate;
mod ghost;
mod grant;
mod hold;
mod holding;
mod job;
mod latch_calls;
mod line;
mod listener;
mod options;
mod owned;
mod releaser;
mod returns;
mod shared;
mod sign;
mod tenure;
mod timetable;
mod unconfirmed;
mod wait;
mod watchdog;
mod wheel;

pub(crate) use acquire_all::{AllOrNone, acquire_all};
pub(crate) use core::Engine;
pub use grant::Ended;
pub(crate) use grant::Lease;
pub use hold::Hold;
pub(crate) use options::{AcquireOptions, Patience};
pub(crate) use wait::acquire;
