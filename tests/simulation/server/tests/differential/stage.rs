//! A real server and a simulated one that hear the same bytes, client by client.

use std::path::Path;

use parklock_simulated_server::{Conn, Server, Version};

use std::time::{Duration, UNIX_EPOCH};

use crate::frame::Frame;
use crate::pair::{keep_known_info, settle_order};
use crate::real::{Next, Real, Wire, request};

const PATIENCE: Duration = Duration::from_secs(3);

/// One of the clients that a dialogue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who(usize);

struct Client {
    wire: Wire,
    conn: Conn,
    /// What the real server knows it by.
    id: i64,
    open: bool,
}

/// Both servers and their clients.
pub struct Stage {
    pub version: Version,
    pub sim: Server,
    real: Real,
    clients: Vec<Client>,
    name: &'static str,
    differences: Vec<String>,
}

impl Stage {
    pub fn set(version: Version, program: &Path) -> Self {
        Self {
            version,
            sim: Server::new(version),
            real: Real::start(version, program),
            clients: Vec::new(),
            name: "",
            differences: Vec::new(),
        }
    }

    /// A dialogue, with no clients and no keys at its beginning. At its end everybody is pinged: what only the real server
    /// has sent to somebody comes before the answer to that.
    pub fn hold(&mut self, name: &'static str, dialogue: fn(&mut Self)) {
        self.begin(name);
        dialogue(self);
        (0..self.clients.len()).for_each(|place| self.ping(Who(place)));
    }

    fn begin(&mut self, name: &'static str) {
        for client in std::mem::take(&mut self.clients) {
            self.sim.hang_up(client.conn);
        }
        self.order(&["FLUSHALL"]);
        self.sim.execute(now(), &[b"FLUSHALL"]);
        self.name = name;
    }

    /// A command for the real server alone.
    pub fn order(&self, words: &[&str]) {
        let answer = self.real.connect().ask(words);
        assert!(answer.kind != b'-', "{words:?}: {answer:?}");
    }

    /// A connection to the real server alone.
    pub fn outsider(&self) -> Wire {
        self.real.connect()
    }

    /// Another client; it has to be let in without a password.
    pub fn client(&mut self) -> Who {
        let mut wire = self.real.connect();
        let id = wire.ask(&["CLIENT", "ID"]).number();
        self.add(wire, id)
    }

    /// Another client, which the servers may not let in.
    pub fn stranger(&mut self) -> Who {
        let wire = self.real.connect();
        self.add(wire, 0)
    }

    /// A request, and a PING behind it.
    pub fn say(&mut self, who: Who, words: &[&str]) {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.hear(who, &words, &request(&words));
        self.ping(who);
    }

    /// A request that ends with the id by which the servers know a client.
    pub fn say_of(&mut self, who: Who, words: &[&str], whom: Who, behind: &[&str]) {
        let ask = |id: &str| -> Vec<u8> {
            let words = words.iter().copied().chain([id]).chain(behind.iter().copied());
            request(&words.map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        let target = &self.clients[whom.0];
        let (theirs, ours) = (ask(&target.id.to_string()), ask(&target.conn.0.to_string()));
        let shown: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.hear_each(who, &shown, &theirs, &ours);
        self.ping(who);
    }

    /// Bytes, whatever they mean, and a PING behind them if the connection is open still.
    pub fn send(&mut self, who: Who, bytes: &[u8]) {
        self.hear(who, &[bytes.to_vec()], bytes);
        self.ping(who);
    }

    /// Bytes that need not be a whole request.
    pub fn send_part(&mut self, who: Who, bytes: &[u8]) {
        self.hear(who, &[bytes.to_vec()], bytes);
    }

    fn add(&mut self, wire: Wire, id: i64) -> Who {
        wire.set_patience(PATIENCE);
        self.clients.push(Client { wire, conn: self.sim.accept(), id, open: true });
        Who(self.clients.len() - 1)
    }

    fn ping(&mut self, who: Who) {
        if self.clients[who.0].open {
            let words = [b"PING".to_vec()];
            self.hear(who, &words, &request(&words));
        }
    }

    fn hear(&mut self, who: Who, shown: &[Vec<u8>], bytes: &[u8]) {
        self.hear_each(who, shown, bytes, bytes);
    }

    /// What all of the clients hear of it. As many frames are awaited of the real server as the simulated one sent;
    /// if it sends more, they come before those of the next step.
    fn hear_each(&mut self, who: Who, shown: &[Vec<u8>], theirs: &[u8], ours: &[u8]) {
        if !self.clients[who.0].open {
            return self.differences.push(format!("{}: {who:?} is gone", self.name));
        }
        self.clients[who.0].wire.try_to_send(theirs);
        self.sim.receive(self.clients[who.0].conn, ours, now());
        let output = self.sim.output();
        let hang_ups = self.sim.hang_ups();
        let others = (0..self.clients.len()).filter(|place| *place != who.0);
        for place in [who.0].into_iter().chain(others) {
            let client = &mut self.clients[place];
            if !client.open {
                continue;
            }
            let sent = output.iter().filter(|(conn, _)| *conn == client.conn);
            let bytes: Vec<u8> = sent.flat_map(|(_, bytes)| bytes.clone()).collect();
            let mut simulated = Frame::all(&bytes);
            let ends = hang_ups.contains(&client.conn);
            let (mut real, next) =
                listen(&mut client.wire, if ends { None } else { Some(simulated.len()) });
            client.open = next.is_none();
            for frames in [&mut real, &mut simulated] {
                settle_order(shown, frames);
                frames.iter_mut().for_each(forget_own);
            }
            let as_expected = matches!((ends, &next), (true, Some(Next::End)) | (false, None));
            if real != simulated || !as_expected {
                let shown = shown.iter().map(|word| word.escape_ascii().to_string());
                let shown: String = shown.collect::<Vec<_>>().join(" ").chars().take(300).collect();
                let name = self.name;
                let mut text = format!("{name}: {shown}\n  client {place} heard\n");
                for at in 0..real.len().max(simulated.len()) {
                    let (real, simulated) = (real.get(at), simulated.get(at));
                    if real != simulated {
                        text += &format!(
                            "  {at}: real:      {real:?}\n     simulated: {simulated:?}\n"
                        );
                    }
                }
                if !as_expected {
                    text += &format!(
                        "  then real: {next:?}, simulated: {}",
                        if ends { "the end" } else { "silence" }
                    );
                }
                self.differences.push(text);
            }
        }
    }

    pub fn differences(&self) -> &[String] {
        &self.differences
    }
}

/// So many frames, or all until the end; what came instead of a frame.
fn listen(wire: &mut Wire, most: Option<usize>) -> (Vec<Frame>, Option<Next>) {
    let mut frames = Vec::new();
    while most.is_none_or(|most| frames.len() < most) {
        match wire.next() {
            Next::Frame(frame) => frames.push(frame),
            other => return (frames, Some(other)),
        }
    }
    (frames, None)
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64)
}

/// Ids, times and what INFO says of the process are others on each side.
fn forget_own(frame: &mut Frame) {
    if let Some(place) = frame.items.iter().position(|item| item.text == b"id") {
        frame.items.truncate(place);
    }
    let is_time = |item: &Frame| item.text.len() == 10 && item.text.iter().all(u8::is_ascii_digit);
    if frame.items.len() == 2 && is_time(&frame.items[0]) {
        frame.items.clear();
    }
    if frame.text.starts_with(b"# ") {
        keep_known_info(&mut frame.text);
    }
}
