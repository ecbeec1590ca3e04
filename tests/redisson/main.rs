//! One lock, two libraries: Rust with `Layout::Redisson`, and Redisson itself in a JVM.
//!
//! One file for each behaviour. No test looks at the clock to know which client waits: a waiter is subscribed, and a
//! holder stands in the hash. Leases are thirty seconds unless a test is about their end, so that whatever comes
//! sooner was told and not waited for.
//!
//! Without a JDK and Maven the tests are left out, and say so; where `CI` or `PARKLOCK_REQUIRE_REDISSON` is set, that
//! is a failure.

#[path = "../common/mod.rs"]
mod common;

mod cluster;
mod counting;
mod crash;
mod fair;
mod fairness;
mod fenced;
mod force;
mod latch;
mod leases;
mod limits;
mod multi;
mod names;
mod namespaces;
mod peer;
mod reentrance;
mod rw;
mod rw_crash;
mod scene;
mod semaphore;
mod sentinel;
mod version;
mod waiting;
