//! What a campaign of many days has played so far, so that it goes on where it stopped.
//!
//! The file has a line for each piece: its first seed, how many seeds, how many of them broke a rule, and the version of the
//! code. A run that is killed loses at most one piece, which is played again.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A line has at least so many seeds, except for the last one of a run.
const PIECE: u64 = 50;

pub struct Diary {
    file: File,
    version: String,
    /// All before this run: seeds, and seeds that broke a rule.
    before: (u64, u64),
    /// The first seed that no line has yet.
    begin: u64,
    /// All seeds before this one have been played.
    next: u64,
    /// Those that have been played out of turn.
    ahead: BTreeSet<u64>,
    broken: BTreeSet<u64>,
}

impl Diary {
    /// Opens the diary of this campaign. `from`: the first seed of a new one.
    pub fn open(folder: &Path, from: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join("seeds.tsv");
        let text = if path.exists() { fs::read_to_string(&path)? } else { String::new() };
        let pieces = text.lines().map(piece).collect::<io::Result<Vec<_>>>()?;
        let before =
            pieces.iter().fold((0, 0), |sum, (_, seeds, broken)| (sum.0 + seeds, sum.1 + broken));
        let next = pieces.last().map_or(from, |(first, seeds, _)| first + seeds);
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let version = std::env::var("SIMULATED_VERSION").unwrap_or_else(|_| "unknown".to_owned());
        let (ahead, broken) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { file, version, before, begin: next, next, ahead, broken })
    }

    /// The first seed of this run.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// This seed has been played.
    pub fn played(&mut self, seed: u64, is_broken: bool) -> io::Result<()> {
        self.ahead.insert(seed);
        if is_broken {
            self.broken.insert(seed);
        }
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
        if self.next - self.begin >= PIECE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        let seeds = self.next - self.begin;
        let later = self.broken.split_off(&self.next);
        let broken = std::mem::replace(&mut self.broken, later).len() as u64;
        writeln!(self.file, "{}\t{seeds}\t{broken}\t{}", self.begin, self.version)?;
        self.before = (self.before.0 + seeds, self.before.1 + broken);
        self.begin = self.next;
        Ok(())
    }

    /// Writes what is left. Returns the seeds of the whole campaign, and how many of them broke a rule.
    pub fn close(mut self) -> io::Result<(u64, u64)> {
        if self.next > self.begin {
            self.write()?;
        }
        Ok(self.before)
    }
}

/// The first seed, the number of seeds, and how many broke a rule.
fn piece(line: &str) -> io::Result<(u64, u64, u64)> {
    let mut words = line.split('\t').map(str::parse);
    match (words.next(), words.next(), words.next()) {
        (Some(Ok(first)), Some(Ok(seeds)), Some(Ok(broken))) => Ok((first, seeds, broken)),
        _ => Err(io::Error::other(format!("a line of seeds.tsv is not a piece: {line}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_goes_on_where_it_stopped() {
        let folder = std::env::temp_dir().join(format!("parklock-diary-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut diary = Diary::open(&folder, 1000).unwrap();
        // The seeds 1002 and later were not finished when the run was killed, or came out of turn.
        for seed in [1001, 1000, 1003] {
            diary.played(seed, seed != 1001).unwrap();
        }
        assert_eq!(diary.close().unwrap(), (2, 1));
        let mut diary = Diary::open(&folder, 7).unwrap();
        assert_eq!(diary.next(), 1002);
        for seed in 1002..1002 + PIECE {
            diary.played(seed, false).unwrap();
        }
        drop(diary); // killed
        let diary = Diary::open(&folder, 7).unwrap();
        assert_eq!((diary.next(), diary.close().unwrap()), (1002 + PIECE, (2 + PIECE, 1)));
        fs::write(folder.join("seeds.tsv"), "1\tx").unwrap();
        assert!(Diary::open(&folder, 7).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
