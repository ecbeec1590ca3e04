//! The judge of what a run did to its locks: the torture run on real servers and the simulation share it.
#![allow(dead_code, reason = "each of the two uses a part of it")]
#![allow(unreachable_pub, reason = "a binary exports nothing")]

pub mod claim;
pub mod epochs;
pub mod history;
pub mod operation;
pub mod rules;

pub use claim::Claim;
pub use epochs::{Break, Epochs};
#[allow(unused_imports, reason = "only the torture run and the simulation write histories")]
pub use operation::Operation;
