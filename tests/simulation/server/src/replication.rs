//! A primary and its replicas: what it has written, and how much of that each of them says that it has.
//!
//! Whoever owns the servers carries the batches from one to the other, and the answers back, as late as it likes.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::connection::{Conn, Waits};
use crate::keys::Change;
use crate::reply::Reply;
use crate::state::{Caller, State};

/// What one request has written: to be carried to the replicas, in the order of their offsets.
#[derive(Debug)]
pub struct Batch {
    /// How much has been written with it.
    pub offset: u64,
    /// By database.
    changes: Vec<Vec<Change>>,
}

/// Tells one history of data from another. It is never the same again, also for another server.
#[derive(Debug)]
pub(crate) struct History(u64);

impl Default for History {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

impl History {
    pub(crate) fn name(&self) -> String {
        format!("{:040x}", self.0)
    }
}

/// What a server knows of its replicas.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    /// Another one begins when the server starts, and when it becomes a primary.
    pub(crate) history: History,
    /// How much has been written: how many requests wrote something.
    pub(crate) offset: u64,
    /// The replicas, each with the offset that it has.
    pub(crate) replicas: BTreeMap<u64, u64>,
    pub(crate) stream: Vec<Rc<Batch>>,
}

impl Replication {
    pub(crate) fn having(&self, offset: u64) -> i64 {
        self.replicas.values().filter(|has| **has >= offset).count() as i64
    }
}

impl State {
    /// A request is over: takes what it has written into the stream.
    pub(crate) fn propagate(&mut self, caller: Caller) {
        if self.replication.replicas.is_empty() {
            return;
        }
        let changes: Vec<_> = self.keys.iter_mut().map(|keys| keys.changes()).collect();
        let wrote = changes.iter().any(Option::is_some);
        if wrote {
            self.replication.offset += 1;
            let changes = changes.into_iter().map(Option::unwrap_or_default).collect();
            let batch = Batch { offset: self.replication.offset, changes };
            self.replication.stream.push(Rc::new(batch));
        }
        // To the older servers, who only reads waits too.
        let offset = self.replication.offset;
        let counts = wrote || !self.version.is_recent();
        if let Some(connection) = self.connection_mut(caller).filter(|_| counts) {
            connection.wrote = offset;
        }
    }

    pub(crate) fn apply(&mut self, batch: &Batch) {
        for (keys, changes) in self.keys.iter_mut().zip(&batch.changes) {
            keys.apply(changes);
        }
        self.replication.offset = batch.offset;
    }

    pub(crate) fn follow(&mut self, replica: u64) {
        if self.replication.replicas.is_empty() {
            self.keys.iter_mut().for_each(|keys| keys.record(true));
        }
        self.replication.replicas.insert(replica, 0);
    }

    pub(crate) fn unfollow(&mut self, replica: u64) {
        self.replication.replicas.remove(&replica);
        if self.replication.replicas.is_empty() {
            self.keys.iter_mut().for_each(|keys| keys.record(false));
        }
    }

    /// When the next WAIT is over, if nothing happens.
    pub(crate) fn next_end(&self) -> Option<u64> {
        self.connections.values().filter_map(|connection| connection.waits?.until).min()
    }

    /// Answers the WAITs that have what they want, or are over. Returns whose they were.
    pub(crate) fn end_waits(&mut self) -> Vec<Conn> {
        let (now, replication) = (self.now, &self.replication);
        let is_over = |waits: &Waits| {
            waits.until.is_some_and(|until| until <= now)
                || replication.having(waits.offset) >= waits.replicas
        };
        let ended = self.connections.iter().filter_map(|(conn, connection)| {
            connection.waits.filter(is_over).map(|waits| (*conn, replication.having(waits.offset)))
        });
        let ended: Vec<_> = ended.collect();
        for (conn, has) in &ended {
            if let Some(connection) = self.connections.get_mut(conn) {
                connection.waits = None;
            }
            self.send(*conn, &Reply::Integer(*has));
        }
        ended.into_iter().map(|(conn, _)| conn).collect()
    }

    /// It is a replica from now on: whoever waits for replicas is sent away.
    pub(crate) fn refuse_waits(&mut self) {
        let waiting = self.connections.iter().filter(|(_, connection)| connection.waits.is_some());
        let waiting: Vec<_> = waiting.map(|(conn, _)| *conn).collect();
        for conn in waiting {
            let text = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
            self.send(conn, &Reply::error(text));
            self.close_after_reply(Caller { conn: Some(conn) });
        }
    }
}
