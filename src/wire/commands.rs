//! The path of the scripts to the servers: for each lock, the connection to its server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Value, cmd, pipe};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::config::{Config, Layout};
use crate::error::Error;
use crate::keys::Keys;
use crate::meters;
use crate::slot::Slot;
use crate::wire::acks::{Acks, Quorum};
use crate::wire::clock::ServerClock;
use crate::wire::cluster::Cluster;
use crate::wire::fault::{self, Fault};
use crate::wire::link::{Generations, Live};
use crate::wire::node::Node;
use crate::wire::place::Place;
use crate::wire::redirect::Redirect;
use crate::wire::scripts::Script;
use crate::wire::shard::{CommandDuty, Shard, ShardKeeper};

/// How often one request is redirected. More redirections mean that two nodes disagree.
const MOST_HOPS: usize = 5;

/// The path of all scripts to the servers.
#[derive(Clone)]
pub(crate) struct Commands {
    servers: Servers,
    terms: Arc<Terms>,
    newest: watch::Receiver<u64>,
    /// How long a redirected request waits for the connection to its new node.
    connect_timeout: Duration,
}

/// The servers that store the locks.
#[derive(Clone)]
enum Servers {
    One(Arc<Shard>),
    Cluster(Arc<Cluster>),
}

/// The arguments common to every script of a client.
#[derive(Debug)]
pub(crate) struct Terms {
    /// This client's id, in lines and in the messages that it publishes.
    pub(crate) client: String,
    pub(crate) layout: Layout,
    /// How long the server keeps a line in which no client shows a sign of life. Most clients in a line sleep, but ask
    /// more often than this.
    pub(crate) line_ttl: Duration,
    /// For how long after its last sign of life a client in line counts as alive.
    pub(crate) waiter_ttl: Duration,
}

impl Terms {
    /// The message that a release of this client publishes.
    pub(crate) fn message(&self) -> &str {
        self.layout.message(&self.client)
    }
}

impl Commands {
    /// All locks lie on one server.
    pub(crate) fn new(place: Place, terms: Terms, config: &Config) -> (Self, ShardKeeper) {
        let (newest, seen) = watch::channel(0);
        let (expected, lost) = (place.expected(), Arc::<Notify>::default());
        let clock = ServerClock::default();
        let duty = CommandDuty::new(terms.layout, clock, expected, Arc::new(newest), lost);
        let connect_timeout = config.connect_timeout;
        let generations = Generations::default();
        let (shard, keeper) = Shard::new((None, place), duty, &generations, Quorum::of(config));
        let servers = Servers::One(Arc::new(shard));
        (Self { servers, terms: Arc::new(terms), newest: seen, connect_timeout }, keeper)
    }

    /// The locks are in the slots of a cluster.
    pub(crate) fn in_cluster(cluster: Arc<Cluster>, terms: Terms, config: &Config) -> Self {
        let (newest, connect_timeout) = (cluster.newest.subscribe(), config.connect_timeout);
        Self { servers: Servers::Cluster(cluster), terms: Arc::new(terms), newest, connect_timeout }
    }

    /// The server that has this lock.
    fn shard(&self, keys: &Keys) -> Result<Arc<Shard>, Fault> {
        self.shard_of(keys.slot)
    }

    /// The server that has this slot of a cluster, or the only one.
    pub(crate) fn shard_of(&self, slot: Option<Slot>) -> Result<Arc<Shard>, Fault> {
        match (&self.servers, slot) {
            (Servers::One(shard), _) => Ok(Arc::clone(shard)),
            (Servers::Cluster(cluster), Some(slot)) => cluster.owner(slot),
            (Servers::Cluster(_), None) => unreachable!("in a cluster every name has a slot"),
        }
    }

    /// How many locks, at most this many, one script may handle: in a cluster, the next lock may be at another server.
    pub(crate) fn together(&self, most: usize) -> usize {
        match self.servers {
            Servers::One(_) => most,
            Servers::Cluster(_) => 1,
        }
    }

