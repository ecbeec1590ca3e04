//! What decides, as plain values: no I/O, no mutexes, no tasks, and time is an argument. The engine has a [`lock::Lock`] behind the
//! mutex of each entry (`engine/entry.rs`), and the other values in its tenures and its watchdog. It tells them what has happened, and
//! does what they say.
//!
//! | value | what it decides |
//! |---|---|
//! | [`lock`] | all that a client knows of one lock, which caller of a fair lock gets it from the one before, and what a change leaves to be done |
//! | [`queue`] | which caller of a client comes next, and which of them do not come |
//! | [`contest`] | whether the contender is polled when it is woken |
//! | [`waiting`] | what a contender does next, and for how long it parks |
//! | [`side_by_side`] | which readers and permits of a client share a tenure |
//! | [`budget`] | how often and for how long a client may hand a lock over |
//! | [`tenure`] | who holds one grant by Redis, how it goes from holder to holder, and when the watchdog has to look at it |
//! | [`lifetime`] | until when a client believes in a tenure |
//! | [`rhythm`] | when the watchdog renews, so that renewals share requests |
//! | [`wheel`] | which tenures are due |

pub(crate) mod budget;
pub(crate) mod contest;
pub(crate) mod lifetime;
pub(crate) mod lock;
#[cfg(test)]
mod model_check;
pub(crate) mod queue;
pub(crate) mod rhythm;
pub(crate) mod side_by_side;
pub(crate) mod tenure;
pub(crate) mod waiting;
pub(crate) mod wheel;
