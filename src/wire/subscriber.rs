//! The subscriber link: to which channels the client listens, for whom, and since when.
//!
//! 1. A channel is live only when the server has said so, on the connection that is live now.
//! 2. The link's task alone subscribes and unsubscribes, one batch after the other. If a waiter comes while its
//!    channel is being left, the task subscribes that channel again right after.
//! 3. Messages go straight from the connection's own task to the listener. Messages that were sent while there was no
//!    connection are lost. So the listener is also told of each channel that becomes live, for the first time or
//!    again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value, cmd};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::wire::address::Address;
use crate::wire::commands::primary;
use crate::wire::fault::{self, Fault};
use crate::wire::link::{Duty, Keeper};

/// The most channels in one SUBSCRIBE. A hundred thousand would take the server a third of a second.
const BATCH: usize = 1000;

/// The pause after a full batch: so waiters do not come back all at once with their server.
const PACE: Duration = Duration::from_millis(20);

/// The most channels that linger at the same time. A client that uses ever new names forgets the oldest ones earlier:
/// so its memory is bounded.
const MOST_IDLE: usize = 12_000;

/// The pause before the client asks again for a channel that the server's ACL has refused.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// What the listener hears of a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard<'a> {
    /// The channel is live: from now on no message is missed.
    Live,
    /// There is no connection: no message comes in for now.
    Deaf,
    /// A client has published this.
    Message(&'a [u8]),
}

