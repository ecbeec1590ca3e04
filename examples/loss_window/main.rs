//! How many grants a failover forgets, with and without replicas that acknowledge (`Config::replicas`).
//!
//! `cargo run --release --example loss_window -- --rounds 3` starts a primary, its replica and three sentinels of its own for each
//! round. A client takes a new name again and again, while `SENTINEL FAILOVER` replaces the primary, which lives. A grant
//! counts as lost if the promoted server does not have it a moment later. It needs `redis-server` (or what
//! `PARKLOCK_SERVER` names). The table that it prints stands in docs/guarantees.md.

#![allow(unreachable_pub, reason = "a binary exports nothing")]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parklock::{Client, Config};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::common::{Admin, Watched};

/// How long grants are watched, in each round.
const WATCHED_FOR: Duration = Duration::from_secs(7);

/// When the primary is replaced.
const REPLACED_AT: Duration = Duration::from_secs(1);

/// How long the replica may take to hear of a grant.
const MOMENT: Duration = Duration::from_millis(3);

/// What one round has shown.
#[derive(Debug, Default)]
struct Round {
    grants: usize,
    /// When grants were made that the promoted server does not have, since the start.
    lost: Vec<Duration>,
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = match &words[..] {
        [] => 3,
        [option, number] if option == "--rounds" => number.parse().expect("a number of rounds"),
        _ => panic!("the only option is --rounds"),
    };
    println!("| | lost grants | from the first to the last of them | grants in {WATCHED_FOR:?} |");
    println!("|---|---|---|---|");
    for round in 0..rounds {
        // Taken in turns, so that both meet the same machine.
        for replicas in [0, 1] {
            println!("{}", row(replicas, &one_round(replicas, round).await));
        }
    }
}

fn row(replicas: u32, round: &Round) -> String {
    let window = round.lost.iter().min().zip(round.lost.iter().max());
    let window = window.map_or(String::new(), |(first, last)| {
        let (first, last) = (first.as_secs_f64(), last.as_secs_f64());
        format!("{:.2} s: from {first:.2} s to {last:.2} s", last - first)
    });
    format!("| `replicas({replicas})` | {} | {window} | {} |", round.lost.len(), round.grants)
}

async fn one_round(replicas: u32, round: u32) -> Round {
    let watched = Watched::start().await;
    let config = Config::default().replicas(replicas).ride_out(WATCHED_FOR);
    let config = config.response_timeout(Duration::from_millis(500));
    let client =
        Client::connect_with(watched.url(), config).await.expect("the sentinels are there");
    let promoted = Witness::of(watched.servers[1].url());

    let (started, mut looking) = (Instant::now(), JoinSet::new());
    let taking = async {
        let mut found = Round::default();
        for number in 0.. {
            if started.elapsed() >= WATCHED_FOR {
                break;
            }
            let name = format!("window:{round}:{number}");
            let limit = WATCHED_FOR.saturating_sub(started.elapsed());
            let Ok(Some(guard)) = client.lock(&*name).try_lock_for(limit).await else { continue };
            found.grants += 1;
            let (granted, promoted) = (started.elapsed(), promoted.clone());
            looking.spawn(async move {
                sleep(MOMENT).await;
                let is_lost = !promoted.has(&format!("lock:{{{name}}}")).await;
                drop(guard);
                is_lost.then_some(granted)
            });
            sleep(MOMENT).await;
        }
        found
    };
    let replacing = async {
        sleep(REPLACED_AT).await;
        watched.fail_over().await;
    };
    let (mut found, ()) = tokio::join!(taking, replacing);
    while let Some(looked) = looking.join_next().await {
        found.lost.extend(looked.expect("no panic"));
    }
    client.close().await;
    found
}

/// The server that is promoted. It closes all connections when it is.
#[derive(Clone)]
struct Witness {
    url: Arc<str>,
    admin: Arc<Mutex<Option<Admin>>>,
}

impl Witness {
    fn of(url: String) -> Self {
        Self { url: url.into(), admin: Arc::default() }
    }

    async fn has(&self, key: &str) -> bool {
        let mut admin = self.admin.lock().await;
        loop {
            let asked = match &*admin {
                Some(admin) => admin.try_cmd::<i64>(&["EXISTS", key]).await.ok(),
                None => None,
            };
            match asked {
                Some(found) => return found == 1,
                None => *admin = Some(Admin::connect(&self.url).await),
            }
        }
    }
}
