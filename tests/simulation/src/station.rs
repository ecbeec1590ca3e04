//! A server with its clock and its troubles.

use std::collections::{BTreeMap, VecDeque};

use parklock_simulated_server::{Conn, Reply, Server, Version};

use crate::clock::{self, MICRO};
use crate::keyspace;
use crate::net::Arrival;

/// The server's time when the world begins, in microseconds.
pub const EPOCH: u64 = 1_700_000_000_000_000;

pub struct Station {
    pub server: Server,
    /// Which connection of the network each of the server's is.
    links: BTreeMap<Conn, u64>,
    /// How far its clock has been set, in microseconds.
    offset: i64,
    pub stalled_until: u64,
    pub down_until: u64,
    /// A sentinel hears nothing until then.
    pub deaf_until: u64,
    /// When somebody looks next whether a WAIT is over.
    pub looks_at: u64,
    /// Until when each request takes it so long.
    pub slow: (u64, u64),
    free_at: u64,
    /// Requests that have arrived and wait, each with its connection.
    pub backlog: VecDeque<(u64, Arrival)>,
}

impl Station {
    pub fn new(version: Version) -> Self {
        Self {
            server: Server::new(version),
            links: BTreeMap::new(),
            offset: 0,
            stalled_until: 0,
            down_until: 0,
            deaf_until: 0,
            looks_at: 0,
            slow: (0, 0),
            free_at: 0,
            backlog: VecDeque::new(),
        }
    }

    /// Another server with the same clock.
    pub fn sibling(&self, version: Version) -> Self {
        Self { offset: self.offset, ..Self::new(version) }
    }

    pub fn time(&self) -> u64 {
        (EPOCH + clock::now() / MICRO).saturating_add_signed(self.offset)
    }

    pub fn set_clock(&mut self, by: i64) {
        self.offset += by / MICRO as i64;
    }

    /// When the server can take the next request.
    pub fn ready_at(&self) -> u64 {
        self.stalled_until.max(self.free_at)
    }

    pub fn accept(&mut self, link: u64) -> Conn {
        let conn = self.server.accept();
        self.links.insert(conn, link);
        conn
    }

    pub fn receive(&mut self, conn: Conn, bytes: &[u8]) {
        self.server.receive(conn, bytes, self.time());
        if clock::now() < self.slow.0 {
            self.free_at = clock::now() + self.slow.1;
        }
    }

    pub fn hang_up(&mut self, conn: Conn) {
        self.server.hang_up(conn);
        self.links.remove(&conn);
    }

    /// What it sends, by connection of the network.
    pub fn output(&mut self) -> Vec<(u64, Vec<u8>)> {
        let output = self.server.output();
        output
            .into_iter()
            .filter_map(|(conn, bytes)| Some((*self.links.get(&conn)?, bytes)))
            .collect()
    }

    pub fn hang_ups(&mut self) -> Vec<u64> {
        let gone = self.server.hang_ups();
        gone.into_iter().filter_map(|conn| self.links.remove(&conn)).collect()
    }

    /// All connections end.
    pub fn restart(&mut self, keeps: bool) -> Vec<u64> {
        self.server.restart(keeps);
        let _ = (self.server.output(), self.server.hang_ups());
        std::mem::take(&mut self.links).into_values().collect()
    }

    pub fn execute(&mut self, words: &[&str]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.server.execute(self.time(), &words)
    }

    /// The counters of the tokens, by key: a time of its clock in microseconds, or a little more.
    pub fn counters(&mut self) -> BTreeMap<String, u64> {
        let mut keys = self.list(&["KEYS", "*lock:grants*"]);
        keys.retain(|key| keyspace::is_counter(key));
        keys.into_iter().map(|key| (key.clone(), self.number(&["GET", &key]))).collect()
    }

    /// The number that a reply is, and 0 if it is none.
    pub fn number(&mut self, words: &[&str]) -> u64 {
        text(&self.execute(words)).and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// The text that a reply is.
    pub fn text(&mut self, words: &[&str]) -> Option<String> {
        text(&self.execute(words))
    }

    /// The words of a reply that is a list.
    pub fn list(&mut self, words: &[&str]) -> Vec<String> {
        let Reply::Array(items) = self.execute(words) else { return Vec::new() };
        items.iter().filter_map(text).collect()
    }
}

fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) | Reply::Status(bytes) | Reply::Text(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => None,
    }
}