/// The link calls it with the channel and what was heard, on the connection's own task. It must not block.
type Listener = Box<dyn Fn(&str, Heard<'_>) + Send + Sync>;

/// The channels of one client.
#[derive(Clone)]
pub(crate) struct Subscriber(Arc<Channels>);

impl Subscriber {
    pub(crate) fn new(
        address: Arc<Address>,
        linger: Duration,
        listener: impl Fn(&str, Heard<'_>) + Send + Sync + 'static,
    ) -> (Self, Keeper<impl Duty>) {
        let channels = Arc::new(Channels {
            table: Mutex::default(),
            changed: Notify::new(),
            generation: AtomicU64::new(0),
            linger,
            listener: Box::new(listener),
        });
        let (keeper, _) = Keeper::new(address, Arc::clone(&channels));
        (Self(channels), keeper)
    }

    /// Listens to a channel as long as the subscription exists, and a while longer.
    pub(crate) fn join(&self, channel: &str) -> Subscription {
        let mut table = self.0.table();
        let channel = table.join(channel);
        drop(table);
        self.0.changed.notify_one();
        Subscription { channels: Arc::clone(&self.0), channel }
    }
}

/// One waiter's interest in a channel.
pub(crate) struct Subscription {
    channels: Arc<Channels>,
    channel: Arc<str>,
}

impl Subscription {
    /// Whether no message on its channel is missed.
    pub(crate) fn is_live(&self) -> bool {
        self.channels.is_live(&self.channel)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.channels.table().leave(&self.channel, Instant::now()) {
            self.channels.changed.notify_one();
        }
    }
}

struct Channels {
    table: Mutex<Table>,
    changed: Notify,
    /// The generation of the live connection; 0: there is none.
    generation: AtomicU64,
    linger: Duration,
    listener: Listener,
}

#[derive(Default)]
struct Table {
    /// This map is ordered, so that a reconnect subscribes in the same order in every run of a simulation.
    channels: BTreeMap<Arc<str>, Channel>,
    /// Channels to subscribe.
    wanted: VecDeque<Arc<str>>,
    /// Channels without subscribers, in the order in which they became idle, with the time since when they linger.
    idle: VecDeque<(Instant, Arc<str>)>,
}

struct Channel {
    subscribers: usize,
    phase: Phase,
    /// When the last subscriber left. Set while the channel stands in the queue of idle ones.
    idle_since: Option<Instant>,
}

enum Phase {
    /// The channel is in the queue of wanted ones, or the task is subscribing it.
    Wanted,
    /// The generation of the connection on which the server has acknowledged it.
    Live(u64),
    /// The server has refused it.
    Refused(Instant),
}

impl Table {
    fn join(&mut self, name: &str) -> Arc<str> {
        if let Some((name, channel)) =
            self.channels.get_key_value(name).map(|(n, c)| (n.clone(), c))
        {
            let again = matches!(channel.phase, Phase::Refused(at) if at.elapsed() > REFUSED_FOR);
            let channel = self.channels.get_mut(&name).expect("it was just found");
            channel.subscribers += 1;
            if again {
                channel.phase = Phase::Wanted;
                self.wanted.push_back(Arc::clone(&name));
            }
            return name;
        }
        let name: Arc<str> = name.into();
        let channel = Channel { subscribers: 1, phase: Phase::Wanted, idle_since: None };
        self.channels.insert(Arc::clone(&name), channel);
        self.wanted.push_back(Arc::clone(&name));
        name
    }

    /// Whether the channel has just become idle, and does not stand in the queue of idle ones yet.
    fn leave(&mut self, name: &Arc<str>, now: Instant) -> bool {
        let Some(channel) = self.channels.get_mut(name) else {
            return false;
        };
        channel.subscribers -= 1;
        if channel.subscribers > 0 || channel.idle_since.replace(now).is_some() {
            return false;
        }
        self.idle.push_back((now, Arc::clone(name)));
        true
    }

    /// The next channels to subscribe. Some may have been forgotten while they stood in the queue.
    fn next_wanted(&mut self) -> Vec<Arc<str>> {
        let most = self.wanted.len().min(BATCH);
        let wanted = self.wanted.drain(..most);
        wanted.filter(|name| self.channels.contains_key(name)).collect()
    }

    /// Forgets the channels that no waiter came back to. If a waiter wants one again before it was left, that is a
    /// new channel.
    fn expire(&mut self, now: Instant, linger: Duration) -> Vec<Arc<str>> {
        let mut expired = Vec::new();
        while self.expires_next(linger).is_some_and(|at| at <= now) {
            let Some((since, name)) = self.idle.pop_front() else { break };
            match self.channels.get_mut(&name) {
                Some(channel) if channel.subscribers > 0 => channel.idle_since = None,
                // A waiter has used it in between: it lingers once more, behind the others.
                Some(channel) if channel.idle_since != Some(since) => {
                    channel.idle_since = Some(now);
                    self.idle.push_back((now, name));
                }
                Some(_) => {
                    self.channels.remove(&name);
                    expired.push(name);
                }
                None => {}
            }
        }
        expired
    }

    /// When the next channel expires.
    fn expires_next(&self, linger: Duration) -> Option<Instant> {
        let crowded = self.idle.len() > MOST_IDLE;
        self.idle.front().map(|(since, _)| if crowded { *since } else { *since + linger })
    }

    /// There is a new connection, which knows no channel: all channels with waiters are wanted again.
    fn start_again(&mut self) {
        self.idle.clear();
        self.channels.retain(|_, channel| channel.subscribers > 0);
        for channel in self.channels.values_mut() {
            channel.phase = Phase::Wanted;
            channel.idle_since = None;
        }
        self.wanted = self.channels.keys().cloned().collect();
    }
}

impl Channels {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no panic under this lock")
    }

    fn is_live(&self, channel: &str) -> bool {
        let now = self.generation.load(Ordering::Acquire);
        let table = self.table();
        table.channels.get(channel).is_some_and(|c| matches!(c.phase, Phase::Live(on) if on == now))
    }

    /// The server has acknowledged a channel. The channel may have been left and wanted again in between. Then
    /// another acknowledgement follows, and until then this one is as good.
    fn acknowledge(&self, name: &str, generation: u64) {
        if generation != self.generation.load(Ordering::Acquire) {
            return;
        }
        if let Some(channel) = self.table().channels.get_mut(name) {
            channel.phase = Phase::Live(generation);
        }
    }

    fn refuse(&self, name: &str, fault: &Fault) {
        tracing::warn!(channel = ?name, ?fault, "not allowed to listen: waiters ask now and then instead");
        if let Some(channel) = self.table().channels.get_mut(name) {
            channel.phase = Phase::Refused(Instant::now());
        }
    }

    async fn subscribe(
        &self,
        conn: &mut MultiplexedConnection,
        names: &[Arc<str>],
    ) -> Result<(), Fault> {
        match conn.subscribe(words(names)).await.map_err(Fault::answering) {
            Ok(()) => Ok(()),
            Err(Fault::Permission(source)) if names.len() == 1 => {
                self.refuse(&names[0], &Fault::Permission(source));
                Ok(())
            }
            // The server refuses all of them if one is forbidden. So ask for each of them alone.
            Err(Fault::Permission(_)) => {
                for name in names.chunks(1) {
                    Box::pin(self.subscribe(conn, name)).await?;
                }
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// Subscribes one batch of wanted channels, and leaves all expired ones. Returns whether there was anything to
    /// do.
    async fn catch_up(&self, conn: &mut MultiplexedConnection) -> Result<bool, Fault> {
        let wanted = self.table().next_wanted();
        if !wanted.is_empty() {
            self.subscribe(conn, &wanted).await?;
            if wanted.len() == BATCH {
                sleep(PACE).await;
            }
        }
        let expired = self.table().expire(Instant::now(), self.linger);
        for names in expired.chunks(BATCH) {
            conn.unsubscribe(words(names)).await.map_err(Fault::answering)?;
        }
        Ok(!wanted.is_empty() || !expired.is_empty())
    }

    /// Sleeps until the next channel expires, if there is one.
    async fn next_expiry(&self) {
        let next = self.table().expires_next(self.linger);
        match next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

fn words(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

impl Duty for Channels {
    const NAME: &'static str = "subscriber";

    async fn greet(&self, conn: &mut MultiplexedConnection, generation: u64) -> Result<(), Fault> {
        let hello = conn.send_packed_command(&cmd("HELLO")).await.map_err(Fault::connecting)?;
        primary(Some(&hello))?;
        self.table().start_again();
        self.generation.store(generation, Ordering::Release);
        Ok(())
    }

    async fn heartbeat(&self, conn: &mut MultiplexedConnection) -> Result<(), Fault> {
        // Do not use PING: a replica answers it too, and a subscriber of a replica would hear of releases too late.
        match conn.send_packed_command(&cmd("HELLO")).await.map_err(Fault::answering)? {
            Value::ServerError(error) => match fault::entry(&error) {
                // A server that answers is alive, even if it says that it is busy or broken.
                Fault::Refused(_) => Ok(()),
                fault => Err(fault),
            },
            hello => primary(Some(&hello)),
        }
    }

    async fn work(&self, mut conn: MultiplexedConnection) -> Fault {
        loop {
            match self.catch_up(&mut conn).await {
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = self.next_expiry() => {}
                },
                Err(fault) => return fault,
            }
        }
    }

    fn hear(&self, generation: u64, push: PushInfo) {
        match (push.kind, push.data.as_slice()) {
            (PushKind::Subscribe, [Value::BulkString(channel), ..]) => {
                if let Ok(channel) = std::str::from_utf8(channel) {
                    self.acknowledge(channel, generation);
                    (self.listener)(channel, Heard::Live);
                }
            }
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) => {
                if let Ok(channel) = std::str::from_utf8(channel) {
                    (self.listener)(channel, Heard::Message(message));
                }
            }
            _ => {}
        }
    }

    fn down(&self) {
        self.generation.store(0, Ordering::Release);
    }

    /// Tells the waiters that no message comes in: they must not sleep until the TTL of a lock that may be free by
    /// now.
    fn stays_down(&self) {
        let awaited: Vec<_> = {
            let table = self.table();
            let awaited = table.channels.iter().filter(|(_, channel)| channel.subscribers > 0);
            awaited.map(|(name, _)| Arc::clone(name)).collect()
        };
        for name in awaited {
            (self.listener)(&name, Heard::Deaf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_secs(5);

    fn names(batch: &[Arc<str>]) -> Vec<&str> {
        words(batch)
    }

    #[test]
    fn a_channel_is_wanted_once_and_expires_after_its_last_subscription() {
        let (mut table, start) = (Table::default(), Instant::now());
        let name = table.join("a");
        table.join("a");
        assert_eq!(names(&table.next_wanted()), ["a"]);
        assert!(!table.leave(&name, start));
        assert!(table.leave(&name, start));
        assert!(table.expire(start + LINGER / 2, LINGER).is_empty());
        assert_eq!(names(&table.expire(start + LINGER, LINGER)), ["a"]);
        assert!(table.channels.is_empty());
    }

    #[test]
    fn a_subscription_to_a_lingering_channel_keeps_it() {
        let (mut table, start) = (Table::default(), Instant::now());
        let name = table.join("a");
        table.next_wanted();
        table.leave(&name, start);
        table.join("a");
        assert!(table.next_wanted().is_empty());
        assert!(table.expire(start + LINGER, LINGER).is_empty());
        assert!(table.leave(&name, start + LINGER));
        assert_eq!(names(&table.expire(start + LINGER * 2, LINGER)), ["a"]);
    }

    #[test]
    fn a_busy_channel_stands_in_the_queue_of_the_idle_once() {
        let (mut table, start) = (Table::default(), Instant::now());
        for _ in 0..1000 {
            let name = table.join("a");
            table.leave(&name, start);
        }
        assert_eq!(table.idle.len(), 1);
    }

    #[test]
    fn a_busy_channel_does_not_keep_the_others_from_expiring() {
        let (mut table, start) = (Table::default(), Instant::now());
        let (busy, quiet) = (table.join("busy"), table.join("quiet"));
        table.leave(&busy, start);
        table.leave(&quiet, start);
        table.join("busy");
        table.leave(&busy, start + LINGER);
        assert_eq!(names(&table.expire(start + LINGER, LINGER)), ["quiet"]);
        assert_eq!(names(&table.expire(start + LINGER * 2, LINGER)), ["busy"]);
    }

    #[test]
    fn of_too_many_idle_channels_the_oldest_go_early() {
        let (mut table, start) = (Table::default(), Instant::now());
        for number in 0..MOST_IDLE + 3 {
            let name = table.join(&number.to_string());
            table.leave(&name, start);
        }
        let used = table.join("1");
        table.leave(&used, start + LINGER / 4);
        assert_eq!(names(&table.expire(start + LINGER / 2, LINGER)), ["0", "2", "3"]);
        assert_eq!(table.idle.len(), MOST_IDLE);
        assert!(table.expire(start + LINGER / 2, LINGER).is_empty());
    }

    #[test]
    fn a_channel_that_is_forgotten_before_it_was_subscribed_is_not_subscribed() {
        let (mut table, start) = (Table::default(), Instant::now());
        let gone = table.join("gone");
        table.leave(&gone, start);
        table.join("kept");
        assert_eq!(table.expire(start + LINGER, LINGER).len(), 1);
        assert_eq!(names(&table.next_wanted()), ["kept"]);
    }

    #[test]
    fn a_channel_joined_while_it_is_being_left_is_wanted_anew() {
        let (mut table, start) = (Table::default(), Instant::now());
        let name = table.join("a");
        table.next_wanted();
        table.leave(&name, start);
        assert_eq!(table.expire(start + LINGER, LINGER).len(), 1);
        table.join("a");
        assert_eq!(names(&table.next_wanted()), ["a"]);
    }

    #[test]
    fn a_new_connection_is_asked_for_what_is_waited_for() {
        let (mut table, start) = (Table::default(), Instant::now());
        let left = table.join("left");
        table.join("kept");
        table.next_wanted();
        table.leave(&left, start);
        table.start_again();
        assert_eq!(names(&table.next_wanted()), ["kept"]);
        assert!(table.expire(start + LINGER, LINGER).is_empty());
    }
}
