//! PostgreSQL. It refuses to run as root: then it runs as `nobody`.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::child;
use crate::folder::{NOBODY, give_away};
use crate::program::{Place, Program, find, finish, first_line, is_root};

/// A user `root` without a password, and the database `postgres`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Postgres;

impl Program for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn package(&self) -> &'static str {
        "postgresql"
    }

    fn is_here(&self) -> bool {
        binary("postgres").is_some()
    }

    fn prepare(&self, place: &Place<'_>) -> Result<()> {
        if is_root() {
            give_away(place.folder)?;
        }
        let mut command = as_a_user("initdb")?;
        command.arg("-D").arg(place.folder.join("data"));
        command.args(["-A", "trust", "-U", "root", "--no-sync", "--locale=C", "-E", "UTF8"]);
        command.current_dir(place.folder);
        finish(command).map(drop)
    }

    fn command(&self, place: &Place<'_>) -> Result<Command> {
        let mut command = as_a_user("postgres")?;
        command.arg("-D").arg(place.folder.join("data")).arg("-k").arg(place.folder);
        command.args(["-p", &place.address.port().to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.args(["-c", "shared_buffers=32MB"]);
        command.current_dir(place.folder);
        Ok(command)
    }

    /// It accepts connections before it serves, and refuses them by an error then.
    fn answers(&self, stream: &mut TcpStream) -> io::Result<bool> {
        let mut hello = vec![0, 0, 0, 0, 0, 3, 0, 0]; // the length, filled in below, and version 3.0 of the protocol
        hello.extend(b"user\0root\0database\0postgres\0\0");
        hello[3] = hello.len() as u8;
        stream.write_all(&hello)?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        Ok(&kind == b"R")
    }

    fn is_somebody_else(&self) -> bool {
        is_root()
    }

    /// Clients are cut off, nothing is left to recover.
    fn goodbye(&self) -> &'static str {
        "INT"
    }

    fn version(&self) -> Result<String> {
        first_line(binary("postgres").context("no PostgreSQL")?, "--version")
    }
}

fn as_a_user(program: &str) -> Result<Command> {
    let binary = binary(program).with_context(|| format!("no {program}"))?;
    if !is_root() {
        return Ok(child::command(binary));
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
    command.args(["--pdeathsig", "KILL"]).arg(binary);
    Ok(command)
}

/// Debian keeps them in a folder for each version, off the `PATH`.
fn binary(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|one| one.path().join("bin").join(name)).collect();
    found.retain(|file| file.is_file());
    found.sort();
    found.pop().or_else(|| find(name))
}
