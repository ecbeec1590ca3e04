//! The scripts answer the usual cases before they define the functions for all others: a lock that is free, and a turn of
//! a contended lock with one holder. Here a script runs twice on the same keys, with these parts and without them, and
//! does the same both times.

use std::collections::BTreeMap;

use fastrand::Rng;
use parklock_simulated_server::{Conn, Content, Entry, Reply, Server, Version};

use crate::name::{Ask, FAIR, LOCK, WAITER_TTL, asks};
use crate::packed;
use crate::scripts::{self as s, Dialect, Script};

macro_rules! part {
    ($file:literal) => {
        include_str!(concat!("../../../../../lua/", $file))
    };
}

const PLAIN_UNCONTENDED: [&str; 4] = [
    part!("line/plain_acquire_uncontended.lua"),
    part!("lock/draw_uncontended.lua"),
    part!("line/plain_put_uncontended.lua"),
    part!("line/plain_held.lua"),
];
const ZSET_UNCONTENDED: [&str; 4] = [
    part!("line/zset_acquire_uncontended.lua"),
    part!("lock/draw_uncontended.lua"),
    part!("line/zset_put_uncontended.lua"),
    part!("line/zset_held.lua"),
];
const LINE_UP: &str =
    concat!(part!("line/acquire_line_up.lua"), part!("line/acquire_one_line_up.lua"));
const RELEASE_UNCONTENDED: &str = part!("line/zset_release_uncontended.lua");
const TURN: &str = part!("line/release_to_head.lua");
const ONE_PERMIT: (&str, u32) = ("semaphore", 1);

const BEGIN: u64 = 1_700_000_000_000_000;

/// A script in three forms.
struct Forms {
    whole: String,
    /// Without the parts for its usual cases.
    general: String,
    /// Up to its usual cases. It answers `other` in all other cases.
    usual: String,
}

impl Forms {
    fn new(script: &Script, parts: &[&str], usual: &str) -> Self {
        let whole = script.text(Dialect::Plain).to_owned();
        let mut general = whole.clone();
        for part in parts.iter().chain([&usual]) {
            assert!(general.contains(part), "the script has this part: {part}");
            general = general.replacen(part, "", 1);
        }
        let end = whole.find(usual).expect("the script has usual cases") + usual.len();
        let usual = format!("{}\nreturn 'other'", &whole[..end]);
        Self { whole, general, usual }
    }
}

/// A server that three clients use, and its twin, which gets the same keys and runs the same request in another form.
struct World {
    server: Server,
    twin: Server,
    /// What listens to all channels, on each of the two.
    ears: [Conn; 2],
    now: u64,
    kind: &'static str,
    acquire: Forms,
    release: Forms,
    /// How often the usual cases of the two scripts answered.
    usual: [usize; 2],
}

