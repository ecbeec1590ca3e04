//! What happens to a server: it ends, changes its role, refuses, stalls, and others write to its keys.

mod demotion;
mod failover;
mod keys;
mod memory;
mod notifications;
mod permissions;
mod refusals;
mod restarts;
pub(crate) mod roles;
mod stalls;
mod tokens;
