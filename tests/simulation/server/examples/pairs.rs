//! How many pairs of an acquire and a release of a free lock the simulated server carries out in a second of a
//! processor's time.
//!
//!     cargo run --release -p parklock-simulated-server --example pairs [PAIRS]
//!
//! So many pairs are for a profiler: nothing is measured then.

#[path = "../../../../src/wire/scripts.rs"]
#[allow(dead_code, reason = "the library needs more of it")]
mod scripts;

use std::env;
use std::fs;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parklock_simulated_server::{Conn, Server, Version};
use scripts::{Dialect, LOCK_RELEASE, TAKE};

const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
/// Of so many pairs, the time is looked at once.
const TOGETHER: u64 = 256;

const FIELD: &str = "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1";
const NOW: u64 = 1_700_000_000_000_000;

fn main() {
    println!("{}", processor());
    let mut server = Server::new(Version::Redis7_0);
    let conn = server.accept();
    for script in [&TAKE, &LOCK_RELEASE] {
        let load = call("EVAL", script.text(Dialect::Plain)).arg(0).get_packed_command();
        ask(&mut server, conn, &load, NOW);
    }
    let (acquire, release) = (acquire(), release());
    let mut pair = |now| {
        assert!(ask(&mut server, conn, &acquire, now).starts_with(b":"), "acquired");
        assert_eq!(ask(&mut server, conn, &release, now), b":1\r\n", "released");
    };
    if let Some(pairs) = env::args().nth(1) {
        return (0..pairs.parse().expect("how many pairs")).for_each(|more| pair(NOW + more));
    }
    let rates: Vec<_> = (0..ROUNDS).map(|_| rate(&mut pair)).collect();
    let best = rates.iter().copied().fold(0.0, f64::max);
    println!("pairs a second of its time, in rounds: {rates:.0?}\nbest: {best:.0}");
}

fn rate(pair: &mut impl FnMut(u64)) -> f64 {
    let (begun, mut pairs) = (worked(), 0);
    while worked() - begun < ROUND {
        (0..TOGETHER).for_each(|more| pair(NOW + pairs + more));
        pairs += TOGETHER;
    }
    pairs as f64 / (worked() - begun).as_secs_f64()
}

/// How long a processor has worked for us, whatever else it had to do; without Linux, how long we have run.
fn worked() -> Duration {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| BEGUN.elapsed(), Duration::from_nanos)
}

fn ask(server: &mut Server, conn: Conn, request: &[u8], now: u64) -> Vec<u8> {
    server.receive(conn, black_box(request), now);
    server.output().into_iter().flat_map(|(_, bytes)| bytes).collect()
}

fn call(command: &str, script: &str) -> redis::Cmd {
    let mut cmd = redis::cmd(command);
    cmd.arg(script);
    cmd
}

fn acquire() -> Vec<u8> {
    let mut cmd = call("EVALSHA", TAKE.hash(Dialect::Plain));
    cmd.arg(3).arg("lock:grants").arg("lock:{lock}").arg("lock_queue:{lock}");
    cmd.arg(NOW).arg(FIELD).arg(30_000);
    cmd.get_packed_command()
}

fn release() -> Vec<u8> {
    let mut cmd = call("EVALSHA", LOCK_RELEASE.hash(Dialect::Plain));
    cmd.arg(4)
        .arg("lock:grants")
        .arg("lock:{lock}")
        .arg("lock_queue:{lock}")
        .arg("lock_notes:{lock}");
    cmd.arg(format!("{NOW} 1000 client lock_channel:")).arg(FIELD);
    cmd.get_packed_command()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("a processor that does not say its name".into(), |(_, name)| name.to_owned())
}
