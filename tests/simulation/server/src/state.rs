//! All that the server knows, without the scripts: keys, connections, channels, and what it refuses.

use std::collections::{BTreeMap, BTreeSet};

use crate::admission::Run;
use crate::cluster::Cluster;
use crate::connection::{Conn, Connection};
use crate::keys::{DATABASES, Database};
use crate::replication::{History, Replication};
use crate::sentinel::Sentinel;
use crate::version::Version;

/// On whose behalf a command runs: a connection's, or the operator's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) conn: Option<Conn>,
}

/// A channel, a message, and whether the channel belongs to a slot.
pub(crate) type Published = (Vec<u8>, Vec<u8>, bool);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) version: Version,
    /// In microseconds since the Unix epoch.
    pub(crate) now: u64,
    pub(crate) keys: Vec<Database>,
    pub(crate) connections: BTreeMap<Conn, Connection>,
    /// The listeners of each channel, in the order in which they came.
    pub(crate) channels: BTreeMap<Vec<u8>, Vec<Conn>>,
    /// As `channels`, of those that belong to a slot.
    pub(crate) shard_channels: BTreeMap<Vec<u8>, Vec<Conn>>,
    /// What was published; `None` if nobody listens to everything.
    pub(crate) overheard: Option<Vec<Published>>,
    pub(crate) outbox: Vec<(Conn, Vec<u8>)>,
    pub(crate) hang_ups: Vec<Conn>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) memory_full: bool,
    pub(crate) loading: bool,
    pub(crate) busy: bool,
    pub(crate) replica: bool,
    pub(crate) denied_commands: BTreeSet<String>,
    pub(crate) denies_channels: bool,
    /// The connection whose command is running, and the bytes for it that follow the reply.
    pub(crate) serving: Option<Conn>,
    pub(crate) behind_the_reply: Vec<Vec<u8>>,
    pub(crate) run: Option<Run>,
    /// Its `run_id`: another one begins when the server starts.
    pub(crate) run_id: History,
    pub(crate) replication: Replication,
    /// What it knows as a node of a cluster, if it is one.
    pub(crate) cluster: Option<Cluster>,
    /// What it knows as a sentinel, if it is one.
    pub(crate) sentinel: Option<Sentinel>,
}

impl State {
    pub(crate) fn new(version: Version) -> Self {
        Self {
            version,
            now: 0,
            keys: vec![Database::default(); DATABASES],
            connections: BTreeMap::new(),
            channels: BTreeMap::new(),
            shard_channels: BTreeMap::new(),
            overheard: None,
            outbox: Vec::new(),
            hang_ups: Vec::new(),
            password: None,
            memory_full: false,
            loading: false,
            busy: false,
            replica: false,
            denied_commands: BTreeSet::new(),
            denies_channels: false,
            serving: None,
            behind_the_reply: Vec::new(),
            run: None,
            run_id: History::default(),
            replication: Replication::default(),
            cluster: None,
            sentinel: None,
        }
    }

    /// What kind of server it is.
    pub(crate) fn mode(&self) -> &'static str {
        match (&self.cluster, &self.sentinel) {
            (Some(_), _) => "cluster",
            (_, Some(_)) => "sentinel",
            _ => "standalone",
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.now / 1000) as i64
    }

    pub(crate) fn database(&mut self, caller: Caller) -> &mut Database {
        let number = match self.run {
            Some(run) => run.database,
            None => self.connection(caller).map_or(0, |connection| connection.database),
        };
        &mut self.keys[number]
    }

    pub(crate) fn connection(&self, caller: Caller) -> Option<&Connection> {
        self.connections.get(&caller.conn?)
    }

    pub(crate) fn connection_mut(&mut self, caller: Caller) -> Option<&mut Connection> {
        self.connections.get_mut(&caller.conn?)
    }
}
