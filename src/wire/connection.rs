//! One connection to one server, and the requests that it carries.

use std::sync::Arc;
use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::Instant;

use crate::config::Layout;
use crate::keys::Keys;
use crate::kinds::Holders;
use crate::meters;
use crate::wire::args::{Words, millis};
use crate::wire::cluster::{MOST_HOPS, Servers, next_hop};
use crate::wire::fault::{self, Fault};
use crate::wire::link::Live;
use crate::wire::passwords::shown_type;
use crate::wire::replies::number;
use crate::wire::scripts::Script;
use crate::wire::session::Session;
use crate::wire::shard::{Acks, Reign, Shard};
use crate::wire::socket::Broken;
use crate::wire::tracking::Tracking;

/// Writes the keys and arguments of a script. It gets the least value that the token counter should have. It is a trait object, so
/// that the path of a request to the socket is compiled once, and not once for each script.
pub(crate) type Fill<'a> = &'a (dyn Fn(&mut Words<'_>, u64) + Sync);

/// The arguments common to every script of a client.
#[derive(Debug)]
pub(crate) struct CommonArgs {
    /// This client's id, in lines and in the messages that it publishes.
    pub(crate) client: String,
    pub(crate) layout: Layout,
    /// For how long after its last sign of life a client in line counts as alive.
    pub(crate) waiter_ttl: Duration,
    /// What each request for a place in a line says of this client, as one text: see lua/line/acquire_args.lua.
    pub(crate) line_terms: String,
    pub(crate) session: Option<Arc<Session>>,
}

impl CommonArgs {
    /// `line_ttl`: how long the server keeps a line in which no client shows a sign of life. Most clients in a line sleep, but
    /// ask more often than this.
    pub(crate) fn new(
        client: String,
        layout: Layout,
        waiter_ttl: Duration,
        line_ttl: Duration,
        session: Option<Arc<Session>>,
    ) -> Self {
        let (ttl, line) = (millis(waiter_ttl), millis(line_ttl));
        let line_terms = format!("{ttl} {line} {} ", layout.message(&client));
        Self { client, layout, waiter_ttl, line_terms, session }
    }

    /// Whether its holds end with a session.
    pub(crate) fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    /// The message that a release of this client publishes.
    pub(crate) fn message(&self) -> &str {
        self.layout.message(&self.client)
    }
}

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
        // Check the link of the scripts first, even if this request goes over the acknowledging one: only the clock of that link says
        // which numbers the server may have granted.
        let live = shard.link.live()?;
        match self.acks(shard) {
            None => Ok(live),
            Some((acks, _)) => acks.link.live(),
        }
    }
}

/// A server, and the connection on which it answers.
#[derive(Clone)]
pub(crate) struct Peer {
    live: Live,
    shard: Arc<Shard>,
}

impl Peer {
    /// The generation of the connection. Requests of one generation reach the server in the order in which they were
    /// sent.
    pub(crate) fn generation(&self) -> u64 {
        self.live.generation
    }

    pub(crate) fn granted(&self, number: u64) {
        self.shard.reign.clock.granted(number, Instant::now());
    }

    /// An entry of an answer may report a fault of the whole server: then the link reacts as if the whole answer did.
    pub(crate) fn heed(&self, fault: &Fault) {
        if matches!(fault, Fault::Distrusted(_)) {
            // A link that has connected later may lead to another server already, so it stays.
            self.shard.links().for_each(|link| link.suspect(self.live.generation));
        }
    }
}

