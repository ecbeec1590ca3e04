//! What happened to one plain lock, step by step, for `tests/specification/Trace.tla`: what each script left in the server, what
//! clients sent, and what they believe to hold. Lost requests, answers and messages, pauses and cuts show as what does not
//! happen.
//!
//! The times are in ms since the world began, as the scripts count them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use parklock::Layout;
use parklock_simulated_server::{Content, Entry};

use crate::clock::{self, MILLI};
use crate::desk;
use crate::frames;
use crate::keyspace;
use crate::plan::Name;
use crate::station::{EPOCH, Station};

/// A trace is the beginning of a history. It need not be all of it.
const MOST: usize = 1_500;

/// TLC's numbers have 32 bits. This is far before all times.
const LONG_AGO: i64 = -1_000_000_000;

/// How lua/line/clock.lua packs the state of a line: a label, and numbers.
const LABEL: usize = 24;

thread_local! {
    static STEPS: RefCell<Option<Steps>> = const { RefCell::new(None) };
}

struct Steps {
    keys: Keys,
    /// The clients by their ids, in the order in which they came, and whose process each is.
    clients: Vec<(String, usize)>,
    /// What has arrived on a connection, up to the end of a request; what was sent on it likewise.
    arrived: BTreeMap<u64, Vec<u8>>,
    sent: BTreeMap<u64, Vec<u8>>,
    /// To which owner field each grant went, by its number, and the number of the last one.
    grants: BTreeMap<u64, String>,
    drawn: u64,
    lines: Vec<String>,
}

struct Keys {
    lock: String,
    line: String,
    notes: String,
    channel: String,
}

/// What a request asks of the lock.
enum Asked {
    Acquire { field: String, had: u64, old: String },
    Renew(Vec<(usize, String)>),
    Release(Vec<(usize, String)>),
}

/// From now on the steps of this lock are kept.
pub fn keep(name: &Name) {
    let keys = Keys {
        lock: keyspace::key(Layout::Native, name),
        line: keyspace::queue(name),
        notes: keyspace::notes(name),
        channel: keyspace::channel(Layout::Native, name) + ":",
    };
    let steps = Steps {
        keys,
        clients: Vec::new(),
        arrived: BTreeMap::new(),
        sent: BTreeMap::new(),
        grants: BTreeMap::new(),
        drawn: 0,
        lines: Vec::new(),
    };
    STEPS.set(Some(steps));
}

fn with(act: impl FnOnce(&mut Steps)) {
    STEPS.with_borrow_mut(|steps| steps.as_mut().map(act));
}

pub fn are_kept() -> bool {
    STEPS.with_borrow(Option::is_some)
}

/// A process has written this to a connection.
pub fn sent(process: usize, link: u64, bytes: &[u8]) {
    with(|steps| {
        for request in whole(steps.sent.entry(link).or_default(), bytes) {
            let asked = steps.asked(&request);
            steps.sends(process, asked);
        }
    });
}

/// The requests that these bytes complete, so that each can be looked at after it has run.
pub fn requests(link: u64, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    with(|steps| requests = whole(steps.arrived.entry(link).or_default(), bytes));
    requests
}

/// A server has carried out a request, and has answered this.
pub fn ran(station: &mut Station, request: &[u8], answer: &[u8]) {
    with(|steps| {
        let published = station.server.overhear();
        if let Some(asked) = steps.asked(request) {
            let seen = steps.look(station, &published);
            steps.ran(asked, &frames::numbers(answer), &seen);
        }
    });
}

/// A holder believes for so long in what it was granted with this token.
pub fn holds(seat: u64, token: u64, left: u64) {
    with(|steps| {
        let granted = steps.grants.get(&(token / 1024)).cloned();
        let field = steps.field(&granted.unwrap_or_else(|| desk::client_id(seat) + ":unknown"));
        steps.add("holds", &format!("f |-> {field}, left |-> {}", left / MILLI));
    });
}

/// A process has died.
pub fn dies(process: usize) {
    with(|steps| {
        let of = |(_, (_, its)): &(usize, &(String, usize))| *its == process;
        let dead: Vec<usize> =
            steps.clients.iter().enumerate().filter(of).map(|(at, _)| at + 1).collect();
        for client in dead {
            steps.clients[client - 1].1 = usize::MAX;
            steps.add("dies", &format!("f |-> <<{client}, 0>>"));
        }
    });
}

/// Writes a record in TLA+.
pub fn write(folder: &Path, seed: u64) {
    with(|steps| {
        let (clients, steps) = (steps.clients.len(), steps.lines.join(",\n  "));
        let text = format!("[seed |-> {seed}, clients |-> {clients}, steps |-> <<\n  {steps}>>]\n");
        fs::create_dir_all(folder).expect("a folder can be made");
        fs::write(folder.join(format!("{seed}.trace")), text).expect("a writable file");
    });
}

