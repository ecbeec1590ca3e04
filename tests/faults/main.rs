//! The fault suite: what must hold when a reply, the server, its clock, its messages, the process or the caller fail.
//!
//! One test for each fault of the catalogue (docs/faults.md), named after what must hold, with the fault's number in
//! its doc line. Each one asserts first that its fault happened. What a test waits for has ten seconds; where time
//! itself must not be what helps, leases and parks are a minute long.

#[path = "../common/mod.rs"]
mod common;

mod acks;
mod cancel;
mod churn;
mod clock;
mod cluster;
#[cfg(feature = "streams")]
mod copies;
mod credentials;
mod crowd;
mod extremes;
mod fencing;
mod framing;
mod ghosts;
mod guards;
mod hand_off;
mod kinds;
mod leases;
mod listeners;
mod load;
mod log;
mod messages;
mod misuse;
mod names;
mod naming;
mod outage_log;
mod owners;
mod parrot;
mod permissions;
mod process;
mod pubsub;
mod replies;
mod runtime_end;
mod scene;
mod security;
mod sentinel;
mod server;
mod session;
mod stage;
mod subscriptions;
#[cfg(feature = "tls")]
mod tls;

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use common::fixture::comes_in;
use common::{Admin, Server, eventually, timeout};
use parklock::{Client, Config, FencingToken, Lock};

/// As long as a background effect may take on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(20);

/// As long as we look at what should not happen. If it is too short, a test cannot fail, but neither can it flake.
const A_WHILE: Duration = Duration::from_millis(100);

/// The watchdog timeout of a test that has to sit a lease out.
const LEASE: Duration = Duration::from_millis(1500);

/// The counter behind all tokens: the one key that stays.
const COUNTER: &str = "lock:grants";

/// A short lease. A server has less than half a second to answer then: if the machine does not run it meanwhile, callers ask again.
fn brief() -> Config {
    patient().watchdog_timeout(LEASE).ride_out(SOON)
}

/// The default lease of half a minute: what happens within seconds happens for another reason.
fn patient() -> Config {
    let linger = Duration::from_millis(30);
    Config::default().connect_timeout(Duration::from_secs(5)).subscription_linger(linger)
}

async fn connect(url: &str, config: Config) -> Client {
    comes_in(url, config).await
}

fn key(name: &str) -> String {
    format!("lock:{{{name}}}")
}

fn channel(name: &str) -> String {
    format!("lock_channel:{{{name}}}")
}

/// Takes the lock and gives it back.
async fn a_turn(lock: &Lock) -> FencingToken {
    let guard = lock.lock().await.expect("it is free soon");
    let token = guard.token();
    guard.unlock().await.expect("it is ours");
    token
}

/// Keys, but for the token counter, and channels.
async fn left(admin: &Admin) -> Vec<String> {
    let mut left = admin.keys().await;
    left.retain(|key| key != COUNTER);
    left.extend(admin.channels().await);
    left
}

/// Waits until nothing is left in the server.
async fn is_clean(admin: &Admin, within: Duration, what: &str) {
    let mut last = Vec::new();
    let clean = async {
        loop {
            last = left(admin).await;
            if last.is_empty() {
                return;
            }
            sleep(Duration::from_millis(3)).await;
        }
    };
    let cleaned = timeout(within, clean).await;
    assert!(cleaned.is_ok(), "not within {within:?}: {what}; left: {last:?}");
}

/// The holders of a lock, as Redis knows them.
async fn fields(admin: &Admin, name: &str) -> Vec<String> {
    admin.hgetall(&key(name)).await.into_keys().collect()
}

/// Waits until somebody listens for the lock's release.
async fn somebody_waits(admin: &Admin, name: &str) {
    let waits = async || admin.subscribers(&channel(name)).await > 0;
    eventually(SOON, "somebody waits", waits).await;
}

/// Waits until no client but the test itself is connected.
async fn is_deserted(admin: &Admin) {
    let alone = async || admin.clients().await.len() == 1;
    eventually(SOON, "the connections end", alone).await;
}

/// How many tasks this runtime has.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The kernel's letter for a process: R runs, S sleeps, T is stopped.
fn state_of(pid: u32) -> Option<char> {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

async fn is_stopped(pid: u32) {
    eventually(SOON, "the process stops", async || state_of(pid) == Some('T')).await;
}

/// The words of the last request that contained this word.
async fn last_request_with(admin: &Admin, word: &str) -> Vec<String> {
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let log: Vec<Entry> = admin.cmd(&["SLOWLOG", "GET", "1000"]).await;
    let mut requests = log.into_iter().map(|(_, _, _, words, ..)| words);
    requests.find(|words| words.iter().any(|it| it == word)).expect("there was such a request")
}

/// How many scripts have run since the last reset of the statistics.
async fn scripts_run(admin: &Admin) -> u64 {
    admin.command_calls("evalsha").await + admin.command_calls("eval").await
}

/// A URL with a user part.
fn as_user(server: &Server, user: &str, password: &str) -> String {
    format!("redis://{user}:{password}@{}", server.address())
}
