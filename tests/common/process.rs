//! Worker processes: the test binary runs one of its own ignored tests again, and the two talk in lines.
//!
//! ```ignore
//! #[tokio::test]
//! #[ignore = "a worker process"]
//! async fn echo() {
//!     let Some(mut boss) = WorkerSide::here() else { return };
//!     while let Some(order) = boss.order().await {
//!         boss.tell(&order);
//!     }
//! }
//! ```

use std::process::Stdio;
use std::time::Duration;
use std::{env, io};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{ChildStdin, ChildStdout};

use super::child::{self, Child};
use super::wait::timeout;

/// Stands before every line that is meant for the other side: what libtest prints does not have it.
const MARK: &str = "worker says: ";
const ROLE: &str = "PARKLOCK_WORKER";
/// Longer than anything takes that a worker is told to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// The parent's end. Dropped, it kills the process.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Runs the ignored test of this full name (with its modules) in a process of its own.
    pub fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = child::command(env::current_exe().expect("our own path"));
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.env(ROLE, test).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Child::start(command);
        let (orders, lines) = child.pipes();
        let orders = ChildStdin::from_std(orders).expect("a pipe");
        let lines = ChildStdout::from_std(lines).expect("a pipe");
        Self { child, orders, lines: BufReader::new(lines).lines() }
    }

    /// Sends one line.
    pub async fn order(&mut self, order: &str) {
        let sent = self.orders.write_all(format!("{order}\n").as_bytes()).await;
        sent.expect("the worker is there");
    }

    /// The next line the worker told us; panics if it ends or says nothing for long.
    pub async fn hear(&mut self) -> String {
        let heard = timeout(PATIENCE, self.next_told()).await.expect("the worker says something");
        heard.expect("a readable pipe").expect("the worker has not ended")
    }

    /// Orders, and hears the answer.
    pub async fn ask(&mut self, order: &str) -> String {
        self.order(order).await;
        self.hear().await
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// SIGKILL; the process is gone when this returns.
    pub fn kill9(&mut self) {
        self.child.kill();
    }

    /// SIGSTOP: as a laptop that was shut, or a long pause of the machine.
    pub fn stop_process(&self) {
        self.child.signal("STOP");
    }

    /// SIGCONT.
    pub fn continue_process(&self) {
        self.child.signal("CONT");
    }

    async fn next_told(&mut self) -> io::Result<Option<String>> {
        while let Some(line) = self.lines.next_line().await? {
            // libtest begins a line with the test's name, so the mark need not stand at its start.
            if let Some((_, told)) = line.split_once(MARK) {
                return Ok(Some(told.to_owned()));
            }
        }
        Ok(None)
    }
}

/// The worker's end, in the ignored test.
#[derive(Debug)]
pub struct WorkerSide {
    orders: Lines<BufReader<Stdin>>,
}

impl WorkerSide {
    /// `None` if this process is nobody's worker: somebody ran the ignored tests by hand.
    pub fn here() -> Option<Self> {
        env::var_os(ROLE)?;
        Some(Self { orders: BufReader::new(tokio::io::stdin()).lines() })
    }

    /// A variable that the parent gave us.
    pub fn variable(&self, name: &str) -> String {
        env::var(name).unwrap_or_else(|_| panic!("the parent sets {name}"))
    }

    /// The next line from the parent; `None` when it has closed the pipe.
    pub async fn order(&mut self) -> Option<String> {
        self.orders.next_line().await.expect("a readable pipe")
    }

    /// Tells the parent one line.
    pub fn tell(&self, line: &str) {
        println!("{MARK}{line}");
    }
}
