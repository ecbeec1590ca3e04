//! The simulated server held against real ones: the same random commands and scripts, the same answers, the same keys
//! ([`pair`]); and fixed dialogues for what random steps do not reach ([`dialogues`]).
//!
//! `PARKLOCK_SEED` repeats a run as far as the real server's clock allows; `PARKLOCK_DIFFERENTIAL_SECONDS` makes it
//! longer. The test says which servers it compares with, and which are not installed; with `PARKLOCK_REQUIRE_SERVERS`, a missing
//! one is a failure.

#[path = "../../../../common/child.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod child;
mod compare;
mod dialogues;
mod frame;
mod mode;
mod nodes;
mod packed;
mod pair;
mod plain;
mod real;
mod replicas;
#[path = "../../../../../src/wire/scripts.rs"]
#[allow(dead_code, reason = "the library needs more of it")]
mod scripts;
mod shapes;
mod stage;
mod words;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, io};

use nodes::Nodes;
use pair::Pair;
use parklock_simulated_server::Version;

const USUAL: Duration = Duration::from_secs(12);

/// The steps of one run in clusters.
const MOVING: usize = 2_000;
/// Late gossip ends the comparison in a cluster, sometimes after few steps. If it ended each one at once, the test would
/// never end.
const MOST_CLUSTERS: u64 = 100;

#[test]
fn it_answers_as_redis_6_2_does() {
    compare_with(Version::Redis6_2);
}

#[test]
fn it_answers_as_redis_7_0_does() {
    compare_with(Version::Redis7_0);
}

#[test]
fn it_answers_as_redis_8_2_does() {
    compare_with(Version::Redis8_2);
}

#[test]
fn it_answers_as_valkey_9_1_does() {
    compare_with(Version::Valkey9_1);
}

#[test]
fn it_speaks_as_redis_6_2_does() {
    speak_with(Version::Redis6_2);
}

#[test]
fn it_speaks_as_redis_7_0_does() {
    speak_with(Version::Redis7_0);
}

#[test]
fn it_speaks_as_redis_8_2_does() {
    speak_with(Version::Redis8_2);
}

#[test]
fn it_speaks_as_valkey_9_1_does() {
    speak_with(Version::Valkey9_1);
}

#[test]
fn it_moves_slots_as_redis_6_2_does() {
    move_slots_with(Version::Redis6_2);
}

#[test]
fn it_moves_slots_as_redis_7_0_does() {
    move_slots_with(Version::Redis7_0);
}

#[test]
fn it_moves_slots_as_redis_8_2_does() {
    move_slots_with(Version::Redis8_2);
}

#[test]
fn it_moves_slots_as_valkey_9_1_does() {
    move_slots_with(Version::Valkey9_1);
}

#[test]
fn it_waits_for_replicas_as_redis_6_2_does() {
    wait_with(Version::Redis6_2);
}

#[test]
fn it_waits_for_replicas_as_redis_7_0_does() {
    wait_with(Version::Redis7_0);
}

#[test]
fn it_waits_for_replicas_as_redis_8_2_does() {
    wait_with(Version::Redis8_2);
}

#[test]
fn it_waits_for_replicas_as_valkey_9_1_does() {
    wait_with(Version::Valkey9_1);
}

