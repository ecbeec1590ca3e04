//! Two real nodes of a cluster, and two simulated ones: keys and channels in slots that move between them.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fastrand::Rng;
use parklock_simulated_server::{Conn, NodeInfo, SLOTS, Server, Version, slot_of};

use crate::frame::Frame;
use crate::real::{Real, Wire, request};

const START: Duration = Duration::from_secs(30);

/// Two of the first node at the start, and one of the second.
const TAGS: [&str; 3] = ["{b}", "{d}", "{a}"];

/// Scripts of one to three keys, which a slot that stands open may have on both sides.
const SCRIPTS: [&str; 8] = [
    "return redis.call('get', KEYS[1])",
    "redis.call('set', KEYS[1], ARGV[1]) return 1",
    "local n = 0 for _, key in ipairs(KEYS) do n = n + redis.call('exists', key) end return n",
    "for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1]) end return #KEYS",
    "redis.call('del', KEYS[1]) return redis.call('exists', KEYS[1])",
    "redis.call('del', KEYS[1]) local e = redis.pcall('set', KEYS[1], '1') return e",
    "return redis.call('get', ARGV[2])",
    "redis.call('set', ARGV[2], 1) return redis.call('del', KEYS[1])",
];
const SHARDED_SCRIPTS: [&str; 2] = [
    "return redis.call('spublish', ARGV[2], ARGV[1])",
    "local r = redis.pcall('spublish', ARGV[2], 'in a script') return r",
];

/// A node on both sides, with one client that asks and one that listens.
struct Node {
    _real: Real,
    port: u16,
    id: String,
    sim: Server,
    asker: (Wire, Conn),
    listener: (Wire, Conn),
}

/// The nodes, and what is known of the slots.
pub struct Nodes {
    version: Version,
    nodes: Vec<Node>,
    rng: Rng,
    /// Of each tag: who has its slot, and to whom it stands open.
    slots: Vec<(usize, bool)>,
    history: Vec<String>,
    pub differences: Vec<String>,
    pub steps: usize,
    /// The real nodes have come to another view than they were told to have: late gossip can do that to slots that move
    /// every few milliseconds. The comparison is over then.
    pub is_over: bool,
    /// How often each kind of answer came: its first word.
    pub words: std::collections::BTreeMap<String, usize>,
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64)
}

impl Nodes {
    pub fn start(version: Version, program: &Path, seed: u64) -> Self {
        let reals: Vec<(Real, u16)> = (0..2).map(|_| Real::start_node(version, program)).collect();
        let ids = meet(&reals);
        let infos: Vec<NodeInfo> = reals
            .iter()
            .zip(&ids)
            .map(|((_, port), id)| NodeInfo {
                id: id.clone(),
                host: "127.0.0.1".to_owned(),
                port: *port,
            })
            .collect();
        let nodes = reals.into_iter().zip(ids).enumerate().map(|(at, ((real, port), id))| {
            let mut sim = Server::new(version);
            sim.join(at, infos.clone());
            (0..SLOTS).for_each(|slot| sim.assign(slot, usize::from(slot >= SLOTS / 2)));
            let mut client = || {
                let (mut wire, conn) = (real.connect(), sim.accept());
                let hello = words(&["HELLO", "3"]);
                wire.send(&request(&hello));
                assert_ne!(wire.frame().kind, b'-');
                sim.receive(conn, &request(&hello), now());
                (wire, conn)
            };
            let (asker, listener) = (client(), client());
            sim.output();
            Node { _real: real, port, id, sim, asker, listener }
        });
        let homes = TAGS.map(|tag| usize::from(slot_of(tag.as_bytes()) >= SLOTS / 2));
        Self {
            version,
            nodes: nodes.collect(),
            rng: Rng::with_seed(seed),
            slots: homes.map(|home| (home, false)).to_vec(),
            history: Vec::new(),
            differences: Vec::new(),
            steps: 0,
            is_over: false,
            words: std::collections::BTreeMap::new(),
        }
    }

    /// One random step.
    pub fn step(&mut self) {
        if self.is_over {
            return;
        }
        self.steps += 1;
        let at = self.rng.usize(..2);
        match self.rng.u32(..100) {
            0..8 => self.operate(),
            8..14 => self.move_a_key(),
            14..24 if self.version != Version::Redis6_2 => {
                let (what, channel) =
                    (["SSUBSCRIBE", "SUNSUBSCRIBE"][self.rng.usize(..2)], self.key());
                let words = if self.rng.u32(..6) == 0 {
                    vec![what.to_owned(), channel, self.key()]
                } else {
                    vec![what.to_owned(), channel]
                };
                self.ask(at, true, &[words]);
            }
            _ => {
                let words = self.command();
                let asking = (self.rng.u32(..3) == 0).then(|| vec!["ASKING".to_owned()]);
                let requests: Vec<_> = asking.into_iter().chain([words]).collect();
                self.ask(at, false, &requests);
            }
        }
        self.compare_keys();
    }

