//! The shortest history that still breaks the same rule: less time, then fewer faults, clients, callers and names.

use std::time::{Duration, Instant};

use crate::campaign::{TWO_HISTORIES, live};
use crate::clock::SECOND;
use crate::options::Options;
use crate::report::Report;

/// How many lines of the log are shown at the end.
const SHOWN: usize = 80;

/// How long a shorter history is looked for.
const PATIENCE: Duration = Duration::from_secs(50);

struct Case<'a> {
    seed: u64,
    rule: &'a str,
    /// The options that were given by hand.
    words: &'a [String],
    faults: Vec<usize>,
    size: (usize, usize, usize),
    length: u64,
    /// When it breaks the rule.
    broken_at: u64,
    begun: Instant,
    tried: u32,
}

impl Case<'_> {
    fn words(&self) -> Vec<String> {
        let faults: Vec<String> = self.faults.iter().map(usize::to_string).collect();
        let (clients, callers, names) = self.size;
        let numbers = [
            ("--clients", clients.to_string()),
            ("--callers", callers.to_string()),
            ("--names", names.to_string()),
            ("--length", self.length.to_string()),
            ("--faults", if faults.is_empty() { "none".to_owned() } else { faults.join(",") }),
        ];
        let numbers = numbers.into_iter().flat_map(|(word, number)| [word.to_owned(), number]);
        self.words.iter().cloned().chain(numbers).collect()
    }

    /// Keeps a change if the rule is still broken.
    fn tries(&mut self, change: impl FnOnce(&mut Self)) -> bool {
        if self.begun.elapsed() > PATIENCE {
            return false;
        }
        let before = (self.faults.clone(), self.size, self.length);
        change(self);
        if before == (self.faults.clone(), self.size, self.length) {
            return false;
        }
        self.tried += 1;
        let broken_at = broken_at(self.seed, self.rule, &self.words());
        match broken_at {
            Some(at) => self.broken_at = at,
            None => (self.faults, self.size, self.length) = before,
        }
        broken_at.is_some()
    }

    /// A run that ends shortly after the violation does the same until then.
    fn cut_time(&mut self) {
        let just = self.broken_at / SECOND + 1;
        if just >= self.length || !self.tries(|case| case.length = just) {
            while self.length > 2 && self.tries(|case| case.length -= case.length.div_ceil(4)) {}
        }
    }

    fn cut_faults(&mut self) {
        let mut part = self.faults.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < self.faults.len() {
                let end = (at + part).min(self.faults.len());
                if !self.tries(|case| drop(case.faults.drain(at..end))) {
                    at = end;
                }
            }
            part /= 2;
        }
    }

    fn cut_size(&mut self) {
        let (clients, callers, names) = self.size;
        let fewer = |many: usize| [1, many / 2, many - 1].into_iter().filter(|fewer| *fewer > 0);
        let _ = fewer(clients).any(|fewer| self.tries(|case| case.size.0 = fewer));
        let _ = fewer(callers).any(|fewer| self.tries(|case| case.size.1 = fewer));
        let _ = fewer(names).any(|fewer| self.tries(|case| case.size.2 = fewer));
    }

    /// Until nothing more can be left out.
    fn cut(&mut self) {
        loop {
            let before = (self.faults.len(), self.size, self.length);
            self.cut_time();
            self.cut_faults();
            self.cut_size();
            if before == (self.faults.len(), self.size, self.length) {
                return;
            }
        }
    }
}

/// When a rule is broken, if it is.
fn broken_at(seed: u64, rule: &str, words: &[String]) -> Option<u64> {
    let report = live(seed, words, false);
    if rule == TWO_HISTORIES {
        return (live(seed, words, false).hash != report.hash).then_some(report.length);
    }
    report.wrongs.iter().find(|wrong| wrong.rule == rule).map(|wrong| wrong.at)
}

/// Cuts a failure down, and prints what is left of it with the end of its log.
pub fn shrink(seed: u64, rule: &str, options: &Options) {
    let (begun, whole) = (Instant::now(), live(seed, &options.words, false));
    let Some(broken_at) = broken_at(seed, rule, &options.words) else {
        println!("seed {seed} does not break the rule again: {rule}");
        return;
    };
    let given = options.set.faults.clone();
    let faults = given.unwrap_or_else(|| (0..whole.faults).collect());
    let length = whole.length / SECOND;
    // A later option overrides an earlier one.
    let (size, tried) = (whole.size, 1);
    let words = &options.words;
    let mut case = Case { seed, rule, words, faults, size, length, broken_at, begun, tried };
    case.cut();
    let (words, tried, seconds) = (case.words(), case.tried, begun.elapsed().as_secs());
    println!("\nthe shortest history found for: {rule} ({tried} tries in {seconds} s)");
    println!("  ./scripts/simulate --seed {seed} {} --trace", words.join(" "));
    show(&live(seed, &words, true), rule);
}

/// The lines up to the violation.
fn show(report: &Report, rule: &str) {
    let Some(wrong) = report.wrongs.iter().find(|wrong| wrong.rule == rule) else { return };
    let time = |line: &&String| {
        let at = line.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        at.is_none_or(|at| at <= wrong.at as f64 / 1e9 + 0.005)
    };
    let lines: Vec<&String> = report.log.iter().filter(time).collect();
    lines.iter().skip(lines.len().saturating_sub(SHOWN)).for_each(|line| println!("{line}"));
    println!("VIOLATION at {:.6}: {}: {}", wrong.at as f64 / 1e9, wrong.rule, wrong.what);
}
