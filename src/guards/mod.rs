//! What users hold: guards, which prove that a lock is held and release it.

mod guard;
mod guard_set;
mod multi_guard;
mod red_guard;
mod write_guard;

pub use guard::Guard;
pub(crate) use guard::worked;
pub(crate) use guard_set::{GuardSet, STRAGGLERS, grace};
pub use multi_guard::{MultiGuard, MultiHold};
pub use red_guard::{RedGuard, RedHold};
pub use write_guard::WriteGuard;
