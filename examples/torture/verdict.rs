//! The judgement: excludes, orders, excuses nothing that is not documented, and says what was reached.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::clock;
use crate::crew::Gone;
pub use crate::judge::Break;
use crate::judge::history::History;
use crate::judge::{Claim, Epochs, rules};
use crate::prompt;
use crate::reading;

/// A run of a minute must have taken each of these.
const PATHS: [&str; 59] = [
    "hand-off",
    "held together",
    "several at once",
    "a majority",
    "latch: open",
    "latch: counted",
    "buffer: put",
    "buffer: taken",
    "buffer: notified",
    "family: in line",
    "family: book",
    "family: berths",
    "family: key",
    "seen: enter the line",
    "seen: leave the line",
    "seen: renew in line",
    "seen: acquire together",
    "seen: two locks in one acquire",
    "seen: count",
    "seen: renew",
    "seen: EVAL: the server had forgotten a script",
    "net: cut after acquire",
    "net: cut after release",
    "command link: connected again",
    "subscriber link: connected again",
    "command link: left a replica",
    "lock lost: its lease ran out",
    "lock lost: the server has it no more",
    "lost because Redis had lost it",
    "a hold outlived a restart",
    "a hold outlived a failover",
    "taken after its holder was killed",
    "worker stopped for longer than its lease",
    "worker killed while it was stopped",
    "cancelled while it asked or waited",
    "asked again after a request was left alone",
    "left unpolled while it waited",
    "unlock cancelled",
    "task aborted",
    "nested",
    "a fixed lease ran out",
    "extended",
    "guard forgotten",
    "panic while holding",
    "run",
    "run: stopped by loss",
    "run: cancelled",
    "try_lock: busy",
    "try_lock_for: busy",
    "client closed at work",
    "waits judged in calm times",
    "server: scripts flushed",
    "server: memory full",
    "server: restarted without data",
    "server: replica promoted",
    "server: primary demoted under its clients",
    "server: FLUSHALL",
    "server: force_unlock",
    "server: tried the keeper",
];

/// Counters, moments worth knowing, and what was wrong without a look at the claims.
#[derive(Debug, Default)]
pub struct Tally {
    paths: BTreeMap<String, u64>,
    wrongs: Vec<String>,
    pub moments: Vec<(u64, String)>,
    /// When the machine was too busy to be prompt.
    pub late: Vec<(u64, u64)>,
}

impl Tally {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&mut self, path: &str, times: u64) {
        *self.paths.entry(path.to_owned()).or_default() += times;
    }

    pub fn wrong(&mut self, what: String) {
        self.wrongs.push(what);
    }

    pub fn moment(&mut self, what: String) {
        self.moments.push((clock::now(), what));
    }

    pub fn merge(&mut self, other: &Self) {
        other.paths.iter().for_each(|(path, times)| self.add(path, *times));
        self.wrongs.extend(other.wrongs.iter().cloned());
        self.moments.extend(other.moments.iter().cloned());
        self.late.extend(&other.late);
    }
}

/// All that a run has left to be judged.
pub struct Evidence {
    pub records: PathBuf,
    pub gone: Vec<Gone>,
    pub breaks: Vec<Break>,
    /// When the server was restarted and kept what it had.
    pub restarts: Vec<u64>,
    pub tally: Tally,
    pub left: Vec<(String, String)>,
    pub started: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// Nothing was wrong, and not everything was tried.
    Incomplete,
    Wrong,
}

/// Prints the counters and what was wrong.
pub fn pronounce(evidence: Evidence, length: Duration) -> Verdict {
    let Evidence { records, gone, breaks, restarts, mut tally, left, started } = evidence;
    let read = gone.iter().flat_map(|gone| reading::claims(&records, gone, &mut tally));
    let claims: Vec<Claim> = read.collect();
    let epochs = Epochs(breaks);
    let mut history = History::expecting(
        if length.as_secs() < 60 { &[][..] } else { &PATHS[..] }.iter().copied(),
    );
    let mut found =
        rules::losses(&claims, &epochs, &restarts, &mut |path, times| tally.add(path, times));
    found.extend(rules::shares(&claims, &epochs));
    epochs.holds(&claims).into_iter().for_each(|hold| history.hold(hold));
    found.extend(rules::tokens(&claims));
    found.extend(prompt::slow(&claims, started, &mut tally));
    found.extend(tally.wrongs.iter().cloned());
    // One that is not demanded need not have been taken.
    let taken = tally.paths.iter().filter(|(_, times)| **times > 0);
    taken.for_each(|(path, times)| history.reached(path, *times));
    left.into_iter().for_each(|(kind, what)| history.left(&kind, [what]));
    found.extend(history.violations().iter().map(ToString::to_string));

    for (path, times) in history.paths() {
        println!("{times:>9}  {path}");
    }
    found.iter().take(20).for_each(|what| println!("VIOLATION: {what}"));
    if let Some(what) = found.first() {
        around(what, &claims, &epochs, &tally, started);
    }
    println!("{} violations", found.len());
    let missed = found.iter().filter(|what| what.starts_with("this run never reached")).count();
    match found.len() - missed {
        0 if missed == 0 => Verdict::Right,
        0 => Verdict::Incomplete,
        _ => Verdict::Wrong,
    }
}

/// What happened around the first violation.
fn around(what: &str, claims: &[Claim], epochs: &Epochs, tally: &Tally, started: u64) {
    let mut words = what.lines().skip(1).filter_map(|line| line.trim().split_once('\t'));
    let Some((lock, rest)) = words.next() else { return };
    let lock = lock.split('@').next().unwrap_or(lock);
    let Some(at) = rest.split('\t').nth(2).and_then(|word| word.parse::<u64>().ok()) else {
        return;
    };
    let near = |moment: u64| moment.abs_diff(at) < 1_500_000_000;
    let millis = |moment: u64| (moment as i128 - i128::from(started)) as f64 / 1e6;
    let mut lines = Vec::new();
    for claim in claims.iter().filter(|claim| claim.lock == lock && near(claim.acquired)) {
        let Claim {
            worker, owner, token, called, confirmed, last_confirmed, deadline, ended, ..
        } = claim;
        let how = format!(
            "{:?} kill={} lost={:?}",
            ended.map(millis),
            claim.by_kill,
            claim.lost_at.map(millis)
        );
        lines.push((claim.acquired, format!(
            "{worker} {owner} token {}+{} called {:.3} confirmed {:.3}..{:.3} deadline {:.3} ended {how}",
            token / 1024, token % 1024, millis(*called), millis(*confirmed), millis(*last_confirmed), millis(*deadline)
        )));
    }
    for one in epochs.0.iter().filter(|one| near(one.from)) {
        lines.push((one.from, format!("BREAK {one:?}")));
    }
    lines.extend(tally.moments.iter().filter(|(moment, _)| near(*moment)).cloned());
    lines.sort();
    println!("around the first one, on {lock}, in ms since the start:");
    lines.iter().for_each(|(moment, line)| println!("{:>12.3}  {line}", millis(*moment)));
}
