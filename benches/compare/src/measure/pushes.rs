//! How many messages the server delivers. It counts what is published only: we hear the channel that many are subscribed
//! to, and ask again and again how many they are. Each other message goes to one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushKind, cmd};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How often we ask how many are subscribed.
const LOOK_EACH: Duration = Duration::from_millis(100);

/// Counts until it is dropped.
#[derive(Debug)]
pub struct Pushes {
    seen: Arc<Seen>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug, Default)]
struct Seen {
    heard: AtomicU64,
    looks: AtomicU64,
    subscribers: AtomicU64,
}

impl Pushes {
    /// Hears `channel` itself, as one subscriber more.
    pub async fn listen(url: &str, channel: &str) -> Result<Self> {
        let client = Client::open(format!("{url}?protocol=resp3"))?;
        let (sender, mut messages) = unbounded_channel();
        let config =
            AsyncConnectionConfig::new().set_push_sender(sender).set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(channel).await?;
        let seen = Arc::<Seen>::default();
        let (hearing, looking) = (seen.clone(), seen.clone());
        let channel = channel.to_owned();
        let tasks = [
            tokio::spawn(async move {
                while let Some(push) = messages.recv().await {
                    hearing.heard.fetch_add(u64::from(push.kind == PushKind::Message), Relaxed);
                }
            }),
            tokio::spawn(async move {
                // Ends with an error when the server does: then nobody asks for the counts any more.
                while look(&mut connection, &channel, &looking).await.is_ok() {
                    sleep(LOOK_EACH).await;
                }
            }),
        ];
        Ok(Self { seen, tasks })
    }

    /// Of so many messages that were published in all.
    pub fn delivered(&self, published: u64) -> f64 {
        let heard = self.seen.heard.load(Relaxed).min(published);
        let looks = self.seen.looks.load(Relaxed).max(1);
        let subscribers = self.seen.subscribers.load(Relaxed) as f64 / looks as f64;
        heard as f64 * subscribers + (published - heard) as f64
    }
}

impl Drop for Pushes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn look(
    connection: &mut MultiplexedConnection,
    channel: &str,
    seen: &Seen,
) -> redis::RedisResult<()> {
    let mut ask = cmd("PUBSUB");
    ask.arg("NUMSUB").arg(channel);
    let (_, subscribers): (String, u64) = ask.query_async(connection).await?;
    seen.subscribers.fetch_add(subscribers.saturating_sub(1), Relaxed);
    seen.looks.fetch_add(1, Relaxed);
    Ok(())
}
