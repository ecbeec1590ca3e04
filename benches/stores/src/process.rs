//! This program once more, in a process of its own. The two talk in lines.

use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Error, Result, bail};
use private_servers::child::{self, Child};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

/// Stands before what went wrong, in the last line of a process that ends by an error.
const FAILED: &str = "failed: ";

/// The process's own end: what went wrong, for the parent.
pub fn tell_failure(error: &Error) {
    let line = format!("{error:#}").replace('\n', " ");
    // The parent may have gone.
    let _ = writeln!(io::stdout(), "{FAILED}{line}");
}

/// The parent's end. Dropped, it kills the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = child::command(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Child::start(command);
        let (orders, lines) = child.pipes();
        let lines = BufReader::new(ChildStdout::from_std(lines)?).lines();
        Ok(Self { child, orders: ChildStdin::from_std(orders)?, lines })
    }

    /// Sends one line.
    pub async fn order(&mut self, order: &str) -> Result<()> {
        Ok(self.orders.write_all(format!("{order}\n").as_bytes()).await?)
    }

    /// The next line that it says.
    pub async fn hear(&mut self) -> Result<String> {
        let line = self.lines.next_line().await?.context("the process has ended")?;
        match line.strip_prefix(FAILED) {
            Some(why) => bail!("in a process of its own: {why}"),
            None => Ok(line),
        }
    }

    pub fn kill(&mut self) {
        self.child.kill();
    }

    pub fn stop(&self) {
        self.child.signal("STOP");
    }

    pub fn go_on(&self) {
        self.child.signal("CONT");
    }
}
