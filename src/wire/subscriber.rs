//! The subscriber link: the channels that the client listens to, for whom, and since when.
//!
//! 1. A channel is live only when the server has acknowledged it, on the current live connection.
//! 2. Only the link's task subscribes and unsubscribes, one batch after the other. If a waiter comes while its channel
//!    is being unsubscribed, the task subscribes that channel again right after.
//! 3. Messages go straight from the connection's own task to the listener. Messages that were sent while there was no
//!    connection are lost. So the listener is also told when a channel becomes live, for the first time or again, and when
//!    there is no connection for a while. Then the waiters ask (`engine/listener.rs`). `link.rs` makes a new connection.
//! 4. In a cluster there is a link to each server that has a channel. If the slot of a channel moves, the channel moves
//!    to the link of the slot's new server, and becomes live again there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value, cmd, pipe};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::slot::Slot;
use crate::wire::cluster::Cluster;
use crate::wire::fault::{self, Fault, Redirect};
use crate::wire::hello::{Expected, Hello};
use crate::wire::link::{Duty, Generations, Keeper};
use crate::wire::map::SlotMap;
use crate::wire::node::Node;
use crate::wire::place::Place;
use crate::wire::scripts::Dialect;
use crate::wire::shard::Facts;

/// The most channels in one SUBSCRIBE. A hundred thousand would take the server a third of a second.
const BATCH: usize = 1000;

/// The pause after a full batch: so waiters do not all return at once with their server.
const PACE: Duration = Duration::from_millis(20);

/// The most channels that linger at the same time. A client that keeps using new names forgets the oldest ones earlier,
/// so its memory is bounded.
const MOST_IDLE: usize = 12_000;

/// The pause before the client subscribes again to a channel that the server's ACL refused.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// The pause before the client subscribes again to a channel that a server did not accept, plus or minus half.
const NOT_TAKEN: Duration = Duration::from_millis(50);

/// An event on a channel, for the listener.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard<'a> {
    /// The channel is live: from now on no message is missed.
    Live,
    /// There is no connection: no message arrives for now.
    Deaf,
    /// A client has published this.
    Message(&'a [u8]),
}

