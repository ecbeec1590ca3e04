//! W6 in a worker: tasks that wait for what another process holds.

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::Wire;
use super::protocol::{Park, Reply, name};
use crate::variants::Contender;

pub async fn run<C: Contender>(job: Park, wire: &mut Wire) -> Result<()> {
    let client = C::connect(&job.setup).await?;
    wire.ready().await?;
    wire.go().await?;
    let mut waiting = JoinSet::new();
    for task in 0..job.tasks {
        let client = client.clone();
        let handle = client.handle(&name(task % job.names));
        waiting.spawn(async move { client.acquire(&handle).await.map(|_guard| ()) });
    }
    wire.say(&Reply::Parked).await?;
    wire.stop().await?;
    // Nobody let go, so that nobody can have got it; an error would show here, too.
    if let Some(ended) = waiting.try_join_next() {
        ended??;
        ensure!(false, "a task got a lock that was held");
    }
    waiting.shutdown().await;
    wire.say(&Reply::Stopped { valid: 0 }).await
}