    fn tag(&mut self) -> usize {
        self.rng.usize(..TAGS.len())
    }

    fn key(&mut self) -> String {
        let tag = self.tag();
        format!("{}{}", self.rng.u32(..3), TAGS[tag])
    }

    /// So many of one slot, or (seldom) of any.
    fn keys(&mut self, many: usize) -> Vec<String> {
        let (tag, mixed) = (self.tag(), self.rng.u32(..8) == 0);
        (0..many)
            .map(|_| if mixed { self.key() } else { format!("{}{}", self.rng.u32(..3), TAGS[tag]) })
            .collect()
    }

    fn command(&mut self) -> Vec<String> {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (key, many) = (self.key(), self.rng.usize(1..4));
        let slot = slot_of(key.as_bytes()).to_string();
        match self.rng.u32(..16) {
            0 => own(&["GET", &key]),
            1 | 2 => own(&["SET", &key, "value"]),
            3 => [own(&["DEL"]), self.keys(many)].concat(),
            4 => [own(&["EXISTS"]), self.keys(many)].concat(),
            5 => own(&["CLUSTER", "COUNTKEYSINSLOT", &slot]),
            6 => own(&["CLUSTER", "KEYSLOT", &key]),
            7 => own(&["ECHO", "hello"]),
            8 if self.version != Version::Redis6_2 => own(&["SPUBLISH", &key, "message"]),
            9 if self.rng.bool() => own(&["CLUSTER", "SLOTS"]),
            9 => own(&["SELECT", "1"]),
            _ => {
                let sharded = self.version != Version::Redis6_2 && self.rng.u32(..4) == 0;
                let script = match sharded {
                    true => SHARDED_SCRIPTS[self.rng.usize(..SHARDED_SCRIPTS.len())],
                    false => SCRIPTS[self.rng.usize(..SCRIPTS.len())],
                };
                let (keys, mut other) = (self.keys(many), self.key());
                // Newer servers refuse some scripts that touch two open slots; not modelled, since no script of ours does.
                if matches!(self.version, Version::Redis8_2 | Version::Valkey9_1) {
                    other = keys[0].clone();
                    other.replace_range(..1, &self.rng.u32(..3).to_string());
                }
                let head = own(&["EVAL", script, &many.to_string()]);
                [head, keys, own(&["1", &other])].concat()
            }
        }
    }

    /// Opens a slot, closes it on either side, or asks for something that does not fit.
    fn operate(&mut self) {
        let tag = self.tag();
        let (owner, is_open) = self.slots[tag];
        let (other, slot) = (1 - owner, slot_of(TAGS[tag].as_bytes()).to_string());
        let ids = [self.nodes[0].id.clone(), self.nodes[1].id.clone()];
        let set = |how: &[&str]| {
            let words = ["CLUSTER", "SETSLOT", &slot].into_iter().chain(how.iter().copied());
            vec![words.map(str::to_owned).collect::<Vec<_>>()]
        };
        match (is_open, self.rng.u32(..4)) {
            (_, 0) => {
                // Nothing of this may change anything.
                let at = self.rng.usize(..2);
                let stranger = "0123456789012345678901234567890123456789";
                let how = [
                    vec![if at == owner { "IMPORTING" } else { "MIGRATING" }, &ids[other]],
                    vec!["NODE", stranger],
                    vec!["SIDEWAYS"],
                ];
                let how = how[self.rng.usize(..3)].clone();
                self.ask(at, false, &set(&how));
            }
            (false, _) => {
                self.ask(other, false, &set(&["IMPORTING", &ids[owner]]));
                self.ask(owner, false, &set(&["MIGRATING", &ids[other]]));
                self.slots[tag].1 = true;
            }
            (true, 1) if self.keys_at(other, tag).is_empty() => {
                self.ask(other, false, &set(&["STABLE"]));
                self.ask(owner, false, &set(&["STABLE"]));
                self.slots[tag].1 = false;
            }
            (true, _) => {
                while let Some(key) = self.keys_at(owner, tag).first().cloned() {
                    self.carry(&key, owner, other);
                }
                // Both, before one of them can tell the other.
                self.ask(other, false, &set(&["NODE", &ids[other]]));
                self.ask(owner, false, &set(&["NODE", &ids[other]]));
                self.slots[tag] = (other, false);
                self.hear(owner);
            }
        }
    }

