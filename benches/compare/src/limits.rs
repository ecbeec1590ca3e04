//! How many files this program and what it starts may open: a thousand clients have two connections each.

use anyhow::{Result, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};

/// What a process opens beside the connections of its clients, and more than that.
const ASIDE: u64 = 200;

/// Raises the limit as far as it may be raised. Whatever is started later inherits it.
pub fn raise() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// An error that says what to do if one process may not have so many connections.
pub fn allow(connections: usize) -> Result<()> {
    let needed = connections as u64 + ASIDE;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(
        needed <= limit,
        "{connections} connections need {needed} open files and {limit} are allowed: raise `ulimit -Hn`"
    );
    Ok(())
}
