//! The server with all that surrounds it: its clock, its connections, its replica, and the faults that it has.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use parklock::operator::{Part, part_of, within};
use parklock_simulated_server::{Batch, Conn, Content, Entry, Server, Version};

use crate::near::Near;

/// The server's time when it starts, in microseconds since the Unix epoch. It is the same in each test.
const EPOCH: u64 = 1_700_000_000_000_000;

/// How far the replica is behind, in microseconds.
const LAG: u64 = 1_000_000;

/// What a restart takes, in microseconds. Without it, an empty server might repeat tokens while the clock stands still: they
/// come from its time. It is less than the clocks of a client and a server may drift apart.
const RESTART: u64 = 1_000;

/// The number of the only replica.
const REPLICA: u64 = 1;

/// Something that has arrived at a server that is silent.
enum Arrival {
    Request(Vec<u8>),
    Gone,
}

/// A server process and its machine. Times are microseconds since it was started.
pub(crate) struct Host {
    server: Server,
    replica: Server,
    /// What the replica does not have yet, each with the time at which it was written.
    lag: VecDeque<(u64, Rc<Batch>)>,
    connections: BTreeMap<Conn, Near>,
    refuses: bool,
    silent_until: u64,
    /// What has arrived since it fell silent.
    backlog: VecDeque<(Conn, Arrival)>,
    /// When somebody calls it.
    alarm: Option<u64>,
    now: u64,
    /// How long all restarts took.
    restarts: u64,
}

impl Host {
    pub(crate) fn new() -> Self {
        let mut server = Server::new(Version::Redis7_0);
        server.follow(REPLICA);
        Self {
            server,
            replica: Server::new(Version::Redis7_0),
            lag: VecDeque::new(),
            connections: BTreeMap::new(),
            refuses: false,
            silent_until: 0,
            backlog: VecDeque::new(),
            alarm: None,
            now: 0,
            restarts: 0,
        }
    }

    /// The time goes on to then, and what is over by then ends.
    pub(crate) fn pass(&mut self, now: u64) {
        self.now = self.now.max(now);
        if !self.is_silent() {
            let backlog = std::mem::take(&mut self.backlog);
            backlog.into_iter().for_each(|(conn, arrival)| self.take(conn, arrival));
            self.server.pass(self.time());
        }
        self.send();
    }

    /// When somebody has to call it again, unless it has said so before.
    pub(crate) fn new_alarm(&mut self) -> Option<u64> {
        let silent = self.is_silent().then_some(self.silent_until);
        let waits = self.server.next_end().map(|at| at.saturating_sub(EPOCH + self.restarts));
        let alarm = silent.or(waits);
        if alarm == self.alarm {
            None
        } else {
            self.alarm = alarm;
            alarm
        }
    }

    fn is_silent(&self) -> bool {
        self.now < self.silent_until
    }

    fn time(&self) -> u64 {
        EPOCH + self.restarts + self.now
    }

    // --- Connections ---

    /// A client connects, unless it is refused. The kernel lets it in even if the server is silent.
    pub(crate) fn accept(&mut self, near: Near) -> Option<Conn> {
        if self.refuses {
            return None;
        }
        let conn = self.server.accept();
        self.connections.insert(conn, near);
        Some(conn)
    }

    pub(crate) fn receive(&mut self, conn: Conn, bytes: Vec<u8>) {
        self.arrive(conn, Arrival::Request(bytes));
    }

    /// The client has closed the connection.
    pub(crate) fn leave(&mut self, conn: Conn) {
        self.arrive(conn, Arrival::Gone);
    }

    fn arrive(&mut self, conn: Conn, arrival: Arrival) {
        if self.is_silent() {
            self.backlog.push_back((conn, arrival));
        } else {
            self.take(conn, arrival);
            self.send();
        }
    }

    fn take(&mut self, conn: Conn, arrival: Arrival) {
        match arrival {
            Arrival::Request(bytes) => self.server.receive(conn, &bytes, self.time()),
            Arrival::Gone => {
                self.server.hang_up(conn);
                self.connections.remove(&conn);
            }
        }
    }

    /// Delivers what the server has sent, and notes what it has written.
    fn send(&mut self) {
        for (conn, bytes) in self.server.output() {
            if let Some(near) = self.connections.get(&conn) {
                near.deliver(&bytes);
            }
        }
        for conn in self.server.hang_ups() {
            if let Some(near) = self.connections.remove(&conn) {
                near.end();
            }
        }
        let written = self.server.stream().into_iter().map(|batch| (self.now, batch));
        self.lag.extend(written);
        self.replicate();
    }

    /// The replica gets what is old enough.
    fn replicate(&mut self) {
        let old_enough = self.lag.partition_point(|(at, _)| at + LAG <= self.now);
        self.lag.drain(..old_enough).for_each(|(_, batch)| self.replica.apply(&batch));
    }

    // --- Faults ---

    pub(crate) fn cut(&mut self) {
        for (conn, near) in std::mem::take(&mut self.connections) {
            self.server.hang_up(conn);
            near.end();
        }
    }

    pub(crate) fn refuse(&mut self, refuses: bool) {
        self.refuses = refuses;
        if refuses {
            self.cut();
        }
    }

    pub(crate) fn fall_silent(&mut self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.silent_until = self.now.saturating_add(time);
        self.pass(self.now);
    }

    /// Returns whether there was anything to lose.
    pub(crate) fn lose(&mut self, name: &str) -> bool {
        let mut is_lost = false;
        for Entry { key, content, .. } in self.server.dump(self.time()) {
            if std::str::from_utf8(&key).is_ok_and(|key| holds(key, &content, name)) {
                self.server.execute(self.time(), &[b"DEL", &key]);
                is_lost = true;
            }
        }
        self.send();
        is_lost
    }

    pub(crate) fn restart_empty(&mut self) {
        self.replica.restart(false);
        self.restart();
    }

    pub(crate) fn fail_over(&mut self) {
        self.replicate();
        self.restart();
    }

    /// Another process takes over, with what the replica has.
    fn restart(&mut self) {
        self.cut();
        self.lag.clear();
        self.backlog.clear();
        self.silent_until = 0;
        self.server.restart(false);
        self.server.load(self.replica.snapshot());
        self.server.follow(REPLICA);
        self.restarts += RESTART;
    }
}

/// Whether this is the key of the holders of this name: in parklock's layout, in any namespace, or in Redisson's.
fn holds(key: &str, content: &Content, name: &str) -> bool {
    let (_, native) = within(key);
    let namespaced = |prefix: &str| prefix.ends_with(':') && !prefix.starts_with("redisson_");
    key == name
        || match part_of(native) {
            Some((part, of)) => part == Part::Lock && of == name,
            // In Redisson's layout the key is the name, behind a namespace. Other keys may end with the name too.
            None => {
                matches!(content, Content::Hash(_))
                    && key.strip_suffix(name).is_some_and(namespaced)
            }
        }
}
