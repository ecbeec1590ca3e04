//! The judgement: excludes, orders, excuses nothing that is not documented, and says what was reached.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::take;
use std::time::Duration;

use crate::common::clock;
use crate::crew::Gone;
use crate::history::{self, UNDECIDED, Witness};
pub use crate::judge::Break;
use crate::judge::history::History;
use crate::judge::history::Violation;
use crate::judge::rules::{self, UNSURE};
use crate::judge::{Claim, Epochs, Operation};
use crate::presence::{self, Absence};
use crate::prompt;
use crate::reading::{Records, Taken};
use crate::settings::{JAVA, NAMESPACE, Topology};
use crate::stage::{Log, Span};
use crate::vitals::{Table, Vitals};

/// How that begins which was written down after its time had been judged: the machine stood still, or a worker was slow to tell.
pub const TOO_LATE: &str = "written down too late to be judged";

/// How it begins if so many holds met a failover that nobody knows who held what.
const TOO_UNSURE: &str = "too many claims could be judged by later confirmations only";

/// A run of a minute, or of five in a cluster, on hosts or with sessions, must have taken each of these.
const PATHS: [&str; 33] = [
    "hand-off",
    "held together",
    "held in two namespaces at once",
    "several at once",
    "a majority",
    "family: in line",
    "family: book",
    "family: berths",
    "family: key",
    "family: gate",
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
const PROXY_PATHS: [&str; 8] = [
    "seen: enter the line",
    "seen: leave the line",
    "seen: renew",
    "seen: EVAL: the server had forgotten a script",
    "net: cut after acquire",
    "net: cut after release",
    "server: scripts flushed",
    "server: memory full",
];

/// And these where servers forget what they have granted.
const FORGETFUL_PATHS: [&str; 4] = [
    "lock lost: the server no longer has it",
    "lost because Redis had lost it",
    "server: force_unlock",
    "server: tried the keeper",
];

/// And these where clients have sessions.
const SESSION_PATHS: [&str; 9] = [
    "seen: acquire together",
    "server: connections killed",
    "server: restarted with its data",
    "messages forged by an eavesdropper",
    "net: away, subscribers",
    "net: away, commands",
    "worker stopped for longer than a grace",
    "valid again after it was suspended",
    "taken while it was suspended",
];

/// And these in the native layout.
const NATIVE_PATHS: [&str; 5] =
    ["latch: open", "latch: counted", "buffer: put", "buffer: taken", "buffer: notified"];

/// And these beside Redisson.
const REDISSON_PATHS: [&str; 12] = [
    "java: lock",
    "java: fair lock",
    "java: fenced lock",
    "java: read lock",
    "java: write lock",
    "java: permit",
    "behind Java in a line",
    "seen: acquire together",
    "server: DEL of a lock",
    "a hold outlived a restart",
    FROM_JAVA,
    TO_JAVA,
];

/// Somebody waited for a holder of the other language: both mean the same lock by a name.
const FROM_JAVA: &str = "handed from Java to Rust";
const TO_JAVA: &str = "handed from Rust to Java";

/// And these with a primary and its replica.
const PAIR_PATHS: [&str; 10] = [
    "seen: acquire together",
    "seen: two locks in one acquire",
    "command link: left a replica",
    "a hold outlived a restart",
    "a hold outlived a failover",
    "server: restarted without data",
    "server: replica promoted",
    "server: primary demoted under its clients",
    "server: FLUSHALL",
    "messages forged by an eavesdropper",
];

/// And these in a cluster.
const CLUSTER_PATHS: [&str; 21] = [
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
    "server: FLUSHALL",
    "messages forged by an eavesdropper",
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
        Topology::Pair => &[&NATIVE_PATHS, &PROXY_PATHS, &FORGETFUL_PATHS, &PAIR_PATHS],
        Topology::Cluster { replicas: 0 } => {
            &[&NATIVE_PATHS, &PROXY_PATHS, &FORGETFUL_PATHS, &CLUSTER_PATHS, &UNACKNOWLEDGED]
        }
        Topology::Cluster { .. } => {
            &[&NATIVE_PATHS, &PROXY_PATHS, &FORGETFUL_PATHS, &CLUSTER_PATHS, &ACKNOWLEDGED]
        }
        Topology::Redisson => &[&PROXY_PATHS, &FORGETFUL_PATHS, &REDISSON_PATHS],
        Topology::Sessions => &[&NATIVE_PATHS, &PROXY_PATHS, &SESSION_PATHS],
        // In a cluster, two primaries seldom meet.
        Topology::Hosts { is_cluster: false, replicas: 0 } => {
            &[&NATIVE_PATHS, &HOSTS_PATHS, &UNACKNOWLEDGED]
        }
        Topology::Hosts { .. } => &[&NATIVE_PATHS, &HOSTS_PATHS],
    };
    PATHS.iter().chain(more.iter().copied().flatten()).copied().collect()
}

