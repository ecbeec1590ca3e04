//! The torture run: several client processes, random locks, and everything that can go wrong.
//!
//! `cargo run --release --example torture -- --seconds 600 --seed 7`; without a seed it draws one and prints it. It
//! needs `redis-server` (or what `PARKLOCK_SERVER` names). With `--topology cluster` it takes place on a Redis Cluster of six nodes,
//! with slots that move and primaries that fail; with `--replicas all` besides, grants count only when every replica has
//! them, and then no failover excuses anything. With `--topology hosts --servers sentinel` or `cluster`, each server and each
//! worker has a network of its own, which is cut: see `scripts/partitions`. With `--beside PROGRAM`, half of the workers are processes of
//! that program, the torture run of another version: see `scripts/fleet`. With `--topology redisson` the locks lie in Redisson's layout, and
//! that program is Redisson in a JVM. With `--topology sessions`, half of the clients have a session, and holds end with their processes.
//! `scripts/witness` builds it, and passes `--witness PROGRAM`: another judge, `tests/witness`.
//!
//! A run is judged each minute, while it goes on. With `--hours N` in place of `--seconds` it throws away what was judged, and
//! never kills its last worker. So one sees whether anything grows: each minute it prints memory, descriptors,
//! connections, keys and tasks, and the longest pause of the machine. `--table FILE` adds them to a table, which a later run goes
//! on with.
//!
//! It ends with the counters of the paths that were taken and the violations that were found. Its exit code is 1 if there is a
//! violation, 2 if a run of a minute, or of five in a cluster, on hosts or with sessions, missed a path, or if the other judge could not judge all.

#![allow(unreachable_pub, reason = "a binary exports nothing")]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/judge/mod.rs"]
mod judge;

mod clocks;
mod conductor;
mod crew;
mod eavesdropper;
mod history;
mod hosts;
mod kept;
mod network;
mod nodes;
mod pair;
mod presence;
mod prompt;
mod pulse;
mod reading;
mod reigns;
mod schedule;
mod settings;
mod stage;
mod switch;
mod verdict;
mod vitals;
mod wires;
mod worker;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use conductor::Wishes;
use settings::Topology;
use verdict::Verdict;

/// What a run can be told, each with a word that follows it.
const OPTIONS: [&str; 9] = [
    "--seconds",
    "--hours",
    "--seed",
    "--topology",
    "--servers",
    "--replicas",
    "--beside",
    "--witness",
    "--table",
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options: HashMap<&str, &str> =
        words.chunks(2).map(|pair| (pair[0].as_str(), pair.get(1).map_or("", |w| w))).collect();
    // What a later version tells its workers is no mistake.
    if !options.contains_key("--worker") {
        let unknown = options.keys().find(|name| !OPTIONS.contains(*name));
        assert!(unknown.is_none(), "there is no option {}", unknown.unwrap_or(&""));
        assert!(words.len().is_multiple_of(2), "{} says nothing", words[words.len() - 1]);
    }
    let number = |name: &str| options.get(name).map(|word| word.parse().expect("a number"));
    let seed = number("--seed").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let word = |name: &str| options.get(name).copied().unwrap_or_default();
    let all = match word("--replicas") {
        "" | "none" => false,
        "all" => true,
        other => panic!("`--replicas` is `all` or `none`, and not `{other}`"),
    };
    let topology = match (word("--topology"), word("--servers")) {
        ("", "") if !all => Topology::Pair,
        ("redisson", "") if !all => Topology::Redisson,
        ("sessions", "") if !all => Topology::Sessions,
        ("cluster", "") => Topology::Cluster { replicas: u32::from(all) },
        ("hosts", "cluster") => Topology::Hosts { is_cluster: true, replicas: u32::from(all) },
        ("hosts", "sentinel") => {
            Topology::Hosts { is_cluster: false, replicas: if all { 2 } else { 0 } }
        }
        _ => panic!(
            "there are `--topology redisson`, `--topology sessions`, `--topology cluster`, and `--topology hosts` with \
             `--servers` of `cluster` or `sentinel`; the last two of them with `--replicas all`, too"
        ),
    };
    if let Some(name) = options.get("--worker") {
        worker::run(&worker::Orders {
            name: (*name).to_owned(),
            url: options["--url"].to_owned(),
            topology,
            namespace: options.get("--namespace").map(|&namespace| namespace.to_owned()),
            seed,
            started: number("--started").expect("the conductor says so"),
            record: options["--record"].into(),
            keeps: options.contains_key("--keeps"),
        });
        return ExitCode::SUCCESS;
    }
    let hours = options.get("--hours").map(|word| word.parse::<f64>().expect("a number"));
    let seconds = hours.map_or(number("--seconds").unwrap_or(60), |hours| (hours * 3_600.0) as u64);
    let length = Duration::from_secs(seconds);
    let [table, beside, witness] =
        ["--table", "--beside", "--witness"].map(|name| options.get(name).map(PathBuf::from));
    let words = topology.words().join(" ");
    assert!(
        topology != Topology::Redisson || beside.is_some(),
        "--beside names the worker in Java"
    );
    println!("torture --seconds {} --seed {seed} {words}", length.as_secs());
    beside.iter().for_each(|other| println!("half of the workers run {}", other.display()));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Proxies and switch have threads of their own, which end with us.
    let endures = hours.is_some();
    let wishes = Wishes { topology, seed, length, endures, table, beside, witness };
    match runtime.block_on(conductor::run(wishes)) {
        Verdict::Right => ExitCode::SUCCESS,
        Verdict::Wrong => ExitCode::from(1),
        Verdict::Incomplete => ExitCode::from(2),
    }
}
