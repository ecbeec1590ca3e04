//! One connection through the proxy: reads both sides, frames what it reads, asks the judge, fills both ways.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::{select, try_join};

use super::judge::Request;
use super::latch::Latch;
use super::net::{Net, held};
use super::pairing::{Arrival, Pairing};
use super::resp::{self, Framed};
use super::rule::Class;
use super::scripts::is_any;
use super::way::{Entry, way};

const READ: usize = 32 * 1024;

/// How a connection ends.
pub(super) enum End {
    /// As TCP ends: what was sent before arrives.
    Closed,
    /// The client's side gets an RST.
    Reset,
}

#[derive(Debug)]
pub(super) struct Link {
    class: Mutex<Class>,
    pairing: Mutex<Pairing>,
    /// From here on bytes are passed on unread: a replica's stream, or something that is not RESP.
    raw: AtomicBool,
    doomed: Latch,
    closed: Latch,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            class: Mutex::new(Class::Fresh),
            pairing: Mutex::default(),
            raw: AtomicBool::new(false),
            doomed: Latch::default(),
            closed: Latch::default(),
        }
    }
}

impl Link {
    pub(super) fn class(&self) -> Class {
        *held(&self.class)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_set()
    }

    pub(super) fn doom(&self) {
        self.doomed.set();
    }

    pub(super) async fn closed(&self) {
        self.closed.wait().await;
    }

    /// Carries the traffic to its end. Both sockets are closed before the link says so.
    pub(super) async fn run(&self, net: &Net, sockets: (TcpStream, TcpStream)) {
        let (mut client, mut server) = sockets;
        let end = select! {
            end = self.carry(net, &mut client, &mut server) => end,
            () = self.doomed.wait() => End::Reset,
        };
        reset_if(matches!(end, End::Reset), client);
        drop(server);
        self.closed.set();
    }

    /// For a connection that found no server.
    pub(super) fn reject(&self, client: TcpStream) {
        reset_if(true, client);
        self.closed.set();
    }

    async fn carry(&self, net: &Net, client: &mut TcpStream, server: &mut TcpStream) -> End {
        let (client_reads, client_writes) = client.split();
        let (server_reads, server_writes) = server.split();
        let (up, to_server) = way();
        let (down, to_client) = way();
        let mut words = Vec::new();
        let requests =
            self.read(client_reads, up, |bytes, up| self.request(net, bytes, &mut words, up));
        let replies = self.read(server_reads, down, |bytes, down| self.arrival(net, bytes, down));
        let downwards = async {
            to_client.run(net, self, client_writes).await?;
            Err::<(), _>(End::Closed) // the server has hung up, and all it said is delivered
        };
        // A client that hangs up ends only its own half: what it sent before, held or not, still goes to the server,
        // as from a machine that closes its socket with data under way.
        let ended =
            try_join!(requests, to_server.run(net, self, server_writes), replies, downwards);
        ended.err().unwrap_or(End::Closed)
    }

    /// Reads one side until it ends or is cut, and hands whole frames to `take`, which says how long the next one is.
    async fn read(
        &self,
        mut side: ReadHalf<'_>,
        mut entry: Entry,
        mut take: impl FnMut(&[u8], &mut Entry) -> Framed,
    ) -> Result<(), End> {
        let mut buffer = Vec::new();
        while !entry.is_cut() && fill(&mut side, &mut buffer).await {
            let mut taken = 0;
            while !entry.is_cut() && taken < buffer.len() {
                match self.frame(&buffer[taken..], &mut entry, &mut take) {
                    Some(length) => taken += length,
                    None => break,
                }
            }
            buffer.drain(..taken);
            entry.flush();
        }
        Ok(())
    }

    fn frame(
        &self,
        bytes: &[u8],
        entry: &mut Entry,
        take: &mut impl FnMut(&[u8], &mut Entry) -> Framed,
    ) -> Option<usize> {
        if !self.raw.load(Relaxed) {
            match take(bytes, entry) {
                Ok(length) => return length,
                Err(resp::Garbled) => self.raw.store(true, Relaxed),
            }
        }
        entry.pass(bytes);
        Some(bytes.len())
    }

    fn request(
        &self,
        net: &Net,
        bytes: &[u8],
        words: &mut Vec<Range<usize>>,
        up: &mut Entry,
    ) -> Framed {
        let Some(length) = resp::request(bytes, words)? else {
            return Ok(None);
        };
        let word = |at: usize| words.get(at).map(|place| &bytes[place.clone()]);
        let command = word(0).unwrap_or_default();
        let class = self.learn_class(command);
        let frame = &bytes[..length];
        let verdict =
            net.judge().request(&Request { class, frame, words: [word(0), word(1), word(2)] });
        held(&self.pairing).sent(command, words.len(), verdict.reply);
        up.send(frame, verdict.request);
        Ok(Some(length))
    }

    fn arrival(&self, net: &Net, bytes: &[u8], down: &mut Entry) -> Framed {
        let class = self.class();
        let Some((length, arrival)) =
            held(&self.pairing).next(bytes, class == Class::Subscriber)?
        else {
            return Ok(None);
        };
        let frame = &bytes[..length];
        let strikes = match arrival {
            Arrival::Reply(strikes) => strikes,
            Arrival::Message => net.judge().message(class, frame),
        };
        down.send(&net.names.told(frame), strikes);
        Ok(Some(length))
    }

    fn learn_class(&self, command: &[u8]) -> Class {
        let mut class = held(&self.class);
        *class = match *class {
            Class::Fresh | Class::Command
                if is_any(command, &["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]) =>
            {
                Class::Subscriber
            }
            Class::Fresh if is_any(command, &["PSYNC", "SYNC"]) => {
                self.raw.store(true, Relaxed);
                Class::Replica
            }
            Class::Fresh
                if !is_any(command, &["HELLO", "AUTH", "CLIENT", "SELECT", "PING", "REPLCONF"]) =>
            {
                Class::Command
            }
            known => known,
        };
        *class
    }
}

/// Reads what is there; false at the end of the stream, however it ended.
async fn fill(side: &mut ReadHalf<'_>, buffer: &mut Vec<u8>) -> bool {
    buffer.reserve(READ);
    matches!(side.read_buf(buffer).await, Ok(read) if read > 0)
}

fn reset_if(reset: bool, socket: TcpStream) {
    if reset {
        let _ = socket.set_zero_linger(); // then closing it sends an RST
    }
}
