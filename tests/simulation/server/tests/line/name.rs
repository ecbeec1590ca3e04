//! One name, and the scripts as several clients call them.

use std::iter;

use crate::frame::Frame;
use crate::scripts as s;
use crate::stage::{Client, Stage};

/// The digits of the hash in a proof.
const HASH: usize = 20;

/// So much a writer takes.
pub const ALL: u32 = 1 << 30;
pub const LEASE: u64 = 30_000;
pub const WAITER_TTL: u64 = 900;
pub const LINE_TTL: u64 = 20_000;

/// What a kind is called, and how much of it there is.
pub const LOCK: (&str, u32) = ("lock", 1);
pub const FAIR: (&str, u32) = ("fair", 1);
pub const RW: (&str, u32) = ("rw", ALL);
pub const CONDITION: (&str, u32) = ("condition", ALL);
pub const SEMAPHORE: (&str, u32) = ("semaphore", 3);

/// What acquire.lua answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted {
        number: i64,
        awaited: bool,
    },
    Waits {
        ttl: i64,
        place: i64,
        near: bool,
        ahead: Option<i64>,
    },
    Held {
        ttl: i64,
    },
    /// The same, and a keeper was told.
    Kept {
        ttl: i64,
    },
    Error(String),
}

impl Answer {
    fn read(frame: &Frame) -> Self {
        let numbers: Vec<_> = frame.items.iter().map(Frame::number).collect();
        match numbers[..] {
            [] if frame.kind == b':' => Self::Granted { number: frame.number(), awaited: false },
            [1, number, awaited] => Self::Granted { number, awaited: awaited == 1 },
            [0, ttl, place, near] => Self::Waits { ttl, place, near: near == 1, ahead: None },
            [0, ttl, place, near, ahead] => {
                Self::Waits { ttl, place, near: near == 1, ahead: Some(ahead) }
            }
            [0, ttl] => Self::Held { ttl },
            [3, ttl] => Self::Kept { ttl },
            [] if frame.kind == b'-' => Self::Error(String::from_utf8_lossy(&frame.text).into()),
            _ => panic!("a strange answer: {frame:?}"),
        }
    }

    pub fn number(&self) -> i64 {
        let Self::Granted { number, .. } = self else { panic!("not granted: {self:?}") };
        *number
    }

    pub fn place(&self) -> i64 {
        let Self::Waits { place, .. } = self else { panic!("not in line: {self:?}") };
        *place
    }

    pub fn is_near(&self) -> bool {
        let Self::Waits { near, .. } = self else { panic!("not in line: {self:?}") };
        *near
    }

    /// The number in the owner field of the caller right ahead.
    pub fn ahead(&self) -> Option<i64> {
        let Self::Waits { ahead, .. } = self else { panic!("not in line: {self:?}") };
        *ahead
    }

    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

/// How something is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub part: u32,
    pub lease: u64,
    pub manner: &'static str,
    pub within: &'static str,
    pub place: i64,
    pub secret: u64,
    pub old: &'static str,
}

impl Default for Ask {
    fn default() -> Self {
        Self { part: 1, lease: LEASE, manner: "wait", within: "", place: 0, secret: 7, old: "" }
    }
}

/// The arguments of a request, without those at its end that most requests leave out: see lua/line/acquire_args.lua.
pub fn asks(
    floor: &str,
    (kind, capacity): (&str, u32),
    waiter_ttl: u64,
    field: &str,
    ask: &Ask,
) -> Vec<String> {
    let client = field.split(':').next().expect("a client");
    let kind_and_capacity = [kind.to_owned(), capacity.to_string()];
    // As a client has it: a line outlasts the silence of its waiters.
    let line_ttl = LINE_TTL.max(2 * waiter_ttl);
    let usual = [
        field.to_owned(),
        ask.lease.to_string(),
        format!("{waiter_ttl} {line_ttl} {client} {} lock_channel:{{a}}", ask.secret),
    ];
    let unusual = [
        (ask.part.to_string(), "1"),
        (ask.manner.to_owned(), "wait"),
        (ask.within.to_owned(), ""),
        (ask.place.to_string(), "0"),
        (ask.old.to_owned(), ""),
    ];
    let last = unusual.iter().rposition(|(word, usual)| word != usual).map_or(0, |last| last + 1);
    let kind_and_capacity = kind_and_capacity.into_iter().filter(|_| kind != "lock");
    let usual = iter::once(floor.to_owned()).chain(kind_and_capacity).chain(usual);
    usual.chain(unusual.into_iter().take(last).map(|(word, _)| word)).collect()
}

pub fn once() -> Ask {
    Ask { manner: "once", ..Ask::default() }
}

pub fn part(part: u32) -> Ask {
    Ask { part, ..Ask::default() }
}

