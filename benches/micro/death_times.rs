//! How soon the next one is in after `kill -9`, with `Config::session`: `cargo bench -p micro --bench death_times -- 3 4`.
//!
//! The numbers are the grace in seconds, and how often this is done for each row. With a word, only rows in which it stands. All
//! rows are on one server, one after the other; with the word `sentinel` it has a replica and three sentinels, which all clients
//! ask. All leases are ten minutes, so none of them is over meanwhile.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::env;
use std::fs::read_to_string;
use std::time::{Duration, Instant};

use common::fixture::{LONG, comes_in, parked};
use common::{Admin, Server, Watched, Worker, WorkerSide};
use parklock::{Client, Config, Guard, Leadership};
use tokio::time::sleep;

/// What a process holds or waits for, and what comes behind it.
struct Row {
    what: &'static str,
    dies: Dies,
    /// What the process takes, and what the next one takes.
    kinds: [&'static str; 2],
}

/// Whose process is killed.
#[derive(Clone, Copy)]
enum Dies {
    Holder,
    /// It is the first in line. The holder unlocks so long after its death.
    Waiter(Duration),
    HolderAndWaiter,
}

const SENTINEL: &str = "sentinel";

const ROWS: [Row; 11] = [
    holder("a lock", ["lock", "lock"]),
    holder("a fair lock", ["fair", "fair"]),
    holder("a write lock, a writer waits", ["write", "write"]),
    holder("a write lock, a reader waits", ["write", "read"]),
    holder("a read lock, a writer waits", ["read", "write"]),
    holder("permits", ["permits", "permits"]),
    holder("a leader", ["leader", "leader"]),
    waiter("the first waiter; the holder unlocks at once", Duration::ZERO),
    waiter("the first waiter; the holder unlocks after 5 s", Duration::from_secs(5)),
    waiter("the first waiter; the holder unlocks after 15 s", Duration::from_secs(15)),
    Row {
        what: "the holder of a lock and the first waiter",
        dies: Dies::HolderAndWaiter,
        kinds: ["lock", "lock"],
    },
];

const fn holder(what: &'static str, kinds: [&'static str; 2]) -> Row {
    Row { what, dies: Dies::Holder, kinds }
}

const fn waiter(what: &'static str, unlocks_after: Duration) -> Row {
    Row { what, dies: Dies::Waiter(unlocks_after), kinds: ["lock", "lock"] }
}

fn config(grace: Duration) -> Config {
    Config::default().watchdog_timeout(LONG).session(grace)
}

/// Where all this is done.
struct Place {
    admin: Admin,
    url: String,
}

/// It is only kept.
#[expect(dead_code, reason = "it has to live")]
enum Held {
    Guard(Guard),
    Leadership(Leadership),
}

async fn take(client: &Client, kind: &str, name: &str) -> Held {
    let guard = match kind {
        "lock" => client.lock(name).lock().await,
        "fair" => client.fair_lock(name).lock().await,
        "read" => client.rw_lock(name).read().await,
        "write" => client.rw_lock(name).write().await.map(Guard::from),
        "permits" => client.semaphore(name, 3).acquire_many(2).await,
        "leader" => {
            let leads = client.election(name).campaign().await;
            return Held::Leadership(leads.expect("it is elected"));
        }
        other => panic!("what is {other}?"),
    };
    Held::Guard(guard.expect("it is granted"))
}

/// The process that dies.
async fn victim(mut boss: WorkerSide) {
    let grace = Duration::from_secs_f64(boss.variable("GRACE").parse().expect("a number"));
    let client = comes_in(boss.variable("URL"), config(grace)).await;
    boss.tell("here");
    let _held = take(&client, &boss.variable("KIND"), &boss.variable("NAME")).await;
    boss.tell("granted");
    boss.order().await;
}

async fn start_victim(url: &str, grace: Duration, kind: &str, name: &str) -> Worker {
    let grace = grace.as_secs_f64().to_string();
    let variables = [("URL", url), ("GRACE", &*grace), ("KIND", kind), ("NAME", name)];
    let mut victim = Worker::start("victim", &variables);
    assert_eq!(victim.hear().await, "here");
    victim
}

