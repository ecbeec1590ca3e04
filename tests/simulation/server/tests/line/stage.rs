//! A server that the scripts run on: a real one, or the simulated one, whose time passes as a test says.

use std::path::Path;
use std::time::Duration;

use parklock_simulated_server::{Conn, Server, Version};

use crate::frame::Frame;
use crate::real::{Real, Wire, request};
use crate::scripts::{self, Dialect, Script};

/// A connection to the server of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(usize);

#[allow(clippy::large_enum_variant, reason = "there is one of it")]
enum Side {
    Real { real: Real, wires: Vec<Wire> },
    Simulated { server: Server, now: u64, conns: Vec<Conn>, inbox: Vec<Vec<Frame>> },
}

/// A server and the connections to it.
pub struct Stage(Side);

/// Any time, far from zero.
const BEGIN: u64 = 1_700_000_000_000_000;

impl Stage {
    pub fn real(version: Version, program: &Path) -> Self {
        let mut stage = Self(Side::Real { real: Real::start(version, program), wires: Vec::new() });
        let boss = stage.connect();
        // The other tests keep large hashes small ones, in which each look goes through all of it.
        let usual = stage.ask(boss, &["CONFIG", "SET", "hash-max-ziplist-entries", "128"]);
        assert_eq!(usual.text, b"OK", "{usual:?}");
        stage.load(boss);
        stage
    }

    pub fn simulated(version: Version) -> Self {
        let (server, conns, inbox) = (Server::new(version), Vec::new(), Vec::new());
        let mut stage = Self(Side::Simulated { server, now: BEGIN, conns, inbox });
        let boss = stage.connect();
        stage.load(boss);
        stage
    }

    fn load(&mut self, boss: Client) {
        for script in scripts::ALL {
            let loaded = self.ask_bytes(
                boss,
                &[b"SCRIPT".to_vec(), b"LOAD".to_vec(), script.text(Dialect::Plain).into()],
            );
            assert_eq!(loaded.kind, b'$', "{loaded:?}");
        }
    }

    pub fn is_real(&self) -> bool {
        matches!(self.0, Side::Real { .. })
    }

    pub fn connect(&mut self) -> Client {
        match &mut self.0 {
            Side::Real { real, wires } => {
                wires.push(real.connect());
                Client(wires.len() - 1)
            }
            Side::Simulated { server, conns, inbox, .. } => {
                conns.push(server.accept());
                inbox.push(Vec::new());
                Client(conns.len() - 1)
            }
        }
    }

    /// So much time passes without any script.
    pub fn pass(&mut self, time: Duration) {
        match &mut self.0 {
            Side::Real { .. } => std::thread::sleep(time),
            Side::Simulated { now, .. } => *now += time.as_micros() as u64,
        }
    }

    pub fn ask(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Frame {
        let words: Vec<_> = words.iter().map(|word| word.as_ref().to_vec()).collect();
        self.ask_bytes(client, &words)
    }

    fn ask_bytes(&mut self, client: Client, words: &[Vec<u8>]) -> Frame {
        let bytes = request(words);
        match &mut self.0 {
            Side::Real { wires, .. } => {
                wires[client.0].send(&bytes);
                wires[client.0].frame()
            }
            Side::Simulated { server, now, conns, inbox } => {
                // Two requests never come in the same microsecond.
                *now += 1;
                server.receive(conns[client.0], &bytes, *now);
                for (conn, bytes) in server.output() {
                    let place = conns.iter().position(|known| *known == conn);
                    inbox[place.expect("a connection of ours")].extend(Frame::all(&bytes));
                }
                inbox[client.0].remove(0)
            }
        }
    }

    /// Runs a script as the library does.
    pub fn run(
        &mut self,
        client: Client,
        script: &Script,
        keys: &[String],
        argv: &[String],
    ) -> Frame {
        let hash = script.hash(Dialect::Plain).to_owned();
        let words = ["EVALSHA".to_owned(), hash, keys.len().to_string()];
        let words: Vec<_> = words.iter().chain(keys).chain(argv).collect();
        self.ask(client, &words)
    }

    /// What a listener has heard by now: the channel and the message of each.
    pub fn heard(&mut self, listener: Client) -> Vec<(String, String)> {
        let heard = match &mut self.0 {
            Side::Real { wires, .. } => {
                let wire = &mut wires[listener.0];
                wire.send(&request(&[b"PING".to_vec()]));
                std::iter::from_fn(|| Some(wire.frame()).filter(|frame| frame.items.len() == 3))
                    .collect()
            }
            Side::Simulated { inbox, .. } => std::mem::take(&mut inbox[listener.0]),
        };
        let text = |frame: &Frame| String::from_utf8_lossy(&frame.text).into_owned();
        heard.iter().map(|frame| (text(&frame.items[1]), text(&frame.items[2]))).collect()
    }

    /// The server's clock, in microseconds.
    pub fn time(&mut self, client: Client) -> u64 {
        self.ask(client, &["TIME"]).micros()
    }
}
