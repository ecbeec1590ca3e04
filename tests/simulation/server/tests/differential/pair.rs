//! A real server and a simulated one that are asked the same.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use fastrand::Rng;
use parklock_simulated_server::{Conn, Content, Entry, Reply, Server, Version};

use crate::compare::{self, Likeness, Window};
use crate::frame::Frame;
use crate::mode::Mode;
use crate::real::{Real, Wire, request};
use crate::shapes::{self, Asked};
use crate::{plain, words};

/// The key spaces are compared after this many steps at the latest.
const LOOK_EVERY: usize = 4;
/// Lua's numbers are exact up to 2^53, and a TTL may have been longer before.
const MOST_EXACT: i64 = 1 << 52;
const MOST_DIFFERENCES: usize = 15;
/// What `b` listens to itself: what comes between its own replies.
const OWN_CHANNELS: [&str; 2] = ["odd", "channel:1"];

/// The reign that is now becomes the value of a key.
const RECORD: &str = "return redis.call('set', KEYS[1], redis.call('info', 'replication'):match('master_replid:(%x+)'))";

/// Everything of the key space, by the server's own commands.
const DUMP: &str = "
local keys = {}
for i, key in ipairs(redis.call('keys', '*')) do
  local kind = redis.call('type', key).ok
  local value
  if kind == 'string' then value = { redis.call('get', key) }
  elseif kind == 'hash' then value = redis.call('hgetall', key)
  elseif kind == 'list' then value = redis.call('lrange', key, 0, -1)
  else value = redis.call('zrange', key, 0, -1, 'withscores') end
  keys[i] = { key, kind, redis.call('pttl', key), value }
end
return keys";

/// The two ends of a client: on the real server, and on the simulated one.
pub struct Client {
    wire: Wire,
    conn: Conn,
    protocol: &'static str,
}

pub struct Pair {
    _real: Real,
    version: Version,
    pub sim: Server,
    boss: Wire,
    clients: [Client; 2],
    listener: Client,
    scripts: Vec<Asked>,
    rng: Rng,
    now: u64,
    windows: Vec<Window>,
    since_look: usize,
    /// A script was not known any more.
    forgotten: bool,
    pub mode: Mode,
    history: VecDeque<String>,
    differences: BTreeMap<String, String>,
    pub tally: Tally,
}

/// Counts of the steps.
#[derive(Debug, Default)]
pub struct Tally {
    pub steps: usize,
    /// Steps over the end of a millisecond: carried out, but not compared.
    pub skipped: usize,
    pub looks: usize,
    pub pushes: usize,
    pub granted: usize,
    pub errors: usize,
}

impl Pair {
    pub fn start(version: Version, program: &Path, seed: u64) -> Self {
        let real = Real::start(version, program);
        let mut sim = Server::new(version);
        let mut boss = real.connect();
        assert_eq!(
            boss.ask(&["ACL", "SETUSER", "boss", "on", "nopass", "+@all", "~*", "&*"]).text,
            b"OK"
        );
        let allow = ["ACL", "SETUSER", "default", "on", "nopass", "+@all", "~*", "&*"];
        assert_eq!(boss.ask(&allow).text, b"OK");
        assert_eq!(boss.ask(&["AUTH", "boss", ""]).text, b"OK");
        if version == Version::Redis8_2 {
            // Its sweep takes a key a millisecond earlier than commands do.
            assert_eq!(boss.ask(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).text, b"OK");
        }
        let mut client = |protocol| Client { wire: real.connect(), conn: sim.accept(), protocol };
        let (clients, listener) = ([client("2"), client("3")], client("3"));
        let mut pair = Self {
            _real: real,
            version,
            sim,
            boss,
            clients,
            listener,
            scripts: shapes::all(),
            rng: Rng::with_seed(seed),
            now: 0,
            windows: Vec::new(),
            since_look: 0,
            forgotten: false,
            mode: Mode::default(),
            history: VecDeque::new(),
            differences: BTreeMap::new(),
            tally: Tally::default(),
        };
        assert_eq!(pair.listener.wire.ask(&["AUTH", "boss", ""]).text, b"OK");
        pair.greet();
        pair.load_scripts();
        pair.listen(true);
        pair.take_over();
        pair
    }

    fn greet(&mut self) {
        for client in self.clients.iter_mut().chain([&mut self.listener]) {
            let hello = ["HELLO", client.protocol];
            assert_ne!(client.wire.ask(&hello).kind, b'-');
            self.sim.receive(
                client.conn,
                &request(&hello.map(|word| word.as_bytes().to_vec())),
                self.now,
            );
        }
        self.sim.output();
    }