/// From the death, or from the unlock after it, until the next one is in.
async fn measured(
    Place { admin, url }: &Place,
    grace: Duration,
    row: &Row,
    name: &str,
) -> Duration {
    let ours = comes_in(url, config(grace)).await;
    let mut victims = Vec::new();
    let first = match row.dies {
        Dies::Waiter(_) => Some(ours.lock(name).lock().await.expect("it is free")),
        Dies::Holder | Dies::HolderAndWaiter => {
            let mut holder = start_victim(url, grace, row.kinds[0], name).await;
            assert_eq!(holder.hear().await, "granted");
            victims.push(holder);
            None
        }
    };
    let waits_in_front = !matches!(row.dies, Dies::Holder);
    if waits_in_front {
        victims.push(start_victim(url, grace, row.kinds[0], name).await);
        parked(admin, name, 1).await;
    }
    let client = comes_in(url, config(grace)).await;
    let (kind, its_name) = (row.kinds[1], name.to_owned());
    let next = tokio::spawn(async move {
        let held = take(&client, kind, &its_name).await;
        (Instant::now(), held, client)
    });
    parked(admin, name, 1 + usize::from(waits_in_front)).await;
    // So that the death comes at any moment between two looks of the waiter.
    sleep(grace.mul_f64(1.0 + fastrand::f64())).await;

    victims.iter_mut().for_each(Worker::kill9);
    let mut since = Instant::now();
    if let (Some(first), Dies::Waiter(unlocks_after)) = (first, row.dies) {
        sleep(unlocks_after).await;
        since = Instant::now();
        first.unlock().await.expect("it is ours");
    }
    let (when, _held, _client) = next.await.expect("no panic");
    when - since
}

/// The processor, and what else the machine did.
fn machine() -> String {
    let cpus = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names = cpus.lines().filter_map(|line| line.strip_prefix("model name\t: "));
    let names: Vec<_> = names.collect();
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{} x {}, load {}", names.len(), names.first().unwrap_or(&"?"), load.trim())
}

#[tokio::main]
async fn main() {
    if let Some(boss) = WorkerSide::here() {
        return victim(boss).await;
    }
    let mut numbers = env::args().filter_map(|word| word.parse::<f64>().ok());
    let grace = Duration::from_secs_f64(numbers.next().unwrap_or(3.0));
    let kills = numbers.next().unwrap_or(4.0) as usize;
    let is_word = |word: &String| word.parse::<f64>().is_err() && !word.starts_with('-');
    let words: Vec<_> = env::args().skip(1).filter(is_word).collect();
    let behind_sentinels = words.iter().any(|word| word == SENTINEL);
    let word = words.into_iter().find(|word| word != SENTINEL);
    let servers = if behind_sentinels {
        Watched::start().await
    } else {
        Watched { servers: vec![Server::start().await], sentinels: Vec::new() }
    };
    let primary = &servers.servers[0];
    let url = if behind_sentinels { servers.url() } else { primary.url() };
    let place = Place { admin: primary.admin().await, url };
    let began = machine();
    let is_asked = |row: &&Row| word.as_ref().is_none_or(|word| row.what.contains(word));
    let rows: Vec<_> = ROWS.iter().filter(is_asked).collect();
    let mut times = vec![Vec::new(); rows.len()];
    for n in 0..kills {
        for (at, (row, times)) in rows.iter().zip(&mut times).enumerate() {
            times.push(measured(&place, grace, row, &format!("row-{at}-{n}")).await.as_secs_f64());
        }
    }
    let where_it_is = if behind_sentinels { "behind sentinels" } else { "one server" };
    println!(
        "session({grace:?}), {where_it_is}, {kills} kills a row; seconds until the next one is in"
    );
    println!("{began} at first, {} at last\n", machine());
    println!("| who is killed | least | median | most |");
    println!("|---|---|---|---|");
    for (row, mut times) in rows.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (least, most) = (times[0], times[times.len() - 1]);
        let median = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0;
        println!("| {} | {least:.2} | {median:.2} | {most:.2} |", row.what);
    }
}
