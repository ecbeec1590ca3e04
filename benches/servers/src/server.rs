//! One running server.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::child::Child;
use crate::folder::{Folder, Medium};
use crate::port::Port;
use crate::program::{Place, Program};

/// A JVM on a busy machine takes a while.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_millis(10);
const ONE_LOOK: Duration = Duration::from_secs(2);

/// A server that answers. Dropped, it is ended, and its folder removed.
#[derive(Debug)]
pub struct Server {
    program: Box<dyn Program>,
    child: Option<Child>,
    port: Port,
    second: Port,
    folder: Folder,
}

impl Server {
    /// Starts it and waits until it serves. Blocks the thread, for a second or two with some kinds.
    pub fn start(program: Box<dyn Program>, medium: Medium) -> Result<Self> {
        let (port, second) = (Port::reserve(), Port::reserve());
        let folder = Folder::create(medium, program.is_somebody_else())?;
        let mut server = Self { program, child: None, port, second, folder };
        server.program.prepare(&server.place())?;
        server.start_again()?;
        Ok(server)
    }

    /// Starts it on the same port with the data that it had.
    pub fn start_again(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_file())?;
        let mut command = self.program.command(&self.place())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(Child::start(command));
        self.ready()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child = None;
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Of the process that we have started. It may have children.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
    }

    fn ready(&mut self) -> Result<()> {
        let name = self.program.name();
        let since = Instant::now();
        while !self.answers() {
            let runs = self.child.as_mut().is_some_and(Child::is_running);
            ensure!(runs, "{name} ended at once:\n{}", self.log());
            ensure!(since.elapsed() < START, "{name} does not answer:\n{}", self.log());
            sleep(BETWEEN);
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        let look = || {
            let mut stream = TcpStream::connect(self.address())?;
            stream.set_read_timeout(Some(ONE_LOOK))?;
            self.program.answers(&mut stream)
        };
        look().unwrap_or(false)
    }

    fn place(&self) -> Place<'_> {
        let (address, second) = (self.port.address(), self.second.address());
        Place { folder: self.folder.path(), address, second }
    }

    fn log_file(&self) -> std::path::PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        let read = fs::read_to_string(self.log_file()).context("no log");
        read.unwrap_or_else(|none| format!("{none:#}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // A server that has children of its own ends them only if it is asked to end.
        if child.is_running() {
            child.signal(self.program.goodbye());
        }
        let since = Instant::now();
        while child.is_running() && since.elapsed() < STOP {
            sleep(BETWEEN);
        }
    }
}
