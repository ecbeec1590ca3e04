//! What the link to one server does: it subscribes, unsubscribes, and passes on what it hears. When its connection comes
//! back, it subscribes all of its channels again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{PushInfo, PushKind, ServerError, Value, cmd, pipe};
use tokio::time::{Instant, sleep};

use crate::compact_instant::CompactInstant;
use crate::log;
use crate::pause::{jittered, sleep_until_if};
use crate::slot::Slot;
use crate::wire::address::{Expected, Hello};
use crate::wire::fault::{self, Fault, Redirect};
use crate::wire::link::{Duty, Greeted};
use crate::wire::node::Node;
use crate::wire::scripts::Dialect;
use crate::wire::socket::Socket;
use crate::wire::subscriber::channels::{BATCH, Channels, Phase};
use crate::wire::subscriber::homes::HomeLink;
use crate::wire::subscriber::{Heard, Inner};

/// The pause after a full batch: so waiters do not all return at once with their server.
const PACE: Duration = Duration::from_millis(20);

/// The pause before the client subscribes again to a channel that a server did not accept, plus or minus half.
const NOT_TAKEN: Duration = Duration::from_millis(50);

/// The duty of a link for channels: those of one home.
pub(super) struct ChannelLink {
    pub(super) inner: Arc<Inner>,
    pub(super) home: Option<Node>,
    pub(super) expected: Expected,
    pub(super) link: Arc<HomeLink>,
}

impl ChannelLink {
    /// Applies a function to the channels of this home.
    fn at<T: Default>(&self, act: impl FnOnce(&mut Channels) -> T) -> T {
        let mut homes = self.inner.homes.lock();
        // The home may have been closed, and opened again with another link.
        let home = homes.all.get_mut(&self.home).filter(|home| Arc::ptr_eq(&home.link, &self.link));
        home.map_or_else(T::default, |home| act(&mut home.channels))
    }

    /// The server has acknowledged a channel. The channel may have been unsubscribed and wanted again in between. Then
    /// another acknowledgement follows, and until then this one is just as valid.
    fn acknowledge(&self, name: &str, generation: u64) {
        if generation != self.link.generation() {
            return;
        }
        self.at(|channels| {
            if let Some(channel) = channels.all.get_mut(name) {
                channel.phase = Phase::Live(generation);
            }
        });
    }

    fn refuse(&self, name: &str, fault: &Fault) {
        log::warn!(channel = ?name, %fault, "the user may not subscribe: the waiters of this channel ask every 250 ms instead");
        self.at(|channels| {
            if let Some(channel) = channels.all.get_mut(name) {
                channel.phase = Phase::Refused(CompactInstant::now());
            }
        });
        (self.inner.on_heard)(name, Heard::Deaf);
    }

    /// The server ended a channel, since its slot has moved. The next answer will say where it is now.
    fn ended(&self, name: &str) {
        let on = self.link.generation();
        let was_live =
            |channels: &Channels| channels.all.get(name).is_some_and(|channel| channel.is_live(on));
        // If the channel was not live, this client has unsubscribed it itself, and may want it again by now.
        if self.at(|channels| was_live(channels) && channels.want_again(name)) {
            self.link.changed.notify_one();
            self.map_is_stale();
        }
    }

    fn map_is_stale(&self) {
        if let Some(cluster) = &self.inner.cluster {
            cluster.stale.notify_one();
        }
    }

    fn is_sharded(&self) -> bool {
        self.link.facts.dialect() == Dialect::Sharded
    }

