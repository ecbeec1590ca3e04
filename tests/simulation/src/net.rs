//! The network: what is on its way, how long it takes, and where it is cut.

use std::collections::BTreeMap;

use fastrand::Rng;
use parklock_simulated_server::Conn;

use crate::clock::{self, MICRO, MILLI, SECOND};
use crate::frames;
use crate::plan::{Moment, Which};
use crate::steps;
use crate::trace;
use crate::wire::{Dialled, End, Near};

/// How long a server goes on believing in a connection whose client has vanished.
const KEEPALIVE: u64 = 5 * SECOND;

/// Something that arrives.
pub enum Arrival {
    /// At the server, a client that wants to connect.
    Client,
    /// At the server, what the client has sent.
    Request(Vec<u8>),
    /// At the server, the end of the connection.
    Gone,
    /// At the client, what the server has sent.
    Answer(Vec<u8>),
    /// At the client, the end of the connection.
    Closed(End),
}

/// The hole of a connection through which nothing ever comes again.
const LOST: (u64, bool) = (u64::MAX, false);

/// One connection.
pub struct Link {
    pub process: usize,
    pub station: usize,
    pub conn: Option<Conn>,
    dialled: Option<Dialled>,
    near: Near,
    /// When the last that was sent arrives, each way: nothing overtakes it.
    up: u64,
    down: u64,
    armed: Option<Moment>,
    /// Nothing comes through until then; whether it arrives afterwards.
    hole: (u64, bool),
    half_open: bool,
    /// Scripts were loaded through it.
    commands: bool,
    /// The client has closed it, or has been told that it is over.
    left: bool,
    /// Everything on its way is lost.
    lost: bool,
}

/// What a client's connections suffer.
#[derive(Default, Clone)]
pub struct Trouble {
    pub delay: (u64, u64),
    pub sliced_until: u64,
    pub swallowed_until: u64,
}

pub struct Net {
    pub rng: Rng,
    pub links: BTreeMap<u64, Link>,
    next: u64,
    /// What arrives when.
    arrivals: Vec<(u64, u64, Arrival)>,
    pub troubles: Vec<Trouble>,
    ways: Vec<(u64, u64)>,
}