/// Takes the whole requests out of what has come so far.
fn whole(rest: &mut Vec<u8>, bytes: &[u8]) -> Vec<Vec<u8>> {
    rest.extend_from_slice(bytes);
    let (requests, length) = frames::whole(rest);
    rest.drain(..length);
    requests
}

impl Steps {
    fn add(&mut self, what: &str, more: &str) {
        if self.lines.len() < MOST {
            let at = clock::now() / MILLI;
            self.lines.push(format!("[at |-> {at}, do |-> \"{what}\", {more}]"));
        }
    }

    /// An owner field: its client's number and its own. The specification has 0 for none.
    fn field(&self, field: &str) -> String {
        let Some((client, id)) = field.rsplit_once(':') else { return "<<>>".to_owned() };
        let at = self.clients.iter().position(|(known, _)| known == client);
        let id = id.parse().map_or(0, |id: u64| id + 1);
        format!("<<{}, {id}>>", at.map_or(0, |at| at + 1))
    }

    /// What a request asks of the lock, if it calls one of the scripts: each has other arguments.
    fn asked(&self, request: &[u8]) -> Option<Asked> {
        let words = frames::words(request);
        let [command, _, count, rest @ ..] = &words[..] else { return None };
        if !command.eq_ignore_ascii_case("evalsha") && !command.eq_ignore_ascii_case("eval") {
            return None;
        }
        let (keys, args) = rest.split_at_checked(count.parse().ok()?)?;
        let word = |at: usize| args.get(at).cloned().unwrap_or_default();
        let number = |at: usize| word(at).parse().unwrap_or(0);
        // The lock among those keys that are `every` apart, from `first` on; its place, and the argument that belongs to it.
        let of = |first: usize, every: usize, arg: &dyn Fn(usize) -> usize| {
            let locks = keys.iter().skip(first).step_by(every).enumerate();
            let ours = locks.filter(|(_, key)| **key == self.keys.lock);
            ours.map(|(at, _)| (at, word(arg(at)))).collect::<Vec<_>>()
        };
        if !keyspace::is_counter(keys.first()?) {
            let renewed = of(0, 1, &|at| 2 * at);
            return (args.len() == 2 * keys.len()).then_some(Asked::Renew(renewed));
        }
        if args.first()?.contains(' ') {
            return Some(Asked::Release(of(1, 3, &|at| at + 1)));
        }
        if keys.len() == 4 {
            let ours = keys[1] == self.keys.lock;
            let (field, had, old) = (word(1), number(7), word(8));
            return ours.then_some(Asked::Acquire { field, had, old });
        }
        let (_, field) = of(1, 2, &|at| 2 * at + 1).pop()?;
        Some(Asked::Acquire { field, had: 0, old: String::new() })
    }

    fn sends(&mut self, process: usize, asked: Option<Asked>) {
        match asked {
            Some(Asked::Acquire { field, old, .. }) => {
                let client = field.rsplit_once(':').map_or("", |(client, _)| client).to_owned();
                if !self.clients.iter().any(|(known, _)| *known == client) {
                    self.clients.push((client, process));
                }
                let (field, old) = (self.field(&field), self.field(&old));
                self.add("asks", &format!("f |-> {field}, old |-> {old}"));
            }
            Some(Asked::Renew(fields)) => self.each("renews", &fields),
            Some(Asked::Release(fields)) => self.each("gives back", &fields),
            None => {}
        }
    }

    fn each(&mut self, what: &str, fields: &[(usize, String)]) {
        for (_, field) in fields {
            let field = self.field(field);
            self.add(what, &format!("f |-> {field}"));
        }
    }

    /// A script has run. Of several things that it did at once, only what the last one left is seen.
    fn ran(&mut self, asked: Asked, answer: &[i64], seen: &str) {
        let is = |numbers: &[i64]| match numbers {
            [0, _, _, ..] => "waits",
            [0 | 3, _] => "refused",
            [2, _] => "contended",
            // Nothing has run: the server refuses it, or has forgotten the script.
            [-1, ..] | [] => "error",
            _ => "granted",
        };
        match asked {
            Asked::Acquire { field, had, .. } => {
                let had = if had == 0 { 0 } else { place(had as f64) };
                let (field, is, seen) = (self.field(&field), is(answer), shown(seen, true));
                self.add(
                    "acquire",
                    &format!("f |-> {field}, is |-> \"{is}\", had |-> {had}, {seen}"),
                );
            }
            Asked::Renew(fields) => {
                let last = fields.len().saturating_sub(1);
                for (at, (place, field)) in fields.into_iter().enumerate() {
                    let is = match answer.get(place) {
                        Some(1) => "renewed",
                        Some(_) => "gone",
                        None => "error",
                    };
                    let (field, seen) = (self.field(&field), shown(seen, at == last));
                    self.add("renew", &format!("f |-> {field}, is |-> \"{is}\", {seen}"));
                }
            }
            Asked::Release(_) if answer.is_empty() => {}
            Asked::Release(fields) => {
                let last = fields.len().saturating_sub(1);
                for (at, (_, field)) in fields.into_iter().enumerate() {
                    let (field, seen) = (self.field(&field), shown(seen, at == last));
                    self.add("release", &format!("f |-> {field}, {seen}"));
                }
            }
        }
    }

