//! One server process: what comes in, what goes out, and the switches for faults.

use std::cell::RefCell;
use std::rc::Rc;

use crate::cluster::{Cluster, NodeInfo};
use crate::connection::{Conn, Connection};
use crate::keys::{DATABASES, Database, Parcel};
use crate::lua::Scripts;
use crate::number;
use crate::replication::{Batch, History};
use crate::reply::{Answer, Reply, flatten, refusal};
use crate::resp::{Malformed, Rules};
use crate::sentinel::{Sentinel, Watched};
use crate::snapshot::{Entry, Snapshot};
use crate::state::{Caller, State};
use crate::version::Version;

/// One server process and its key space.
///
/// It has no clock: whatever depends on the time takes it as `now`, in microseconds since the Unix epoch. A script
/// runs within one moment. Nothing here depends on anything but the calls that are made.
#[derive(Debug)]
pub struct Server {
    state: Rc<RefCell<State>>,
    scripts: Scripts,
    next: u64,
}

impl Server {
    /// An empty primary.
    pub fn new(version: Version) -> Self {
        let state = Rc::new(RefCell::new(State::new(version)));
        let scripts = Scripts::new(version, Rc::clone(&state));
        Self { state, scripts, next: 1 }
    }

    /// A client connects.
    pub fn accept(&mut self) -> Conn {
        let conn = Conn(self.next);
        self.next += 1;
        let mut state = self.state.borrow_mut();
        let logged_in = state.password.is_none();
        state.connections.insert(conn, Connection::new(logged_in));
        conn
    }

    /// Bytes of a client, cut anywhere. Each command that they complete is carried out at once.
    pub fn receive(&mut self, conn: Conn, bytes: &[u8], now: u64) {
        self.state.borrow_mut().now = now;
        if let Some(connection) = self.state.borrow_mut().connections.get_mut(&conn) {
            connection.parser.feed(bytes);
        }
        self.work_off(conn);
    }

    /// Carries out what a connection has sent, up to a WAIT that has no answer.
    fn work_off(&mut self, conn: Conn) {
        while let Some(request) = self.next_request(conn) {
            let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            self.state.borrow_mut().serve(conn);
            let reply = self.carry_out(Caller { conn: Some(conn) }, &words);
            let mut state = self.state.borrow_mut();
            state.served(conn, &reply);
            let is_asking = words[0].eq_ignore_ascii_case(b"asking");
            if let Some(connection) = state.connections.get_mut(&conn).filter(|_| !is_asking) {
                connection.asking = false;
            }
        }
    }