fn wait_with(version: Version) {
    let Some(program) = installed(version) else { return };
    let differences = replicas::hold(version, &program);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn move_slots_with(version: Version) {
    let Some(program) = installed(version) else { return };
    let seed = env::var("PARKLOCK_SEED")
        .map_or_else(|_| fastrand::u64(..), |text| text.parse().expect("a number"));
    println!("{version:?}: PARKLOCK_SEED={seed}");
    let (mut steps, mut words) = (0, BTreeSet::new());
    let mut clusters = 0;
    while steps < MOVING {
        assert!(clusters < MOST_CLUSTERS, "PARKLOCK_SEED={seed}: {steps} steps of {MOVING}");
        let mut nodes = Nodes::start(version, &program, seed.wrapping_add(clusters));
        (0..MOVING - steps).for_each(|_| nodes.step());
        let differences = nodes.differences.join("\n");
        assert!(differences.is_empty(), "PARKLOCK_SEED={seed}\n{differences}");
        steps += nodes.steps;
        words.extend(nodes.words.into_keys());
        clusters += 1;
    }
    println!("{version:?}: {steps} steps, {clusters} clusters");
    let wanted = ["MOVED", "ASK", "CROSSSLOT", "TRYAGAIN"];
    let missed = wanted.iter().filter(|word| !words.contains(**word)).count();
    assert_eq!(missed, 0, "PARKLOCK_SEED={seed}: {words:?}");
}

/// Every server that is simulated, and where the real one is. They are said once, past the test harness, which shows the
/// output of failed tests only.
static SERVERS: LazyLock<Vec<(Version, Option<PathBuf>)>> = LazyLock::new(|| {
    let all = [Version::Redis6_2, Version::Redis7_0, Version::Redis8_2, Version::Valkey9_1];
    let servers = Vec::from(all.map(|version| (version, real::program(version))));
    for (version, program) in &servers {
        let said = match program {
            Some(program) => format!("compared with {version:?}: {}", program.display()),
            None => missing(*version),
        };
        let _ = writeln!(io::stderr(), "{said}");
    }
    servers
});

fn missing(version: Version) -> String {
    format!("{version:?} is not installed: nothing is compared with it (see scripts/servers)")
}

fn installed(version: Version) -> Option<PathBuf> {
    let server = SERVERS.iter().find(|(other, _)| *other == version);
    let program = server.and_then(|(_, program)| program.clone());
    let required = env::var_os("PARKLOCK_REQUIRE_SERVERS").is_some();
    assert!(program.is_some() || !required, "{}", missing(version));
    program
}

fn speak_with(version: Version) {
    let Some(program) = installed(version) else { return };
    let mut differences = dialogues::hold(version, &program);
    if !differences.is_empty() {
        // See `compare_with`: on a busy machine, a step may lie at the limit of such a rule.
        println!("the same dialogues again, after\n{}", differences.join("\n"));
        differences = dialogues::hold(version, &program);
    }
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
}

fn compare_with(version: Version) {
    let Some(program) = installed(version) else { return };
    let given = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = given("PARKLOCK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("{version:?}: PARKLOCK_SEED={seed}");
    let length = given("PARKLOCK_DIFFERENTIAL_SECONDS").map_or(USUAL, Duration::from_secs);

    // A rule that compares two times can go either way in a step at its limit: the simulated server does not know when in
    // the step the real one read its clock. With the same seed, such a difference does not come again.
    let mut pair = steps_of(version, &program, seed, length);
    if pair.count() > 0 {
        println!("the same steps again, after\n{}", pair.verdict());
        pair = steps_of(version, &program, seed, length);
    }
    assert!(pair.count() == 0, "PARKLOCK_SEED={seed}\n{}", pair.verdict());
    let tally = &pair.tally;
    let much =
        tally.granted * 50 > tally.steps && tally.skipped * 2 < tally.steps && tally.pushes > 0;
    assert!(much, "too little was compared: {tally:?}");
    let unanswered = pair.unanswered();
    assert!(unanswered.is_empty(), "nothing but errors of {unanswered:#?}");
}

/// Does random steps for this long, with one seed. A machine that is busy does fewer of them in that time: then for longer, until each
/// script has had an answer.
fn steps_of(version: Version, program: &Path, seed: u64, length: Duration) -> Pair {
    let mut pair = Pair::start(version, program, seed);
    let begun = Instant::now();
    let goes_on = |pair: &Pair| {
        let gone = begun.elapsed();
        gone < length || gone < length * 10 && !pair.unanswered().is_empty()
    };
    while goes_on(&pair) {
        pair.step();
    }
    let speed = pair.tally.steps as f64 / begun.elapsed().as_secs_f64();
    println!("{version:?}: {speed:.0} steps a second, {:?}", pair.tally);
    pair
}
