//! Reads what the workers record, while they go on.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::mem::take;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

use crate::crew::Gone;
use crate::history;
use crate::judge::history::Hold;
use crate::judge::{Claim, Operation, operation};
use crate::settings::{FENCED, GRACE, LEASE, Topology, WAITER_TTL, bare, nanos};
use crate::verdict::{TOO_LATE, Tally};

/// All records of a run.
#[derive(Debug)]
pub struct Records {
    pub folder: PathBuf,
    topology: Topology,
    /// Whether what has been read is thrown away.
    forgets: bool,
    records: BTreeMap<String, Record>,
    pub grants: usize,
}

/// A hold that its server has no more, though its lease goes on: another client must have found that nobody listens to its client.
#[derive(Debug)]
pub struct Taken {
    /// The client that was told so, and when.
    pub client: String,
    pub told: u64,
    /// When it was still heard for sure.
    pub heard: u64,
    pub hold: Hold,
}

/// What has been read of the record of one worker, as far as nobody has taken it over.
#[derive(Debug, Default)]
struct Record {
    read: u64,
    claims: HashMap<u64, Noted>,
    closed: HashMap<u64, u64>,
    asked: HashMap<u64, Operation>,
    several: HashMap<u64, (u64, Vec<String>)>,
    /// So many tasks its runtime had, as it last said.
    tasks: Option<u64>,
}

#[derive(Debug)]
struct Noted {
    claim: Claim,
    /// It ends with a session, and its lease does not end as long as its holder lives.
    in_session: bool,
    /// When its end was written.
    at: Option<u64>,
}

impl Records {
    pub fn new(folder: PathBuf, topology: Topology, forgets: bool) -> Self {
        Self { folder, topology, forgets, records: BTreeMap::new(), grants: 0 }
    }

    /// Reads on in the record of a worker that goes on.
    pub fn read(&mut self, worker: &str, tally: &mut Tally) {
        self.read_on(worker, false, tally);
    }

    /// Reads the rest of the record of one that has come to its end.
    pub fn read_last(&mut self, gone: &Gone, tally: &mut Tally) {
        let half = self.read_on(&gone.name, gone.killed.is_none(), tally);
        // It may be killed as it writes a line over the end of a page. Half a line says nothing.
        if gone.killed.is_none() && !half.is_empty() {
            tally.wrong(format!("{}: half a line: {}", gone.name, half.escape_ascii()));
        }
        let record = self.records.entry(gone.name.clone()).or_default();
        record.end(gone, tally);
        if self.forgets {
            let _ = fs::remove_file(self.folder.join(&gone.name));
        }
    }

    /// Returns what was written of a line that is not complete.
    fn read_on(&mut self, worker: &str, must_exist: bool, tally: &mut Tally) -> Vec<u8> {
        let record = self.records.entry(worker.to_owned()).or_default();
        let (path, mut news) = (self.folder.join(worker), Vec::new());
        let read = File::options().read(true).write(true).open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(record.read))?;
            file.read_to_end(&mut news)?;
            Ok(file)
        });
        let file = match read {
            Ok(file) => file,
            // A worker may be killed before it begins its record.
            Err(error)
                if !must_exist && record.read == 0 && error.kind() == ErrorKind::NotFound =>
            {
                return Vec::new();
            }
            Err(error) => {
                tally.wrong(format!("{worker}: no record: {error}"));
                return Vec::new();
            }
        };
        let whole = news.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let half = news.split_off(whole);
        record.read += whole as u64;
        if self.forgets {
            // Its writer goes on behind the hole.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&file, hole, 0, record.read);
        }
        let text = String::from_utf8(news).expect("a record is text");
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            self.grants += usize::from(words[0] == "o");
            record.note(worker, self.topology, &words, tally);
        }
        half
    }

    /// Takes over what has come to its end by then, with all that will be said of it. Returns it with the moment before which
    /// nothing is missing.
    pub fn take(&mut self, until: u64, tally: &mut Tally) -> (Vec<Claim>, u64) {
        let is_over = |noted: &Noted| noted.at.is_some_and(|at| at < until);
        let open = |record: &Record| {
            let open = record.claims.values().filter(|noted| !is_over(noted));
            open.map(|noted| noted.claim.called).min()
        };
        let cut = self.records.values().filter_map(open).min().unwrap_or(until).min(until);
        let mut claims = Vec::new();
        for record in self.records.values_mut() {
            let over = record.claims.extract_if(|_, noted| noted.claim.acquired < cut);
            claims.extend(over.map(|(_, noted)| noted.claim));
            let answered = |call: &Operation| call.returned.is_some_and(|at| at < cut);
            let calls = record.asked.extract_if(|_, call| answered(call));
            tally.calls.extend(calls.map(|(_, call)| call));
        }
        self.records.retain(|_, record| !record.is_empty());
        (claims, cut)
    }

    /// What was called before then and was not over: nobody knew what would become of it.
    pub fn under_way(&self, until: u64) -> impl Iterator<Item = Operation> {
        let all = self.records.values().flat_map(|record| {
            let granted = record.claims.values().map(|noted| &noted.claim);
            let granted =
                granted.map(|claim| Operation::granted(claim, history::kind(&claim.lock)));
            record.asked.values().cloned().chain(granted)
        });
        let called = all.filter(move |call| call.called < until);
        called.map(|call| Operation {
            returned: None,
            outcome: "unknown".to_owned(),
            token: None,
            ..call
        })
    }

    /// So many tasks the runtime of a worker had, as it last said.
    pub fn tasks(&self, worker: &str) -> Option<u64> {
        self.records.get(worker)?.tasks
    }
}

impl Record {
    fn is_empty(&self) -> bool {
        self.read == u64::MAX && self.claims.is_empty() && self.asked.is_empty()
    }