/// How long, in nanoseconds, something explains what is judged later.
const MEMORY: u64 = 60_000_000_000;
/// How much longer, in nanoseconds, than it is felt a call of unknown outcome is kept for the next piece: the machine may stand still
/// there, and the call take effect later.
const STANDSTILL: u64 = 7_500_000_000;

/// Counters, moments worth knowing, and what was wrong without a look at the claims.
#[derive(Debug, Default)]
pub struct Tally {
    paths: BTreeMap<String, u64>,
    wrongs: Vec<String>,
    pub moments: Vec<(u64, String)>,
    /// When the machine was too busy to be prompt.
    pub late: Vec<(u64, u64)>,
    /// When the machine stood still, as the conductor has seen it.
    pub silences: Vec<(u64, u64)>,
    /// For each lock, when a call for several locks may have had it before it had all.
    pub parts: HashMap<String, Vec<(u64, u64)>>,
    /// The calls that were granted nothing, or may not have been.
    pub calls: Vec<Operation>,
    /// What was taken from clients with a session, and when they did not listen.
    pub taken: Vec<Taken>,
    pub absences: Vec<Absence>,
}

impl Tally {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&mut self, path: &str, times: u64) {
        *self.paths.entry(path.to_owned()).or_default() += times;
    }

    /// So far the most was this.
    pub fn most(&mut self, path: &str, number: u64) {
        let most = self.paths.entry(path.to_owned()).or_default();
        *most = number.max(*most);
    }

    pub fn wrong(&mut self, what: String) {
        self.wrongs.push(what);
    }

    /// How long, in nanoseconds, a call of unknown outcome may still take effect. It arrives later by as much as the machine
    /// stands still.
    fn felt(&self, topology: Topology) -> u64 {
        topology.felt() + self.silences.iter().map(|(from, to)| to - from).sum::<u64>()
    }

    pub fn may_hold_a_part(&mut self, names: &[String], from: u64, to: u64) {
        for name in names {
            self.parts.entry(name.clone()).or_default().push((from, to));
        }
    }

    pub fn moment(&mut self, what: String) {
        self.moments.push((clock::now(), what));
    }

    pub fn merge(&mut self, other: Self) {
        other.paths.iter().for_each(|(path, times)| self.add(path, *times));
        self.wrongs.extend(other.wrongs);
        self.moments.extend(other.moments);
        self.late.extend(other.late);
        self.silences.extend(other.silences);
        self.absences.extend(other.absences);
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// Nothing was wrong, and not everything was tried.
    Incomplete,
    Wrong,
}

/// What the court is told of a part of a run.
#[derive(Debug, Default)]
pub struct Piece {
    /// When this was told.
    pub at: u64,
    /// The workers that go on, and those that have come to their end.
    pub crew: Vec<String>,
    pub gone: Vec<Gone>,
    pub log: Log,
    /// Judge what was before that moment.
    pub until: Option<u64>,
    /// Say how the run goes.
    pub is_told: bool,
    /// The state of everything, to be printed.
    pub vitals: Option<Vitals>,
}

/// Judges a run piece by piece, and keeps of each piece what the next one needs.
pub struct Court {
    topology: Topology,
    started: u64,
    records: Records,
    log: Log,
    tally: Tally,
    witness: Option<Witness>,
    table: Option<Table>,
    kills: usize,
    /// Of what was judged before: what was not over by then, what came last and what has the greatest token.
    known: Vec<Claim>,
    /// Everything before was judged.
    from: u64,
    /// What was wrong, so far.
    found: BTreeSet<String>,
}

impl Court {
    pub fn new(
        (topology, started): (Topology, u64),
        records: Records,
        witness: Option<Witness>,
        table: Option<Table>,
    ) -> Self {
        let (log, tally, known, found) = Default::default();
        let (kills, from) = (0, 0);
        Self { topology, started, records, log, tally, witness, table, kills, known, from, found }
    }

    /// Hears what has happened since, and says how the run goes.
    pub fn sit(&mut self, piece: Piece) {
        let Piece { at, crew, gone, log, until, is_told, vitals } = piece;
        self.log.add(log);
        self.tally.merge(take(&mut self.log.tally));
        gone.iter().for_each(|gone| self.records.read_last(gone, &mut self.tally));
        crew.iter().for_each(|worker| self.records.read(worker, &mut self.tally));
        self.kills += gone.iter().filter(|gone| gone.killed.is_some()).count();
        if let Some(until) = until {
            self.judge(until);
        }
        let since = |moment| at.saturating_sub(moment) / 1_000_000_000;
        let seconds = since(self.started);
        let (grants, kills) = (self.records.grants, self.kills);
        let line = format!("{seconds:>4} s: {grants} grants, {kills} kills");
        match vitals {
            None if is_told => println!("{line}"),
            None => {}
            Some(mut vitals) => {
                vitals
                    .note("tasks of the keeper", self.records.tasks(&crew[self.topology.keeper()]));
                vitals.note("seconds not judged yet", Some(since(self.from)));
                let violations = self.found.len();
                println!("{line}, {violations} violations, {vitals}");
                let first = [seconds, grants as u64, kills as u64, violations as u64];
                self.table.iter_mut().for_each(|table| table.add(first, &vitals));
            }
        }
    }

