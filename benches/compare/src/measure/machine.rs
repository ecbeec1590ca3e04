//! On what the numbers were taken: processor, kernel, compiler, versions.

use std::collections::BTreeMap;
use std::fs;

/// Facts by name, for the head of every report.
pub type Machine = BTreeMap<String, String>;

/// What the machine itself can tell. The server and the JVM add their parts.
pub fn facts() -> Machine {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut facts = Machine::from([
        ("cpu".to_owned(), processor()),
        ("cores".to_owned(), cores.to_string()),
        ("kernel".to_owned(), kernel()),
        ("rustc".to_owned(), env!("COMPARE_RUSTC").to_owned()),
    ]);
    let crates = env!("COMPARE_CRATES").split(',');
    let named = crates.filter_map(|entry| entry.split_once(' '));
    facts.extend(named.map(|(name, version)| (format!("crate {name}"), version.to_owned())));
    facts
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|line| line.starts_with("model name"));
    let name = model.and_then(|line| line.split_once(':'));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}