    fn move_a_key(&mut self) {
        let tag = self.tag();
        let (owner, is_open) = self.slots[tag];
        let keys = self.keys_at(owner, tag);
        if let (true, Some(key)) = (is_open, keys.first().cloned()) {
            self.carry(&key, owner, 1 - owner);
        }
    }

    fn keys_at(&mut self, at: usize, tag: usize) -> Vec<String> {
        let slot = slot_of(TAGS[tag].as_bytes());
        let all = self.nodes[at].sim.dump(now());
        let names = all.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned());
        names.filter(|key| slot_of(key.as_bytes()) == slot).collect()
    }

    fn carry(&mut self, key: &str, from: usize, to: usize) {
        self.history.push(format!("{key} goes from {from} to {to}"));
        let port = self.nodes[to].port.to_string();
        // Somebody may have made one over there, behind an ASKING.
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000", "REPLACE"];
        let said = self.nodes[from].asker.0.ask(&words);
        if said.text.starts_with(b"MOVED") {
            // Late gossip has given the slot back.
            self.is_over = true;
        } else if said.text != b"OK" {
            self.differences.push(format!("MIGRATE {key}: {said:?}"));
        }
        if let Some(parcel) = self.nodes[from].sim.take(key.as_bytes()) {
            self.nodes[to].sim.put(parcel);
        }
    }

    /// Requests of one client, with a PING behind them: what both sides answer, and what their listeners hear.
    fn ask(&mut self, at: usize, listener: bool, requests: &[Vec<String>]) {
        let text = requests.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" | ");
        self.history.push(format!("{at}{}: {text}", if listener { " (listener)" } else { "" }));
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend(self::request(
                &request.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>(),
            ));
        }
        let node = &mut self.nodes[at];
        let ping = request(&words(&["PING"]));
        let (wire, conn) = if listener { &mut node.listener } else { &mut node.asker };
        wire.send(&[&bytes[..], &ping].concat());
        let mut real = to_pong(wire);
        let conn = *conn;
        node.sim.receive(conn, &[&bytes[..], &ping].concat(), now());
        let output = node.sim.output();
        let mut ours = frames_for(&output, conn);
        for frames in [&mut real, &mut ours] {
            frames.iter_mut().for_each(settle);
        }
        for frame in &real {
            let text = String::from_utf8_lossy(&frame.text).into_owned();
            let word = text.split(' ').next().unwrap_or_default().to_owned();
            if frame.kind == b'-' || frame.is_push() {
                *self.words.entry(word).or_default() += 1;
            }
        }
        if real != ours {
            self.differ(&format!("real:      {real:?}\n  simulated: {ours:?}"));
        }
        if !listener {
            let mut theirs = to_ping(&mut self.nodes[at].listener.0);
            let mut heard = frames_for(&output, self.nodes[at].listener.1);
            theirs.iter_mut().chain(&mut heard).for_each(settle);
            // The channels of a slot end in any order.
            for frames in [&mut theirs, &mut heard] {
                frames.iter_mut().for_each(forget_count);
                frames.sort_by_key(|frame| frame.items.get(1).map(|item| item.text.clone()));
            }
            if theirs != heard {
                self.differ(&format!("heard:     {theirs:?}\n  simulated: {heard:?}"));
            }
        }
    }

    /// What the listener of a node has heard so far, of both sides. It is not compared: it may have come earlier.
    fn hear(&mut self, at: usize) {
        let _ = to_ping(&mut self.nodes[at].listener.0);
        let _ = self.nodes[at].sim.output();
    }

    fn compare_keys(&mut self) {
        for at in 0..2 {
            let said = self.nodes[at].asker.0.ask(&["KEYS", "*"]);
            let mut real: Vec<_> = said.items.into_iter().map(|item| item.text).collect();
            real.sort();
            let ours: Vec<_> =
                self.nodes[at].sim.dump(now()).into_iter().map(|entry| entry.key).collect();
            if real != ours {
                let text = |keys: &[Vec<u8>]| {
                    keys.iter()
                        .map(|key| key.escape_ascii().to_string())
                        .collect::<Vec<_>>()
                        .join(" ")
                };
                self.differ(&format!(
                    "keys of {at}: {}\n  simulated: {}",
                    text(&real),
                    text(&ours)
                ));
            }
        }
    }

    /// Whether the real nodes have the slots that they were told to have, open or not.
    fn is_settled(&mut self) -> bool {
        (0..2).all(|at| {
            let said = self.nodes[at].asker.0.ask(&["CLUSTER", "NODES"]);
            let list = String::from_utf8_lossy(&said.text).into_owned();
            let own = list.lines().find(|line| line.contains("myself")).unwrap_or_default();
            let words: Vec<&str> = own.split(' ').skip(8).collect();
            let has = |slot: u16| {
                words.iter().any(|word| {
                    let (first, last) = word.split_once('-').unwrap_or((word, word));
                    let number = |text: &str| text.parse::<u16>().ok();
                    number(first).zip(number(last)).is_some_and(|(a, b)| (a..=b).contains(&slot))
                })
            };
            self.slots.iter().zip(TAGS).all(|((owner, is_open), tag)| {
                let slot = slot_of(tag.as_bytes());
                let marked = words.iter().any(|word| word.starts_with(&format!("[{slot}-")));
                has(slot) == (*owner == at) && marked == *is_open
            })
        })
    }

    fn differ(&mut self, what: &str) {
        if self.is_over || !self.is_settled() {
            self.is_over = true;
            return;
        }
        let begin = self.history.len().saturating_sub(8);
        let history = self.history[begin..].join("\n    ");
        self.differences.push(format!("step {}\n    {history}\n  {what}", self.steps));
        assert!(self.differences.len() < 10, "{}", self.differences.join("\n"));
    }
}