    /// Judges all that was acquired before a moment, if all of it is over.
    fn judge(&mut self, until: u64) {
        let (fresh, cut) = self.records.take(until, &mut self.tally);
        // Who has waited for long has called before what is judged already.
        let cut = cut.max(self.from);
        // All that comes before it was taken for complete.
        let late = fresh.iter().filter(|claim| claim.acquired < self.from);
        for hold in late.map(|claim| claim.hold(0)) {
            self.tally.wrong(format!("{TOO_LATE}: a hold:\n  {hold}"));
        }
        let (topology, tally, records) = (self.topology, &mut self.tally, &self.records);
        let mut claims = take(&mut self.known);
        claims.extend(fresh.iter().cloned());
        self.log.breaks.sort_by_key(|one| one.from);
        let epochs = Epochs(self.log.breaks.clone());
        if let Some(witness) = &mut self.witness {
            let calls = tally.calls.iter().cloned().chain(records.under_way(cut));
            let told = history::of(&claims, calls.collect(), &epochs, self.from);
            witness.judge(told, tally.felt(topology), tally);
        }
        self.log.spans.iter().for_each(|span| outlived(span, &fresh, tally));
        tally.add("overlaps that a failover excuses", excused(&claims, &epochs));
        handed(&claims, self.from, tally);
        tally.add("held in two namespaces at once", rules::apart(&fresh, NAMESPACE));
        let restarts = &self.log.restarts;
        let mut found =
            rules::losses(&fresh, &epochs, restarts, &mut |path, times| tally.add(path, times));
        found.extend(rules::shares(&claims, &epochs));
        let mut history = History::default();
        epochs.holds(&claims).into_iter().for_each(|hold| history.hold(hold));
        found.extend(history.violations().iter().map(ToString::to_string));
        // A primary that does not know yet that it was replaced goes on for seconds on a host that is cut off. What it grants then has smaller
        // tokens than what its successor grants, which is what keeps its holders out.
        let may_be_late = |claim: &Claim| topology.has_hosts() && epochs.may_be_late(claim);
        let in_order = |claims: &[Claim]| -> Vec<Claim> {
            claims.iter().filter(|claim| !may_be_late(claim)).cloned().collect()
        };
        tally.add("judged: tokens", in_order(&fresh).len() as u64);
        found.extend(rules::tokens(&in_order(&claims)));
        found.extend(prompt::slow(&claims, self.started, self.from, topology, tally));
        let taken = take(&mut tally.taken);
        tally.add("taken while it was suspended", taken.len() as u64);
        found.extend(presence::wronged(&taken, &tally.absences));
        found.extend(take(&mut tally.wrongs));
        self.pronounce(found, &claims, &epochs);
        self.forget(claims, cut);
    }

    /// Prints what is wrong and was not known to be.
    fn pronounce(&mut self, found: Vec<String>, claims: &[Claim], epochs: &Epochs) {
        let mut shown = HashSet::new();
        for what in found {
            if !self.found.insert(what.clone()) {
                continue;
            }
            if self.found.len() <= 20 {
                println!("VIOLATION: {what}");
            }
            let kind = what.split(|c: char| c == ':' || c.is_ascii_digit()).next();
            if shown.insert(kind.unwrap_or_default().to_owned()) && self.found.len() <= 100 {
                around(&what, claims, epochs, &self.tally, self.started);
            }
        }
    }

