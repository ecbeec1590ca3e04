//! What one seed tells the campaign that started it: lines of words between tabs.

use std::collections::BTreeMap;

use crate::board::{self, Wrong};
use crate::trace;
use crate::world::World;

pub fn print(lived: u64, world: &World, wrongs: &[Wrong]) {
    let (hash, events) = trace::sum();
    println!("hash\t{hash:016x}\t{events}");
    println!("lived\t{lived}");
    println!("faults\t{}", world.plan.faults.len());
    println!("length\t{}", world.plan.length);
    println!(
        "size\t{}\t{}\t{}",
        world.plan.clients.len(),
        world.plan.callers,
        world.plan.names_within(None).len()
    );
    board::with(|board| {
        board.paths.iter().for_each(|(path, times)| println!("count\t{path}\t{times}"))
    });
    for Wrong { rule, what, at } in wrongs {
        println!("wrong\t{rule}\t{at}\t{}", what.replace('\n', "\\n").replace('\t', " "));
    }
    println!("end");
}

/// What a seed has said.
#[derive(Debug, Default, Clone)]
pub struct Report {
    pub hash: String,
    pub lived: u64,
    pub faults: usize,
    pub length: u64,
    pub size: (usize, usize, usize),
    pub counts: BTreeMap<String, u64>,
    pub wrongs: Vec<Broken>,
    pub log: Vec<String>,
    pub ended: bool,
}

/// A rule that a seed has broken.
#[derive(Debug, Clone)]
pub struct Broken {
    pub rule: String,
    pub what: String,
    pub at: u64,
}

impl Report {
    pub fn read(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, '\t').collect();
            match words[..] {
                ["hash", hash, events] => report.hash = format!("{hash} of {events} events"),
                ["lived", lived] => report.lived = lived.parse().unwrap_or(0),
                ["faults", faults] => report.faults = faults.parse().unwrap_or(0),
                ["length", length] => report.length = length.parse().unwrap_or(0),
                ["size", clients, callers, names] => {
                    let number = |word: &str| word.parse().unwrap_or(0);
                    report.size = (number(clients), number(callers), number(names));
                }
                ["count", path, times] => {
                    report.counts.insert(path.to_owned(), times.parse().unwrap_or(0));
                }
                ["wrong", rule, at, what] => report.wrongs.push(Broken {
                    rule: rule.to_owned(),
                    what: what.replace("\\n", "\n"),
                    at: at.parse().unwrap_or(0),
                }),
                ["end"] => report.ended = true,
                _ => report.log.extend(line.strip_prefix("log\t").map(str::to_owned)),
            }
        }
        report
    }
}
