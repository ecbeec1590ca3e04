//! The way of the scripts to the servers: for each lock the connection to the server that has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Value, cmd, pipe};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::config::{Config, Layout};
use crate::error::Error;
use crate::keys::Keys;
use crate::wire::clock::ServerClock;
use crate::wire::cluster::Cluster;
use crate::wire::fault::{self, Fault, Turn};
use crate::wire::link::{Duty, Generations, Keeper, Live};
use crate::wire::node::Node;
use crate::wire::place::Place;
use crate::wire::scripts::Script;
use crate::wire::shard::{CommandDuty, Shard};

/// How often one request is sent on to another node. More are two nodes that disagree.
const MOST_HOPS: usize = 5;

/// The way of all scripts to the servers.
#[derive(Clone)]
pub(crate) struct Commands {
    servers: Servers,
    terms: Arc<Terms>,
    newest: watch::Receiver<u64>,
    /// How long a request waits for the connection to the node that it is sent on to.
    connect_timeout: Duration,
}

/// Where the locks lie.
#[derive(Clone)]
enum Servers {
    One(Arc<Shard>),
    Cluster(Arc<Cluster>),
}

/// The arguments that every script of a client gets.
#[derive(Debug)]
pub(crate) struct Terms {
    /// This client's name, in lines and in the messages that it publishes.
    pub(crate) client: String,
    pub(crate) layout: Layout,
    /// How long the server keeps a line in which no client shows a sign of life. Most clients in a line sleep, but
    /// ask more often than this.
    pub(crate) line_ttl: Duration,
    /// For how long after its last sign of life a client in line counts as alive.
    pub(crate) waiter_ttl: Duration,
}

impl Terms {
    /// The message that a release publishes for us.
    pub(crate) fn message(&self) -> &str {
        self.layout.message(&self.client)
    }
}

impl Commands {
    /// All locks lie on one server.
    pub(crate) fn new(place: Place, terms: Terms, config: &Config) -> (Self, Keeper<impl Duty>) {
        let (newest, seen) = watch::channel(0);
        let (expected, lost) = (place.expected(), Arc::<Notify>::default());
        let clock = ServerClock::default();
        let duty = CommandDuty::new(terms.layout, clock, expected, Arc::new(newest), lost);
        let (duty, connect_timeout) = (Arc::new(duty), config.connect_timeout);
        let (keeper, link) = Keeper::new(place, Arc::clone(&duty), Generations::default());
        let servers = Servers::One(Arc::new(Shard::new(None, link, &duty)));
        (Self { servers, terms: Arc::new(terms), newest: seen, connect_timeout }, keeper)
    }

    /// The locks lie in the slots of a cluster.
    pub(crate) fn in_cluster(cluster: Arc<Cluster>, terms: Terms, config: &Config) -> Self {
        let (newest, connect_timeout) = (cluster.newest.subscribe(), config.connect_timeout);
        Self { servers: Servers::Cluster(cluster), terms: Arc::new(terms), newest, connect_timeout }
    }

    /// The server that has this lock.
    fn shard(&self, keys: &Keys) -> Result<Arc<Shard>, Fault> {
        match (&self.servers, keys.slot) {
            (Servers::One(shard), _) => Ok(Arc::clone(shard)),
            (Servers::Cluster(cluster), Some(slot)) => cluster.owner(slot),
            (Servers::Cluster(_), None) => unreachable!("in a cluster every name has a slot"),
        }
    }

    /// How many locks one script may be about, of so many: a server of a cluster may not have the next one.
    pub(crate) fn together(&self, most: usize) -> usize {
        match self.servers {
            Servers::One(_) => most,
            Servers::Cluster(_) => 1,
        }
    }

    /// The connection to send requests about this lock on, or why there is none.
    pub(crate) fn connection(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        let shard = self.shard(keys)?;
        let live = shard.link.live()?;
        let sent_on = Arc::new(AtomicU64::new(live.generation));
        Ok(Connection { live, shard, sent_on, commands: self })
    }

    /// Takes note of a number that the server of this lock has granted.
    pub(crate) fn granted(&self, keys: &Keys, number: u64) {
        if let Ok(shard) = self.shard(keys) {
            shard.clock.granted(number, Instant::now());
        }
    }

    /// Waits until the server of this lock has been tried to connect to. A server of a cluster is connected to when
    /// it is first asked for.
    pub(crate) async fn tried(&self, keys: &Keys) {
        if let (Servers::Cluster(_), Ok(shard)) = (&self.servers, self.shard(keys)) {
            shard.link.tried().await;
        }
    }