    /// What was before that moment is judged.
    fn forget(&mut self, claims: Vec<Claim>, cut: u64) {
        let kept = self.topology.felt() + STANDSTILL;
        let keeps_on = |claim: &Claim| {
            let ended = claim.ended.max(claim.given_back);
            ended.is_none_or(|at| at.saturating_add(kept) >= cut)
        };
        let last = rules::last(&claims);
        let known = claims.into_iter().enumerate();
        let known = known.filter(|(at, claim)| keeps_on(claim) || last.contains(at));
        self.known = known.map(|(_, claim)| claim).collect();
        self.from = cut;
        let mut oldest: HashMap<&str, u64> = HashMap::new();
        for Claim { lock, called, .. } in &self.known {
            let at = oldest.entry(lock).or_insert(*called);
            *at = (*at).min(*called);
        }
        // A call, a fault or a pause may last until after what it explains.
        let since = |to: u64| to.saturating_add(MEMORY) >= cut;
        let Tally { moments, late, silences, parts, calls, absences, .. } = &mut self.tally;
        moments.retain(|(at, _)| since(*at));
        late.retain(|(_, to)| since(*to));
        silences.retain(|(_, to)| since(*to));
        absences.retain(|absence| since(absence.to));
        parts.values_mut().for_each(|times| times.retain(|(_, to)| since(*to)));
        let is_felt = |call: &Operation, felt| {
            call.returned.is_none_or(|at: u64| at.saturating_add(felt) >= cut)
        };
        // The witness wants all that befell a latch, from its beginning on: all of its calls go together.
        let latches = calls.iter().filter(|call| call.kind == "latch" && is_felt(call, MEMORY));
        let latches: HashSet<String> = latches.map(|call| call.name.clone()).collect();
        calls.retain(|call| is_felt(call, kept) || latches.contains(&call.name));
        // What two primaries granted is in no order: those claims are judged with what replaced the one by the other.
        let is_meant = |lock: &String| oldest.get(lock.as_str());
        let befell =
            |one: &Break| one.lock.as_ref().and_then(is_meant).is_some_and(|at| *at <= one.to);
        self.log.breaks.retain(|one| since(one.to) || befell(one));
        self.log.restarts.retain(|at| since(*at));
        self.log.spans.retain(|span| since(span.to));
    }

    /// Prints the counters, and says how the run ended.
    pub fn close(mut self, left: Vec<(String, String)>, length: Duration) -> Verdict {
        if let Some(witness) = self.witness.take() {
            witness.close(&mut self.tally);
        }
        // What befalls a cluster, a host, or a session takes seconds each time.
        let is_slow = self.topology.is_cluster() || self.topology.has_hosts();
        let is_slow = is_slow || self.topology == Topology::Sessions;
        let enough = if is_slow { 300 } else { 60 };
        let demanded = if length.as_secs() < enough { Vec::new() } else { demanded(self.topology) };
        let mut history = History::expecting(demanded);
        // One that is not demanded need not have been taken.
        let taken = self.tally.paths.iter().filter(|(_, times)| **times > 0);
        taken.for_each(|(path, times)| history.reached(path, *times));
        left.into_iter().for_each(|(kind, what)| history.left(&kind, [what]));
        for (path, times) in history.paths() {
            println!("{times:>9}  {path}");
        }
        let counted = |path: &str| history.paths().get(path).copied().unwrap_or(0);
        let (unsure, grants) = (counted(UNSURE), counted("grants"));
        // Behind a partition it is most of them: nobody can tell which of two primaries knew what.
        let is_limited = length.as_secs() >= enough && !self.topology.has_hosts();
        if is_limited && unsure > grants / 3 {
            self.tally.wrong(format!("{TOO_UNSURE}: {unsure} of {grants}"));
        }
        let mut found = take(&mut self.tally.wrongs);
        found.extend(history.violations().iter().map(ToString::to_string));
        self.pronounce(found, &[], &Epochs(Vec::new()));
        println!("{} violations", self.found.len());
        let missed = |what: &&String| {
            let unjudged = ["this run never reached", UNDECIDED, TOO_LATE, TOO_UNSURE];
            unjudged.iter().any(|begin| what.starts_with(begin))
        };
        match self.found.len() - self.found.iter().filter(missed).count() {
            0 if self.found.is_empty() => Verdict::Right,
            0 => Verdict::Incomplete,
            _ => Verdict::Wrong,
        }
    }
}

/// Counts the holds that Redis has confirmed before and afterwards.
fn outlived(span: &Span, claims: &[Claim], tally: &mut Tally) {
    let met = claims.iter().filter(|claim| span.locks.contains(&claim.lock));
    let outlived = met.filter(|claim| claim.acquired < span.from && span.to < claim.last_confirmed);
    tally.add(&format!("outlived: {}", span.what), outlived.count() as u64);
}

/// Counts how often somebody came in who had called while a holder of the other language was inside. Who came before `from` is counted.
fn handed(claims: &[Claim], from: u64, tally: &mut Tally) {
    let mut order: Vec<&Claim> = claims.iter().filter(|claim| claim.of == 1).collect();
    order.sort_by_key(|claim| (claim.lock.as_str(), claim.acquired));
    for pair in order.windows(2) {
        let [before, next] = [pair[0], pair[1]];
        let waited = before.lock == next.lock && before.ended.is_some_and(|at| next.called < at);
        let path = match [before, next].map(|claim| claim.owner.contains(JAVA)) {
            [true, false] => FROM_JAVA,
            [false, true] => TO_JAVA,
            _ => continue,
        };
        tally.add(path, u64::from(waited && next.acquired >= from));
    }
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
