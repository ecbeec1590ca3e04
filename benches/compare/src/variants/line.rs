//! What a turn among many clients costs with no library at all: the clients stand in a line on the server, and a
//! release grants to its head and tells that client alone. No leases, no tokens, no signs of life.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, PushInfo, PushKind};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::scripts::{call, load};
use super::{Contender, Kind};
use crate::worker::protocol::Setup;

/// Takes the lock if it is free, or stands in line. KEYS: lock, line. ARGV: client. Reply: 1 taken, 0 in line.
const ACQUIRE: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], ARGV[1])
  return 1
end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0";

/// Gives the lock to the head of the line and tells it. KEYS: lock, line. ARGV: client. Reply: 1 ours, 0 not.
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local head = redis.call('LPOP', KEYS[2])
if head then
  redis.call('SET', KEYS[1], head)
  redis.call('PUBLISH', head, '1')
else
  redis.call('DEL', KEYS[1])
end
return 1";

/// One connection for the scripts, one for the client's own channel. One task of it waits at a time.
#[derive(Clone)]
pub struct Line {
    connection: MultiplexedConnection,
    /// Whose end would end the subscription.
    _subscribed: MultiplexedConnection,
    granted: Arc<Mutex<UnboundedReceiver<PushInfo>>>,
    /// Its name in the line, and its channel.
    own: Arc<str>,
    acquire: Arc<str>,
    release: Arc<str>,
}

/// The two requests of a name, ready to be sent again and again.
pub struct Requests {
    acquire: Cmd,
    release: Cmd,
}

impl Contender for Line {
    type Handle = Arc<Requests>;
    type Guard = Arc<Requests>;

    async fn connect(setup: &Setup) -> Result<Self> {
        let client = Client::open(format!("{}?protocol=resp3", setup.url))?;
        let patient =
            || AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let (sender, granted) = unbounded_channel();
        let own = format!("line_channel:{:032x}", fastrand::u128(..));
        let listening = patient().set_push_sender(sender);
        let mut subscribed =
            client.get_multiplexed_async_connection_with_config(&listening).await?;
        subscribed.subscribe(&own).await?;
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&patient()).await?;
        Ok(Self {
            acquire: load(&mut connection, ACQUIRE).await?,
            release: load(&mut connection, RELEASE).await?,
            connection,
            _subscribed: subscribed,
            granted: Arc::new(Mutex::new(granted)),
            own: own.into(),
        })
    }

    fn handle(&self, _kind: Kind, name: &str) -> Arc<Requests> {
        let [lock, line] = ["lock", "line"].map(|what| format!("{what}:{{{name}}}"));
        let request = |hash| {
            let mut request = call(hash, &[&lock, &line]);
            request.arg(&*self.own);
            request
        };
        Arc::new(Requests { acquire: request(&self.acquire), release: request(&self.release) })
    }

    async fn acquire(&self, handle: &Arc<Requests>) -> Result<Arc<Requests>> {
        let mut connection = self.connection.clone();
        let taken: i64 = handle.acquire.query_async(&mut connection).await?;
        if taken == 0 {
            self.told().await?;
        }
        Ok(handle.clone())
    }

    async fn release(&self, held: Arc<Requests>) -> Result<()> {
        let mut connection = self.connection.clone();
        let ours: i64 = held.release.query_async(&mut connection).await?;
        ensure!(ours == 1, "the bare line gave back what it did not hold");
        Ok(())
    }
}

impl Line {
    /// Waits for the message that says: the lock is ours.
    async fn told(&self) -> Result<()> {
        let mut granted = self.granted.lock().await;
        loop {
            let push = granted.recv().await.context("the subscription ended")?;
            if push.kind == PushKind::Message {
                return Ok(());
            }
        }
    }
}