    /// Whether each request handles one lock, and is sent immediately. Requests that replicas have to acknowledge still
    /// gather, and releases then take two different links.
    pub(crate) fn is_scattered(&self) -> bool {
        match &self.servers {
            Servers::One(shard) => shard.acks.is_some(),
            Servers::Cluster(_) => true,
        }
    }

    /// The connection for requests about this lock, or why there is none.
    pub(crate) fn connection(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connection_by(Way::Plain, keys)
    }

    /// Same as [`connection`](Self::connection), but if replicas have to acknowledge, for requests that count only when
    /// replicas have their writes. A caller that passes a latch holds nothing that could be lost.
    pub(crate) fn acknowledged(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connection_by(Way::of(keys, true), keys)
    }

    /// Same as [`connection`](Self::connection), for requests that have to run after those that were
    /// [`acknowledged`](Self::acknowledged), and that wait for no replica.
    pub(crate) fn behind_acknowledged(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connection_by(Way::of(keys, false), keys)
    }

    fn connection_by(&self, way: Way, keys: &Keys) -> Result<Connection<'_>, Fault> {
        let shard = self.shard(keys)?;
        let live = way.live(&shard)?;
        let sent_on = Arc::new(AtomicU64::new(live.generation));
        Ok(Connection { live, shard, way, short: None, sent_on, commands: self })
    }

    /// Records a number that the server of this lock has granted.
    pub(crate) fn granted(&self, keys: &Keys, number: u64) {
        if let Ok(shard) = self.shard(keys) {
            shard.clock.granted(number, Instant::now());
        }
    }

    /// Waits until the client has tried to connect to the server of this lock. The client connects to a server of a
    /// cluster when it first needs it.
    pub(crate) async fn tried(&self, keys: &Keys) {
        if let (Servers::Cluster(_), Ok(shard)) = (&self.servers, self.shard(keys)) {
            shard.tried().await;
        }
    }

    /// Waits until there is a connection to the server of this lock, or never will be again. In a cluster, the lock may
    /// meanwhile move to another server.
    pub(crate) async fn up(&self, keys: &Keys) {
        let Servers::Cluster(cluster) = &self.servers else {
            if let Ok(shard) = self.shard(keys) {
                shard.up().await;
            }
            return;
        };
        let mut map = cluster.map();
        loop {
            map.mark_unchanged();
            let up = async {
                match cluster.owner(keys.slot.expect("in a cluster every name has a slot")) {
                    Ok(shard) => shard.up().await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = up => return,
                changed = map.changed() => if changed.is_err() { return },
            }
        }
    }

    /// The newest connection that there has been, to any server.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Waits until there is a newer connection than that of this generation; forever, if there never will be one.
    pub(crate) async fn newer_than(&self, generation: u64) {
        if self.newest.clone().wait_for(|newest| *newest > generation).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Turns a fault into the error of a call about this lock. If a key has another type, asks the server for the type.
    pub(crate) async fn explained(&self, fault: Fault, keys: &Keys) -> Error {
        if !matches!(fault, Fault::WrongType) {
            return fault.into_error(&keys.lock().to_string());
        }
        for (key, expected) in keys.types() {
            let (key, Ok(connection)) = (key.to_string(), self.connection(keys)) else { break };
            match connection.type_of(&key).await {
                Some(kind) if kind != expected && kind != "none" => {
                    return Error::Conflict { key, kind };
                }
                _ => {}
            }
        }
        fault.into_error(&keys.lock().to_string())
    }
}

/// The link to a server that a request takes.
#[derive(Debug, Clone, Copy)]
enum Way {
    Plain,
    /// The acknowledging one, if there is one. `waits`: waits until replicas have the writes.
    Acks {
        waits: bool,
    },
}

impl Way {
    fn of(keys: &Keys, waits: bool) -> Self {
        if keys.row.is_passed { Self::Plain } else { Self::Acks { waits } }
    }

    /// The acknowledging link of this server, and whether to wait for replicas.
    fn acks(self, shard: &Shard) -> Option<(&Acks, bool)> {
        match self {
            Self::Plain => None,
            Self::Acks { waits } => shard.acks.as_ref().map(|acks| (acks, waits)),
        }
    }

    fn live(self, shard: &Shard) -> Result<Live, Fault> {
        // The other link knows how its server's scripts publish.
        let live = shard.link.live()?;
        match self.acks(shard) {
            None => Ok(live),
            Some((acks, _)) => acks.link.live(),
        }
    }
}

/// One connection, for one request or a few related requests, about one lock.
pub(crate) struct Connection<'a> {
    live: Live,
    shard: Arc<Shard>,
    way: Way,
    /// Too few replicas have acknowledged the last request.
    short: Option<Fault>,
    /// The connection on which a request was last sent: for a redirected request, the one on which it may run.
    sent_on: Arc<AtomicU64>,
    commands: &'a Commands,
}