/// Where an order is nobody's.
fn settle(frame: &mut Frame) {
    let is_range =
        |item: &Frame| item.kind == b'*' && item.items.first().is_some_and(|it| it.kind == b':');
    if frame.items.iter().all(is_range) {
        frame.items.sort_by_key(|range| range.items[0].number());
    }
}

fn forget_count(frame: &mut Frame) {
    if frame.items.first().is_some_and(|item| item.text == b"sunsubscribe") {
        frame.items.truncate(2);
    }
}

fn frames_for(output: &[(Conn, Vec<u8>)], conn: Conn) -> Vec<Frame> {
    let sent = output.iter().filter(|(to, _)| *to == conn);
    Frame::all(&sent.flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>())
}

/// All frames up to the answer to a PING.
fn to_pong(wire: &mut Wire) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = wire.frame();
        let is_pong = frame.text == b"PONG";
        frames.push(frame);
        if is_pong {
            return frames;
        }
    }
}

fn to_ping(wire: &mut Wire) -> Vec<Frame> {
    wire.send(&request(&words(&["PING"])));
    let mut frames = to_pong(wire);
    frames.pop();
    frames
}

/// Makes a cluster of them, of which each has half of the slots. Returns their ids.
fn meet(nodes: &[(Real, u16)]) -> Vec<String> {
    let text = |frame: Frame| String::from_utf8_lossy(&frame.text).into_owned();
    let mut admins: Vec<Wire> = nodes.iter().map(|(real, _)| real.connect()).collect();
    let half = usize::from(SLOTS / 2);
    for (at, admin) in admins.iter_mut().enumerate() {
        let numbers: Vec<String> =
            (at * half..(at + 1) * half).map(|slot| slot.to_string()).collect();
        let mut words = vec!["CLUSTER", "ADDSLOTS"];
        words.extend(numbers.iter().map(String::as_str));
        assert_eq!(admin.ask(&words).text, b"OK");
        assert_eq!(admin.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]).text, b"OK");
    }
    let port = nodes[1].1.to_string();
    let begun = Instant::now();
    let mut met = None::<Instant>;
    loop {
        // A node that is too busy to answer within a second is forgotten again.
        let lists: Vec<String> =
            admins.iter_mut().map(|admin| text(admin.ask(&["CLUSTER", "NODES"]))).collect();
        let known = |list: &String| list.lines().count() == 2 && !list.contains("handshake");
        if !lists.iter().all(known) && met.is_none_or(|at| at.elapsed() > Duration::from_secs(3)) {
            met = Some(Instant::now());
            assert_eq!(admins[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port]).text, b"OK");
        }
        let is_up =
            |admin: &mut Wire| text(admin.ask(&["CLUSTER", "INFO"])).contains("cluster_state:ok");
        if lists.iter().all(known) && admins.iter_mut().all(is_up) {
            break;
        }
        assert!(begun.elapsed() < START, "the nodes do not find each other:\n{}", lists.join("\n"));
        thread::sleep(Duration::from_millis(20));
    }
    admins.iter_mut().map(|admin| text(admin.ask(&["CLUSTER", "MYID"]))).collect()
}
