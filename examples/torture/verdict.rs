//! The judgement: excludes, orders, excuses nothing that is not documented, and says what was reached.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::common::clock;
use crate::crew::Gone;
use crate::history;
pub use crate::judge::Break;
use crate::judge::history::History;
use crate::judge::history::Violation;
use crate::judge::{Claim, Epochs, Operation, rules};
use crate::prompt;
use crate::reading;
use crate::settings::{NAMESPACE, Topology};
use crate::stage::{Log, Span};

/// A run of a minute, or of five in a cluster or on hosts, must have taken each of these.
const PATHS: [&str; 37] = [
    "hand-off",
    "held together",
    "held in two namespaces at once",
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
    "command link: connected again",
    "subscriber link: connected again",
    "lock lost: its lease ran out",
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
];

/// And these where proxies stand before the servers.
const PROXY_PATHS: [&str; 16] = [
    "seen: enter the line",
    "seen: leave the line",
    "seen: renew in line",
    "seen: count",
    "seen: renew",
    "seen: EVAL: the server had forgotten a script",
    "net: cut after acquire",
    "net: cut after release",
    "lock lost: the server no longer has it",
    "lost because Redis had lost it",
    "server: scripts flushed",
    "server: memory full",
    "server: FLUSHALL",
    "server: force_unlock",
    "server: tried the keeper",
    "messages forged by an eavesdropper",
];

/// And these with a primary and its replica.
const PAIR_PATHS: [&str; 8] = [
    "seen: acquire together",
    "seen: two locks in one acquire",
    "command link: left a replica",
    "a hold outlived a restart",
    "a hold outlived a failover",
    "server: restarted without data",
    "server: replica promoted",
    "server: primary demoted under its clients",
];

/// And these in a cluster.
const CLUSTER_PATHS: [&str; 19] = [
    "cluster: a slot moved",
    "cluster: a slot was left open",
    "cluster: a slot was left open for longer than a lease",
    "cluster: moved a counter of tokens",
    "cluster: moved a lock that was held",
    "cluster: moved a line with waiters",
    "cluster: moved the notes of a line",
    "cluster: a polite failover",
    "cluster: a failover by force",
    "cluster: a takeover",
    "cluster: a killed primary that the cluster replaced by itself",
    "cluster: a zombie primary",
    "outlived: a slot that moved",
    "outlived: a slot that stood open",
    "outlived: a polite failover",
    "refused: MOVED",
    "refused: ASK",
    "refused: TRYAGAIN",
    "seen: ASKING",
];

/// And these where servers and workers have hosts.
const HOSTS_PATHS: [&str; 13] = [
    "clock: its date is wrong",
    "clock: it is slow",
    "net: a worker cut off, from a server, both ways",
    "net: a worker cut off, from all servers, both ways",
    "net: a worker cut off, from all servers, out only",
    "net: a worker cut off, from all servers, in only",
    "net: a worker behind a lossy wire, from all servers, both ways",
    "net: a worker unplugged",
    "server: host to be parted from others",
    "server: wire to be made slow",
    "server: host to be stopped",
    "server: host to be killed",
    "a primary was replaced",
];

/// Without acknowledgements the judge has to see what it excuses, and with them that replicas were waited for.
const UNACKNOWLEDGED: [&str; 1] = ["overlaps that a failover excuses"];
const ACKNOWLEDGED: [&str; 3] =
    ["seen: WAIT", "outlived: a failover by force", "outlived: a takeover"];

fn demanded(topology: Topology) -> Vec<&'static str> {
    let more: &[&[&str]] = match topology {
        Topology::Pair => &[&PROXY_PATHS, &PAIR_PATHS],
        Topology::Cluster { replicas: 0 } => &[&PROXY_PATHS, &CLUSTER_PATHS, &UNACKNOWLEDGED],
        Topology::Cluster { .. } => &[&PROXY_PATHS, &CLUSTER_PATHS, &ACKNOWLEDGED],
        // In a cluster, two primaries seldom meet.
        Topology::Hosts { is_cluster: false, replicas: 0 } => &[&HOSTS_PATHS, &UNACKNOWLEDGED],
        Topology::Hosts { .. } => &[&HOSTS_PATHS],
    };
    PATHS.iter().chain(more.iter().copied().flatten()).copied().collect()
}