    fn note(&mut self, worker: &str, topology: Topology, words: &[&str], tally: &mut Tally) {
        let word = words.get(1).copied().unwrap_or_default();
        let id = || number(word);
        match words[0] {
            "c" => tally.add(word, 1),
            "v" => tally.wrong(format!("{worker}: {word}")),
            "l" => tally.late.push((id(), number(words[2]))),
            "s" => self.tasks = Some(id()),
            "o" => {
                self.asked.remove(&id());
                let claim = opened(worker, topology, words);
                let in_session = words.get(13).is_some();
                self.claims.insert(id(), Noted { claim, in_session, at: None });
            }
            "e" => self.is_gone((word, number(words[2])), number(words[3]), tally),
            "d" | "x" | "b" | "g" | "u" => {
                // What was over before its holder looked at it has no claim. A loss is said of claims only.
                match self.claims.get_mut(&id()) {
                    Some(noted) => noted.change(words),
                    None if words[0] == "u" => {
                        tally.wrong(format!("{TOO_LATE}: the loss of hold {word} of {worker}"));
                    }
                    None => {}
                }
            }
            "z" => {
                self.closed.insert(id(), number(words[2]));
            }
            "m" => {
                let names = words[3..].iter().map(|name| (*name).to_owned()).collect();
                self.several.insert(id(), (number(words[2]), names));
            }
            "n" => {
                let (from, names) = self.several.remove(&id()).expect("it has begun");
                tally.may_hold_a_part(&names, from, number(words[2]));
            }
            "a" => {
                self.asked.insert(id(), begun(worker, words));
            }
            "r" => {
                let call = self.asked.get_mut(&id()).expect("it has begun");
                (call.returned, call.outcome) = (Some(number(words[2])), words[3].to_owned());
            }
            _ => tally.wrong(format!("{worker}: a strange line: {}", words.join("\t"))),
        }
    }

    /// The server has told a client that it has this no more.
    fn is_gone(&self, (lock, token): (&str, u64), told: u64, tally: &mut Tally) {
        let holds = self.claims.values().filter(|noted| noted.in_session);
        let one =
            holds.map(|noted| &noted.claim).find(|one| one.lock == lock && one.token == token);
        let is_confirmed = |one: &&Claim| one.deadline > one.acquired + nanos(WAITER_TTL);
        let Some(claim) = one.filter(is_confirmed) else { return };
        let client = operation::process(&claim.worker, claim.seat);
        let heard = claim.deadline.saturating_sub(nanos(GRACE));
        tally.taken.push(Taken { client, told, heard, hold: claim.hold(0) });
    }

    /// The worker has come to its end.
    fn end(&mut self, gone: &Gone, tally: &mut Tally) {
        // Of what the dead asked for, nobody knows what became.
        for call in self.asked.values_mut() {
            call.returned = call.returned.or(gone.killed);
        }
        let open = self.asked.extract_if(|_, call| call.returned.is_none());
        tally.calls.extend(open.map(|(_, call)| call));
        // What the dead have is free when its lease is over.
        let freed = gone.killed.map_or(u64::MAX, |killed| killed + nanos(LEASE));
        for (from, names) in take(&mut self.several).into_values() {
            tally.may_hold_a_part(&names, from, freed);
        }
        for Noted { claim, at, .. } in self.claims.values_mut() {
            if claim.ended.is_none() {
                let closed = *self.closed.get(&claim.seat).unwrap_or(&u64::MAX);
                claim.ended = gone.killed.map(|killed| killed.min(claim.deadline).min(closed));
                claim.by_kill = gone.killed.is_some();
                if !claim.by_kill {
                    let hold = claim.hold(0);
                    tally.wrong(format!("{} came to its end and still held:\n  {hold}", gone.name));
                }
            }
            // Nothing more will be said of it.
            *at = Some(0);
        }
        self.read = u64::MAX;
    }
}

impl Noted {
    fn change(&mut self, words: &[&str]) {
        let (claim, at) = (&mut self.claim, number(words[2]));
        match words[0] {
            "d" => (claim.deadline, claim.last_confirmed) = (at, number(words[3])),
            "b" => claim.left = Some(at),
            "g" => claim.given_back = Some(at),
            "u" => claim.lost_at = Some(at),
            _ => {
                let said = number(words[4]);
                claim.ended = Some(at);
                claim.lost_at = (words[3] == "lost").then_some(said);
                self.at = Some(said);
            }
        }
    }
}

/// A call of which nothing is known yet but that it was made.
fn begun(worker: &str, words: &[&str]) -> Operation {
    Operation {
        process: operation::process(worker, number(words[2])),
        called: number(words[3]),
        returned: None,
        name: words[4].to_owned(),
        kind: history::kind(words[4]),
        operation: words[5].to_owned(),
        argument: words[6].to_owned(),
        outcome: "unknown".to_owned(),
        token: None,
        left: None,
    }
}

fn opened(worker: &str, topology: Topology, words: &[&str]) -> Claim {
    // Redisson counts grants, and parklock besides the holders of each.
    let is_of_redisson = topology == Topology::Redisson && bare(words[2]) == FENCED;
    Claim {
        worker: worker.to_owned(),
        lock: words[2].to_owned(),
        owner: words[3].to_owned(),
        token: number(words[4]) << if is_of_redisson { 10 } else { 0 },
        called: number(words[5]),
        acquired: number(words[6]),
        confirmed: number(words[7]),
        last_confirmed: number(words[8]),
        deadline: number(words[9]),
        ended: None,
        lost_at: None,
        by_kill: false,
        left: None,
        given_back: None,
        seat: number(words[10]),
        part: number(words[11]),
        of: number(words[12]),
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("not a number in a record: {word}"))
}
