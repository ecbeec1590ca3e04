//! What users hold: the proof that something is locked, and gives it back.

mod guard;
mod multi_guard;
mod parts;
mod red_guard;
mod write_guard;

pub(crate) use guard::while_held;
pub use guard::{Guard, Hold};
pub use multi_guard::{MultiGuard, MultiHold};
pub use red_guard::{RedGuard, RedHold};
pub use write_guard::WriteGuard;
