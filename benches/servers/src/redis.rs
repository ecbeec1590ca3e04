//! Redis.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Context, Result};

use crate::child;
use crate::program::{Place, Program, find, first_line};

/// When a write is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Never: a restart forgets everything.
    #[default]
    None,
    /// Within a second.
    EverySecond,
    /// Before it is answered.
    Always,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Redis(pub Persistence);

impl Program for Redis {
    fn name(&self) -> &'static str {
        "Redis"
    }

    fn package(&self) -> &'static str {
        "redis-server"
    }

    fn is_here(&self) -> bool {
        find("redis-server").is_some()
    }

    fn prepare(&self, _: &Place<'_>) -> Result<()> {
        Ok(())
    }

    fn command(&self, place: &Place<'_>) -> Result<Command> {
        let (append, sync) = match self.0 {
            Persistence::None => ("no", "no"),
            Persistence::EverySecond => ("yes", "everysec"),
            Persistence::Always => ("yes", "always"),
        };
        let mut command = child::command(find("redis-server").context("no redis-server")?);
        command.args(["--port", &place.address.port().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", append, "--appendfsync", sync]);
        command.current_dir(place.folder);
        Ok(command)
    }

    fn answers(&self, stream: &mut TcpStream) -> io::Result<bool> {
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG\r\n")
    }

    fn version(&self) -> Result<String> {
        first_line("redis-server", "--version")
    }
}
