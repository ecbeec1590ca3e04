//! W8 in a worker: ever new names; every second one is contended, one in ten of all is given up while waiting.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Wire;
use super::protocol::{Churn, Reply, name};
use crate::variants::{Contender, Kind};

/// Names in work at the same time.
const LANES: usize = 256;

/// How long the holder keeps a contended lock, so that the other side has time to wait.
const KEPT: Duration = Duration::from_millis(1);

pub async fn run<C: Contender>(job: Churn, wire: &mut Wire) -> Result<()> {
    let pair = Pair {
        one: C::connect(&job.setup).await?,
        other: C::connect(&job.setup).await?,
        violations: Arc::default(),
    };
    wire.ready().await?;
    for mark in 0..job.marks {
        wire.go().await?;
        let part = job.names * mark / job.marks..job.names * (mark + 1) / job.marks;
        through(&pair, part).await?;
        let violations = pair.violations.load(Relaxed);
        wire.say(&Reply::Marked { violations }).await?;
    }
    wire.stop().await?;
    wire.say(&Reply::Stopped { valid: 0 }).await
}

/// Two clients, as two processes would have.
#[derive(Clone)]
struct Pair<C> {
    one: C,
    other: C,
    violations: Arc<AtomicU64>,
}

async fn through<C: Contender>(pair: &Pair<C>, numbers: Range<usize>) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let mut lanes = JoinSet::new();
    for _ in 0..LANES.min(numbers.len()) {
        let (pair, next) = (pair.clone(), next.clone());
        lanes.spawn(async move { pair.lane(&next, numbers.end).await });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    Ok(())
}

impl<C: Contender> Pair<C> {
    async fn lane(&self, next: &AtomicUsize, end: usize) -> Result<()> {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= end {
                return Ok(());
            }
            self.visit(number).await?;
        }
    }

    /// Of ten names five are free, two are waited for within the client, two from the other, one is waited for in vain.
    async fn visit(&self, number: usize) -> Result<()> {
        let name = name(number);
        match number % 10 {
            1 | 3 => self.contend(&self.one, &name).await,
            5 | 7 => self.contend(&self.other, &name).await,
            9 if number % 20 == 9 => self.give_up(&self.one, &name).await,
            9 => self.give_up(&self.other, &name).await,
            _ => self.alone(&name).await,
        }
    }

    async fn alone(&self, name: &str) -> Result<()> {
        let guard = self.one.acquire(&self.one.handle(Kind::Lock, name)).await?;
        self.one.release(guard).await
    }

    async fn contend(&self, waiter: &C, name: &str) -> Result<()> {
        let held = self.one.acquire(&self.one.handle(Kind::Lock, name)).await?;
        let handle = waiter.handle(Kind::Lock, name);
        let mut waiting = std::pin::pin!(waiter.acquire(&handle));
        if let Ok(too_early) = timeout(KEPT, waiting.as_mut()).await {
            self.violations.fetch_add(1, Relaxed);
            waiter.release(too_early?).await?;
            return self.one.release(held).await;
        }
        let (released, acquired) = tokio::join!(self.one.release(held), waiting);
        released?;
        waiter.release(acquired?).await
    }

    async fn give_up(&self, waiter: &C, name: &str) -> Result<()> {
        let held = self.one.acquire(&self.one.handle(Kind::Lock, name)).await?;
        if let Ok(too_early) = timeout(KEPT, waiter.acquire(&waiter.handle(Kind::Lock, name))).await
        {
            self.violations.fetch_add(1, Relaxed);
            waiter.release(too_early?).await?;
        }
        self.one.release(held).await
    }
}
