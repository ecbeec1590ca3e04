//! The servers of a row: one, or the five of RedLock.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use private_servers::{Medium, Server};

use crate::kind::Kind;

/// Some servers refuse to start until the last process of the old one has gone.
const STARTS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);

/// Servers of one kind, at least one. Dropped, they are ended.
#[derive(Debug)]
pub struct Group(Vec<Server>);

impl Group {
    /// Starts all servers of this kind. Blocks the thread.
    pub fn start(kind: Kind, medium: Medium) -> Result<Self> {
        let start = |_| {
            let program = kind.program();
            let name = program.name();
            Server::start(program, medium).with_context(|| format!("{name} does not start"))
        };
        Ok(Self((0..kind.servers()).map(start).collect::<Result<_>>()?))
    }

    /// Host and port of each server, with commas between them.
    pub fn address(&self) -> String {
        let each: Vec<String> = self.0.iter().map(|server| server.address().to_string()).collect();
        each.join(",")
    }

    /// Of the processes that were started; they may have children.
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().filter_map(Server::pid).collect()
    }

    /// Kills the first server, and starts it again with the data that it had. Blocks the thread.
    pub fn restart(&mut self) -> Result<()> {
        let first = self.0.first_mut().context("a group without a server")?;
        first.kill();
        let mut last = None;
        for _ in 0..STARTS {
            match first.start_again() {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
            sleep(BETWEEN);
        }
        Err(last.context("no start")?)
    }
}
