//! MariaDB.

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Context, Result};

use crate::child;
use crate::program::{Place, Program, find, finish, first_line, is_root};

/// A user `root` without a password, and the database `test`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MariaDb;

/// Of the packet with which the server greets: the version of the protocol comes behind a head of four bytes.
const HEAD: usize = 4;
const PROTOCOL: u8 = 10;

impl Program for MariaDb {
    fn name(&self) -> &'static str {
        "MariaDB"
    }

    fn package(&self) -> &'static str {
        "mariadb-server"
    }

    fn is_here(&self) -> bool {
        find("mariadbd").is_some() && find("mariadb-install-db").is_some()
    }

    fn prepare(&self, place: &Place<'_>) -> Result<()> {
        let mut command = Command::new(find("mariadb-install-db").context("no MariaDB")?);
        command.arg("--no-defaults").arg(setting("datadir", place));
        command.args(["--auth-root-authentication-method=normal", "--force"]);
        if is_root() {
            command.arg("--user=root");
        }
        finish(command).map(drop)
    }

    fn command(&self, place: &Place<'_>) -> Result<Command> {
        let mut command = child::command(find("mariadbd").context("no MariaDB")?);
        command.arg("--no-defaults").arg(setting("datadir", place));
        if is_root() {
            command.arg("--user=root");
        }
        command.arg(setting("socket", place)).arg(setting("pid-file", place));
        command.args([&format!("--port={}", place.address.port()), "--bind-address=127.0.0.1"]);
        command.args(["--innodb-buffer-pool-size=64M", "--skip-log-bin", "--skip-name-resolve"]);
        command.current_dir(place.folder);
        Ok(command)
    }

    /// It greets first, and listens only when it serves.
    fn answers(&self, stream: &mut TcpStream) -> io::Result<bool> {
        let mut greeting = [0; HEAD + 1];
        stream.read_exact(&mut greeting)?;
        Ok(greeting[HEAD] == PROTOCOL)
    }

    fn version(&self) -> Result<String> {
        first_line(find("mariadbd").context("no MariaDB")?, "--version")
    }
}

fn setting(name: &str, place: &Place<'_>) -> String {
    format!("--{name}={}", place.folder.join(name).display())
}
