//! A user that may listen and publish on the channels of the locks, and has no key. It publishes what can be made of what it hears.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::forger::Forger;

/// Before it connects again: the server fails again and again.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Eavesdropper {
    forged: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Eavesdropper {
    pub fn at(address: SocketAddr, seed: u64) -> Self {
        let forged = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&forged);
        let task = tokio::spawn(async move {
            let mut forger = Forger::new(Rng::with_seed(seed));
            loop {
                // It ends when the server does.
                _ = eavesdrop(address, &mut forger, &counted).await;
                sleep(PAUSE).await;
            }
        });
        Self { forged, task }
    }

    /// How many messages it has forged.
    pub fn end(self) -> u64 {
        self.task.abort();
        self.forged.load(Ordering::Relaxed)
    }
}

async fn eavesdrop(
    address: SocketAddr,
    forger: &mut Forger,
    forged: &AtomicU64,
) -> redis::RedisResult<()> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let mut mouth = client.get_multiplexed_async_connection().await?;
    let mut ears = client.get_async_pubsub().await?;
    ears.psubscribe("*lock_channel:*").await?;
    let mut heard = ears.into_on_message();
    while let Some(message) = heard.next().await {
        let text: String = message.get_payload()?;
        for (channel, text) in forger.hear(message.get_channel_name(), &text) {
            redis::cmd("PUBLISH").arg(channel).arg(text).query_async::<()>(&mut mouth).await?;
            forged.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