    /// What lies in the server, and to whom grants were told just now.
    fn look(&mut self, station: &mut Station, published: &[Published]) -> String {
        let all = station.server.dump(station.time());
        let entry = |key: &str| all.iter().find(|entry| entry.key == key.as_bytes());
        let (lock, line, notes) =
            (entry(&self.keys.lock), entry(&self.keys.line), entry(&self.keys.notes));
        let holder = lock.and_then(|lock| match &lock.content {
            Content::Hash(fields) => fields.first().map(|(field, _)| text(field)),
            _ => None,
        });
        let drawn: u64 = station.counters().values().sum();
        if let (true, Some(holder)) = (drawn != self.drawn, &holder) {
            self.grants.insert(drawn, holder.clone());
            self.drawn = drawn;
        }
        let notes = Notes::of(notes);
        let mut waiters = Vec::new();
        if let Some(Content::Zset(members)) = line.map(|line| &line.content) {
            for (field, score) in members {
                let field = text(field);
                let client = field.rsplit_once(':').map_or("", |(client, _)| client).to_owned();
                let (ends, asked, ttl) = notes.life(&client);
                let field = self.field(&field).replace(['<', '>'], "");
                waiters.push(format!("<<{field}, {}, {ends}, {asked}, {ttl}>>", place(*score)));
            }
        }
        let told = published.iter().flat_map(|(channel, message, _)| {
            let is_ours = text(channel).starts_with(&self.keys.channel);
            let words = text(message);
            let granted = words.split(' ').filter_map(|word| word.split_once('='));
            granted.filter(|_| is_ours).map(|(field, _)| self.field(field)).collect::<Vec<_>>()
        });
        let told = told.collect::<Vec<_>>().join(", ");
        let (own, left) = (self.field(&holder.unwrap_or_default()), lock.map_or(0, |l| l.pttl));
        let kept = line.map_or(0, |line| line.pttl);
        let mut seen = format!("[own |-> {own}, left |-> {left}, line |-> <<");
        let (waiters, clock) = (waiters.join(", "), notes.clock());
        let _ =
            write!(seen, "{waiters}>>, kept |-> {kept}, clock |-> {clock}, told |-> {{{told}}}]");
        seen
    }
}

fn shown(seen: &str, shown: bool) -> String {
    if shown { format!("shown |-> TRUE, seen |-> {seen}") } else { "shown |-> FALSE".to_owned() }
}

/// A channel, a message, and whether the channel belongs to a slot.
type Published = (Vec<u8>, Vec<u8>, bool);

/// The notes of a line: see lua/line/line.lua.
struct Notes<'a>(&'a [(Vec<u8>, Vec<u8>)]);

impl<'a> Notes<'a> {
    fn of(entry: Option<&'a Entry>) -> Self {
        match entry.map(|entry| &entry.content) {
            Some(Content::Hash(fields)) => Self(fields),
            _ => Self(&[]),
        }
    }

    fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| &**value)
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        let words = text(self.bytes(name).unwrap_or_default());
        words.split(' ').map(|word| word.parse().unwrap_or(0)).collect()
    }

    /// When the life of a client ends, when it was told to show a sign, and its `waiter_ttl`.
    fn life(&self, client: &str) -> (i64, i64, u64) {
        let life = self.numbers(&format!("life:{client}"));
        let asked = self.numbers(&format!("asked:{client}"));
        let asked = if asked.len() == 3 { moment(asked[0] as f64) } else { LONG_AGO };
        match life[..] {
            [ends, _, _, ttl] => (moment(ends as f64), asked, ttl),
            _ => (LONG_AGO, asked, 0),
        }
    }

    /// When a script last looked at the front, how far the clock of the line was behind then, when it was last left to go on,
    /// and `waiter_ttl`.
    fn clock(&self) -> String {
        let packed = self.bytes("state").unwrap_or_default();
        let (numbers, _) = packed.get(LABEL..).unwrap_or_default().as_chunks::<8>();
        let numbers: Vec<f64> = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let [look, behind, resumed, rhythm, ..] = numbers[..] else { return "<<>>".to_owned() };
        format!("<<{}, {behind}, {}, {rhythm}>>", moment(look), moment(resumed))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A time of the server in ms, since the world began.
fn moment(ms: f64) -> i64 {
    (ms as i64 - (EPOCH / 1_000) as i64).max(LONG_AGO)
}

/// A place in line, as a time in microseconds.
fn place(score: f64) -> i64 {
    score as i64 - EPOCH as i64
}
