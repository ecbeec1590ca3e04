//! The scripts of `lua/line` without the library: several clients call them as raw requests, on real servers, and where
//! time matters on the simulated one, whose clock the tests set.

#[path = "../../../../common/child.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod child;
mod costs;
mod crowd;
mod dead;
#[path = "../differential/frame.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod frame;
mod keeper;
mod name;
mod order;
#[path = "../differential/packed.rs"]
mod packed;
#[path = "../differential/real.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod real;
mod refusals;
#[path = "../../../../../src/wire/scripts.rs"]
#[allow(dead_code, reason = "the library needs more of it")]
mod scripts;
mod session;
mod shared;
mod stage;
mod together;
mod usual;

use std::path::PathBuf;

use parklock_simulated_server::Version;

use name::Name;
use stage::Stage;

const VERSIONS: [Version; 4] =
    [Version::Redis6_2, Version::Redis7_0, Version::Redis8_2, Version::Valkey9_1];

/// On the simulated server, and on every real one that is installed.
fn everywhere(kind: (&'static str, u32), scenario: impl Fn(&mut Name)) {
    let mut ran = 0;
    for version in VERSIONS {
        scenario(&mut Name::new(Stage::simulated(version), kind));
        if let Some(program) = real::program(version) {
            scenario(&mut Name::new(Stage::real(version, &program), kind));
            ran += 1;
        }
    }
    if ran == 0 {
        scenario(&mut Name::new(Stage::real(Version::Redis7_0, &usual()), kind));
    }
}

/// On the simulated servers, whose time passes as the scenario says.
fn in_virtual_time(kind: (&'static str, u32), scenario: impl Fn(&mut Name)) {
    for version in VERSIONS {
        scenario(&mut Name::new(Stage::simulated(version), kind));
    }
}

/// Redis 7.0, or else the server that this machine has.
fn usual() -> PathBuf {
    real::program(Version::Redis7_0).unwrap_or_else(|| PathBuf::from("redis-server"))
}

/// On the usual real server.
fn really(kind: (&'static str, u32), scenario: impl FnOnce(&mut Name)) {
    scenario(&mut Name::new(Stage::real(Version::Redis7_0, &usual()), kind));
}
