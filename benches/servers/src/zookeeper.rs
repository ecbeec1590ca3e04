//! ZooKeeper, alone.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::child;
use crate::program::{Place, Program, find};

const JAR: &str = "/usr/share/java/zookeeper.jar";
const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";

#[derive(Clone, Copy, Debug, Default)]
pub struct ZooKeeper;

impl Program for ZooKeeper {
    fn name(&self) -> &'static str {
        "ZooKeeper"
    }

    fn package(&self) -> &'static str {
        "zookeeper"
    }

    fn is_here(&self) -> bool {
        Path::new(JAR).exists() && find("java").is_some()
    }

    fn prepare(&self, place: &Place<'_>) -> Result<()> {
        let (folder, port) = (place.folder.display(), place.address.port());
        let config = format!(
            "tickTime=500\ndataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             maxClientCnxns=0\nminSessionTimeout=1000\nmaxSessionTimeout=60000\n\
             admin.enableServer=false\n4lw.commands.whitelist=srvr\n"
        );
        fs::write(place.folder.join("zoo.cfg"), config).context("zoo.cfg cannot be written")
    }

    fn command(&self, place: &Place<'_>) -> Result<Command> {
        let mut command = child::command("java");
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["-cp", JAR, MAIN, "zoo.cfg"]);
        command.current_dir(place.folder);
        Ok(command)
    }

    /// `srvr` has a mode only when it serves; `ruok` says yes before that.
    fn answers(&self, stream: &mut TcpStream) -> io::Result<bool> {
        stream.write_all(b"srvr")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains("Mode:"))
    }

    /// Beside the jar lies another name of it, with the version.
    fn version(&self) -> Result<String> {
        let folder = Path::new(JAR).parent().context("no ZooKeeper")?;
        let names = fs::read_dir(folder)?.flatten().map(|file| file.file_name());
        let versions = names.filter_map(|name| {
            let version = name.to_str()?.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
        });
        Ok(format!("ZooKeeper {}", versions.max().unwrap_or_default()))
    }
}
