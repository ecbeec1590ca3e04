//! The quantities by name, and the tools that measure them.

pub mod clock;
pub mod commands;
pub mod lateness;
pub mod machine;
pub mod process;
pub mod pushes;
pub mod quantity;
pub mod sample;
pub mod stats;
pub mod waits;

pub use commands::Commands;
pub use pushes::Pushes;
pub use quantity::Quantity;
pub use sample::{Sample, Timeline};
pub use waits::Waits;
