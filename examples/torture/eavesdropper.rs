//! A user that may listen and publish on the channels of the locks, and has no key. It publishes what can be made of what it hears.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::common::forger::Forger;
use crate::common::proxy::resp;

/// Before it connects again: the servers fail again and again.
const PAUSE: Duration = Duration::from_millis(50);

/// So often it looks for new channels. A sharded channel cannot be heard by its pattern.
const LOOK: Duration = Duration::from_millis(20);

/// How many messages it keeps for later: some tenths of a second of a busy run.
const KEPT: usize = 30;

/// A server that stands still must not keep the eavesdropper from its next connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where it listens.
#[derive(Debug)]
pub enum Place {
    /// At the one server behind this address.
    Front(SocketAddr),
    /// At each of these nodes.
    Nodes(Vec<SocketAddr>),
}

pub struct Eavesdropper {
    forged: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Eavesdropper {
    pub fn at(place: Place, seed: u64) -> Self {
        let (forged, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        let (addresses, has_slots) = match place {
            Place::Front(address) => (vec![address], false),
            Place::Nodes(addresses) => (addresses, true),
        };
        for (address, number) in addresses.into_iter().zip(0..) {
            let counted = Arc::clone(&forged);
            let mut liar = Liar::new(seed.wrapping_add(number));
            tasks.spawn(async move {
                loop {
                    // It ends when the server does.
                    _ = match has_slots {
                        false => eavesdrop(address, &mut liar, &counted).await,
                        true => eavesdrop_at_node(address, &mut liar, &counted).await,
                    };
                    sleep(PAUSE).await;
                }
            });
        }
        Self { forged, _tasks: tasks }
    }

    /// How many messages it has forged.
    pub fn end(self) -> u64 {
        self.forged.load(Ordering::Relaxed)
    }
}

/// What it says, and when. A third of the messages that it makes come later, in no order.
struct Liar {
    forger: Forger,
    rng: Rng,
    kept: Vec<(String, String)>,
}

impl Liar {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self { forger: Forger::new(rng.fork()), rng, kept: Vec::new() }
    }

    /// It hears a message. Returns those to publish now, each with its channel.
    fn hear(&mut self, channel: &str, text: &str) -> Vec<(String, String)> {
        let mut now = Vec::new();
        for forged in self.forger.hear(channel, text) {
            if self.rng.u32(..3) > 0 {
                now.push(forged);
                continue;
            }
            self.kept.push(forged);
            if self.kept.len() > KEPT {
                now.push(self.kept.swap_remove(self.rng.usize(..self.kept.len())));
            }
        }
        now
    }
}

async fn eavesdrop(address: SocketAddr, liar: &mut Liar, forged: &AtomicU64) -> RedisResult<()> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let mut mouth = client.get_multiplexed_async_connection().await?;
    let mut ears = client.get_async_pubsub().await?;
    ears.psubscribe("*lock_channel:*").await?;
    let mut heard = ears.into_on_message();
    while let Some(message) = heard.next().await {
        let text: String = message.get_payload()?;
        for (channel, text) in liar.hear(message.get_channel_name(), &text) {
            redis::cmd("PUBLISH").arg(channel).arg(text).query_async::<()>(&mut mouth).await?;
            forged.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Hears the sharded channels of a node's slots. (Before version 7 a cluster has none, and it hears nothing.) It looks for
/// channels that somebody listens to, and listens too.
async fn eavesdrop_at_node(
    address: SocketAddr,
    liar: &mut Liar,
    forged: &AtomicU64,
) -> RedisResult<()> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let mut mouth = client.get_multiplexed_async_connection().await?;
    let mut ears = Ears { stream: TcpStream::connect(address).await?, bytes: Vec::new() };
    let (mut known, mut looks) = (BTreeSet::new(), interval(LOOK));
    loop {
        let heard = tokio::select! {
            heard = ears.hear() => heard?,
            _ = looks.tick() => {
                for channel in channels(&mut mouth).await? {
                    if known.insert(channel.clone()) {
                        ears.listen_to(&channel).await?;
                    }
                }
                continue;
            }
        };
        match heard {
            Heard::Message(channel, text) => {
                for (channel, text) in liar.hear(&channel, &text) {
                    let mut publish = redis::cmd("SPUBLISH");
                    publish.arg(channel).arg(text);
                    let said = timeout(PATIENCE, publish.query_async::<()>(&mut mouth)).await;
                    match said.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))? {
                        Ok(()) => _ = forged.fetch_add(1, Ordering::Relaxed),
                        // The slot of that channel is elsewhere by now, or the cluster is down.
                        Err(error) if error.code().is_some() => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            // The slot has moved, and may come back.
            Heard::Ended(channel) => _ = known.remove(&channel),
            Heard::Other => {}
        }
    }
}

async fn channels(mouth: &mut MultiplexedConnection) -> RedisResult<Vec<String>> {
    let mut ask = redis::cmd("PUBSUB");
    ask.arg("SHARDCHANNELS").arg("*lock_channel:*");
    let asked = timeout(PATIENCE, ask.query_async(mouth)).await;
    asked.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
}

enum Heard {
    Message(String, String),
    /// The server has ended this channel.
    Ended(String),
    Other,
}

/// A connection that listens.
struct Ears {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Ears {
    async fn listen_to(&mut self, channel: &str) -> RedisResult<()> {
        let packed = redis::cmd("SSUBSCRIBE").arg(channel).get_packed_command();
        Ok(self.stream.write_all(&packed).await?)
    }

    /// Loses nothing if it is dropped.
    async fn hear(&mut self) -> RedisResult<Heard> {
        loop {
            let framed = resp::replies(&self.bytes, 1);
            let garbled = |_| std::io::Error::from(std::io::ErrorKind::InvalidData);
            if let Some(end) = framed.map_err(garbled)? {
                let frame: Vec<_> = self.bytes.drain(..end).collect();
                return Ok(read(&frame));
            }
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
        }
    }
}

fn read(frame: &[u8]) -> Heard {
    let Ok(Value::Array(items)) = redis::parse_redis_value(frame) else { return Heard::Other };
    let words = items.iter().map(|item| match item {
        Value::BulkString(word) => std::str::from_utf8(word).unwrap_or_default(),
        _ => "",
    });
    match &*words.collect::<Vec<_>>() {
        ["smessage", channel, text] => Heard::Message((*channel).to_owned(), (*text).to_owned()),
        ["sunsubscribe", channel, ..] => Heard::Ended((*channel).to_owned()),
        _ => Heard::Other,
    }
}
