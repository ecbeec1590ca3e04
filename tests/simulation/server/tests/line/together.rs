//! One call for several locks does what a call for each of them does. Here two servers get the same keys: one is called
//! once, the other once for each lock.

use fastrand::Rng;
use parklock_simulated_server::{Conn, Reply, Server, Version};

use crate::name::{Ask, FAIR, LEASE, LINE_TTL, LOCK, RW, SEMAPHORE, WAITER_TTL, asks};
use crate::scripts::{self as s, Dialect, Script};
use crate::usual::noted;

const BEGIN: u64 = 1_700_000_000_000_000;
/// What each caller proves its grants with.
const SECRET: u64 = 12_345_678;
const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENTS: [&str; 3] = ["x", "y", "z"];
const ONE_PERMIT: (&str, u32) = ("semaphore", 1);
const KINDS: [(&str, u32); 5] = [LOCK, FAIR, RW, SEMAPHORE, ONE_PERMIT];

/// What a call about one lock is about.
#[derive(Clone)]
struct One {
    name: usize,
    field: String,
    part: u32,
    /// `wait` or `once`.
    manner: &'static str,
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
        // As one of several answers.
        Reply::Array(items) if items[0] == Reply::Integer(-1) => match &items[1] {
            Reply::Bulk(text) => Some(Reply::Error(text.clone())),
            other => panic!("{other:?}"),
        },
        _ => Some(reply),
    }
}

/// What was published, without the numbers of grants and their proofs.
fn without_numbers(heard: &str) -> Vec<&str> {
    heard.split_whitespace().map(|word| word.split('=').next().expect("a word")).collect()
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
        let manner = if rng.u8(..4) == 0 { "once" } else { "wait" };
        One { name, field, part, manner }
    }

    /// Asks for one lock alone.
    fn acquire(&mut self, at: usize, one: &One) -> (Reply, String) {
        let kind = self.kinds[one.name];
        let ask = Ask { part: one.part, manner: one.manner, secret: SECRET, ..Ask::default() };
        let mut argv = asks(&self.floor(), kind, WAITER_TTL, &one.field, &ask);
        let channel = format!("lock_channel:{{{}}}", NAMES[one.name]);
        argv.iter_mut().for_each(|word| *word = word.replace("lock_channel:{a}", &channel));
        let script = if kind == LOCK { &s::LOCK_ACQUIRE } else { &s::LINE_ACQUIRE };
        self.run(at, script, &keys_of(one.name), &argv)
    }

    /// Asks for these plain locks, or for these locks of other kinds of one client, in one call, and by a call for each. The script
    /// for several plain ones puts nobody in line, so those that it does not take are not asked for alone.
    fn take(&mut self, ones: &[One]) {
        let is_plain = self.kinds[ones[0].name] == LOCK;
        let (mut keys, mut argv) = (Vec::new(), vec![self.floor()]);
        if !is_plain {
            let client = client_of(&ones[0].field);
            argv.push(format!("{WAITER_TTL} {LINE_TTL} {client} lock_channel:"));
        }
        for One { name, field, part, manner } in ones {
            let (kind, capacity) = self.kinds[*name];
            let how = if *manner == "once" { " once" } else { "" };
            keys.extend(keys_of(*name).into_iter().take(if is_plain { 2 } else { 3 }));
            argv.push(field.clone());
            if is_plain {
                argv.push(LEASE.to_string());
            } else {
                let wish = format!("{LEASE} {part} {kind} {capacity}{how}");
                argv.extend([wish, SECRET.to_string()]);
            }
        }
        let script = if is_plain { &s::TAKE } else { &s::LINE_ACQUIRE_EACH };
        let (Reply::Array(answers), heard) = self.run(0, script, &keys, &argv) else {
            panic!("it answers for each lock");
        };
        let contended = Reply::Array(vec![Reply::Integer(2), Reply::Integer(0)]);
        let mut heard_of_each = String::new();
        for (one, answer) in ones.iter().zip(answers) {
            if answer == contended {
                continue;
            }
            let (alone, heard) = self.acquire(1, one);
            let kind = self.kinds[one.name];
            assert_eq!(refusal(answer), refusal(alone), "{} as {kind:?}", one.field);
            heard_of_each += &heard;
            self.known.push(one.clone());
        }
        assert_eq!(without_numbers(&heard), without_numbers(&heard_of_each));
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
                let waits = [0, 1].map(|at| refusal(self.acquire(at, &one).0));
                assert_eq!(waits[0], waits[1]);
                self.known.push(one);
            }
            3..6 => {
                let first = self.newcomer(rng);
                let is_plain = self.kinds[first.name] == LOCK;
                let mut ones = vec![first];
                for _ in 0..rng.usize(1..4) {
                    let one = self.newcomer(rng);
                    // A client never asks twice for the same plain lock.
                    let is_new = ones.iter().all(|other| other.name != one.name);
                    if (self.kinds[one.name] == LOCK) == is_plain && (is_new || !is_plain) {
                        let (_, number) = one.field.split_once(':').expect("a number");
                        let field = format!("{}:{number}", client_of(&ones[0].field));
                        ones.push(One { field, ..one });
                    }
                }
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
    let one = |n| One { name: 0, field: format!("x:{n}"), part: 1, manner: "wait" };
    let ones: Vec<_> = (1..=5).map(one).collect();
    world.take(&ones);
    let told = noted(&world.servers[0].dump(world.now));
    let holders = told.iter().find(|entry| entry.starts_with("lock:{a} ")).expect("it is held");
    let held = ones.iter().filter(|one| holders.contains(&one.field)).count();
    assert_eq!(held, SEMAPHORE.1 as usize, "{holders}");
}

/// A waiter near the front looks at a client with a session five times within its patience.
#[test]
fn a_holder_with_a_session_makes_nobody_look_at_the_other_locks_of_a_call() {
    let mut world = World::new(Version::Redis7_0, &mut Rng::with_seed(0));
    world.kinds = [SEMAPHORE; 3];
    for (name, field) in [(0, "s+500:1"), (1, "y:1")] {
        let one = One { name, field: field.to_owned(), part: SEMAPHORE.1, manner: "wait" };
        assert_eq!(refusal(world.acquire(0, &one).0), None);
    }
    let terms = format!("{WAITER_TTL} {LINE_TTL} x lock_channel:");
    let mut argv = vec![world.floor(), terms];
    for field in ["x:2", "x:3"] {
        argv.extend([field, &format!("{LEASE} 3 semaphore 3"), "7"].map(str::to_owned));
    }
    let keys: Vec<_> = [0, 1].into_iter().flat_map(keys_of).collect();
    let (Reply::Array(answers), _) = world.run(0, &s::LINE_ACQUIRE_EACH, &keys, &argv) else {
        panic!("it answers for each lock");
    };
    let asks_again_after = answers.iter().map(|answer| match answer {
        Reply::Array(items) => items[1].clone(),
        other => panic!("{other:?}"),
    });
    let after: Vec<_> = asks_again_after.collect();
    assert_eq!(after, [Reply::Integer(100), Reply::Integer(LEASE as i64)]);
}
