//! Many seeds, each in a process of its own, on all cores; and what they came to.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::SECOND;
use crate::diary::Diary;
use crate::options::Options;
use crate::report::Report;
use crate::shrink;

/// So many seeds apart, one is lived through twice.
const TWICE: u64 = 50;

/// A campaign of so many seeds must have held each of these rules against something.
const SOME: u64 = 60;
const JUDGED: &[&str] = &[
    "judged: calls",
    "judged: close",
    "judged: extend",
    "judged: hand-overs",
    "judged: holders",
    "judged: holds",
    "judged: keys",
    "judged: latches",
    "judged: limits",
    "judged: None",
    "judged: order",
    "judged: shares",
    "judged: tokens",
    "judged: unlock",
    "judged: waits",
    "judged: waits beside holders",
];

/// A campaign of so many seeds must have taken each of these paths too.
const FULL: u64 = 200;
const PATHS: &[&str] = &[
    "grants",
    "hand-off",
    "held together",
    "held in two namespaces at once",
    "several at once",
    "nested",
    "downgraded",
    "run",
    "run: cancelled",
    "run: stopped by loss",
    "cancelled between polls",
    "cancelled in time",
    "left unpolled",
    "task aborted",
    "unlock cancelled",
    "guard forgotten",
    "extended",
    "try: busy",
    "limit: busy",
    "client closed at work",
    "latch: open",
    "latch: counted",
    "force_unlock",
    "stopped by lost()",
    "lost because Redis had lost it",
    "a watched lease ran out",
    "taken after its holder was killed",
];

/// A call that failed although its client had not asked for the name for so long is found in one of some hundred seeds.
const MANY: u64 = 5_000;
const RARE: &[&str] = &["judged: Unavailable"];

/// What a campaign exits with that has broken no rule, and has missed a path.
const INCOMPLETE: u8 = 3;

/// The rule that every seed stands for one history.
pub const TWO_HISTORIES: &str = "one seed, two histories";

/// Lives through one seed in a process of its own.
pub fn live(seed: u64, words: &[String], traced: bool) -> Report {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut command = Command::new(program);
    command.args(["--one", &seed.to_string()]).args(words);
    if traced {
        command.arg("--trace");
    }
    let output = command.output().expect("a program can be started twice");
    let mut report = Report::read(&String::from_utf8_lossy(&output.stdout));
    if !report.ended {
        let words = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = words.lines().rev().take(12).collect();
        let what = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        report.wrongs.push(crate::report::Broken { rule: "a panic".to_owned(), what, at: 0 });
    }
    report
}

#[derive(Default)]
struct Sum {
    seeds: u64,
    lived: u64,
    counts: BTreeMap<String, u64>,
    /// By rule: how many seeds broke it, and the first of them.
    wrongs: BTreeMap<String, (u64, u64, String)>,
}

impl Sum {
    fn add(&mut self, seed: u64, report: &Report) {
        self.seeds += 1;
        self.lived += report.lived;
        for (path, times) in &report.counts {
            *self.counts.entry(path.clone()).or_default() += times;
        }
        let mut rules: Vec<&str> = Vec::new();
        for wrong in &report.wrongs {
            if rules.contains(&wrong.rule.as_str()) {
                continue;
            }
            rules.push(&wrong.rule);
            let first = || (0, seed, wrong.what.clone());
            self.wrongs.entry(wrong.rule.clone()).or_insert_with(first).0 += 1;
        }
    }

    /// The paths that so many seeds must have taken, and have not.
    fn missed(&self) -> Vec<&'static str> {
        let due = [(SOME, JUDGED), (FULL, PATHS), (MANY, RARE)];
        let due = due.into_iter().filter(|(seeds, _)| self.seeds >= *seeds);
        let all = due.flat_map(|(_, paths)| paths).copied();
        all.filter(|path| self.counts.get(*path).is_none_or(|times| *times == 0)).collect()
    }
}

