//! The shortest history that still breaks the same rule: fewer faults, then fewer clients, callers, names, and less time.

use crate::campaign::live;
use crate::clock::SECOND;
use crate::options::Options;
use crate::report::Report;

/// How many lines of the log are shown at the end.
const SHOWN: usize = 80;

struct Case<'a> {
    seed: u64,
    rule: &'a str,
    /// What was set by hand from the beginning.
    words: &'a [String],
    faults: Vec<usize>,
    size: (usize, usize, usize),
    length: u64,
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
            ("--faults", faults.join(",")),
        ];
        let numbers = numbers.into_iter().flat_map(|(word, number)| [word.to_owned(), number]);
        self.words.iter().cloned().chain(numbers).collect()
    }

    fn fails(&self) -> bool {
        live(self.seed, &self.words(), false).breaks(self.rule)
    }

    /// Keeps a change if the rule is still broken.
    fn tries(&mut self, change: impl FnOnce(&mut Self)) -> bool {
        let before = (self.faults.clone(), self.size, self.length);
        change(self);
        let fails = before != (self.faults.clone(), self.size, self.length) && self.fails();
        if !fails {
            (self.faults, self.size, self.length) = before;
        }
        fails
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
        while self.length > 2 && self.tries(|case| case.length -= case.length.div_ceil(4)) {}
        while self.size.1 > 1 && self.tries(|case| case.size.1 -= 1) {}
        while self.size.0 > 1 && self.tries(|case| case.size.0 -= 1) {}
        while self.size.2 > 1 && self.tries(|case| case.size.2 -= 1) {}
    }
}

/// Cuts a failure down, and prints what is left of it with the end of its log.
pub fn shrink(seed: u64, rule: &str, options: &Options) {
    let whole = live(seed, &options.words, false);
    if !whole.breaks(rule) {
        println!("seed {seed} does not break the rule again: {rule}");
        return;
    }
    let given = options.set.faults.clone();
    let faults = given.unwrap_or_else(|| (0..whole.faults).collect());
    let length = whole.length / SECOND;
    // What is set again comes later, and counts.
    let mut case = Case { seed, rule, words: &options.words, faults, size: whole.size, length };
    if case.fails() {
        case.cut_faults();
        case.cut_size();
        case.cut_faults();
    }
    let words = case.words();
    println!("\nthe shortest history found for: {rule}");
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
