//! The worker half: a process that does one library's work at the word of the main process.

mod churn;
mod herd;
mod hold;
pub mod process;
pub mod protocol;
#[cfg(feature = "metrics")]
mod recorder;
mod relay;
mod room;
pub mod section;
mod steady;
mod turns;

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin, Stdout};

use crate::variants::async_redis_lock::AsyncRedisLock;
use crate::variants::floor::Floor;
use crate::variants::line::Line;
use crate::variants::mutex::TokioMutex;
use crate::variants::parklock::Parklock;
use crate::variants::rlock::Rlock;
use crate::variants::rslock::Rslock;
use crate::variants::{Contender, Library, Variant};
use protocol::{Order, Reply};

/// Serves jobs for `variant` until the main process closes its end.
pub async fn serve(variant: Variant) -> Result<()> {
    #[cfg(feature = "metrics")]
    recorder::install()?;
    match variant.library {
        Library::Parklock | Library::ParklockKept => jobs::<Parklock>().await,
        Library::Floor => jobs::<Floor>().await,
        Library::Line => jobs::<Line>().await,
        Library::Rlock => jobs::<Rlock>().await,
        Library::Rslock => jobs::<Rslock>().await,
        Library::AsyncRedisLock => jobs::<AsyncRedisLock>().await,
        Library::TokioMutex => jobs::<TokioMutex>().await,
        Library::Redisson => bail!("{variant} is played on the JVM"),
    }
}

async fn jobs<C: Contender>() -> Result<()> {
    let mut wire = Wire::open();
    let versions = BTreeMap::new();
    wire.say(&Reply::Hello { versions }).await?;
    while let Some(order) = wire.next().await? {
        if let Err(error) = job::<C>(order, &mut wire).await {
            let why = format!("{error:#}");
            wire.say(&Reply::Failed { why }).await?;
        }
    }
    Ok(())
}

async fn job<C: Contender>(order: Order, wire: &mut Wire) -> Result<()> {
    match order {
        Order::Turns(job) => turns::run::<C>(job, wire).await,
        Order::Relay(job) => relay::run::<C>(job, wire).await,
        Order::Herd(job) => herd::run::<C>(job, wire).await,
        Order::Hold(job) => hold::run::<C>(job, wire).await,
        Order::Churn(job) => churn::run::<C>(job, wire).await,
        Order::Steady(job) => steady::run::<C>(job, wire).await,
        other => bail!("{other:?} without a job"),
    }
}

/// The worker's end of the line to the main process.
struct Wire {
    orders: Lines<BufReader<Stdin>>,
    replies: Stdout,
}

impl Wire {
    fn open() -> Self {
        Self { orders: BufReader::new(tokio::io::stdin()).lines(), replies: tokio::io::stdout() }
    }

    async fn say(&mut self, reply: &Reply) -> Result<()> {
        let mut line = serde_json::to_string(reply)?;
        line.push('\n');
        self.replies.write_all(line.as_bytes()).await?;
        Ok(self.replies.flush().await?)
    }

    /// The next order; `None` once the main process has closed its end.
    async fn next(&mut self) -> Result<Option<Order>> {
        match self.orders.next_line().await? {
            Some(line) => Ok(Some(serde_json::from_str(&line)?)),
            None => Ok(None),
        }
    }

    async fn ready(&mut self) -> Result<()> {
        self.say(&Reply::Ready).await
    }

    /// Waits for `Go`; says no to everything else.
    async fn go(&mut self) -> Result<()> {
        match self.next().await? {
            Some(Order::Go) => Ok(()),
            other => bail!("expected the word to go, not {other:?}"),
        }
    }

    async fn stop(&mut self) -> Result<()> {
        match self.next().await? {
            Some(Order::Stop) | None => Ok(()),
            Some(other) => bail!("expected the word to stop, not {other:?}"),
        }
    }
}