    fn next_request(&self, conn: Conn) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state.borrow_mut();
        if state.hang_ups.contains(&conn) {
            return None;
        }
        let version = state.version;
        let connection = state.connections.get_mut(&conn)?;
        if connection.waits.is_some() {
            return None;
        }
        let rules = Rules { version, logged_in: connection.logged_in };
        match connection.parser.next(rules) {
            Ok(request) => request,
            Err(Malformed(text)) => {
                state.send(conn, &Reply::error(format!("ERR Protocol error: {text}")));
                state.close_after_reply(Caller { conn: Some(conn) });
                None
            }
        }
    }

    /// Everything to send since the last call, in its order.
    pub fn output(&mut self) -> Vec<(Conn, Vec<u8>)> {
        std::mem::take(&mut self.state.borrow_mut().outbox)
    }

    /// The connections that the server has closed since the last call: after a protocol error, QUIT, CLIENT KILL, or
    /// a restart. What [`output`](Self::output) holds for them is sent before.
    pub fn hang_ups(&mut self) -> Vec<Conn> {
        let mut state = self.state.borrow_mut();
        let gone = std::mem::take(&mut state.hang_ups);
        for conn in &gone {
            state.drop_connection(*conn);
        }
        gone
    }

    /// The client has closed the connection, or the network has.
    pub fn hang_up(&mut self, conn: Conn) {
        self.state.borrow_mut().drop_connection(conn);
    }

    /// A command of the operator: in database 0, through no connection, whatever the switches say of clients.
    pub fn execute(&mut self, now: u64, words: &[&[u8]]) -> Reply {
        self.state.borrow_mut().now = now;
        self.carry_out(Caller { conn: None }, words)
    }

    fn carry_out(&mut self, caller: Caller, words: &[&[u8]]) -> Reply {
        let admitted = self.state.borrow().admit(caller, words);
        let command = match admitted {
            Ok(command) => command,
            Err(refusal) => return refusal,
        };
        let answer = match command.name {
            "eval" => self.eval(caller, words),
            "evalsha" => self.evalsha(caller, words),
            "script" => self.script(words),
            _ => (command.work)(&mut self.state.borrow_mut(), caller, words),
        };
        self.state.borrow_mut().propagate(caller);
        flatten(answer)
    }

    fn eval(&mut self, caller: Caller, words: &[&[u8]]) -> Answer {
        let (keys, argv) = split(words)?;
        let hash = self.scripts.load(words[1])?;
        Ok(self
            .scripts
            .run(caller, hash.as_bytes(), keys, argv)
            .unwrap_or_else(|| self.no_script()))
    }

    fn evalsha(&mut self, caller: Caller, words: &[&[u8]]) -> Answer {
        if words[1].len() != 40 {
            return Err(self.no_script());
        }
        let (keys, argv) = split(words)?;
        Ok(self.scripts.run(caller, words[1], keys, argv).unwrap_or_else(|| self.no_script()))
    }

    fn script(&mut self, words: &[&[u8]]) -> Answer {
        let unknown = || Err(self.state.borrow().unknown_subcommand(words));
        match (&*words[1].to_ascii_uppercase(), &words[2..]) {
            (b"LOAD", [text]) => self.scripts.load(text).map(Reply::bulk),
            (b"EXISTS", hashes) => Ok(Reply::Array(
                hashes.iter().map(|hash| self.scripts.knows(hash).into()).collect(),
            )),
            (b"FLUSH", how) => {
                let known = |word: &[u8]| matches!(&*word.to_ascii_uppercase(), b"ASYNC" | b"SYNC");
                if how.len() > 1 || !how.iter().all(|word| known(word)) {
                    return Err(Reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
                }
                self.scripts.flush();
                Ok(Reply::ok())
            }
            (b"KILL", []) => Err(Reply::error("NOTBUSY No scripts in execution right now.")),
            _ => unknown(),
        }
    }

    fn no_script(&self) -> Reply {
        let version = self.state.borrow().version;
        let advice = if version.is_valkey() { "" } else { " Please use EVAL." };
        Reply::error(format!("NOSCRIPT No matching script.{advice}"))
    }

    /// All keys, by database and name.
    pub fn dump(&mut self, now: u64) -> Vec<Entry> {
        let mut state = self.state.borrow_mut();
        state.now = now;
        let now = state.now_ms();
        let numbered = state.keys.iter().enumerate();
        let entries = numbered.flat_map(|(database, keys)| {
            keys.iter(now).map(move |(key, value, ends)| Entry {
                database,
                key: key.to_vec(),
                content: value.into(),
                pttl: ends.map_or(-1, |ends| ends - now),
            })
        });
        entries.collect()
    }

    /// The channels that somebody listens to.
    pub fn channels(&self) -> Vec<Vec<u8>> {
        let state = self.state.borrow();
        state.channels.keys().chain(state.shard_channels.keys()).cloned().collect()
    }

    /// Memory is full: commands that may need some are refused, in scripts unless they have written before.
    pub fn set_memory_full(&mut self, full: bool) {
        self.state.borrow_mut().memory_full = full;
    }

    /// The data is being loaded from disk.
    pub fn set_loading(&mut self, loading: bool) {
        self.state.borrow_mut().loading = loading;
    }

    /// Somebody's script has been running for too long.
    pub fn set_busy(&mut self, busy: bool) {
        self.state.borrow_mut().busy = busy;
    }

    /// Denies clients these commands, and all channels if `channels` is set. Replaces the denials before.
    pub fn set_denied(&mut self, commands: &[&str], channels: bool) {
        let mut state = self.state.borrow_mut();
        state.denied_commands = commands.iter().map(|name| name.to_ascii_lowercase()).collect();
        state.denies_channels = channels;
    }

    /// The password that clients need from now on; those that are connected do not.
    pub fn set_password(&mut self, password: Option<&[u8]>) {
        self.state.borrow_mut().password = password.map(<[u8]>::to_vec);
    }

    /// Ends the process and starts it again: without connections, subscriptions and scripts, and with or without keys.
    pub fn restart(&mut self, keep_data: bool) {
        let mut state = self.state.borrow_mut();
        let open: Vec<_> = state.connections.keys().copied().collect();
        for conn in open {
            state.close_after_reply(Caller { conn: Some(conn) });
        }
        let gone = state.hang_ups.clone();
        for conn in gone {
            state.drop_connection(conn);
        }
        state.outbox.clear();
        state.replication.history = History::default();
        state.run_id = History::default();
        let replicas: Vec<_> = state.replication.replicas.keys().copied().collect();
        replicas.into_iter().for_each(|replica| state.unfollow(replica));
        if !keep_data {
            state.keys = vec![Database::default(); DATABASES];
        }
        drop(state);
        self.scripts.flush();
    }

    /// From now on, clients cannot write. Connections stay, but for those that wait for replicas.
    pub fn become_replica(&mut self) {
        let mut state = self.state.borrow_mut();
        state.replica = true;
        state.refuse_waits();
        let replicas: Vec<_> = state.replication.replicas.keys().copied().collect();
        replicas.into_iter().for_each(|replica| state.unfollow(replica));
        // A replica of a node has none of its own slots.
        state.end_shard_channels(|_| true);
    }

    /// From now on, clients can write. Connections stay.
    pub fn become_primary(&mut self) {
        let mut state = self.state.borrow_mut();
        state.replica = false;
        state.replication.history = History::default();
    }

    // --- Replicas ---

    /// Somebody follows it under this number, who has nothing yet. [`snapshot`](Self::snapshot) is what there was before.
    pub fn follow(&mut self, replica: u64) {
        self.state.borrow_mut().follow(replica);
    }

    /// Somebody follows it no more.
    pub fn unfollow(&mut self, replica: u64) {
        self.state.borrow_mut().unfollow(replica);
    }

    /// What was written since the last call, for all who follow.
    pub fn stream(&mut self) -> Vec<Rc<Batch>> {
        std::mem::take(&mut self.state.borrow_mut().replication.stream)
    }

    /// How much has been written.
    pub fn offset(&self) -> u64 {
        self.state.borrow().replication.offset
    }

    /// What its primary has written.
    pub fn apply(&mut self, batch: &Batch) {
        self.state.borrow_mut().apply(batch);
    }

    /// One that follows has all that was written up to this offset.
    pub fn acknowledge(&mut self, replica: u64, offset: u64, now: u64) {
        if let Some(has) = self.state.borrow_mut().replication.replicas.get_mut(&replica) {
            *has = offset.max(*has);
        }
        self.pass(now);
    }

    /// When the next WAIT is over, if nothing happens until then.
    pub fn next_end(&self) -> Option<u64> {
        self.state.borrow().next_end()
    }

    /// Answers the WAITs that are over, and carries out what was sent behind them.
    pub fn pass(&mut self, now: u64) {
        self.state.borrow_mut().now = now;
        let ended = self.state.borrow_mut().end_waits();
        ended.into_iter().for_each(|conn| self.work_off(conn));
    }

    // --- Nodes of a cluster, and sentinels ---

    /// It is this one of the nodes of a cluster. No slot has an owner yet.
    pub fn join(&mut self, me: usize, nodes: Vec<NodeInfo>) {
        self.state.borrow_mut().cluster = Some(Cluster::new(me, nodes));
    }

    /// It has heard that this node has the slot.
    pub fn assign(&mut self, slot: u16, node: usize) {
        self.state.borrow_mut().assign(slot, node);
    }

    /// Which node has the slot, as far as it knows.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        self.state.borrow().cluster.as_ref()?.owner(slot)
    }

    /// It has heard that this node follows that one, or nobody.
    pub fn set_primary_of(&mut self, replica: usize, primary: Option<usize>) {
        if let Some(cluster) = &mut self.state.borrow_mut().cluster {
            match primary {
                Some(primary) => drop(cluster.primaries.insert(replica, primary)),
                None => drop(cluster.primaries.remove(&replica)),
            }
        }
    }

    /// Whether it serves anything: a node without a majority does not.
    pub fn set_up(&mut self, up: bool) {
        if let Some(cluster) = &mut self.state.borrow_mut().cluster {
            cluster.is_up = up;
        }
    }

    /// It tells everybody another map than the one that it goes by: each slot is that of the node so many further on.
    pub fn set_turned(&mut self, by: usize) {
        if let Some(cluster) = &mut self.state.borrow_mut().cluster {
            cluster.turned = by;
        }
    }

    /// What was published here since the last call, with whether its channel belongs to a slot. The first call begins to
    /// listen.
    pub fn overhear(&mut self) -> Vec<(Vec<u8>, Vec<u8>, bool)> {
        self.state.borrow_mut().overheard.replace(Vec::new()).unwrap_or_default()
    }

    /// What was published for the other nodes since the last call.
    pub fn bus(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut state = self.state.borrow_mut();
        state.cluster.as_mut().map_or(Vec::new(), |cluster| std::mem::take(&mut cluster.bus))
    }

    /// Another node has published this.
    pub fn tell(&mut self, channel: &[u8], message: &[u8]) {
        self.state.borrow_mut().tell(channel, message, false);
    }

    /// Takes a key away, to be put on another node.
    pub fn take(&mut self, key: &[u8]) -> Option<Parcel> {
        let parcel = self.state.borrow_mut().keys[0].take(key);
        self.state.borrow_mut().propagate(Caller { conn: None });
        parcel
    }

    /// Puts down what another node had.
    pub fn put(&mut self, parcel: Parcel) {
        self.state.borrow_mut().keys[0].give(parcel);
        self.state.borrow_mut().propagate(Caller { conn: None });
    }

    /// It is a sentinel with this name, and knows this of the primary, and these other sentinels. It tells those who listen of a
    /// new primary.
    pub fn watch(&mut self, id: String, watched: Watched, others: Vec<(String, u16)>) {
        let mut state = self.state.borrow_mut();
        let Watched { service, host, port, .. } = watched.clone();
        let described = (host.clone(), port);
        let sentinel = Sentinel { id, watched, described, others };
        let Some(Sentinel { described: before, .. }) = state.sentinel.replace(sentinel) else {
            return;
        };
        if before != (host.clone(), port) {
            let message = format!("{service} {} {} {host} {port}", before.0, before.1);
            state.tell(b"+switch-master", message.as_bytes(), false);
        }
    }

    /// It is a sentinel that leads a failover to this primary: it knows the address, but does not describe it yet.
    pub fn lead(&mut self, watched: Watched) {
        let mut state = self.state.borrow_mut();
        let Some(sentinel) = &mut state.sentinel else { return };
        let (host, port) = &sentinel.described;
        let message = format!("master {} {host} {port}", watched.service);
        sentinel.watched = watched;
        state.tell(b"+failover-state-reconf-slaves", message.as_bytes(), false);
    }

    /// A copy of all keys.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.borrow();
        let mut keys = state.keys.clone();
        keys.iter_mut().for_each(|keys| keys.record(false));
        Snapshot { keys, offset: state.replication.offset }
    }

    /// Puts these in place of all keys.
    pub fn restore(&mut self, now: u64, entries: &[Entry]) {
        let mut state = self.state.borrow_mut();
        state.now = now;
        let now = state.now_ms();
        state.keys = vec![Database::default(); DATABASES];
        for entry in entries {
            let ends = (entry.pttl >= 0).then(|| now.saturating_add(entry.pttl));
            state.keys[entry.database].put(&entry.key, (&entry.content).into(), ends);
        }
    }

    /// Puts a copy in place of all keys.
    pub fn load(&mut self, snapshot: Snapshot) {
        let mut state = self.state.borrow_mut();
        state.keys = snapshot.keys;
        state.replication.offset = snapshot.offset;
    }
}

type Words<'a> = &'a [&'a [u8]];

/// KEYS and ARGV of an EVAL.
fn split<'a>(words: Words<'a>) -> Result<(Words<'a>, Words<'a>), Reply> {
    let keys = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
    let negative = || Reply::error("ERR Number of keys can't be negative");
    let too_many = || Reply::error("ERR Number of keys can't be greater than number of args");
    if keys > words.len() as i64 - 3 {
        return Err(too_many());
    }
    let keys = usize::try_from(keys).map_err(|_| negative())?;
    Ok(words[3..].split_at(keys))
}