    fn load_scripts(&mut self) {
        for script in &self.scripts {
            let load = [b"SCRIPT".to_vec(), b"LOAD".to_vec(), script.text.clone()];
            self.boss.send(&request(&load));
            assert_eq!(self.boss.frame().text, script.hash.as_bytes());
            self.sim.execute(self.now, &load.each_ref().map(|word| &**word));
        }
    }

    /// Client `b` listens, or does not, to what it publishes itself.
    pub fn listen(&mut self, on: bool) {
        let what = if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let words = [what, OWN_CHANNELS[0], OWN_CHANNELS[1]].map(|word| word.as_bytes().to_vec());
        self.clients[1].wire.send(&request(&words));
        OWN_CHANNELS.iter().for_each(|_| drop(self.clients[1].wire.frame()));
        self.sim.receive(self.clients[1].conn, &request(&words), self.now);
        self.sim.output();
    }

    pub fn order(&mut self, words: &[&str]) {
        let answer = self.boss.ask(words);
        assert!(answer.kind != b'-', "{words:?}: {answer:?}");
    }

    /// One random step.
    pub fn step(&mut self) {
        if self.tally.steps % 64 == 63 && self.rng.u8(..3) == 0 {
            self.look();
            self.change_mode();
        }
        if self.forgotten && self.rng.u8(..8) == 0 {
            self.load_scripts();
            self.forgotten = false;
        }
        match self.rng.u16(..400) {
            0 => drop(self.ask(vec![b"SCRIPT".to_vec(), b"FLUSH".to_vec()])),
            // The listener is somebody else on the real server, and may do everything.
            1..20 if self.mode != Mode::DeniedChannels => self.subscribe(),
            20..26 if self.mode == Mode::Fine => self.record_session(),
            20..150 => {
                let words = plain::command(&mut self.rng, self.now);
                self.ask(words);
            }
            _ => self.call_script(),
        }
        self.tally.steps += 1;
        self.since_look += 1;
        if self.since_look >= LOOK_EVERY {
            self.look();
        }
    }

    fn change_mode(&mut self) {
        // Scripts on a replica of 6.2 see keys that are over; not modelled.
        let next = match Mode::random(&mut self.rng) {
            Mode::Replica if self.version == Version::Redis6_2 => Mode::Fine,
            next => next,
        };
        std::mem::take(&mut self.mode).leave(self);
        // In time, most keys are of a type that their scripts refuse.
        if self.rng.bool() {
            self.order(&["FLUSHALL"]);
        }
        next.enter(self);
        self.note(format!("-- {next:?}"));
        self.mode = next;
        self.take_over();
    }

    /// The client with a session records the reign, which has another name on each side: see `dump`.
    fn record_session(&mut self) {
        let notes = words::pick(&mut self.rng, &["line_notes", "notes"]);
        let key = format!("{notes}:{}session:{{{}}}", self.rng.u8(1..=2), words::IN_SESSION);
        let words = ["EVAL", RECORD, "1", &key].map(|word| word.as_bytes().to_vec());
        self.ask(words.to_vec());
    }

    fn call_script(&mut self) {
        let which = self.rng.usize(..self.scripts.len());
        let script = &self.scripts[which];
        let rest = script.words(&mut self.rng, self.now);
        let head = if self.rng.u8(..10) == 0 {
            [b"EVAL".to_vec(), script.text.clone()]
        } else {
            [b"EVALSHA".to_vec(), script.hash.clone().into_bytes()]
        };
        let answered = self.ask([head.to_vec(), rest].concat());
        self.scripts[which].answers += usize::from(answered);
    }

    /// Which scripts have answered nothing but errors.
    pub fn unanswered(&self) -> Vec<String> {
        self.scripts.iter().filter(|script| script.answers == 0).map(Asked::title).collect()
    }