/// One connection, for one request or a few related requests, about one lock.
pub(crate) struct Connection<'a> {
    peer: Peer,
    way: Way,
    /// Too few replicas have acknowledged the last request.
    short: Option<Fault>,
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
        let peer = Peer { live: way.live(&shard)?, shard };
        Ok(Self { peer, way, short: None, servers, common })
    }

    /// The server that the last request has reached, however often it was redirected.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn common(&self) -> &'a CommonArgs {
        self.common
    }

    /// The same connection, for another request at the same time.
    pub(crate) fn again(&self) -> Self {
        let (servers, common) = (self.servers, self.common);
        Self { peer: self.peer.clone(), way: self.way, short: None, servers, common }
    }

    /// Calls a script, whether or not the server has it cached, on whichever node of a cluster has the lock.
    pub(crate) async fn call(&mut self, script: &Script, fill: Fill<'_>) -> Result<Value, Fault> {
        let (mut hops, mut is_asking, mut is_cached) = (0, false, true);
        loop {
            let dialect = self.peer.shard.dialect();
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
                answer => return answer.inspect_err(|fault| self.peer.heed(fault)),
            }
        }
    }

    /// Switches to the node that a redirection names. Returns whether only this one request may go there.
    async fn follow(&mut self, fault: Fault) -> Result<bool, Fault> {
        let Servers::Cluster(cluster) = self.servers else { return Err(fault) };
        let hop = next_hop(cluster, &self.peer.shard, fault).await?;
        self.switch(hop.shard)?;
        Ok(hop.is_asking)
    }

    /// Switches back to the server that has this lock, wherever a request was redirected before.
    pub(crate) fn go_back(&mut self, keys: &Keys) -> Result<(), Fault> {
        self.switch(self.servers.shard(keys)?)
    }

    fn switch(&mut self, shard: Arc<Shard>) -> Result<(), Fault> {
        self.peer = Peer { live: self.way.live(&shard)?, shard };
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

    async fn send(
        &mut self,
        command: (&str, &str),
        fill: Fill<'_>,
        is_asking: bool,
    ) -> Result<Value, Fault> {
        let now = Instant::now();
        let Peer { live, shard } = &self.peer;
        let acks = self.way.acks(shard);
        let floor = self.way.reign(shard).clock.floor(now);
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
            let (value, short) = acks.send(live.clone(), bytes, commands, waits).await?;
            meters::round_trip(now);
            self.short = short;
            return fault::answered(Ok(value));
        }
        answered(live.socket.ask_written(&write, commands).await, now)
    }

    /// Has the server track the keys of these holders: see `tracking.rs`. Returns whether all of them are there.
    pub(crate) async fn track(&self, holders: &[&Keys]) -> Result<bool, Fault> {
        let write = |bytes: &mut Vec<u8>| Tracking::write(bytes, holders);
        let answer = self.peer.live.socket.ask_written(&write, 2).await;
        Ok(number(answered(answer, Instant::now())?)? == holders.len() as i64)
    }

    /// Whether answers to this request count only when replicas have acknowledged it.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.way.acks(&self.peer.shard).is_some()
    }

    /// Sends the call of a script that the server should have cached, and leaves the answer to `then`: no caller has to be
    /// polled for it. The call does not go over the acknowledging link.
    pub(crate) fn call_then<R: Send + 'static>(
        &self,
        script: &Script,
        request: R,
        fill: impl Fn(&R, &mut Words<'_>, u64),
        then: impl FnOnce(R, Result<Value, Fault>, &Peer) + Send + 'static,
    ) {
        let (now, shard) = (Instant::now(), &self.peer.shard);
        let (command, floor) =
            (("EVALSHA", script.hash(shard.dialect())), shard.reign.clock.floor(now));
        // Until the answer has come, the connection stays, and so does the password with which it began: the answer must not show it.
        let peer = self.peer.clone();
        self.peer.live.socket.send(|bytes| {
            write_call(bytes, command, &|words, floor| fill(&request, words, floor), floor);
            Box::new(move |answer| {
                let answer = answered(answer, now).inspect_err(|fault| peer.heed(fault));
                then(request, answer, &peer);
            })
        });
    }

    pub(crate) async fn type_of(self, key: &str) -> Option<String> {
        match self.peer.live.socket.ask(cmd("TYPE").arg(key)).await {
            Ok(Value::SimpleString(kind)) => Some(shown_type(kind)),
            _ => None,
        }
    }
}

fn write_call(
    bytes: &mut Vec<u8>,
    (command, script): (&str, &str),
    fill: &dyn Fn(&mut Words<'_>, u64),
    floor: u64,
) {
    Words::write(bytes, |words| fill(words.arg(command).arg(script), floor));
}

/// The answer to the last command of a request that was sent at this time.
fn answered(answer: Result<Vec<Value>, Broken>, sent: Instant) -> Result<Value, Fault> {
    if answer.is_ok() {
        meters::round_trip(sent);
    }
    fault::answered(answer.map(|mut answers| answers.pop().unwrap_or(Value::Nil)))
}
