//! What moves, and knows no primitive: waiting, ownership, renewal, giving back.

mod backlog;
mod claim;
mod connect;
mod core;
mod debts;
mod entry;
mod gate;
mod ghost;
mod grant;
mod hold;
mod insist;
mod job;
mod line;
mod listener;
mod moment;
mod owned;
mod releaser;
mod returns;
mod shared;
mod sign;
mod stint;
mod tenure;
mod timetable;
mod together;
mod unsaid;
mod wait;
mod watchdog;
mod wheel;
mod wish;

pub(crate) use core::Engine;
pub use grant::Ended;
pub(crate) use grant::Lease;
pub(crate) use stint::Stint;
pub(crate) use together::{Together, acquire_all};
pub(crate) use wait::acquire;
pub(crate) use wish::{Patience, Wish};
