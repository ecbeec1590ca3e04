//! The fault suite: what must hold when a reply, the server, its clock or its messages fail.
//!
//! One test for each fault of the catalogue (docs/faults.md), named after what must hold, with the fault's number in
//! its doc line. Each one asserts first that its fault happened. What a test waits for has ten seconds; where time
//! itself must not be what helps, leases and parks are a minute long.

#[path = "../common/mod.rs"]
mod common;

mod clock;
mod framing;
mod ghosts;
mod hand_off;
mod messages;
mod pubsub;
mod replies;
mod scene;
mod server;
mod subscriptions;
