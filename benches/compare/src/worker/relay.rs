//! W5 in a worker: one task that locks and unlocks at a word, and says when.

use anyhow::{Context, Result, bail};

use super::Wire;
use super::protocol::{Order, Relay, Reply};
use crate::measure::clock::now_ns;
use crate::variants::Contender;

pub async fn run<C: Contender>(job: Relay, wire: &mut Wire) -> Result<()> {
    let client = C::connect(&job.setup).await?;
    let handle = client.handle(job.setup.kind, &job.name);
    let mut held = None;
    wire.ready().await?;
    loop {
        match wire.next().await? {
            Some(Order::Lock) => {
                let asked_ns = now_ns();
                held = Some(client.acquire(&handle).await?);
                wire.say(&Reply::Locked { asked_ns, at_ns: now_ns() }).await?;
            }
            Some(Order::Unlock) => {
                let guard = held.take().context("told to unlock what is not held")?;
                let called_ns = now_ns();
                client.release(guard).await?;
                wire.say(&Reply::Unlocked { called_ns, errors: 0 }).await?;
            }
            Some(Order::Stop) | None => break,
            Some(other) => bail!("{other:?} in a relay"),
        }
    }
    if let Some(guard) = held {
        client.release(guard).await?;
    }
    wire.say(&Reply::Stopped { valid: 0 }).await
}