/// Runs seeds until there are enough, or the time is over.
pub fn run(from: Option<u64>, seeds: Option<u64>, minutes: f64, options: &Options) -> ExitCode {
    let from = from.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let diary = options.campaign.as_deref().map(|folder| Diary::open(folder, from)).transpose();
    let diary = diary.expect("the diary of the campaign can be read and written");
    let from = diary.as_ref().map_or(from, Diary::next);
    let diary = Mutex::new(diary);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!("seeds from {from}, on {cores} cores");
    let (started, next, sum) = (Instant::now(), AtomicU64::new(0), Mutex::new(Sum::default()));
    let enough = |at: u64| match seeds {
        Some(seeds) => at >= seeds,
        None => started.elapsed() > Duration::from_secs_f64(minutes * 60.0),
    };
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if enough(at) || options.first && is_broken(&sum) {
                        return;
                    }
                    let is_broken = one(from + at, at % TWICE == 0, options, &sum);
                    if let Some(diary) = &mut *diary.lock().expect("no thread panics with it") {
                        diary.played(from + at, is_broken).expect("the diary can be written");
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().expect("no thread panics with it");
    if let Some(diary) = diary.into_inner().expect("no thread panics with it") {
        let (seeds, broken) = diary.close().expect("the diary can be written");
        println!("\nthe campaign so far: {seeds} seeds, {broken} of them broke a rule");
    }
    conclude(&sum, from, started.elapsed() * u32::try_from(cores).unwrap_or(1), options)
}

fn is_broken(sum: &Mutex<Sum>) -> bool {
    !sum.lock().expect("no thread panics with it").wrongs.is_empty()
}

/// Returns whether the seed broke a rule.
fn one(seed: u64, twice: bool, options: &Options, sum: &Mutex<Sum>) -> bool {
    let mut report = live(seed, &options.words, false);
    if twice {
        let again = live(seed, &options.words, false);
        report.counts.insert("seeds lived through twice".to_owned(), 1);
        if again.hash != report.hash {
            let what = format!("{} and {}", report.hash, again.hash);
            let rule = TWO_HISTORIES.to_owned();
            report.wrongs.push(crate::report::Broken { rule, what, at: 0 });
        }
    }
    let mut sum = sum.lock().expect("no thread panics with it");
    let mut rules: Vec<&str> = Vec::new();
    for wrong in &report.wrongs {
        let is_new = !sum.wrongs.contains_key(&wrong.rule) || options.every;
        if is_new && !rules.contains(&wrong.rule.as_str()) {
            rules.push(&wrong.rule);
            let at = wrong.at as f64 / 1e9;
            println!("seed {seed}: {} (at {at:.3} s): {}", wrong.rule, wrong.what);
        }
    }
    sum.add(seed, &report);
    !report.wrongs.is_empty()
}

fn conclude(sum: &Sum, from: u64, core: Duration, options: &Options) -> ExitCode {
    println!("\n{:>10}  what was taken, and what went wrong on purpose", "times");
    sum.counts.iter().for_each(|(path, times)| println!("{times:>10}  {path}"));
    let lived = sum.lived as f64 / SECOND as f64 / 60.0;
    let speed = lived / (core.as_secs_f64() / 60.0);
    println!(
        "\n{} seeds from {from}: {lived:.0} virtual minutes, {speed:.0} per minute of one core, {} grants",
        sum.seeds,
        sum.counts.get("grants").copied().unwrap_or(0)
    );
    let missed = if options.words.is_empty() { sum.missed() } else { Vec::new() };
    if !missed.is_empty() {
        println!("so many seeds must have taken these paths, and have not: {missed:?}");
    }
    for (rule, (seeds, first, what)) in &sum.wrongs {
        println!(
            "VIOLATION in {seeds} seeds: {rule}\n  ./scripts/simulate --seed {first}\n  {what}"
        );
    }
    println!("{} rules violated", sum.wrongs.len());
    if let (true, Some((rule, (_, first, _)))) = (options.shrinks, sum.wrongs.iter().next()) {
        shrink::shrink(*first, rule, options);
    }
    match (sum.wrongs.is_empty(), missed.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(INCOMPLETE),
        (false, _) => ExitCode::FAILURE,
    }
}

/// Lives through one seed again, and if it breaks a rule, looks for the shortest history that does.
pub fn replay(seed: u64, traced: bool, options: &Options) -> ExitCode {
    let report = live(seed, &options.words, traced);
    report.log.iter().for_each(|line| println!("{line}"));
    report.counts.iter().for_each(|(path, times)| println!("{times:>10}  {path}"));
    let (clients, callers, names) = report.size;
    println!(
        "seed {seed}: {clients} clients of {callers} callers, {names} names, {} faults, {:.1} s; history {}",
        report.faults,
        report.lived as f64 / SECOND as f64,
        report.hash
    );
    for wrong in report.wrongs.iter().take(20) {
        println!("VIOLATION at {:.3}: {}: {}", wrong.at as f64 / 1e9, wrong.rule, wrong.what);
    }
    let Some(first) = report.wrongs.first() else { return ExitCode::SUCCESS };
    if options.shrinks && !traced {
        shrink::shrink(seed, &first.rule, options);
    }
    ExitCode::FAILURE
}

/// How fast it is: 4 clients of 8 callers, on one name and on eight, without faults.
pub fn speed() -> ExitCode {
    for names in ["1", "8"] {
        let words =
            ["--bare", "--clients", "4", "--callers", "8", "--names", names, "--length", "60"];
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let started = Instant::now();
        let report = live(1, &words, false);
        let length = report.length as f64 / SECOND as f64;
        println!(
            "{names} names: {:.1} virtual minutes a minute of one core ({} grants in {length} s)",
            length / started.elapsed().as_secs_f64(),
            report.counts.get("grants").copied().unwrap_or(0)
        );
    }
    ExitCode::SUCCESS
}
