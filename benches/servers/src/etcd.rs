//! etcd, one member.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Context, Result};

use crate::child;
use crate::program::{Place, Program, find, first_line};

#[derive(Clone, Copy, Debug, Default)]
pub struct Etcd;

impl Program for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn package(&self) -> &'static str {
        "etcd-server"
    }

    fn is_here(&self) -> bool {
        find("etcd").is_some()
    }

    fn prepare(&self, _: &Place<'_>) -> Result<()> {
        Ok(())
    }

    fn command(&self, place: &Place<'_>) -> Result<Command> {
        let (clients, peers) =
            (format!("http://{}", place.address), format!("http://{}", place.second));
        let mut command = child::command(find("etcd").context("no etcd")?);
        command.args(["--name", "alone"]).arg("--data-dir").arg(place.folder.join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("alone={peers}")]);
        command.current_dir(place.folder);
        Ok(command)
    }

    fn answers(&self, stream: &mut TcpStream) -> io::Result<bool> {
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains("\"health\":\"true\""))
    }

    fn version(&self) -> Result<String> {
        first_line(find("etcd").context("no etcd")?, "--version")
    }
}