    /// A command of one client, on both servers. Whether they answered, and with no error.
    fn ask(&mut self, words: Vec<Vec<u8>>) -> bool {
        // From Redis 7.2 on, the refusal of an AUTH right after other answers is never sent (redis/redis#15640).
        let may_be_refused = words.iter().any(|word| word.eq_ignore_ascii_case(b"AUTH"));
        if self.version == Version::Redis8_2 && may_be_refused {
            return false;
        }
        let which = self.rng.usize(..2);
        self.note(show(which, &words));
        let client = &mut self.clients[which];
        let time = request(&[b"TIME".to_vec()]);
        client.wire.send(&[&time[..], &request(&words), &time].concat());
        let (mut frames, mut replies) = (Vec::new(), 0);
        while replies < 3 {
            let frame = client.wire.frame();
            replies += usize::from(!frame.is_push());
            frames.push(frame);
        }
        let (begin, end) =
            (frames.remove(0).micros(), frames.pop().expect("three replies").micros());

        self.now = begin;
        self.sim.receive(client.conn, &request(&words), begin);
        let (conn, listener) = (client.conn, self.listener.conn);
        let output = self.sim.output();
        let sent = |to: Conn| -> Vec<Frame> {
            let pieces =
                output.iter().filter(|(conn, _)| *conn == to).flat_map(|(_, bytes)| bytes.clone());
            Frame::all(&pieces.collect::<Vec<_>>())
        };
        let (mut ours, mut ours_heard, mut pushes) = (sent(conn), sent(listener), Vec::new());
        let crossed = begin / 1000 != end / 1000;
        // What only the real server has sent is found when the key spaces are compared.
        if crossed || !ours_heard.is_empty() {
            pushes = self::pushes(&mut self.listener.wire);
        }
        let bystander = &mut self.clients[1];
        if which == 0 && (crossed || output.iter().any(|(conn, _)| *conn == bystander.conn)) {
            pushes.extend(self::pushes(&mut bystander.wire));
            ours_heard.extend(sent(bystander.conn));
        }
        self.tally.pushes += pushes.len();
        let failed = frames.last().is_some_and(|frame| frame.kind == b'-');
        self.tally.errors += usize::from(failed);
        self.forgotten |= frames.last().is_some_and(|frame| frame.text.starts_with(b"NOSCRIPT"));
        self.tally.granted += usize::from(
            frames.iter().any(|frame| frame.items.first().is_some_and(|code| code.text == b"1")),
        );
        if crossed {
            self.tally.skipped += 1;
            self.take_over();
        } else {
            self.windows.push(Window { begin, end });
            settle_order(&words, &mut frames);
            settle_order(&words, &mut ours);
            let likeness = compare::frames(&self.windows, &frames, &ours);
            let pushed = compare::frames(&self.windows, &pushes, &ours_heard);
            if likeness.max(pushed) == Likeness::Different {
                let what = format!(
                    "real:      {frames:?}\n  simulated: {ours:?}\n  pushes:    {pushes:?}\n  simulated: {ours_heard:?}"
                );
                self.differ(&words, what);
            }
        }
        if words[0].eq_ignore_ascii_case(b"hello") {
            self.greet();
        }
        !crossed && !failed
    }