/// Counters, moments worth knowing, and what was wrong without a look at the claims.
#[derive(Debug, Default)]
pub struct Tally {
    paths: BTreeMap<String, u64>,
    wrongs: Vec<String>,
    pub moments: Vec<(u64, String)>,
    /// When the machine was too busy to be prompt.
    pub late: Vec<(u64, u64)>,
    /// For each lock, when a call for several locks may have had it before it had all.
    pub parts: HashMap<String, Vec<(u64, u64)>>,
    /// The calls that were granted nothing, or may not have been.
    pub calls: Vec<Operation>,
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

    pub fn may_hold_a_part(&mut self, names: &[&str], from: u64, to: u64) {
        for name in names {
            self.parts.entry((*name).to_owned()).or_default().push((from, to));
        }
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
    pub log: Log,
    pub tally: Tally,
    pub left: Vec<(String, String)>,
    pub started: u64,
    /// Where to write it for another checker.
    pub history: Option<PathBuf>,
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
pub fn pronounce(evidence: Evidence, topology: Topology, length: Duration) -> Verdict {
    let Evidence { records, gone, log, mut tally, left, started, history: witnessed } = evidence;
    let Log { breaks, restarts, spans, .. } = log;
    let read = gone.iter().flat_map(|gone| reading::claims(&records, gone, &mut tally));
    let claims: Vec<Claim> = read.collect();
    let epochs = Epochs(breaks);
    // What befalls a cluster, or a host, takes seconds each time.
    let enough = if topology == Topology::Pair { 60 } else { 300 };
    let demanded = if length.as_secs() < enough { Vec::new() } else { demanded(topology) };
    if let Some(path) = &witnessed {
        history::write(path, &claims, &tally.calls, &epochs);
    }
    let mut history = History::expecting(demanded);
    spans.iter().for_each(|span| outlived(span, &claims, &mut tally));
    tally.add("overlaps that a failover excuses", excused(&claims, &epochs));
    tally.add("held in two namespaces at once", rules::apart(&claims, NAMESPACE));
    let mut found =
        rules::losses(&claims, &epochs, &restarts, &mut |path, times| tally.add(path, times));
    found.extend(rules::shares(&claims, &epochs));
    epochs.holds(&claims).into_iter().for_each(|hold| history.hold(hold));
    // A primary that does not know yet that it was replaced goes on for seconds on a host that is cut off. What it grants then has smaller
    // tokens than what its successor grants, which is what keeps its holders out.
    let may_be_late = |claim: &Claim| topology.has_hosts() && epochs.may_be_late(claim);
    let in_order: Vec<_> = claims.iter().filter(|claim| !may_be_late(claim)).cloned().collect();
    tally.add("judged: tokens", in_order.len() as u64);
    found.extend(rules::tokens(&in_order));
    found.extend(prompt::slow(&claims, started, topology, &mut tally));
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
    let mut shown = HashSet::new();
    for what in &found {
        let kind = what.split(|c: char| c == ':' || c.is_ascii_digit()).next();
        if shown.insert(kind) {
            around(what, &claims, &epochs, &tally, started);
        }
    }
    println!("{} violations", found.len());
    let missed = found.iter().filter(|what| what.starts_with("this run never reached")).count();
    match found.len() - missed {
        0 if missed == 0 => Verdict::Right,
        0 => Verdict::Incomplete,
        _ => Verdict::Wrong,
    }
}

/// Counts the holds that Redis has confirmed before and afterwards.
fn outlived(span: &Span, claims: &[Claim], tally: &mut Tally) {
    let met = claims.iter().filter(|claim| span.locks.contains(&claim.lock));
    let outlived = met.filter(|claim| claim.acquired < span.from && span.to < claim.last_confirmed);
    tally.add(&format!("outlived: {}", span.what), outlived.count() as u64);
}

/// How often two claims overlapped because a server that took over knew less than the one before it.
fn excused(claims: &[Claim], epochs: &Epochs) -> u64 {
    let overlaps = |epochs: &Epochs| {
        let mut history = History::default();
        epochs.holds(claims).into_iter().for_each(|hold| history.hold(hold));
        let found = history.violations();
        found.iter().filter(|one| matches!(one, Violation::Overlap(..))).count() as u64
    };
    let others = epochs.0.iter().filter(|one| !one.is_failover()).cloned().collect();
    overlaps(&Epochs(others)).saturating_sub(overlaps(epochs))
}

/// What happened around a violation.
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
    for (from, to) in tally.late.iter().filter(|(from, _)| near(*from)) {
        lines.push((*from, format!("busy until {:.3}", millis(*to))));
    }
    lines.sort();
    let what = what.lines().next().unwrap_or_default();
    println!("around {what:?}, on {lock}, in ms since the start:");
    lines.iter().for_each(|(moment, line)| println!("{:>12.3}  {line}", millis(*moment)));
}
