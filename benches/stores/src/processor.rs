//! The processor time of servers, with all the processes that they have started.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// One process, as the operating system counts it.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    /// In user and kernel mode, its own and that of its children that have ended.
    ticks: u64,
}

/// What these processes and all below them have used so far, in user and kernel mode.
pub fn time(roots: &[u32]) -> Result<Duration> {
    let ticks = sum(roots, &all()?)?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn all() -> Result<Vec<Process>> {
    let folders = fs::read_dir("/proc").context("no /proc")?.flatten();
    // A process that ends meanwhile counts with its parent.
    let stats = folders.filter_map(|folder| fs::read_to_string(folder.path().join("stat")).ok());
    Ok(stats.filter_map(|stat| parse(&stat)).collect())
}

fn sum(roots: &[u32], all: &[Process]) -> Result<u64> {
    let family = family(roots, all);
    let ours = all.iter().filter(|process| family.contains(&process.pid));
    ensure!(roots.iter().all(|root| all.iter().any(|one| one.pid == *root)), "a server has ended");
    Ok(ours.map(|process| process.ticks).sum())
}

fn family(roots: &[u32], all: &[Process]) -> BTreeSet<u32> {
    let mut family = BTreeSet::from_iter(roots.iter().copied());
    loop {
        let known = family.len();
        let children = all.iter().filter(|process| family.contains(&process.parent));
        let children: Vec<u32> = children.map(|process| process.pid).collect();
        family.extend(children);
        if family.len() == known {
            return family;
        }
    }
}

/// The 4th field, and the 14th to the 17th. The 2nd is the name, which may hold anything.
fn parse(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let pid = head.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>().ok());
    Some(Process { pid, parent, ticks: ticks.sum::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 90 0 0 0 120 30 4 2 20 0 1";
        assert_eq!(parse(stat), Some(Process { pid: 7, parent: 1, ticks: 156 }));
    }

    #[test]
    fn children_of_children_count_and_strangers_do_not() {
        let process = |pid, parent, ticks| Process { pid, parent, ticks };
        let all = [process(9, 8, 1), process(8, 7, 10), process(7, 1, 100), process(6, 1, 1000)];
        assert_eq!(sum(&[7], &all).expect("it is there"), 111);
        assert!(sum(&[5], &all).is_err());
    }

    #[test]
    fn a_process_that_works_uses_time() {
        let ourselves = [std::process::id()];
        let before = time(&ourselves).expect("/proc");
        let mut number = 0_u64;
        while time(&ourselves).expect("/proc") < before + Duration::from_millis(30) {
            number = std::hint::black_box(number + 1);
        }
    }
}