impl Net {
    pub fn new(seed: u64, ways: Vec<(u64, u64)>) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            links: BTreeMap::new(),
            next: 0,
            arrivals: Vec::new(),
            troubles: vec![Trouble::default(); ways.len()],
            ways,
        }
    }

    /// Everything that was sent since the last call: when it arrives, on which connection, and what it is.
    pub fn take(&mut self) -> Vec<(u64, u64, Arrival)> {
        std::mem::take(&mut self.arrivals)
    }

    fn way(&mut self, process: usize) -> u64 {
        let ((least, most), trouble) = (self.ways[process], &self.troubles[process]);
        let delay =
            if clock::now() < trouble.delay.0 { self.rng.u64(..=trouble.delay.1) } else { 0 };
        self.rng.u64(least..=most) + delay
    }

    pub fn dial(&mut self, process: usize, station: usize, dialled: Dialled) {
        self.next += 1;
        let link = Link {
            process,
            station,
            conn: None,
            near: dialled.near.clone(),
            dialled: Some(dialled),
            up: 0,
            down: 0,
            armed: None,
            hole: (0, false),
            half_open: false,
            commands: false,
            left: false,
            lost: false,
        };
        self.links.insert(self.next, link);
        self.send_up(self.next, Arrival::Client);
    }

    /// Takes what a process has written to its connections.
    pub fn collect(&mut self, process: usize) {
        let of = |(_, link): &(&u64, &Link)| link.process == process && !link.left;
        let ids: Vec<u64> = self.links.iter().filter(of).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(link) = self.links.get_mut(&id) else { continue };
            let (bytes, dropped) = link.near.take();
            if !bytes.is_empty() {
                self.request(id, bytes);
            }
            if dropped {
                self.leave(id);
            }
        }
    }

    fn request(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        steps::sent(link.process, id, &bytes);
        link.commands = link.commands || bytes.windows(6).take(4_000).any(|word| word == b"SCRIPT");
        match link.armed {
            Some(Moment::BeforeRequest) => return self.cut(id),
            Some(Moment::AfterRequest) => {
                link.armed = None;
                self.pieces(id, bytes, true);
                return self.cut_after(id);
            }
            Some(Moment::Silent) => {
                link.armed = None;
                self.pieces(id, bytes, true);
                return self.hole(id, u64::MAX, false);
            }
            _ => {}
        }
        self.pieces(id, bytes, true);
    }

    /// What the server sends on a connection.
    pub fn answer(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let swallows = clock::now() < self.troubles[link.process].swallowed_until;
        let bytes = if swallows { frames::without_messages(&bytes) } else { bytes };
        if bytes.is_empty() || link.lost {
            return;
        }
        match link.armed {
            Some(Moment::BeforeAnswer) => return self.cut(id),
            Some(Moment::AfterAnswer) => {
                link.armed = None;
                self.pieces(id, bytes, false);
                return self.cut_after(id);
            }
            _ => {}
        }
        self.pieces(id, bytes, false);
    }

    fn pieces(&mut self, id: u64, bytes: Vec<u8>, up: bool) {
        let process = self.links[&id].process;
        let mut rest = bytes;
        while clock::now() < self.troubles[process].sliced_until && rest.len() > 1 {
            let tail = rest.split_off(self.rng.usize(1..rest.len().min(200)));
            self.piece(id, rest, up);
            rest = tail;
        }
        self.piece(id, rest, up);
    }

    fn piece(&mut self, id: u64, bytes: Vec<u8>, up: bool) {
        if up {
            self.send_up(id, Arrival::Request(bytes));
        } else {
            self.send_down(id, Arrival::Answer(bytes));
        }
    }

    fn send_up(&mut self, id: u64, what: Arrival) {
        let Some(at) = self.arrival(id, true) else { return };
        self.arrivals.push((at, id, what));
    }

    fn send_down(&mut self, id: u64, what: Arrival) {
        let Some(at) = self.arrival(id, false) else { return };
        self.arrivals.push((at, id, what));
    }

    /// When something arrives that is sent now, or `None` if it never does.
    fn arrival(&mut self, id: u64, up: bool) -> Option<u64> {
        let process = self.links[&id].process;
        let way = self.way(process);
        let (link, now) = (self.links.get_mut(&id)?, clock::now());
        if link.half_open {
            return None;
        }
        let sent = match link.hole {
            (until, true) if now < until => until,
            (until, false) if now < until => return None,
            _ => now,
        };
        let last = if up { &mut link.up } else { &mut link.down };
        *last = (sent + way).max(*last + 1);
        Some(*last)
    }

    /// The client has closed its end: the server hears of it after all that was sent.
    fn leave(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.left = true;
        let at = if link.half_open {
            clock::now() + KEEPALIVE
        } else {
            link.up.max(clock::now()) + MICRO
        };
        self.arrivals.push((at, id, Arrival::Gone));
    }

    /// A process has died: what it had written is on its way, and its connections end.
    pub fn die(&mut self, process: usize) {
        self.collect(process);
        for id in self.of(process) {
            self.leave(id);
        }
    }

    /// The connections of a process that are not over.
    pub fn of(&self, process: usize) -> Vec<u64> {
        let of = |(_, link): &(&u64, &Link)| link.process == process && !link.left;
        self.links.iter().filter(of).map(|(id, _)| *id).collect()
    }

    /// One of a process' connections.
    pub fn pick(&self, process: usize, which: Which) -> Option<u64> {
        let ids = self.of(process);
        let of = |commands: bool| {
            ids.iter().rev().find(|id| self.links[id].commands == commands).copied()
        };
        match which {
            Which::Command => of(true),
            Which::Subscriber => of(false),
            Which::Any(_) if ids.is_empty() => None,
            Which::Any(which) => Some(ids[which % ids.len()]),
        }
    }

    pub fn arm(&mut self, id: u64, moment: Moment) {
        match (moment, self.links.get_mut(&id)) {
            (Moment::Now, _) => self.cut(id),
            (moment, Some(link)) => link.armed = Some(moment),
            _ => {}
        }
    }

    /// Ends a connection from both sides. Bytes on their way to the server may be lost with it.
    pub fn cut(&mut self, id: u64) {
        let lost = self.rng.bool();
        let Some(link) = self.links.get_mut(&id) else { return };
        trace::line(|| format!("p{}.{id}    cut", link.process));
        link.left = true;
        link.lost = lost;
        link.near.end(End::Reset);
        let at = link.up.max(clock::now()) + MILLI;
        self.arrivals.push((at, id, Arrival::Gone));
        self.arrivals.push((clock::now(), id, Arrival::Closed(End::Reset)));
    }

    /// Cuts a connection as soon as the bytes on their way have arrived: the answers are lost.
    fn cut_after(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (at, now) = (link.up.max(link.down).max(clock::now()) + 1, clock::now());
        link.hole = LOST;
        self.arrivals.push((at.max(now), id, Arrival::Closed(End::Reset)));
        self.arrivals.push((at + MILLI, id, Arrival::Gone));
    }

    pub fn hole(&mut self, id: u64, until: u64, arrives: bool) {
        let Some(link) = self.links.get_mut(&id) else { return };
        // What is lost in the middle of a stream ends it: nothing comes through any more, whatever happens to it later.
        if link.hole != LOST {
            link.hole = if arrives { (until, true) } else { LOST };
        }
    }

    pub fn half_open(&mut self, id: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            link.half_open = true;
        }
    }

    /// The server has closed a connection.
    pub fn hung_up(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.conn = None;
        self.send_down(id, Arrival::Closed(End::Closed));
    }

    /// Whether what arrives at the server on this connection is lost.
    pub fn is_lost(&self, id: u64) -> bool {
        self.links.get(&id).is_none_or(|link| link.lost)
    }

    pub fn accept(&mut self, id: u64, conn: Conn) {
        if let Some(link) = self.links.get_mut(&id) {
            link.conn = Some(conn);
            if let Some(dialled) = link.dialled.take() {
                dialled.accept();
            }
        }
    }

    pub fn refuse(&mut self, id: u64) {
        if let Some(dialled) = self.links.remove(&id).and_then(|link| link.dialled) {
            dialled.refuse();
        }
    }

    /// Gives a client the bytes that have arrived for it. Returns its process.
    pub fn deliver(&mut self, id: u64, bytes: &[u8]) -> Option<usize> {
        let link = self.links.get(&id).filter(|link| !link.left)?;
        link.near.deliver(bytes);
        Some(link.process)
    }

    pub fn end(&mut self, id: u64, how: End) -> Option<usize> {
        let link = self.links.get_mut(&id)?;
        link.near.end(how);
        link.left = true;
        Some(link.process)
    }
}
