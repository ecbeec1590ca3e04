//! A worker process as this program sees it: started, told, heard, ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::protocol::{Order, Reply};

/// A worker that is silent for so long is given up.
const PATIENCE: Duration = Duration::from_secs(600);

/// Ends with this value.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    orders: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
    pub versions: BTreeMap<String, String>,
    /// Whether it has done a job already: a JVM is warm by then.
    pub is_warm: bool,
}

impl Worker {
    /// Starts a process that speaks the protocol and waits for its first line.
    pub async fn start(program: &Path, args: &[String]) -> Result<Self> {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} does not start", program.display()))?;
        let orders = child.stdin.take().context("a worker has a stdin")?;
        let stdout = child.stdout.take().context("a worker has a stdout")?;
        let mut worker = Self {
            child,
            orders,
            replies: BufReader::new(stdout).lines(),
            versions: BTreeMap::new(),
            is_warm: false,
        };
        match worker.hear().await? {
            Reply::Hello { versions } => worker.versions = versions,
            other => bail!("a worker began with {other:?}"),
        }
        Ok(worker)
    }

    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the worker has ended")
    }

    pub async fn tell(&mut self, order: &Order) -> Result<()> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.orders.write_all(line.as_bytes()).await?;
        Ok(self.orders.flush().await?)
    }

    /// The next reply; one that tells of a failure is an error here.
    pub async fn hear(&mut self) -> Result<Reply> {
        let line = timeout(PATIENCE, self.replies.next_line());
        let line = line.await.context("a worker fell silent")??;
        let line = line.context("a worker ended early")?;
        match serde_json::from_str(&line).with_context(|| format!("a worker said {line:?}"))? {
            Reply::Failed { why } => bail!("{why}"),
            reply => Ok(reply),
        }
    }

    pub async fn hear_ready(&mut self) -> Result<()> {
        match self.hear().await? {
            Reply::Ready => Ok(()),
            other => bail!("a worker that should be ready said {other:?}"),
        }
    }

    /// Gives a job and waits until it is prepared.
    pub async fn prepare(&mut self, job: Order) -> Result<()> {
        self.tell(&job).await?;
        self.hear_ready().await
    }
}
