//! What a client counts and measures, for the `metrics` facade.
//!
//! The code of the client calls one of these at the place where something happens. With the feature `metrics` they
//! tell the recorder of the program (`on.rs`). Without it they are empty (`off.rs`), and cost nothing.
//!
//! 1. What goes up and down is a value: its drop counts down. So no way out of a wait or a hold can be forgotten.
//! 2. A recorder is looked up each time, and no handle is kept for longer than a wait or a hold: a program may install
//!    its recorder late, and an exporter may forget what was idle.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::*;
#[cfg(feature = "metrics")]
pub(crate) use on::*;
