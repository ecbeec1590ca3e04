//! What a fleet of processes agrees on with a plain lock: who leads, and which process does a periodic job.

mod changes;
mod election;
mod every;
mod leader;
mod leadership;
mod term;

pub use changes::Changes;
pub use election::Election;
pub use every::Every;
pub use leader::{Leader, Observer};
pub use leadership::Leadership;
pub use term::Term;
