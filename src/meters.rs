//! What a client counts and measures, for the `metrics` facade.
//!
//! The client's code calls these functions where something happens. With the feature `metrics` they notify the
//! program's recorder (`on.rs`). Without it they are empty (`off.rs`), and cost nothing.
//!
//! 1. A value that goes up and down is an object, and its drop counts down. So no exit from a wait or a hold can be
//!    forgotten.
//! 2. The recorder is looked up each time, and no handle is kept for longer than a wait or a hold: a program may
//!    install its recorder late, and an exporter may remove idle metrics.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::*;
#[cfg(feature = "metrics")]
pub(crate) use on::*;