/// A name on a stage. Owner fields are written as `a:1`: the client `a` and its first tenure.
pub struct Name {
    pub stage: Stage,
    pub boss: Client,
    pub kind: &'static str,
    pub capacity: u32,
    pub waiter_ttl: u64,
}

impl Name {
    pub fn new(mut stage: Stage, (kind, capacity): (&'static str, u32)) -> Self {
        let boss = stage.connect();
        Self { stage, boss, kind, capacity, waiter_ttl: WAITER_TTL }
    }

    fn is_plain(&self) -> bool {
        self.kind == "lock"
    }

    pub fn keys() -> [String; 4] {
        ["lock:grants", "lock:{a}", "lock_queue:{a}", "lock_notes:{a}"].map(str::to_owned)
    }

    /// As a client knows the server's clock: with a margin of 50 ms.
    pub fn floor(&mut self) -> String {
        self.stage.time(self.boss).saturating_sub(50_000).to_string()
    }

    fn run(&mut self, script: &s::Script, from: &str, rest: &[String]) -> Frame {
        let head = self.question(from);
        self.stage.run(self.boss, script, &Self::keys(), &[&head, rest].concat())
    }

    /// The arguments that every script about one name gets.
    fn question(&mut self, from: &str) -> [String; 6] {
        let from = from.split(':').next().expect("a client");
        [
            self.floor(),
            self.kind.into(),
            self.capacity.to_string(),
            "lock_channel:{a}".into(),
            from.into(),
            self.waiter_ttl.to_string(),
        ]
    }

    /// A script that gets the arguments of a question, and the key of the requests that were carried out.
    pub fn call(&mut self, script: &s::Script, rest: &[&str]) -> Frame {
        let head = self.question("call");
        let rest: Vec<_> = rest.iter().map(|word| (*word).to_owned()).collect();
        let keys = [&Self::keys()[..], &["lock_notes:{a}:requests".to_owned()]].concat();
        self.stage.run(self.boss, script, &keys, &[&head, &rest[..]].concat())
    }

    pub fn acquire(&mut self, field: &str, ask: &Ask) -> Answer {
        let script = if self.is_plain() { &s::LOCK_ACQUIRE } else { &s::LINE_ACQUIRE };
        let argv = asks(&self.floor(), (self.kind, self.capacity), self.waiter_ttl, field, ask);
        Answer::read(&self.stage.run(self.boss, script, &Self::keys(), &argv))
    }

    /// All of it, as a fair lock or a writer asks.
    pub fn lock(&mut self, field: &str) -> Answer {
        let ask = self.whole();
        self.acquire(field, &ask)
    }

    pub fn whole(&self) -> Ask {
        part(self.capacity)
    }

    /// As the library does: as long as the answer is that the line is not done, it releases once more.
    pub fn release(&mut self, field: &str) -> bool {
        let mut code = self.release_once(field);
        let found = code == 1 || code == -2;
        while code < 0 {
            code = self.release_once(field);
        }
        found
    }

    pub fn release_once(&mut self, field: &str) -> i64 {
        let frame = self.run_release(field, &[]);
        let item = if frame.kind == b':' { &frame } else { &frame.items[0] };
        item.number()
    }

    pub fn run_release(&mut self, field: &str, served: &[&str]) -> Frame {
        let from = field.split(':').next().expect("a client");
        let terms = format!("{} {} {from} lock_channel:", self.floor(), self.waiter_ttl);
        let (script, named) = if self.is_plain() {
            (&s::LOCK_RELEASE, None)
        } else {
            (&s::LINE_RELEASE, Some(format!("{} {}", self.kind, self.capacity)))
        };
        let fields = [&[field], served].concat().into_iter().map(str::to_owned);
        let argv: Vec<_> = iter::once(terms).chain(named).chain(fields).collect();
        self.stage.run(self.boss, script, &Self::keys(), &argv)
    }

    /// Releases a hold that its client has handed on to these callers, one after the other.
    pub fn release_served(&mut self, field: &str, served: &[&str]) -> bool {
        self.run_release(field, served).items[0].number() == 1
    }

    pub fn renew(&mut self, field: &str) -> bool {
        let kept_in = if self.is_plain() { "" } else { " set" };
        let argv = [field.to_owned(), format!("{LEASE}{kept_in}")];
        let frame = self.stage.run(self.boss, &s::RENEW, &Self::keys()[1..2], &argv);
        frame.items[0].number() == 1
    }

    /// Asks for this lock, of any kind but the plain one, as one of several.
    pub fn acquire_as_one_of_several(&mut self, field: &str, ask: &Ask) -> Answer {
        let client = field.split(':').next().expect("a client");
        let argv = [
            self.floor(),
            format!("{} {LINE_TTL} {client} lock_channel:", self.waiter_ttl),
            field.to_owned(),
            format!("{} {} {} {}", ask.lease, ask.part, self.kind, self.capacity),
            ask.secret.to_string(),
        ];
        let frame = self.stage.run(self.boss, &s::LINE_ACQUIRE_EACH, &Self::keys(), &argv);
        Answer::read(&frame.items[0])
    }

    pub fn force_unlock(&mut self) -> i64 {
        let script = if self.is_plain() { &s::LOCK_FORCE_UNLOCK } else { &s::LINE_FORCE_UNLOCK };
        self.run(script, "force", &[]).items[0].number()
    }

    pub fn status(&mut self) -> [i64; 3] {
        let frame = self.run(&s::LINE_STATUS, "status", &[]);
        [0, 1, 2].map(|place| frame.items[place].number())
    }

    pub fn resize(&mut self, capacity: u32) {
        let frame = self.run(&s::LINE_RESIZE, "resize", &[capacity.to_string()]);
        assert_eq!(frame.items.len(), 1, "{frame:?}");
    }

    pub fn take(&mut self, field: &str) -> (i64, i64) {
        let argv = [self.floor(), field.to_owned(), LEASE.to_string()];
        let frame = self.stage.run(self.boss, &s::TAKE, &Self::keys()[..3], &argv);
        match &frame.items[0].items[..] {
            [] => (1, frame.items[0].number()),
            items => (items[0].number(), items[1].number()),
        }
    }

    /// Takes this lock as one of several, or none. The code of the answer.
    pub fn take_all(&mut self, field: &str) -> i64 {
        let client = field.split(':').next().expect("a client");
        let argv = [
            self.floor(),
            client.to_owned(),
            self.waiter_ttl.to_string(),
            field.to_owned(),
            LEASE.to_string(),
            "lock_channel:{a}".to_owned(),
        ];
        self.stage.run(self.boss, &s::LOCK_ACQUIRE_ALL, &Self::keys(), &argv).items[0].number()
    }

    /// Hears what these clients hear, and what everybody hears.
    pub fn listener(&mut self, clients: &str) -> Client {
        let listener = self.stage.connect();
        let all = self.stage.ask(listener, &["SUBSCRIBE", "lock_channel:{a}"]);
        assert_eq!(all.items.len(), 3);
        for client in clients.chars() {
            let channel = format!("lock_channel:{{a}}:{client}");
            self.stage.ask(listener, &["SUBSCRIBE", &channel]);
        }
        listener
    }

    /// Every client hears what is said to it.
    pub fn all_listen(&mut self) {
        let listener = self.stage.connect();
        self.stage.ask(listener, &["PSUBSCRIBE", "lock_channel:{a}:*"]);
    }

    /// The words that were said to clients since it was last asked, each with the client to whom. What everybody heard
    /// is said to `*`.
    pub fn heard(&mut self, listener: Client) -> Vec<(String, String)> {
        let heard = self.stage.heard(listener).into_iter().map(|(channel, message)| {
            let whom = channel.strip_prefix("lock_channel:{a}").expect("a channel of ours");
            let whom = whom.strip_prefix(':').unwrap_or("*").to_owned();
            (whom, message)
        });
        heard.collect()
    }

    /// As [`Self::heard`], without the publisher, and of a grant only the owner field and the last digits of the secret: the
    /// proof says no more of it.
    pub fn words(&mut self, listener: Client) -> Vec<String> {
        let heard = self.heard(listener);
        let mut words = Vec::new();
        for (whom, message) in heard {
            for word in message.split(' ').skip(1) {
                let word = match word.split_once('=') {
                    Some((field, grant)) => {
                        let (_, proof) = grant.split_once('@').expect("a proof");
                        format!("{field}=@{}", &proof[..proof.len() - HASH])
                    }
                    None => word.to_owned(),
                };
                assert!(whom == "*" || word.starts_with(&format!("{whom}:")), "{word} to {whom}");
                words.push(word);
            }
            if whom == "*" {
                words.push(format!("* {message}"));
            }
        }
        words
    }

    pub fn command(&mut self, words: &[&str]) -> Frame {
        self.stage.ask(self.boss, words)
    }

    pub fn number(&mut self, words: &[&str]) -> i64 {
        self.command(words).number()
    }

    /// The keys that are left, but for the counter.
    pub fn keys_left(&mut self) -> Vec<String> {
        let mut keys: Vec<_> = self.command(&["KEYS", "*"]).items;
        keys.retain(|key| key.text != b"lock:grants");
        keys.iter().map(|key| String::from_utf8_lossy(&key.text).into_owned()).collect()
    }

    /// No key of ours is ever without a TTL.
    pub fn assert_all_end(&mut self) {
        for key in self.keys_left() {
            assert!(self.number(&["PTTL", &key]) > 0, "{key} has no TTL");
        }
    }

    pub fn pass(&mut self, ms: u64) {
        self.stage.pass(std::time::Duration::from_millis(ms));
    }
}