    async fn subscribe(&self, socket: &Socket, names: &[Arc<str>]) -> Result<(), Fault> {
        let asked = if self.is_sharded() {
            self.subscribe_sharded(socket, names).await
        } else {
            all_at_once(socket, "SUBSCRIBE", names).await
        };
        match asked {
            Ok(()) => Ok(()),
            Err(Fault::Permission(source)) if names.len() == 1 => {
                self.refuse(&names[0], &Fault::Permission(source));
                Ok(())
            }
            // The server refuses all of them if one is forbidden. So subscribe each of them separately.
            Err(Fault::Permission(_)) => {
                for name in names.chunks(1) {
                    Box::pin(self.subscribe(socket, name)).await?;
                }
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// The channels of a batch may belong to several slots. So each of them needs a command of its own. Only the pushes
    /// say which of them are live: no error says which channel it is about.
    async fn subscribe_sharded(&self, socket: &Socket, names: &[Arc<str>]) -> Result<(), Fault> {
        let mut denied = None;
        for error in one_by_one(socket, "SSUBSCRIBE", names).await? {
            match fault::entry(&error) {
                Fault::Redirected(Redirect::Moved { slot, to }, _) => self.moved(slot, &to),
                fault @ Fault::Permission(_) => denied = Some(fault),
                fault @ (Fault::Redirected(..) | Fault::Refused(_)) => {
                    log::debug!(?fault, "a channel is not subscribed yet");
                    self.map_is_stale();
                }
                fault => return Err(fault),
            }
        }
        if let Some(fault) = denied {
            return Err(fault);
        }
        let on = self.link.generation();
        let is_missing = |channels: &mut Channels| {
            let missing = |name: &&Arc<str>| {
                channels.all.get(&***name).is_some_and(|channel| !channel.is_live(on))
            };
            let missing: Vec<_> = names.iter().filter(missing).cloned().collect();
            missing.iter().for_each(|name| _ = channels.want_again(name));
            !missing.is_empty()
        };
        if self.at(is_missing) {
            sleep(jittered(NOT_TAKEN)).await;
        }
        Ok(())
    }

    fn moved(&self, slot: Slot, to: &str) {
        let next = self.home.as_ref().and_then(|home| Node::redirected(to, home));
        if let (Some(cluster), Some(next)) = (&self.inner.cluster, next) {
            cluster.moved(slot, next);
        }
    }

    async fn unsubscribe(&self, socket: &Socket, names: &[Arc<str>]) -> Result<(), Fault> {
        if self.is_sharded() {
            // If the slot has moved, the server has ended the channel already, and refuses.
            one_by_one(socket, "SUNSUBSCRIBE", names).await.map(drop)
        } else {
            all_at_once(socket, "UNSUBSCRIBE", names).await
        }
    }

    /// Subscribes one batch of wanted channels, and unsubscribes all expired ones. Returns whether there was anything
    /// to do.
    async fn catch_up(&self, socket: &Socket) -> Result<bool, Fault> {
        let wanted = self.at(Channels::next_wanted);
        if !wanted.is_empty() {
            self.subscribe(socket, &wanted).await?;
            if wanted.len() == BATCH {
                sleep(PACE).await;
            }
        }
        let linger = self.inner.linger;
        let expired = self.at(|channels| {
            let mut expired = channels.expire(Instant::now(), linger);
            expired.extend(std::mem::take(&mut channels.left));
            expired
        });
        for names in expired.chunks(BATCH) {
            self.unsubscribe(socket, names).await?;
        }
        Ok(!wanted.is_empty() || !expired.is_empty())
    }

    /// Does so as long as the connection lives. Returns why it has ended.
    async fn keep_up(&self, socket: &Socket) -> Fault {
        loop {
            match self.catch_up(socket).await {
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    () = self.link.changed.notified() => {}
                    () = self.next_expiry() => {}
                },
                Err(fault) => return fault,
            }
        }
    }

    /// Sleeps until the next channel expires, if there is one.
    async fn next_expiry(&self) {
        let next = self.at(|channels| channels.expires_next(self.inner.linger));
        sleep_until_if(next).await;
    }
}

/// One command for all of these channels, which the server carries out or refuses as a whole.
async fn all_at_once(socket: &Socket, command: &str, names: &[Arc<str>]) -> Result<(), Fault> {
    let mut pipe = pipe();
    pipe.cmd(command);
    names.iter().for_each(|name| _ = pipe.arg(&**name));
    let errors = socket.ask_for_pushes(&pipe).await.map_err(Fault::answering)?;
    errors.first().map_or(Ok(()), |error| Err(fault::entry(error)))
}

/// The same command for each of these channels. Returns the errors of the server.
async fn one_by_one(
    socket: &Socket,
    command: &str,
    names: &[Arc<str>],
) -> Result<Vec<ServerError>, Fault> {
    let mut pipe = pipe();
    names.iter().for_each(|name| _ = pipe.cmd(command).arg(&**name));
    socket.ask_for_pushes(&pipe).await.map_err(Fault::answering)
}

impl Duty for ChannelLink {
    fn name(&self) -> &'static str {
        "subscriber"
    }

    fn greet<'a>(&'a self, socket: &'a Socket, hello: &'a Hello, generation: u64) -> Greeted<'a> {
        Box::pin(async move {
            hello.accepted(self.expected)?;
            self.link.facts.learn(hello, self.expected);
            if let Some(session) = &self.inner.session {
                session.begin(socket, generation).await?;
            }
            // In one step: a waiter that leaves in between would empty the queue of wanted channels.
            self.at(|channels| {
                channels.start_again();
                self.link.generation.store(generation, Ordering::Release);
            });
            Ok(())
        })
    }

    fn heartbeat<'a>(&'a self, socket: &'a Socket) -> Greeted<'a> {
        Box::pin(async {
            // Do not use PING: a replica answers it too, and a subscriber of a replica would learn of releases too late.
            let answer = fault::answered(socket.ask(&cmd("HELLO")).await);
            fault::alive(answer.and_then(|hello| Hello::read(&hello)?.accepted(self.expected)))
        })
    }

    fn work<'a>(&'a self, socket: &'a Socket) -> BoxFuture<'a, Fault> {
        Box::pin(async {
            let Some(session) = &self.inner.session else { return self.keep_up(socket).await };
            tokio::select! {
                fault = self.keep_up(socket) => fault,
                fault = session.beats(socket) => fault,
            }
        })
    }

    fn hear(&self, generation: u64, push: PushInfo) {
        let [Value::BulkString(channel), data @ ..] = push.data.as_slice() else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        match (push.kind, data) {
            (PushKind::Subscribe | PushKind::SSubscribe, _) => {
                self.acknowledge(channel, generation);
                (self.inner.on_heard)(channel, Heard::Live);
            }
            (PushKind::Message | PushKind::SMessage, [Value::BulkString(message)]) => {
                let session = self.inner.session.as_ref();
                if session.is_some_and(|session| session.hears(generation, channel, message)) {
                    return;
                }
                (self.inner.on_heard)(channel, Heard::Message(message));
            }
            (PushKind::SUnsubscribe, _) if generation == self.link.generation() => {
                self.ended(channel);
            }
            _ => {}
        }
    }

    fn down(&self) {
        self.link.generation.store(0, Ordering::Release);
        self.map_is_stale();
    }

    /// Tells the waiters that no messages arrive: they must not sleep until the TTL of a lock that may be free by now.
    fn stays_down(&self) {
        let awaited: Vec<_> = self.at(|channels| {
            let awaited = channels.all.iter().filter(|(_, channel)| channel.subscribers > 0);
            awaited.map(|(name, _)| Arc::clone(name)).collect()
        });
        for name in awaited {
            (self.inner.on_heard)(&name, Heard::Deaf);
        }
    }
}