impl Connection<'_> {
    /// The generation of the connection. Requests of one generation reach the server in the order in which they were
    /// sent.
    pub(crate) fn generation(&self) -> u64 {
        self.sent_on.load(Ordering::Relaxed)
    }

    /// Same as [`generation`](Self::generation), for the owner of what a request in flight may be granted: each hop is
    /// recorded before the request is sent there.
    pub(crate) fn sent_on(&self) -> SentOn {
        SentOn(Arc::clone(&self.sent_on))
    }

    pub(crate) fn granted(&self, number: u64) {
        self.shard.clock.granted(number, Instant::now());
    }

    pub(crate) fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.commands.terms)
    }

    /// The same connection, for another request at the same time.
    pub(crate) fn again(&self) -> Self {
        let sent_on = Arc::new(AtomicU64::new(self.live.generation));
        let (live, shard) = (self.live.clone(), Arc::clone(&self.shard));
        Self { live, shard, way: self.way, short: None, sent_on, commands: self.commands }
    }

    /// Calls a script, whether or not the server has it cached, on whichever node of a cluster has the lock. `fill`
    /// gets the least value that the token counter should have.
    pub(crate) async fn call(
        &mut self,
        script: &Script,
        fill: impl Fn(&mut Cmd, u64),
    ) -> Result<Value, Fault> {
        let (mut hops, mut is_asking) = (0, false);
        loop {
            let answer = self.call_here(script, &fill, is_asking).await;
            let fault = match answer {
                Err(fault @ Fault::Redirected(..)) => fault,
                answer => return answer,
            };
            hops += 1;
            if hops > MOST_HOPS {
                return Err(fault);
            }
            is_asking = self.follow(fault).await?;
        }
    }

    async fn call_here(
        &mut self,
        script: &Script,
        fill: &impl Fn(&mut Cmd, u64),
        is_asking: bool,
    ) -> Result<Value, Fault> {
        let dialect = self.shard.dialect();
        let answer = self.send(script.by_hash(dialect), fill, is_asking).await;
        let answer = match answer {
            Err(Fault::NoScript) => self.send(script.by_text(dialect), fill, is_asking).await,
            answer => answer,
        };
        if let Err(Fault::Distrusted(_)) = answer {
            self.distrust();
        }
        answer
    }

    /// Follows a redirection: switches to the node that the answer names. Returns whether only this one request may go
    /// there.
    async fn follow(&mut self, fault: Fault) -> Result<bool, Fault> {
        let (Servers::Cluster(cluster), Fault::Redirected(redirect, _)) =
            (&self.commands.servers, &fault)
        else {
            return Err(fault);
        };
        let node = |to: &str| {
            let answering = self.shard.node.as_ref();
            answering.and_then(|node| Node::redirected(to, node)).ok_or_else(|| fault.clone())
        };
        let (next, is_asking) = match redirect {
            Redirect::Moved { slot, to } => {
                let next = node(to)?;
                cluster.moved(*slot, next.clone());
                (next, false)
            }
            Redirect::Ask { to } => (node(to)?, true),
            Redirect::Down => {
                cluster.stale.notify_one();
                return Err(fault);
            }
            Redirect::TryAgain | Redirect::CrossSlot => return Err(fault),
        };
        let shard = cluster.shard(&next)?;
        // The request did not run, so it may wait a little before it is sent again.
        let _ = timeout(self.commands.connect_timeout, shard.up()).await;
        self.live = self.way.live(&shard)?;
        self.shard = shard;
        self.sent_on.store(self.live.generation, Ordering::Relaxed);
        Ok(is_asking)
    }

    /// Switches back to the server that has this lock, wherever a request was redirected before.
    pub(crate) fn go_back(&mut self, keys: &Keys) -> Result<(), Fault> {
        let shard = self.commands.shard(keys)?;
        self.live = self.way.live(&shard)?;
        self.shard = shard;
        self.sent_on.store(self.live.generation, Ordering::Relaxed);
        Ok(())
    }

    /// Passes on the answer to the last request, if enough replicas have acknowledged it.
    pub(crate) fn counts<T>(&self, answer: T) -> Result<T, Fault> {
        match &self.short {
            None => Ok(answer),
            Some(fault) => Err(fault.clone()),
        }
    }

    /// Same as [`counts`](Self::counts), for a lock that is still ours. The answer "not ours" needs no acknowledgement.
    pub(crate) fn kept(&self, is_ours: bool) -> Result<bool, Fault> {
        if is_ours { self.counts(true) } else { Ok(false) }
    }

    /// An entry of an answer may report a fault of the whole server: then the link reacts as if the whole answer did.
    pub(crate) fn heed(&self, fault: &Fault) {
        if matches!(fault, Fault::Distrusted(_)) {
            self.distrust();
        }
    }

    async fn send(
        &mut self,
        mut cmd: Cmd,
        fill: impl Fn(&mut Cmd, u64),
        is_asking: bool,
    ) -> Result<Value, Fault> {
        let now = Instant::now();
        if let Some((acks, waits)) = self.way.acks(&self.shard) {
            fill(&mut cmd, acks.clock.floor(now));
            let (value, short) = acks.send(self.live.clone(), cmd, is_asking, waits).await?;
            meters::round_trip(now);
            self.short = short;
            return match value {
                Value::ServerError(error) => Err(fault::entry(&error)),
                value => Ok(value),
            };
        }
        fill(&mut cmd, self.shard.clock.floor(now));
        let answer = if is_asking {
            self.send_asking(&cmd).await
        } else {
            self.live.conn.send_packed_command(&cmd).await
        };
        if answer.is_ok() {
            meters::round_trip(now);
        }
        match answer {
            Ok(Value::ServerError(error)) => Err(fault::entry(&error)),
            Ok(value) => Ok(value),
            Err(error) => Err(Fault::answering(error)),
        }
    }

    /// Sent in one piece: the permission to ask is for the next command of the connection, whichever task sends it.
    async fn send_asking(&mut self, cmd: &Cmd) -> redis::RedisResult<Value> {
        let mut pipe = pipe();
        pipe.cmd("ASKING").add_command(cmd.clone());
        let answers = self.live.conn.send_packed_commands(&pipe, 1, 1).await?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }

    fn distrust(&self) {
        // Both lead to the same server.
        self.shard.link.suspect(self.live.generation);
        if let Some(acks) = &self.shard.acks {
            acks.link.suspect(self.live.generation);
        }
    }

    async fn type_of(mut self, key: &str) -> Option<String> {
        match self.live.conn.send_packed_command(cmd("TYPE").arg(key)).await {
            Ok(Value::SimpleString(kind)) => Some(kind),
            _ => None,
        }
    }
}

/// The connection on which a request was sent last.
#[derive(Debug, Clone)]
pub(crate) struct SentOn(Arc<AtomicU64>);

impl SentOn {
    pub(crate) fn generation(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl From<u64> for SentOn {
    fn from(generation: u64) -> Self {
        Self(Arc::new(AtomicU64::new(generation)))
    }
}
