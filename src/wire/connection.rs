//! One connection to one server, and the requests that it carries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Value, cmd};
use tokio::time::Instant;

use crate::keys::Keys;
use crate::kinds::Holders;
use crate::meters;
use crate::wire::args::Words;
use crate::wire::cluster::{MOST_HOPS, Servers, next_hop};
use crate::wire::common_args::CommonArgs;
use crate::wire::fault::{self, Fault};
use crate::wire::link::Live;
use crate::wire::passwords::shown_type;
use crate::wire::scripts::Script;
use crate::wire::shard::{Acks, Reign, Shard};
use crate::wire::socket::Broken;

/// Writes the keys and arguments of a script. It gets the least value that the token counter should have. It is a trait object, so
/// that the path of a request to the socket is compiled once, and not once for each script.
pub(crate) type Fill<'a> = &'a (dyn Fn(&mut Words<'_>, u64) + Sync);

/// The link to a server that a request takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Plain,
    /// The acknowledging one, if there is one. `waits`: waits until replicas have the writes.
    Acks {
        waits: bool,
    },
}

impl Way {
    pub(crate) fn of(keys: &Keys, waits: bool) -> Self {
        match keys.row.holders {
            Holders::Nobody => Self::Plain,
            _ => Self::Acks { waits },
        }
    }

    /// The acknowledging link of this server, and whether to wait for replicas.
    fn acks(self, shard: &Shard) -> Option<(&Acks, bool)> {
        match self {
            Self::Plain => None,
            Self::Acks { waits } => shard.acks.as_ref().map(|acks| (acks, waits)),
        }
    }

    /// The primary that the link leads to.
    pub(crate) fn reign(self, shard: &Shard) -> &Reign {
        self.acks(shard).map_or(&shard.reign, |(acks, _)| &acks.reign)
    }

    fn live(self, shard: &Shard) -> Result<Live, Fault> {
        // Check the link of the scripts first, even if this request goes over the acknowledging one: only that link learns
        // how the scripts of its server publish.
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
    /// The connection on which a request was last sent: for a redirected request, the one on which it may run. `None`: nobody
    /// needs to know.
    sent_on: Option<Arc<AtomicU64>>,
    servers: &'a Servers,
    common: &'a Arc<CommonArgs>,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(
        shard: Arc<Shard>,
        way: Way,
        servers: &'a Servers,
        common: &'a Arc<CommonArgs>,
    ) -> Result<Self, Fault> {
        let live = way.live(&shard)?;
        Ok(Self { live, shard, way, short: None, sent_on: None, servers, common })
    }

    /// The generation of the connection. Requests of one generation reach the server in the order in which they were
    /// sent.
    pub(crate) fn generation(&self) -> u64 {
        self.live.generation
    }

    /// Same as [`generation`](Self::generation), for the owner of what a request in flight may be granted: each hop is
    /// recorded before the request is sent there.
    pub(crate) fn sent_on(&mut self) -> SentOn {
        let generation = self.live.generation;
        let shared = self.sent_on.get_or_insert_with(|| Arc::new(AtomicU64::new(generation)));
        SentOn::Shared(Arc::clone(shared))
    }

    pub(crate) fn granted(&self, number: u64) {
        self.shard.clock.granted(number, Instant::now());
    }

    pub(crate) fn common(&self) -> &'a CommonArgs {
        self.common
    }

    /// The same connection, for another request at the same time.
    pub(crate) fn again(&self) -> Self {
        let (live, shard) = (self.live.clone(), Arc::clone(&self.shard));
        let (servers, common) = (self.servers, self.common);
        Self { live, shard, way: self.way, short: None, sent_on: None, servers, common }
    }

    /// Calls a script, whether or not the server has it cached, on whichever node of a cluster has the lock.
    pub(crate) async fn call(&mut self, script: &Script, fill: Fill<'_>) -> Result<Value, Fault> {
        let (mut hops, mut is_asking, mut is_cached) = (0, false, true);
        loop {
            let dialect = self.shard.dialect();
            let command = match is_cached {
                true => ("EVALSHA", script.hash(dialect)),
                false => ("EVAL", script.text(dialect)),
            };
            match self.send(command, fill, is_asking).await {
                Err(Fault::NoScript) if is_cached => is_cached = false,
                Err(fault @ Fault::Redirected(..)) => {
                    hops += 1;
                    if hops > MOST_HOPS {
                        return Err(fault);
                    }
                    // Boxed: most requests are not redirected, and need no space for it.
                    (is_asking, is_cached) = (Box::pin(self.follow(fault)).await?, true);
                }
                answer => {
                    answer.as_ref().err().iter().for_each(|fault| self.heed(fault));
                    return answer;
                }
            }
        }
    }

    /// Switches to the node that a redirection names. Returns whether only this one request may go there.
    async fn follow(&mut self, fault: Fault) -> Result<bool, Fault> {
        let Servers::Cluster(cluster) = self.servers else { return Err(fault) };
        let hop = next_hop(cluster, &self.shard, fault).await?;
        self.switch(hop.shard)?;
        Ok(hop.is_asking)
    }

    /// Switches back to the server that has this lock, wherever a request was redirected before.
    pub(crate) fn go_back(&mut self, keys: &Keys) -> Result<(), Fault> {
        self.switch(self.servers.shard(keys)?)
    }

    fn switch(&mut self, shard: Arc<Shard>) -> Result<(), Fault> {
        self.live = self.way.live(&shard)?;
        self.shard = shard;
        if let Some(generation) = &self.sent_on {
            generation.store(self.live.generation, Ordering::Relaxed);
        }
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
        command: (&str, &str),
        fill: Fill<'_>,
        is_asking: bool,
    ) -> Result<Value, Fault> {
        let now = Instant::now();
        let acks = self.way.acks(&self.shard);
        let floor = acks.map_or(&self.shard.clock, |(acks, _)| &acks.clock).floor(now);
        let write = |bytes: &mut Vec<u8>| {
            if is_asking {
                Words::write(bytes, |words| _ = words.arg("ASKING"));
            }
            write_call(bytes, command, fill, floor);
        };
        // In one piece: the permission to ask is for the next command of the connection, whichever task sends it.
        let commands = if is_asking { 2 } else { 1 };
        if let Some((acks, waits)) = acks {
            let mut bytes = Vec::new();
            write(&mut bytes);
            let (value, short) = acks.send(self.live.clone(), bytes, commands, waits).await?;
            meters::round_trip(now);
            self.short = short;
            return fault::answered(Ok(value));
        }
        answered(self.live.socket.ask_written(&write, commands).await, now)
    }

    /// Sends the call of a script that the server should have cached, and leaves the answer to `then`. It does not go over the
    /// acknowledging link.
    pub(crate) fn call_then(
        &self,
        script: &Script,
        fill: Fill<'_>,
        then: impl FnOnce(Result<Value, Fault>) + Send + 'static,
    ) {
        let now = Instant::now();
        let (command, floor) =
            (("EVALSHA", script.hash(self.shard.dialect())), self.shard.clock.floor(now));
        let write = |bytes: &mut Vec<u8>| write_call(bytes, command, fill, floor);
        // Until the answer has come, the connection stays, and so do the passwords that the answer must not show.
        let live = self.live.clone();
        let then = move |answer| {
            then(answered(answer, now));
            drop(live);
        };
        self.live.socket.send(&write, Box::new(then));
    }

    fn distrust(&self) {
        // All lead to the same server.
        self.shard.links().for_each(|link| link.suspect(self.live.generation));
    }

    pub(crate) async fn type_of(self, key: &str) -> Option<String> {
        match self.live.socket.ask(cmd("TYPE").arg(key)).await {
            Ok(Value::SimpleString(kind)) => Some(shown_type(kind)),
            _ => None,
        }
    }
}

fn write_call(bytes: &mut Vec<u8>, (command, script): (&str, &str), fill: Fill<'_>, floor: u64) {
    Words::write(bytes, |words| fill(words.arg(command).arg(script), floor));
}

/// The answer to the last command of a request that was sent at this time.
fn answered(answer: Result<Vec<Value>, Broken>, sent: Instant) -> Result<Value, Fault> {
    if answer.is_ok() {
        meters::round_trip(sent);
    }
    fault::answered(answer.map(|mut answers| answers.pop().unwrap_or(Value::Nil)))
}

/// The connection on which a request was sent last.
#[derive(Debug, Clone)]
pub(crate) enum SentOn {
    /// It was answered there.
    Answered(u64),
    /// It may still be redirected.
    Shared(Arc<AtomicU64>),
}

impl SentOn {
    pub(crate) fn generation(&self) -> u64 {
        match self {
            Self::Answered(generation) => *generation,
            Self::Shared(generation) => generation.load(Ordering::Relaxed),
        }
    }
}