impl World {
    fn new(version: Version, (kind, _): (&'static str, u32)) -> Self {
        let (mut server, mut twin) = (Server::new(version), Server::new(version));
        let mut ears = [server.accept(), twin.accept()];
        for (server, ear) in [&mut server, &mut twin].into_iter().zip(&mut ears) {
            let channels = ["", ":a", ":b", ":c"].map(|whose| format!("lock_channel:{{a}}{whose}"));
            server.receive(*ear, format!("SUBSCRIBE {}\r\n", channels.join(" ")).as_bytes(), BEGIN);
            server.output();
        }
        let (acquire, release) = if kind == "lock" {
            (
                Forms::new(&s::LOCK_ACQUIRE, &PLAIN_UNCONTENDED, LINE_UP),
                Forms::new(&s::LOCK_RELEASE, &[], TURN),
            )
        } else {
            (
                Forms::new(&s::LINE_ACQUIRE, &ZSET_UNCONTENDED, LINE_UP),
                Forms::new(&s::LINE_RELEASE, &[RELEASE_UNCONTENDED], TURN),
            )
        };
        Self { server, twin, ears, now: BEGIN, kind, acquire, release, usual: [0; 2] }
    }

    /// The owner fields that hold, and those in line.
    fn fields(&mut self) -> (Vec<String>, Vec<String>) {
        let is_field = |field: &Vec<u8>| field.get(1) == Some(&b':');
        let text = |field: Vec<u8>| String::from_utf8(field).expect("a field is a text");
        let mut of = |key: &[u8]| {
            let entry = self.server.dump(self.now).into_iter().find(|entry| entry.key == key);
            let members = match entry.map(|entry| entry.content) {
                Some(Content::Hash(pairs)) => pairs.into_iter().map(|(field, _)| field).collect(),
                Some(Content::Zset(members)) => {
                    members.into_iter().map(|(field, _)| field).collect()
                }
                _ => Vec::new(),
            };
            members.into_iter().filter(is_field).map(text).collect::<Vec<_>>()
        };
        (of(b"lock:{a}"), of(b"lock_queue:{a}"))
    }

    fn words(&self, text: &str, rest: &[String]) -> Vec<String> {
        let keys = ["lock:grants", "lock:{a}", "lock_queue:{a}", "lock_notes:{a}"];
        let head = ["EVAL", text, "4"].into_iter().chain(keys).map(str::to_owned);
        head.chain(rest.iter().cloned()).collect()
    }

    fn run(&mut self, twin: bool, text: &str, rest: &[String]) -> (Reply, Vec<u8>, Vec<Entry>) {
        let words = self.words(text, rest);
        let words: Vec<_> = words.iter().map(String::as_bytes).collect();
        let server = if twin { &mut self.twin } else { &mut self.server };
        let reply = server.execute(self.now, &words);
        let ear = self.ears[usize::from(twin)];
        let heard = server.output().into_iter().filter(|(conn, _)| *conn == ear);
        let heard = heard.flat_map(|(_, bytes)| bytes).collect();
        (reply, heard, server.dump(self.now))
    }

    /// Runs all forms of a script. If it is a usual case for the whole script, the general form does the same.
    fn play(&mut self, which: usize, rest: &[String]) {
        self.now += 1;
        let before = self.server.dump(self.now);
        let forms = if which == 0 { &self.acquire } else { &self.release };
        let [whole, general, usual] =
            [&forms.whole, &forms.general, &forms.usual].map(Clone::clone);
        self.twin.restore(self.now, &before);
        let (reply, _, _) = self.run(true, &usual, rest);
        if reply == Reply::Bulk(b"other".to_vec()) {
            self.run(false, &whole, rest);
            return;
        }
        self.usual[which] += 1;
        self.twin.restore(self.now, &before);
        let wanted = self.run(true, &general, rest);
        let done = self.run(false, &whole, rest);
        let what = format!("{} {rest:?}\nbefore: {:#?}", self.kind, noted(&before));
        assert_eq!(numbers(&done.0), numbers(&wanted.0), "{what}");
        assert_eq!(String::from_utf8_lossy(&done.1), String::from_utf8_lossy(&wanted.1), "{what}");
        assert_eq!(noted(&done.2), noted(&wanted.2), "{what}");
    }

    fn acquire(&mut self, field: &str, waiter_ttl: u64, manner: &'static str, rng: &mut Rng) {
        let ask = Ask { manner, secret: rng.u32(..).into(), ..Ask::default() };
        let rest = asks(&self.floor(), (self.kind, 1), waiter_ttl, field, &ask);
        self.play(0, &rest);
    }

    fn release(&mut self, field: &str) {
        let terms = format!("{} {WAITER_TTL} {} lock_channel:", self.floor(), &field[..1]);
        let named = (self.kind != "lock").then(|| format!("{} 1", self.kind));
        let rest: Vec<_> = [terms].into_iter().chain(named).chain([field.to_owned()]).collect();
        self.play(1, &rest);
    }

    fn floor(&self) -> String {
        (self.now - 100).to_string()
    }

    /// A client does something, mostly what the clients of a contended lock do.
    fn step(&mut self, rng: &mut Rng, next: &mut u32) {
        self.now += match rng.u32(..100) {
            0..80 => rng.u64(..5_000),
            80..95 => rng.u64(..WAITER_TTL * 400),
            95..97 => {
                // The server's clock is set back.
                self.now -= rng.u64(..WAITER_TTL * 300);
                0
            }
            _ => rng.u64(..WAITER_TTL * 3_000),
        };
        let (holders, waiters) = self.fields();
        let one = |fields: &[String], rng: &mut Rng| {
            (!fields.is_empty()).then(|| fields[rng.usize(..fields.len())].clone())
        };
        let (holder, waiter) = (one(&holders, rng), one(&waiters, rng));
        match (rng.u32(..100), holder, waiter) {
            (0..45, Some(holder), _) => self.release(&holder),
            (45..50, _, Some(waiter)) => self.release(&waiter),
            (50..60, _, Some(waiter)) => {
                let manner = if rng.u32(..4) == 0 { "rest" } else { "wait" };
                self.acquire(&waiter, WAITER_TTL, manner, rng);
            }
            _ => {
                *next += 1;
                let client = ["a", "b", "c"][rng.usize(..3)];
                let ttl = if rng.u32(..200) == 0 { WAITER_TTL / 2 } else { WAITER_TTL };
                let manner = if rng.u32(..30) == 0 { "once" } else { "wait" };
                self.acquire(&format!("{client}:{next}"), ttl, manner, rng);
            }
        }
    }
}

/// The numbers of an answer. Those of the usual cases are shorter.
fn numbers(reply: &Reply) -> Vec<Reply> {
    const GRANTED_ALONE: [Reply; 2] = [Reply::Integer(1), Reply::Integer(0)];
    match reply {
        Reply::Array(items) => match &items[..] {
            // Granted, and nobody waits.
            [first, number, last] if [first, last] == GRANTED_ALONE.each_ref() => {
                vec![number.clone()]
            }
            items => items.to_vec(),
        },
        other => vec![other.clone()],
    }
}

/// All keys in words, without when a script last looked at the front: the usual case need not note that each time.
pub fn noted(entries: &[Entry]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // The packed note begins with when a script last looked.
    let note = |note: &[u8]| match packed::numbers(note) {
        Some(numbers) => format!("{:?}", &numbers[1..]),
        None => text(note),
    };
    let content = |content: &Content| match content {
        Content::Hash(pairs) => {
            let pairs = pairs.iter().map(|(field, value)| (text(field), note(value)));
            format!("{:?}", pairs.collect::<BTreeMap<_, _>>())
        }
        Content::Zset(members) => {
            let members = members.iter().map(|(member, score)| (text(member), score));
            format!("{:?}", members.collect::<Vec<_>>())
        }
        Content::Text(bytes) => text(bytes),
        Content::List(_) => unreachable!("no script has lists"),
    };
    let told = entries.iter().map(|entry| {
        format!("{} for {} ms: {}", text(&entry.key), entry.pttl, content(&entry.content))
    });
    told.collect()
}

#[test]
fn the_usual_cases_do_what_the_general_scripts_do() {
    for (seed, version) in (1..).zip(crate::VERSIONS) {
        for kind in [LOCK, FAIR, ONE_PERMIT] {
            let mut world = World::new(version, kind);
            let (mut rng, mut next) = (Rng::with_seed(seed), 0);
            for _ in 0..1_000 {
                world.step(&mut rng, &mut next);
            }
            println!("{version:?} {}: {:?} usual cases", kind.0, world.usual);
            assert!(world.usual.iter().all(|times| *times > 50), "{:?}", world.usual);
        }
    }
}
