//! Reads what the workers have recorded.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::crew::Gone;
use crate::history;
use crate::judge::{Claim, Operation, operation};
use crate::settings::{LEASE, nanos};
use crate::verdict::Tally;

/// All claims of one worker; what else it said is counted.
pub fn claims(records: &Path, gone: &Gone, tally: &mut Tally) -> Vec<Claim> {
    let mut record = fs::read(records.join(&gone.name)).unwrap_or_else(|error| {
        // A worker may be killed before it begins its record.
        if gone.killed.is_none() || error.kind() != ErrorKind::NotFound {
            tally.wrong(format!("{}: no record: {error}", gone.name));
        }
        Vec::new()
    });
    // It may also be killed as it writes a line over the end of a page. Half a line says nothing.
    let whole = record.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let half = record.split_off(whole);
    if gone.killed.is_none() && !half.is_empty() {
        tally.wrong(format!("{}: half a line: {}", gone.name, half.escape_ascii()));
    }
    let text = String::from_utf8(record).expect("a record is text");
    let mut claims = Vec::new();
    let (mut places, mut closed) = (HashMap::new(), HashMap::new());
    let mut asked = HashMap::new();
    let mut several: HashMap<&str, (u64, Vec<&str>)> = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let id = *words.get(1).unwrap_or(&"");
        let claim: Option<&mut Claim> =
            places.get(id).and_then(|&place: &usize| claims.get_mut(place));
        match (words[0], claim) {
            ("c", _) => tally.add(id, 1),
            ("v", _) => tally.wrong(format!("{}: {id}", gone.name)),
            ("l", _) => tally.late.push((number(id), number(words[2]))),
            ("o", None) => {
                asked.remove(id);
                places.insert(id, claims.len());
                claims.push(opened(&gone.name, &words));
            }
            ("d", Some(claim)) => {
                claim.deadline = number(words[2]);
                claim.last_confirmed = number(words[3]);
            }
            ("x", Some(claim)) => {
                claim.ended = Some(number(words[2]));
                claim.lost_at = (words[3] == "lost").then(|| number(words[4]));
            }
            ("z", _) => {
                closed.insert(number(id), number(words[2]));
            }
            ("m", _) => {
                several.insert(id, (number(words[2]), words[3..].to_vec()));
            }
            ("n", _) => {
                let (from, names) = several.remove(id).expect("it has begun");
                tally.may_hold_a_part(&names, from, number(words[2]));
            }
            ("a", _) => {
                asked.insert(id, begun(&gone.name, &words));
            }
            ("r", _) => {
                let call = asked.get_mut(id).expect("it has begun");
                (call.returned, call.outcome) = (Some(number(words[2])), words[3].to_owned());
            }
            ("g", Some(claim)) => claim.given_back = Some(number(words[2])),
            ("u", Some(claim)) => claim.lost_at = Some(number(words[2])),
            _ => tally.wrong(format!("{}: a strange line: {line}", gone.name)),
        }
    }
    // Of what the dead asked for, nobody knows what became.
    for mut call in asked.into_values() {
        call.returned = call.returned.or(gone.killed);
        tally.calls.push(call);
    }
    // What the dead have is free when its lease is over.
    let freed = gone.killed.map_or(u64::MAX, |killed| killed + nanos(LEASE));
    several.values().for_each(|(from, names)| tally.may_hold_a_part(names, *from, freed));
    for claim in claims.iter_mut().filter(|claim| claim.ended.is_none()) {
        let closed = *closed.get(&claim.seat).unwrap_or(&u64::MAX);
        claim.ended = gone.killed.map(|killed| killed.min(claim.deadline).min(closed));
        claim.by_kill = true;
    }
    claims
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
    }
}

fn opened(worker: &str, words: &[&str]) -> Claim {
    Claim {
        worker: worker.to_owned(),
        lock: words[2].to_owned(),
        owner: words[3].to_owned(),
        token: number(words[4]),
        called: number(words[5]),
        acquired: number(words[6]),
        confirmed: number(words[7]),
        last_confirmed: number(words[8]),
        deadline: number(words[9]),
        ended: None,
        lost_at: None,
        by_kill: false,
        given_back: None,
        seat: number(words[10]),
        part: number(words[11]),
        of: number(words[12]),
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("not a number in a record: {word}"))
}

/// How far the records have been counted.
#[derive(Debug, Default)]
pub struct Progress {
    read: HashMap<PathBuf, u64>,
    grants: usize,
}

impl Progress {
    /// Grants so far.
    pub fn grants(&mut self, records: &Path) -> usize {
        let Ok(entries) = fs::read_dir(records) else { return self.grants };
        for path in entries.flatten().map(|entry| entry.path()) {
            let from = self.read.entry(path.clone()).or_default();
            let mut news = String::new();
            let read = File::open(&path).and_then(|mut file| {
                file.seek(SeekFrom::Start(*from))?;
                file.read_to_string(&mut news)
            });
            *from += read.unwrap_or(0) as u64;
            self.grants += news.lines().filter(|line| line.starts_with("o\t")).count();
        }
        self.grants
    }
}
