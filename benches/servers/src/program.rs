//! What a kind of server has to say of itself: where its program is, how it is started, when it is ready.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};

/// A kind of server, with its settings.
pub trait Program: fmt::Debug + Send + Sync {
    /// As people call it.
    fn name(&self) -> &'static str;

    /// The package of Debian that has it.
    fn package(&self) -> &'static str;

    /// Whether it is installed here.
    fn is_here(&self) -> bool;

    /// Done once, in the empty folder, before the first start.
    fn prepare(&self, place: &Place<'_>) -> Result<()>;

    /// Starts it in the foreground.
    fn command(&self, place: &Place<'_>) -> Result<Command>;

    /// One look: whether it would serve a client now.
    fn answers(&self, stream: &mut TcpStream) -> io::Result<bool>;

    /// Whether it runs as another user than we do, who has to be let into its folder.
    fn is_somebody_else(&self) -> bool {
        false
    }

    /// The signal that ends it in good order.
    fn goodbye(&self) -> &'static str {
        "TERM"
    }

    /// Version, as the program itself says it.
    fn version(&self) -> Result<String>;
}

/// Where a server lies and listens.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub folder: &'a Path,
    pub address: SocketAddr,
    /// A second port, for the kinds that need one.
    pub second: SocketAddr,
}

/// A program on the `PATH`, or in a folder where Debian puts servers.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    usual.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Runs a command to its end. The error has what it wrote.
pub(crate) fn finish(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} does not start"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} fails:\n{said}\n{complained}");
    Ok(if said.trim().is_empty() { complained.into_owned() } else { said })
}

/// The first line of what a command writes.
pub(crate) fn first_line(program: impl AsRef<std::ffi::OsStr>, argument: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.arg(argument);
    Ok(finish(command)?.lines().next().unwrap_or_default().trim().to_owned())
}

/// Whether we are root, as whom some servers do not run, and others only if told to.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|us| us.uid() == 0)
}
