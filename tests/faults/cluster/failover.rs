//! Replicas that take the place of their primaries.

use std::time::Duration;

use crate::cluster::{is_clean, stand_in_line, two};
use crate::common::{Cluster, Server, eventually, judged, timeout};
use crate::scene::*;
use crate::server::roles::has_the_address_of;

/// A failover of one node, with a holder and a waiter for each of three names that lie there.
async fn a_failover_is_outlived(how: Option<&str>) {
    let cluster = Cluster::with_replicas().await;
    let (ours, theirs) = two(&cluster, told()).await;
    let names = cluster.names_at(0, "failover:", 3);
    let mut guards = Vec::new();
    for name in &names {
        guards.push(ours.lock(name).lock().await.expect("it is free"));
    }
    let waiters: Vec<_> = names.iter().map(|name| waiting(theirs.lock(name))).collect();
    let primary = cluster.admin(0).await;
    for name in &names {
        stand_in_line(&primary, name, 1).await;
    }
    // What the replica has not heard of is lost with any of them but the first.
    replicated(&cluster.nodes[0], &cluster.nodes[3]).await;
    cluster.fail_over(3, how).await;

    all_go_on(guards, waiters).await;
    is_clean(&cluster).await;
    let role = cluster.admin(3).await.info("replication", "role").await;
    assert_eq!(role.as_deref(), Some("master"));
}

/// A lease outlives a replica that has to be asked more than once to take over: it gives up after five seconds.
fn told() -> parklock::Config {
    brisk().watchdog_timeout(Duration::from_secs(18)).max_park(LONG).ride_out(LONG)
}

#[tokio::test]
async fn a_planned_failover_loses_nothing_and_wakes_its_waiters() {
    judged(async || {
        a_failover_is_outlived(None).await;
    })
    .await;
}

#[tokio::test]
async fn a_forced_failover_loses_nothing_that_was_replicated() {
    judged(async || {
        a_failover_is_outlived(Some("FORCE")).await;
    })
    .await;
}

#[tokio::test]
async fn a_takeover_loses_nothing_that_was_replicated() {
    judged(async || {
        a_failover_is_outlived(Some("TAKEOVER")).await;
    })
    .await;
}

/// A node dies, and its address belongs to a server of its own before its slots have another primary.
#[tokio::test]
async fn a_server_that_is_no_node_grants_nothing_at_the_address_of_one() {
    let (cluster, other) = tokio::join!(Cluster::start(), Server::start());
    let ours = client(&cluster.url(), attentive().ride_out(Duration::from_secs(3))).await;
    let name = cluster.names_at(0, "moved:", 1).remove(0);
    ours.lock(&name).lock().await.unwrap().unlock().await.unwrap();
    let admin = other.admin().await;
    let greeted = admin.command_calls("hello").await;

    cluster.nodes[0].kill();
    has_the_address_of(&other, &cluster.nodes[0]);
    let is_there = async || admin.command_calls("hello").await > greeted;
    eventually(SOON, "the client comes there", is_there).await;
    is_unavailable(ours.lock(&name).lock().await, "not a node of a cluster");
    assert_eq!(admin.keys().await, [""; 0]);
}

/// The client has a map, and has not used the node yet. That node is a replica by then, and refuses its first connection.
#[tokio::test]
async fn a_primary_that_was_replaced_before_its_first_use_is_left() {
    let cluster = Cluster::with_replicas().await;
    let (ours, _theirs) = two(&cluster, told()).await;
    cluster.fail_over(3, None).await;
    let demoted = cluster.admin(0).await;
    let role = async || demoted.info("replication", "role").await.as_deref() == Some("slave");
    eventually(SOON, "the former primary follows", role).await;

    let name = &cluster.names_at(0, "replaced:", 1)[0];
    let guard = timeout(SOON, ours.lock(name).lock()).await.expect("another map is asked for");
    guard.expect("it is free").unlock().await.expect("it is ours");
    is_clean(&cluster).await;
}

/// The primary is killed. Its replica needs some seconds to take over, in which nothing is answered.
#[tokio::test]
async fn a_primary_that_is_killed_is_replaced_before_the_leases_are_over() {
    let cluster = Cluster::with_replicas().await;
    let (ours, theirs) = two(&cluster, patient().ride_out(LONG)).await;
    let names = cluster.names_at(0, "killed:", 2);
    let guard = ours.lock(&names[0]).lock().await.expect("it is free");
    let waiter = waiting(theirs.lock(&names[0]));
    stand_in_line(&cluster.admin(0).await, &names[0], 1).await;
    replicated(&cluster.nodes[0], &cluster.nodes[3]).await;
    cluster.nodes[0].kill();
    cluster.notices_the_dead().await;

    // A newcomer rides it out; a hold of another node is not touched by it.
    let elsewhere = ours.lock(&cluster.names_at(1, "killed:", 1)[0]).lock().await;
    soon(elsewhere.expect("it is free").unlock()).await.expect("it is ours");
    let newcomer = timeout(LONG, ours.lock(&names[1]).lock()).await.expect("it is replaced");
    newcomer.expect("it is free").unlock().await.expect("it is ours");

    let first = guard.token();
    assert!(guard.is_valid());
    soon(guard.unlock()).await.expect("the replica had heard of it");
    let next = granted(waiter).await;
    assert!(next.token() > first);
    next.unlock().await.expect("it is ours");
    is_clean(&cluster).await;

    // It comes back as a replica, and nobody takes it for more.
    cluster.nodes[0].start_again().await;
    let guard = soon(theirs.lock(&names[0]).lock()).await.expect("it is free");
    guard.unlock().await.expect("it is ours");
}