    /// Waits until there is a connection to the server of this lock, or never will be again. In a cluster another one may
    /// become its server meanwhile.
    pub(crate) async fn up(&self, keys: &Keys) {
        let Servers::Cluster(cluster) = &self.servers else {
            if let Ok(shard) = self.shard(keys) {
                shard.link.up().await;
            }
            return;
        };
        let mut map = cluster.map();
        loop {
            map.mark_unchanged();
            let up = async {
                match cluster.owner(keys.slot.expect("in a cluster every name has a slot")) {
                    Ok(shard) => shard.link.up().await,
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

    /// Waits until there is a newer connection than that of this generation: for ever, if there never will be one.
    pub(crate) async fn newer_than(&self, generation: u64) {
        if self.newest.clone().wait_for(|newest| *newest > generation).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Turns a fault into the error of a call about this lock. If a key has another type, it asks the server which
    /// one.
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

/// One connection, for one request or a few that belong together, about one lock.
pub(crate) struct Connection<'a> {
    live: Live,
    shard: Arc<Shard>,
    /// The connection on which a request was sent last: of a request that was sent on, where it may run.
    sent_on: Arc<AtomicU64>,
    commands: &'a Commands,
}

impl Connection<'_> {
    /// The generation of the connection. Requests of one generation reach the server in the order in which they were
    /// sent.
    pub(crate) fn generation(&self) -> u64 {
        self.sent_on.load(Ordering::Relaxed)
    }

    /// As [`generation`](Self::generation), for those who own what a request may get while it is on its way: each hop is
    /// noted before it is sent.
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
        Self { live, shard, sent_on, commands: self.commands }
    }

    /// Calls a script, whether the server remembers it or not, wherever in a cluster it has to be called. `fill` is told
    /// the least value that the counter of the tokens should have.
    pub(crate) async fn call(
        &mut self,
        script: &Script,
        fill: impl Fn(&mut Cmd, u64),
    ) -> Result<Value, Fault> {
        let (mut hops, mut is_asking) = (0, false);
        loop {
            let answer = self.call_here(script, &fill, is_asking).await;
            let fault = match answer {
                Err(fault @ Fault::Turned(..)) => fault,
                answer => return answer,
            };
            hops += 1;
            if hops > MOST_HOPS {
                return Err(fault);
            }
            is_asking = self.turn(fault).await?;
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

    /// Turns to the node that the answer names; whether it is only for this one request.
    async fn turn(&mut self, fault: Fault) -> Result<bool, Fault> {
        let (Servers::Cluster(cluster), Fault::Turned(turn, _)) = (&self.commands.servers, &fault)
        else {
            return Err(fault);
        };
        let node = |to: &str| {
            let answering = self.shard.node.as_ref();
            answering.and_then(|node| Node::redirected(to, node)).ok_or_else(|| fault.clone())
        };
        let (next, is_asking) = match turn {
            Turn::Moved { slot, to } => {
                let next = node(to)?;
                cluster.moved(*slot, next.clone());
                (next, false)
            }
            Turn::Ask { to } => (node(to)?, true),
            Turn::Down => {
                cluster.stale.notify_one();
                return Err(fault);
            }
            Turn::TryAgain | Turn::CrossSlot => return Err(fault),
        };
        let shard = cluster.shard(&next)?;
        // The request did not run, so it may wait a little before it is sent again.
        let _ = timeout(self.commands.connect_timeout, shard.link.up()).await;
        self.live = shard.link.live()?;
        self.shard = shard;
        self.sent_on.store(self.live.generation, Ordering::Relaxed);
        Ok(is_asking)
    }

    /// Turns to the server that has this lock, wherever a request was sent on to before.
    pub(crate) fn go_back(&mut self, keys: &Keys) -> Result<(), Fault> {
        let shard = self.commands.shard(keys)?;
        self.live = shard.link.live()?;
        self.shard = shard;
        self.sent_on.store(self.live.generation, Ordering::Relaxed);
        Ok(())
    }

    /// An entry of an answer may report a fault of the whole server: then the link acts as if the whole answer did.
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
        fill(&mut cmd, self.shard.clock.floor(Instant::now()));
        let answer = if is_asking {
            self.send_asking(&cmd).await
        } else {
            self.live.conn.send_packed_command(&cmd).await
        };
        match answer {
            Ok(Value::ServerError(error)) => Err(fault::entry(&error)),
            Ok(value) => Ok(value),
            Err(error) => Err(Fault::answering(error)),
        }
    }

    /// In one piece: the permission to ask is for the next command of the connection, whoever's it is.
    async fn send_asking(&mut self, cmd: &Cmd) -> redis::RedisResult<Value> {
        let mut pipe = pipe();
        pipe.cmd("ASKING").add_command(cmd.clone());
        let answers = self.live.conn.send_packed_commands(&pipe, 1, 1).await?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }

    fn distrust(&self) {
        self.shard.link.suspect(self.live.generation);
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
