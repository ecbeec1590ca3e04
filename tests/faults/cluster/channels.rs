//! Channels of many names on many nodes, whatever version these have.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use parklock::{Client, Config};

use crate::cluster::{is_clean, stand_in_line, two};
use crate::common::cluster::slot;
use crate::common::{Cluster, Server, eventually};
use crate::scene::*;

/// A waiter that gets no message does not ask for minutes.
fn told() -> Config {
    let config = patient().watchdog_timeout(LONG * 40).waiter_ttl(LONG * 10);
    config.max_park(LONG * 40).ride_out(LONG)
}

/// How many subscriptions all primaries have.
async fn subscriptions(cluster: &Cluster) -> usize {
    let (all, count) =
        if is_version_6() { ("CHANNELS", "NUMSUB") } else { ("SHARDCHANNELS", "SHARDNUMSUB") };
    let mut sum = 0;
    for at in 0..cluster.primaries().len() {
        let admin = cluster.admin(at).await;
        let channels: Vec<String> = admin.cmd(&["PUBSUB", all]).await;
        let words: Vec<_> =
            ["PUBSUB", count].into_iter().chain(channels.iter().map(String::as_str)).collect();
        let counts: Vec<(String, usize)> = admin.cmd(&words).await;
        sum += counts.iter().map(|(_, clients)| clients).sum::<usize>();
    }
    sum
}

/// 12: all connections for channels break, of all nodes. Each channel comes back on the node that has it, and no release
/// goes unheard.
#[tokio::test]
async fn thousands_of_channels_of_all_nodes_come_back() {
    const NAMES: usize = 3_000;
    let cluster = Cluster::start().await;
    let (ours, theirs) = two(&cluster, told()).await;
    let lock = |client: &Client, number: usize| client.lock(format!("channel:{number}"));
    let taken = (0..NAMES).map(|number| {
        let lock = lock(&ours, number);
        async move { lock.lock().await.expect("it is free") }
    });
    let guards = soon(join_all(taken)).await;
    let waiters: Vec<_> = (0..NAMES).map(|number| waiting(lock(&theirs, number))).collect();
    // Each waits on the channel of its name, and on that of its client.
    let all = async || subscriptions(&cluster).await == 2 * NAMES;
    eventually(LONG, "all of them listen", all).await;

    for at in 0..3 {
        assert!(cluster.admin(at).await.client_kill("pubsub").await > 0, "it has listeners");
    }
    eventually(LONG, "all of them listen again", all).await;
    // Those who have just come back look once by themselves.
    let looked = async || {
        let before = cluster.command_calls("evalsha").await;
        tokio::time::sleep(A_WHILE * 5).await;
        cluster.command_calls("evalsha").await == before
    };
    eventually(LONG, "all of them are asleep", looked).await;
    for guard in guards {
        drop(guard);
    }
    let through = waiters.into_iter().map(|waiter| async move {
        granted(waiter).await.unlock().await.expect("it is ours");
    });
    soon(join_all(through)).await;
    is_clean(&cluster).await;
}

/// 12: in the middle of an upgrade. The nodes of the older version publish to the whole cluster, the others to a slot.
/// A waiter listens in the way in which the node of its slot publishes, also after the slot has moved to a node of the
/// other version.
#[tokio::test]
async fn each_release_is_heard_in_a_fleet_of_two_versions() {
    let Some(older) = installed("redis-6.2").filter(|_| !is_version_6()) else {
        eprintln!("LEFT OUT: it needs a Redis 6.2 from ./scripts/servers beside a newer one");
        return;
    };
    let started = AtomicUsize::new(0);
    let cluster = Cluster::start_as(3, 3, || match started.fetch_add(1, Ordering::Relaxed) {
        0 => Server::builder().program(older.clone()),
        _ => Server::builder(),
    })
    .await;
    let (ours, theirs) = two(&cluster, patient().max_park(LONG).ride_out(LONG)).await;
    for at in 0..3 {
        for name in cluster.names_at(at, "mixed:", 3) {
            let guard = ours.lock(&name).lock().await.expect("it is free");
            let waiter = waiting(theirs.lock(&name));
            stand_in_line(&cluster.admin(at).await, &name, 1).await;
            let fair = ours.fair_lock(format!("fair:{name}")).lock().await.expect("it is free");
            let queued = waiting(theirs.fair_lock(format!("fair:{name}")));
            guard.unlock().await.expect("it is ours");
            granted(waiter).await.unlock().await.expect("it is ours");
            fair.unlock().await.expect("it is ours");
            granted(queued).await.unlock().await.expect("it is ours");
        }
    }

    // A newer node takes what an older one has, not the other way round.
    let name = cluster.names_at(0, "moves:", 1).remove(0);
    let guard = ours.lock(&name).lock().await.expect("it is free");
    let waiter = waiting(theirs.lock(&name));
    stand_in_line(&cluster.admin(0).await, &name, 1).await;
    cluster.move_slot(slot(&name), 0, 1).await;
    let channel = channel(&name);
    let admin = cluster.admin(1).await;
    let listens = async || {
        let counts: Vec<(String, usize)> = admin.cmd(&["PUBSUB", "SHARDNUMSUB", &channel]).await;
        counts[0].1 == 1
    };
    // It hears of the move when it asks anything there, which it does to show a sign of life.
    eventually(SOON, "it listens to the newer node", listens).await;
    guard.unlock().await.expect("it is ours");
    granted(waiter).await.unlock().await.expect("it is ours");
    is_clean(&cluster).await;
}
