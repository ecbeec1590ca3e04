//! The tool on real servers, as its users call it. Each test has a server of its own.

#[path = "../../../tests/common/mod.rs"]
mod common;

mod codes;
mod election;
mod holding;
mod loss;
mod namespaces;
mod operators;
mod orphans;
mod phases;
mod scene;
mod servers;
mod signals;
mod surroundings;
mod terminal;
mod waiting;