    /// The listener comes to a channel or goes.
    fn subscribe(&mut self) {
        let what = if self.rng.bool() { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let channels = (0..self.rng.u8(1..=3))
            .map(|_| words::pick(&mut self.rng, &words::CHANNELS).as_bytes().to_vec());
        let words: Vec<_> = [what.as_bytes().to_vec()].into_iter().chain(channels).collect();
        self.listener.wire.send(&request(&words));
        let pushes = pushes(&mut self.listener.wire);
        self.sim.receive(self.listener.conn, &request(&words), self.now);
        let ours: Vec<_> =
            self.sim.output().into_iter().flat_map(|(_, bytes)| Frame::all(&bytes)).collect();
        self.note(show(2, &words));
        if pushes != ours {
            self.differ(&words, format!("real:      {pushes:?}\n  simulated: {ours:?}"));
        }
    }

    /// Compares the key spaces. Stamps in microseconds are made equal, so that nothing is tolerated twice.
    fn look(&mut self) {
        let (theirs, now) = self.dump();
        let ours = self.sim.dump(now);
        let likeness = compare::key_spaces(&self.windows, &theirs, &ours);
        self.tally.looks += 1;
        let unheard = [pushes(&mut self.listener.wire), pushes(&mut self.clients[1].wire)].concat();
        if !unheard.is_empty() {
            self.differ(&[b"pushes".to_vec()], format!("real alone: {unheard:?}"));
        }
        if likeness == Likeness::Different {
            let mut what = String::new();
            for entry in &theirs {
                let other = ours
                    .iter()
                    .find(|other| (other.database, &other.key) == (entry.database, &entry.key));
                if !other.is_some_and(|other| {
                    compare::entries(&self.windows, entry, other) != Likeness::Different
                }) {
                    what += &format!(
                        "real:      {}\n  simulated: {}\n  ",
                        show_entry(Some(entry)),
                        show_entry(other)
                    );
                }
            }
            for entry in &ours {
                if !theirs
                    .iter()
                    .any(|other| (other.database, &other.key) == (entry.database, &entry.key))
                {
                    what += &format!("real:      -\n  simulated: {}\n  ", show_entry(Some(entry)));
                }
            }
            self.differ(&[b"key space".to_vec()], what);
        }
        self.sim.restore(now, &theirs);
        self.windows.clear();
        self.since_look = 0;
    }

    /// The simulated server's keys become those of the real one.
    fn take_over(&mut self) {
        let (theirs, now) = self.dump();
        self.sim.restore(now, &theirs);
        self.windows.clear();
        self.since_look = 0;
    }

    /// The real server's keys. Where they name its reign, in a record or a note, they name the simulated server's instead.
    fn dump(&mut self) -> (Vec<Entry>, u64) {
        let (mut entries, now) = self.dump_as_it_is();
        let ask = ["INFO", "replication"];
        let theirs = reign(&self.boss.ask(&ask).text);
        let ours = self.sim.execute(now, &ask.map(str::as_bytes));
        let Reply::Text(ours) = ours else { panic!("INFO: {ours:?}") };
        let ours = reign(&ours);
        let texts = entries.iter_mut().flat_map(|entry| match &mut entry.content {
            Content::Text(text) => vec![text],
            Content::Hash(fields) => fields.iter_mut().map(|(_, value)| value).collect(),
            Content::List(_) | Content::Zset(_) => Vec::new(),
        });
        for text in texts.filter(|text| text.starts_with(&theirs)) {
            text.splice(..theirs.len(), ours.iter().copied());
        }
        (entries, now)
    }

    /// The real server's keys, read within one of its milliseconds.
    fn dump_as_it_is(&mut self) -> (Vec<Entry>, u64) {
        let words = |words: &[&str]| {
            request(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        let (time, dump) = (words(&["TIME"]), words(&["EVAL", DUMP, "0"]));
        let all =
            [&time[..], &words(&["SELECT", "0"]), &dump, &words(&["SELECT", "1"]), &dump, &time]
                .concat();
        for _ in 0..10_000 {
            self.boss.send(&all);
            let frames: Vec<_> = (0..6).map(|_| self.boss.frame()).collect();
            let (begin, end) = (frames[0].micros(), frames[5].micros());
            if begin / 1000 == end / 1000 {
                let keys = |database: usize, frame: &Frame| {
                    frame.items.iter().map(|item| entry(database, item)).collect::<Vec<_>>()
                };
                let mut entries: Vec<Entry> = [keys(0, &frames[2]), keys(1, &frames[4])].concat();
                entries.sort_by(|left, right| {
                    (left.database, &left.key).cmp(&(right.database, &right.key))
                });
                for entry in entries.iter_mut().filter(|entry| entry.pttl >= MOST_EXACT) {
                    entry.pttl = self.exact_pttl(entry, begin);
                }
                self.now = begin;
                return (entries, begin);
            }
        }
        panic!("the key space cannot be read within a millisecond");
    }

    /// What a script rounds, asked by a command of its own: how long the key had to live at that time.
    fn exact_pttl(&mut self, entry: &Entry, then: u64) -> i64 {
        let asked = [
            request(&[b"SELECT".to_vec(), entry.database.to_string().into_bytes()]),
            request(&[b"TIME".to_vec()]),
            request(&[b"PTTL".to_vec(), entry.key.clone()]),
            request(&[b"TIME".to_vec()]),
        ];
        loop {
            self.boss.send(&asked.concat());
            let [_, begin, pttl, end] = [(); 4].map(|()| self.boss.frame());
            if begin.micros() / 1000 == end.micros() / 1000 {
                return pttl.number() + (begin.micros() / 1000) as i64 - (then / 1000) as i64;
            }
        }
    }

    fn note(&mut self, what: String) {
        self.history.push_back(what);
        if self.history.len() > 5 {
            self.history.pop_front();
        }
    }

    fn differ(&mut self, words: &[Vec<u8>], what: String) {
        // Differences of one kind are said once.
        let name =
            format!("{}{}", words[0].escape_ascii(), what.chars().take(160).collect::<String>());
        let name = name
            .chars()
            .filter(|char| char.is_alphabetic() && !matches!(char, 'a'..='f'))
            .collect::<String>();
        let history = self.history.iter().map(|step| format!("    {step}\n")).collect::<String>();
        let step = self.tally.steps;
        let text = format!(
            "step {step}, {:?}\n  {}\n  {what}\n  after\n{history}",
            self.mode,
            show(9, words)
        );
        self.differences.entry(name).or_insert(text);
        assert!(self.differences.len() < MOST_DIFFERENCES, "{}", self.verdict());
        self.take_over();
    }

    /// What differed.
    pub fn verdict(&self) -> String {
        let differences = self.differences.values().map(String::as_str);
        differences.collect::<Vec<_>>().join("\n")
    }

    pub fn count(&self) -> usize {
        self.differences.len()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, after {:#?}", self.mode, self.history);
        }
    }
}

/// What a server calls the reign that is now, in an answer to INFO.
fn reign(info: &[u8]) -> Vec<u8> {
    let info = String::from_utf8_lossy(info);
    let reign = info.lines().find_map(|line| line.strip_prefix("master_replid:"));
    reign.expect("every server has one").as_bytes().to_vec()
}

/// What a listener has got so far.
fn pushes(wire: &mut Wire) -> Vec<Frame> {
    wire.send(&request(&[b"PING".to_vec()]));
    std::iter::from_fn(|| Some(wire.frame()).filter(Frame::is_push)).collect()
}

fn entry(database: usize, frame: &Frame) -> Entry {
    let [key, kind, pttl, value] = &frame.items[..] else { panic!("a key: {frame:?}") };
    let texts = || value.items.iter().map(|item| item.text.clone());
    let pairs = || value.items.chunks(2);
    let content = match &*kind.text {
        b"string" => Content::Text(value.items[0].text.clone()),
        b"hash" => Content::Hash(
            pairs().map(|pair| (pair[0].text.clone(), pair[1].text.clone())).collect(),
        ),
        b"list" => Content::List(texts().collect()),
        b"zset" => {
            let score =
                |frame: &Frame| String::from_utf8_lossy(&frame.text).parse().expect("a score");
            Content::Zset(pairs().map(|pair| (pair[0].text.clone(), score(&pair[1]))).collect())
        }
        _ => panic!("a type: {frame:?}"),
    };
    Entry { database, key: key.text.clone(), content, pttl: pttl.number() }
}

/// Sorts replies without an order of their own, and removes parts that differ from one server process to the next.
pub fn settle_order(words: &[Vec<u8>], frames: &mut [Frame]) {
    let name = words[0].to_ascii_lowercase();
    for frame in frames {
        let by_text = |left: &Frame, right: &Frame| left.text.cmp(&right.text);
        match &*name {
            b"keys" => frame.items.sort_by(by_text),
            b"pubsub" if words.len() > 1 && words[1].eq_ignore_ascii_case(b"channels") => {
                frame.items.sort_by(by_text)
            }
            b"scan" if frame.items.len() == 2 => frame.items[1].items.sort_by(by_text),
            b"hello" => frame
                .items
                .truncate(frame.items.iter().position(|item| item.text == b"id").unwrap_or(0)),
            b"info" if frame.kind != b'-' => keep_known_info(&mut frame.text),
            _ => {}
        }
    }
}

/// Of INFO, the fields that the simulated server knows, and whose value is not the process's own.
pub fn keep_known_info(text: &mut Vec<u8>) {
    const KNOWN: [&str; 8] = [
        "maxmemory",
        "maxmemory_policy",
        "loading",
        "role",
        "connected_slaves",
        "redis_mode",
        "server_mode",
        "server_name",
    ];
    let said = String::from_utf8_lossy(text).into_owned();
    let known = |line: &&str| line.split_once(':').is_some_and(|(name, _)| KNOWN.contains(&name));
    let lines: Vec<_> = said.lines().filter(known).collect();
    *text = lines.join("\n").into_bytes();
}

fn show(client: usize, words: &[Vec<u8>]) -> String {
    let text = words.iter().map(|word| {
        let text = word[..word.len().min(if word.starts_with(b"-- ") { 60 } else { 200 })]
            .escape_ascii()
            .to_string();
        if text.is_empty() { "''".into() } else { text }
    });
    format!(
        "{}: {}",
        ["a", "b", "listener"].get(client).unwrap_or(&""),
        text.collect::<Vec<_>>().join(" ")
    )
}

fn show_entry(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "-".into() };
    let text = |bytes: &Vec<u8>| bytes.escape_ascii().to_string();
    let content = match &entry.content {
        Content::Text(value) => text(value),
        Content::Hash(pairs) => format!(
            "{:?}",
            pairs.iter().map(|(field, value)| (text(field), text(value))).collect::<Vec<_>>()
        ),
        Content::List(items) => format!("{:?}", items.iter().map(text).collect::<Vec<_>>()),
        Content::Zset(pairs) => format!(
            "{:?}",
            pairs.iter().map(|(member, score)| (text(member), *score)).collect::<Vec<_>>()
        ),
    };
    format!("{} {} pttl {} = {content}", entry.database, text(&entry.key), entry.pttl)
}
