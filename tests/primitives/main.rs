//! The other primitives: fair, re-entrant and read-write locks, semaphores, latches, several locks as one, and what a
//! fleet agrees on: who leads, and who does what is due.
//!
//! A test has its server and its clients for itself: it may run beside all others.

#[path = "../common/mod.rs"]
mod common;

mod condition;
mod dead_crowds;
mod election;
mod every;
mod fair_clients;
mod fair_hand_on;
mod fair_lock;
mod kinds;
mod latch;
mod multi_lock;
mod red_lock;
mod reentrance;
mod rw_lock;
mod semaphore;
