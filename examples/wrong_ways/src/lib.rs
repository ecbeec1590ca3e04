//! Twelve usual ways to get a distributed lock wrong, each shown failing on real servers.
//!
//! A way is a dozen lines of the wrong lock and a *schedule*: who does what, in which order. Where the order matters within a
//! call, the wrong lock names the [point](points), and the schedule stops or kills its caller there. So nothing is left to chance: each
//! run makes the fault happen, checks that it did, and counts the harm. Then parklock runs on the same schedule.

pub mod harm;
pub mod points;
pub mod right;
pub mod stage;
pub mod store;
pub mod table;
pub mod victim;
pub mod ways;

pub use harm::{Harm, Row};
pub use stage::Stage;
