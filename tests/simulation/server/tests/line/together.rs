//! One call for several locks does what a call for each of them does. Here two servers get the same keys: one is called
//! once, the other once for each lock.

use fastrand::Rng;
use parklock_simulated_server::{Conn, Reply, Server, Version};

use crate::name::{Ask, FAIR, LEASE, LOCK, RW, SEMAPHORE, WAITER_TTL, asks};
use crate::scripts::{self as s, Dialect, Script};
use crate::usual::noted;

const BEGIN: u64 = 1_700_000_000_000_000;
const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENTS: [&str; 3] = ["x", "y", "z"];
const KINDS: [(&str, u32); 4] = [LOCK, FAIR, RW, SEMAPHORE];

/// What a call about one lock is about.
#[derive(Clone)]
struct One {
    name: usize,
    field: String,
    part: u32,
}

/// Two servers with the same keys, and what listens to all channels of each.
struct World {
    servers: [Server; 2],
    ears: [Conn; 2],
    now: u64,
    next: u32,
    /// Of each name.
    kinds: [(&'static str, u32); 3],
    /// Owner fields that hold or wait, perhaps.
    known: Vec<One>,
}

fn keys_of(name: usize) -> [String; 3] {
    ["lock", "lock_queue", "lock_notes"].map(|key| format!("{key}:{{{}}}", NAMES[name]))
}

fn client_of(field: &str) -> &str {
    field.split(':').next().expect("a client")
}

/// The answer to a request that was not granted. The numbers of grants may differ.
fn refusal(reply: Reply) -> Option<Reply> {
    match &reply {
        Reply::Integer(_) => None,
        Reply::Array(items) if items[0] == Reply::Integer(1) => None,
        _ => Some(reply),
    }
}

impl World {
    fn new(version: Version, rng: &mut Rng) -> Self {
        let mut servers = [Server::new(version), Server::new(version)];
        let ears = servers.each_mut().map(|server| {
            let ear = server.accept();
            let channels: Vec<_> = NAMES
                .into_iter()
                .flat_map(|name| ["", ":x", ":y", ":z"].map(|whose| (name, whose)))
                .map(|(name, whose)| format!("lock_channel:{{{name}}}{whose}"))
                .collect();
            server.receive(ear, format!("SUBSCRIBE {}\r\n", channels.join(" ")).as_bytes(), BEGIN);
            server.output();
            ear
        });
        let kinds = NAMES.map(|_| KINDS[rng.usize(..KINDS.len())]);
        Self { servers, ears, now: BEGIN, next: 0, kinds, known: Vec::new() }
    }

    fn floor(&self) -> String {
        (self.now - 100).to_string()
    }

    /// Calls a script on one of the servers. Returns its answer, and what was published.
    fn run(
        &mut self,
        at: usize,
        script: &Script,
        keys: &[String],
        argv: &[String],
    ) -> (Reply, String) {
        let text = script.text(Dialect::Plain).to_owned();
        let words = ["EVAL".to_owned(), text, (keys.len() + 1).to_string(), "lock:grants".into()];
        let words: Vec<_> = words.iter().chain(keys).chain(argv).map(String::as_bytes).collect();
        let server = &mut self.servers[at];
        let reply = server.execute(self.now, &words);
        let heard = server.output().into_iter().filter(|(conn, _)| *conn == self.ears[at]);
        let heard: Vec<u8> = heard.flat_map(|(_, bytes)| bytes).collect();
        (reply, String::from_utf8_lossy(&heard).into_owned())
    }

    fn newcomer(&mut self, rng: &mut Rng) -> One {
        self.next += 1;
        let field = format!("{}:{}", CLIENTS[rng.usize(..3)], self.next);
        let name = rng.usize(..3);
        let (kind, capacity) = self.kinds[name];
        let part = match kind {
            "rw" if rng.bool() => capacity,
            "semaphore" => rng.u32(1..=2),
            _ => 1,
        };
        One { name, field, part }
    }

    /// Asks for one lock alone.
    fn acquire(&mut self, at: usize, one: &One, manner: &'static str) -> Reply {
        let kind = self.kinds[one.name];
        let ask = Ask { part: one.part, manner, ..Ask::default() };
        let mut argv = asks(&self.floor(), kind, WAITER_TTL, &one.field, &ask);
        let channel = format!("lock_channel:{{{}}}", NAMES[one.name]);
        argv.iter_mut().for_each(|word| *word = word.replace("lock_channel:{a}", &channel));
        let script = if kind == LOCK { &s::LOCK_ACQUIRE } else { &s::LINE_ACQUIRE };
        self.run(at, script, &keys_of(one.name), &argv).0
    }

    /// Asks for these locks in one call, if `at` is its server, and otherwise alone for those that the call has taken.
    fn take(&mut self, ones: &[One]) {
        let (mut keys, mut argv) = (Vec::new(), vec![self.floor()]);
        for One { name, field, part } in ones {
            let (kind, capacity) = self.kinds[*name];
            let has_notes = kind != "lock";
            keys.extend(keys_of(*name).into_iter().take(if has_notes { 3 } else { 2 }));
            let rest = if has_notes { format!(" {part} {kind} {capacity}") } else { String::new() };
            argv.extend([field.clone(), format!("{LEASE}{rest}")]);
        }
        let (Reply::Array(items), heard) = self.run(0, &s::TAKE, &keys, &argv) else {
            panic!("it answers for each lock");
        };
        assert_eq!(heard, "", "it tells nobody anything");
        for (one, answer) in ones.iter().zip(items.chunks(2)) {
            match &answer[0] {
                Reply::Integer(1) => {
                    // The number may be another one: a call draws a number for each lock, also if it does not take it.
                    let alone = self.acquire(1, one, "once");
                    let kind = self.kinds[one.name];
                    assert_eq!(refusal(alone), None, "{} as {kind:?}", one.field);
                    self.known.push(one.clone());
                }
                Reply::Integer(2) => {}
                other => panic!("refused: {other:?} {:?}", answer[1]),
            }
        }
    }

    fn argv_of_release(&self, ones: &[One]) -> Vec<String> {
        let from = client_of(&ones[0].field);
        let mut argv = vec![format!("{} {WAITER_TTL} {from} lock_channel:", self.floor())];
        for One { name, field, .. } in ones {
            let (kind, capacity) = self.kinds[*name];
            let named = (kind != "lock").then(|| format!("{kind} {capacity}"));
            argv.extend(named.into_iter().chain([field.clone()]));
        }
        argv
    }

    /// Releases these, of plain locks or of other kinds, by one call, and by a call for each.
    fn release(&mut self, ones: &[One]) {
        let is_plain = self.kinds[ones[0].name] == LOCK;
        let script = if is_plain { &s::LOCK_RELEASE } else { &s::LINE_RELEASE };
        let keys: Vec<_> = ones.iter().flat_map(|one| keys_of(one.name)).collect();
        let (together, heard) = self.run(0, script, &keys, &self.argv_of_release(ones));
        let (mut each, mut heard_of_each) = (Vec::new(), String::new());
        for one in ones {
            let argv = self.argv_of_release(std::slice::from_ref(one));
            let (reply, heard) = self.run(1, script, &keys_of(one.name), &argv);
            each.push(match reply {
                Reply::Array(mut items) => items.remove(0),
                reply => reply,
            });
            heard_of_each += &heard;
        }
        let together = match together {
            Reply::Array(items) => items,
            reply => vec![reply],
        };
        assert_eq!(together, each);
        assert_eq!(heard, heard_of_each);
    }

    fn step(&mut self, rng: &mut Rng) {
        self.now += match rng.u32(..20) {
            0 => rng.u64(..WAITER_TTL * 3_000),
            1 => rng.u64(..LEASE * 1_100),
            _ => rng.u64(..5_000),
        };
        // The two may differ in when a script last looked at the front: the usual case does not note that each time.
        let keys = self.servers[0].dump(self.now);
        self.servers[1].restore(self.now, &keys);
        match rng.u32(..10) {
            0..3 => {
                let one = self.newcomer(rng);
                let waits = [0, 1].map(|at| refusal(self.acquire(at, &one, "wait")));
                assert_eq!(waits[0], waits[1]);
                self.known.push(one);
            }
            3..6 => {
                let many = rng.usize(2..5);
                let mut ones: Vec<_> = (0..many).map(|_| self.newcomer(rng)).collect();
                // A client never asks twice for the same plain lock.
                let mut plain = Vec::new();
                ones.retain(|one| {
                    let is_plain = self.kinds[one.name] == LOCK;
                    let is_new = !plain.contains(&one.name);
                    plain.extend(is_plain.then_some(one.name));
                    is_new
                });
                self.take(&ones);
            }
            _ => {
                let client = CLIENTS[rng.usize(..3)];
                let is_plain = rng.bool();
                let (mut ours, others): (Vec<_>, Vec<_>) = self.known.drain(..).partition(|one| {
                    let of_lane = (self.kinds[one.name] == LOCK) == is_plain;
                    of_lane && client_of(&one.field) == client
                });
                self.known = others;
                rng.shuffle(&mut ours);
                // Of one name only one: a call ends the holds of locks that nobody waits for first, and that order shows in the
                // messages.
                let mut names = Vec::new();
                let (ours, rest): (Vec<_>, Vec<_>) = ours.into_iter().partition(|one| {
                    let is_first = !names.contains(&one.name);
                    names.push(one.name);
                    is_first
                });
                self.known.extend(rest);
                if !ours.is_empty() {
                    self.release(&ours);
                }
            }
        }
        let [one, other] = self.servers.each_mut().map(|server| {
            let mut entries = server.dump(self.now);
            entries.retain(|entry| entry.key != b"lock:grants");
            noted(&entries)
        });
        assert_eq!(one, other, "after {:?}", self.kinds);
    }
}

#[test]
fn a_call_for_several_locks_does_what_a_call_for_each_does() {
    for version in crate::VERSIONS {
        for seed in 0..20 {
            let mut rng = Rng::with_seed(seed);
            let mut world = World::new(version, &mut rng);
            for _ in 0..60 {
                world.step(&mut rng);
            }
        }
    }
}

#[test]
fn a_call_for_a_semaphore_many_times_takes_no_more_than_there_is() {
    let mut world = World::new(Version::Redis7_0, &mut Rng::with_seed(0));
    world.kinds = [SEMAPHORE; 3];
    let ones: Vec<_> = (1..=5).map(|n| One { name: 0, field: format!("x:{n}"), part: 1 }).collect();
    world.take(&ones);
    assert_eq!(world.known.len(), SEMAPHORE.1 as usize);
}