/// The link calls it with the channel and the event, on the connection's own task. It must not block.
type Listener = Box<dyn Fn(&str, Heard<'_>) + Send + Sync>;

/// The channels of one client.
#[derive(Clone)]
pub(crate) struct Subscriber(Arc<Channels>);

impl Subscriber {
    /// For channels of one server.
    pub(crate) fn new(
        place: Place,
        linger: Duration,
        listener: impl Fn(&str, Heard<'_>) + Send + Sync + 'static,
    ) -> (Self, Keeper<impl Duty>) {
        let expected = place.expected();
        let channels = Channels::new(None, linger, Box::new(listener));
        let link = channels.homes().open(None).link.clone();
        let ears = Ears { channels: Arc::clone(&channels), home: None, expected, link };
        let (keeper, _) = Keeper::new(place, Arc::new(ears), Generations::default());
        (Self(channels), keeper)
    }

    /// For channels of the servers of a cluster.
    pub(crate) fn in_cluster(
        cluster: Arc<Cluster>,
        linger: Duration,
        listener: impl Fn(&str, Heard<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self(Channels::new(Some(cluster), linger, Box::new(listener)))
    }

    /// Listens to a channel as long as the subscription exists, and a while longer.
    pub(crate) fn join(&self, channel: &str) -> Subscription {
        let mut homes = self.0.homes();
        let home = homes.of(channel);
        let at = homes.open(home);
        let (channel, link) = (at.table.join(channel), Arc::clone(&at.link));
        drop(homes);
        link.changed.notify_one();
        self.0.connect();
        Subscription { channels: Arc::clone(&self.0), channel }
    }

    /// Moves each channel to the server that has its slot in this map.
    pub(crate) fn follow(&self, map: Arc<SlotMap>) {
        let changed = self.0.homes().follow(map);
        changed.iter().for_each(|link| link.changed.notify_one());
        self.0.connect();
    }
}

/// One waiter's interest in a channel.
pub(crate) struct Subscription {
    channels: Arc<Channels>,
    channel: Arc<str>,
}

impl Subscription {
    /// Whether no message on its channel can be missed.
    pub(crate) fn is_live(&self) -> bool {
        self.channels.is_live(&self.channel)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut homes = self.channels.homes();
        let home = homes.of(&self.channel);
        let Some(at) = homes.all.get_mut(&home) else { return };
        let link = Arc::clone(&at.link);
        let is_news = at.table.leave(&self.channel, Instant::now());
        drop(homes);
        if is_news {
            link.changed.notify_one();
        }
    }
}

struct Channels {
    homes: Mutex<Homes>,
    cluster: Option<Arc<Cluster>>,
    generations: Generations,
    linger: Duration,
    listener: Listener,
}

/// Where channels are subscribed. The key `None` is the only server, or, in a cluster, no server: the slot has none for
/// now.
#[derive(Default)]
struct Homes {
    map: Arc<SlotMap>,
    all: BTreeMap<Option<Node>, Home>,
}

/// The channels that one server has.
#[derive(Default)]
struct Home {
    table: Table,
    link: Arc<HomeLink>,
    /// Ends the link; `None`: there is none yet.
    stop: Option<CancellationToken>,
}

/// What a home and its link share.
#[derive(Default)]
struct HomeLink {
    changed: Notify,
    /// The generation of the live connection; 0: there is none.
    generation: AtomicU64,
    facts: Facts,
}

impl HomeLink {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

impl Homes {
    /// The home of a channel.
    fn of(&self, channel: &str) -> Option<Node> {
        if self.map.is_empty() { None } else { self.map.owner(Slot::of(channel)).cloned() }
    }

    fn open(&mut self, home: Option<Node>) -> &mut Home {
        self.all.entry(home).or_default()
    }

    /// Moves each channel to its current home. Returns the links whose work has changed.
    fn follow(&mut self, map: Arc<SlotMap>) -> Vec<Arc<HomeLink>> {
        self.map = Arc::clone(&map);
        let (mut moved, mut changed) = (Vec::new(), Vec::new());
        for (node, home) in &mut self.all {
            let stays = |channel: &str| map.owner(Slot::of(channel)) == node.as_ref();
            // The server ends sharded channels that have moved. A plain one remains, and has to be unsubscribed.
            let is_left = home.link.facts.dialect() != Dialect::Sharded;
            let leaving = home.table.leave_behind(stays, is_left);
            if !leaving.is_empty() {
                changed.push(Arc::clone(&home.link));
            }
            moved.extend(leaving);
        }
        for (channel, subscribers) in moved {
            let home = self.of(&channel);
            let at = self.open(home);
            at.table.adopt(channel, subscribers);
            changed.push(Arc::clone(&at.link));
        }
        let used = map.nodes();
        self.all.retain(|node, home| {
            let stays = node.as_ref().is_none_or(|node| used.contains(node));
            if let (false, Some(stop)) = (stays, &home.stop) {
                stop.cancel();
            }
            stays
        });
        changed
    }
}

#[derive(Default)]
struct Table {
    /// This map is ordered, so that a reconnect subscribes in the same order in every run of a simulation.
    channels: BTreeMap<Arc<str>, Channel>,
    /// Channels to subscribe.
    wanted: VecDeque<Arc<str>>,
    /// Channels without subscribers, each with the time since when it lingers, the longest idle first.
    idle: VecDeque<(Instant, Arc<str>)>,
    /// Channels to unsubscribe, since another server has them now.
    left: BTreeSet<Arc<str>>,
}

struct Channel {
    subscribers: usize,
    phase: Phase,
    /// When the last subscriber left. Set while the channel is in the queue of idle ones.
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
        self.left.remove(&name);
        let channel = Channel { subscribers: 1, phase: Phase::Wanted, idle_since: None };
        self.channels.insert(Arc::clone(&name), channel);
        self.wanted.push_back(Arc::clone(&name));
        name
    }

    /// Whether the channel has just become idle, and is not in the queue of idle ones yet.
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

    /// The next channels to subscribe. Some may have been forgotten while they were in the queue.
    fn next_wanted(&mut self) -> Vec<Arc<str>> {
        let most = self.wanted.len().min(BATCH);
        let wanted = self.wanted.drain(..most);
        wanted.filter(|name| self.channels.contains_key(name)).collect()
    }

    /// Forgets the channels that no waiter returned to. If a waiter wants one again before it was unsubscribed, it is a
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

    /// Forgets the channels that leave this server. Returns those that have subscribers, with the number of
    /// subscribers.
    fn leave_behind(
        &mut self,
        stays: impl Fn(&str) -> bool,
        is_left: bool,
    ) -> Vec<(Arc<str>, usize)> {
        let mut moved = Vec::new();
        self.channels.retain(|name, channel| {
            let is_here = stays(name);
            if !is_here && is_left {
                self.left.insert(Arc::clone(name));
            }
            if !is_here && channel.subscribers > 0 {
                moved.push((Arc::clone(name), channel.subscribers));
            }
            is_here
        });
        moved
    }

    /// Takes over a channel from another server.
    fn adopt(&mut self, name: Arc<str>, subscribers: usize) {
        self.left.remove(&name);
        let channel = Channel { subscribers, phase: Phase::Wanted, idle_since: None };
        self.channels.insert(Arc::clone(&name), channel);
        self.wanted.push_back(name);
    }

    /// A server ended a channel that nobody unsubscribed, or did not accept it.
    fn want_again(&mut self, name: &str) -> bool {
        let Some((name, _)) = self.channels.get_key_value(name) else { return false };
        let name = Arc::clone(name);
        if let Some(channel) = self.channels.get_mut(&name) {
            channel.phase = Phase::Wanted;
        }
        self.wanted.push_back(name);
        true
    }

    /// There is a new connection, without subscriptions: all channels with waiters are wanted again.
    fn start_again(&mut self) {
        self.idle.clear();
        self.left.clear();
        self.channels.retain(|_, channel| channel.subscribers > 0);
        for channel in self.channels.values_mut() {
            channel.phase = Phase::Wanted;
            channel.idle_since = None;
        }
        self.wanted = self.channels.keys().cloned().collect();
    }
}

impl Channels {
    fn new(cluster: Option<Arc<Cluster>>, linger: Duration, listener: Listener) -> Arc<Self> {
        let (homes, generations) = (Mutex::default(), Generations::default());
        Arc::new(Self { homes, cluster, generations, linger, listener })
    }

    fn homes(&self) -> MutexGuard<'_, Homes> {
        self.homes.lock().expect("no panic under this lock")
    }

    /// Connects to servers of a cluster that channels have moved to.
    fn connect(self: &Arc<Self>) {
        let Some(cluster) = &self.cluster else { return };
        loop {
            let mut homes = self.homes();
            let mut new = homes.all.iter_mut().filter(|(_, home)| home.stop.is_none());
            let Some((Some(node), home)) = new.find(|(node, _)| node.is_some()) else { return };
            let (node, link) = (node.clone(), Arc::clone(&home.link));
            // A separate token, so that this link can end before the client does.
            let stop = CancellationToken::new();
            home.stop = Some(stop.clone());
            drop(homes);
            let Ok(address) = cluster.address(&node) else { continue };
            let (home, expected) = (Some(node), cluster.expected());
            let ears = Ears { channels: Arc::clone(self), home, expected, link };
            let place = Place::Fixed(Arc::new(address));
            let (keeper, _) = Keeper::new(place, Arc::new(ears), self.generations.clone());
            cluster.run(|ends| async move {
                stop.run_until_cancelled(keeper.run(ends)).await;
            });
        }
    }

    fn is_live(&self, channel: &str) -> bool {
        let homes = self.homes();
        let Some(home) = homes.all.get(&homes.of(channel)) else { return false };
        let now = home.link.generation();
        let channel = home.table.channels.get(channel);
        channel.is_some_and(|c| matches!(c.phase, Phase::Live(on) if on == now))
    }
}

/// The duty of a link for channels: those of one home.
struct Ears {
    channels: Arc<Channels>,
    home: Option<Node>,
    expected: Expected,
    link: Arc<HomeLink>,
}

impl Ears {
    /// Applies a function to the table of this home.
    fn at<T: Default>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut homes = self.channels.homes();
        // The home may have been closed, and opened again with another link.
        let home = homes.all.get_mut(&self.home).filter(|home| Arc::ptr_eq(&home.link, &self.link));
        home.map_or_else(T::default, |home| act(&mut home.table))
    }

    /// The server has acknowledged a channel. The channel may have been unsubscribed and wanted again in between. Then
    /// another acknowledgement follows, and until then this one is just as valid.
    fn acknowledge(&self, name: &str, generation: u64) {
        if generation != self.link.generation() {
            return;
        }
        self.at(|table| {
            if let Some(channel) = table.channels.get_mut(name) {
                channel.phase = Phase::Live(generation);
            }
        });
    }

    fn refuse(&self, name: &str, fault: &Fault) {
        tracing::warn!(channel = ?name, ?fault, "not allowed to listen: waiters poll from time to time instead");
        self.at(|table| {
            if let Some(channel) = table.channels.get_mut(name) {
                channel.phase = Phase::Refused(Instant::now());
            }
        });
        (self.channels.listener)(name, Heard::Deaf);
    }

    /// The server ended a channel, since its slot has moved. The next answer will say where it is now.
    fn ended(&self, name: &str) {
        let on = self.link.generation();
        let was_live = |table: &Table| {
            table.channels.get(name).is_some_and(|c| matches!(c.phase, Phase::Live(at) if at == on))
        };
        // If it was not, this client has unsubscribed it, and wants it again by now.
        if self.at(|table| was_live(table) && table.want_again(name)) {
            self.link.changed.notify_one();
            self.map_is_stale();
        }
    }

    fn map_is_stale(&self) {
        if let Some(cluster) = &self.channels.cluster {
            cluster.stale.notify_one();
        }
    }

    fn is_sharded(&self) -> bool {
        self.link.facts.dialect() == Dialect::Sharded
    }

    async fn subscribe(
        &self,
        conn: &mut MultiplexedConnection,
        names: &[Arc<str>],
    ) -> Result<(), Fault> {
        let asked = if self.is_sharded() {
            self.subscribe_sharded(conn, names).await
        } else {
            conn.subscribe(words(names)).await.map_err(Fault::answering)
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
                    Box::pin(self.subscribe(conn, name)).await?;
                }
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// Each channel needs a separate command, or `redis-rs` would take its answers for those of other commands. Even
    /// so, a push that ends a channel counts as an answer to another command: so only pushes say what is live, and no
    /// answer says which channel it is about.
    async fn subscribe_sharded(
        &self,
        conn: &mut MultiplexedConnection,
        names: &[Arc<str>],
    ) -> Result<(), Fault> {
        let answers = in_a_row(conn, "SSUBSCRIBE", names).await?;
        let mut denied = None;
        for answer in &answers {
            let Value::ServerError(error) = answer else { continue };
            match fault::entry(error) {
                Fault::Redirected(Redirect::Moved { slot, to }, _) => self.moved(slot, &to),
                fault @ Fault::Permission(_) => denied = Some(fault),
                fault @ (Fault::Redirected(..) | Fault::Refused(_)) => {
                    tracing::debug!(?fault, "a channel is not subscribed yet");
                    self.map_is_stale();
                }
                fault => return Err(fault),
            }
        }
        if let Some(fault) = denied {
            return Err(fault);
        }
        let on = self.link.generation();
        let was_taken = |channel: &Channel| matches!(channel.phase, Phase::Live(at) if at == on);
        let is_missing = |table: &mut Table| {
            let missing = |name: &&Arc<str>| {
                table.channels.get(&***name).is_some_and(|channel| !was_taken(channel))
            };
            let missing: Vec<_> = names.iter().filter(missing).cloned().collect();
            missing.iter().for_each(|name| _ = table.want_again(name));
            !missing.is_empty()
        };
        if self.at(is_missing) {
            sleep(NOT_TAKEN.mul_f64(0.5 + fastrand::f64())).await;
        }
        Ok(())
    }

    fn moved(&self, slot: Slot, to: &str) {
        let next = self.home.as_ref().and_then(|home| Node::redirected(to, home));
        if let (Some(cluster), Some(next)) = (&self.channels.cluster, next) {
            cluster.moved(slot, next);
        }
    }

    async fn unsubscribe(
        &self,
        conn: &mut MultiplexedConnection,
        names: &[Arc<str>],
    ) -> Result<(), Fault> {
        if self.is_sharded() {
            // For a slot that has moved, the server has already ended the channel, and reports that once more.
            in_a_row(conn, "SUNSUBSCRIBE", names).await.map(drop)
        } else {
            conn.unsubscribe(words(names)).await.map_err(Fault::answering)
        }
    }

    /// Subscribes one batch of wanted channels, and unsubscribes all expired ones. Returns whether there was anything
    /// to do.
    async fn catch_up(&self, conn: &mut MultiplexedConnection) -> Result<bool, Fault> {
        let wanted = self.at(Table::next_wanted);
        if !wanted.is_empty() {
            self.subscribe(conn, &wanted).await?;
            if wanted.len() == BATCH {
                sleep(PACE).await;
            }
        }
        let linger = self.channels.linger;
        let expired = self.at(|table| {
            let mut expired = table.expire(Instant::now(), linger);
            expired.extend(std::mem::take(&mut table.left));
            expired
        });
        for names in expired.chunks(BATCH) {
            self.unsubscribe(conn, names).await?;
        }
        Ok(!wanted.is_empty() || !expired.is_empty())
    }

    /// Sleeps until the next channel expires, if there is one.
    async fn next_expiry(&self) {
        let next = self.at(|table| table.expires_next(self.channels.linger));
        match next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// The same command for each of these channels.
async fn in_a_row(
    conn: &mut MultiplexedConnection,
    command: &str,
    names: &[Arc<str>],
) -> Result<Vec<Value>, Fault> {
    let mut pipe = pipe();
    names.iter().for_each(|name| _ = pipe.cmd(command).arg(&**name));
    conn.send_packed_commands(&pipe, 0, pipe.len()).await.map_err(Fault::answering)
}

fn words(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

impl Duty for Ears {
    const NAME: &'static str = "subscriber";

    async fn greet(&self, conn: &mut MultiplexedConnection, generation: u64) -> Result<(), Fault> {
        let hello = conn.send_packed_command(&cmd("HELLO")).await.map_err(Fault::connecting)?;
        let hello = Hello::read(Some(&hello))?;
        hello.accepted(&self.expected)?;
        self.link.facts.learn(&hello, &self.expected);
        self.at(Table::start_again);
        self.link.generation.store(generation, Ordering::Release);
        Ok(())
    }

    async fn heartbeat(&self, conn: &mut MultiplexedConnection) -> Result<(), Fault> {
        // Do not use PING: a replica answers it too, and a subscriber of a replica would learn of releases too late.
        match conn.send_packed_command(&cmd("HELLO")).await.map_err(Fault::answering)? {
            Value::ServerError(error) => match fault::entry(&error) {
                // A server that answers is alive, even if it says that it is busy or broken.
                Fault::Refused(_) => Ok(()),
                fault => Err(fault),
            },
            // A push that ended a channel was taken for the answer. It is a sign of life, and the next answer says
            // more.
            answer if self.is_sharded() && !matches!(answer, Value::Map(_)) => Ok(()),
            hello => Hello::read(Some(&hello))?.accepted(&self.expected),
        }
    }

    async fn work(&self, mut conn: MultiplexedConnection) -> Fault {
        loop {
            match self.catch_up(&mut conn).await {
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    () = self.link.changed.notified() => {}
                    () = self.next_expiry() => {}
                },
                Err(fault) => return fault,
            }
        }
    }

    fn hear(&self, generation: u64, push: PushInfo) {
        let [Value::BulkString(channel), data @ ..] = push.data.as_slice() else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        match (push.kind, data) {
            (PushKind::Subscribe | PushKind::SSubscribe, _) => {
                self.acknowledge(channel, generation);
                (self.channels.listener)(channel, Heard::Live);
            }
            (PushKind::Message | PushKind::SMessage, [Value::BulkString(message)]) => {
                (self.channels.listener)(channel, Heard::Message(message));
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
        let awaited: Vec<_> = self.at(|table| {
            let awaited = table.channels.iter().filter(|(_, channel)| channel.subscribers > 0);
            awaited.map(|(name, _)| Arc::clone(name)).collect()
        });
        for name in awaited {
            (self.channels.listener)(&name, Heard::Deaf);
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
