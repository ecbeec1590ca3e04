//! A client and its plain locks, from the connection to the close. One file for each thing that users may count on.
//!
//! A test has its server and its clients for itself: it may run beside all others.

#[path = "../common/mod.rs"]
mod common;

mod acl;
mod api;
mod background;
mod bad_input;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "redis-1")]
mod builder;
mod cancellation;
mod close;
mod coalescing;
mod connect;
mod crash;
mod everything;
mod exclusion;
mod hand_off;
mod holds;
mod keep;
mod layers;
mod local;
mod many_names;
#[cfg(feature = "metrics")]
mod metering;
mod missed_unlock;
mod namespaces;
mod observability;
mod outages;
mod parking;
mod runtimes;
mod session;
#[cfg(feature = "serde")]
mod settings;
mod strangers;
#[cfg(all(feature = "test-util", unix))]
mod testing;
mod tls;
#[cfg(feature = "tower")]
mod tower;
mod tracking;
mod watchdog;
