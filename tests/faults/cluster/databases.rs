//! Numbered databases in a cluster: Valkey has them from version 9 on.

use parklock::{Client, Config, Error};

use crate::cluster::{stand_in_line, valkey};
use crate::common::cluster::slot;
use crate::common::fixture::refusal;
use crate::common::{Admin, Cluster, Server, eventually};
use crate::scene::*;

/// A cluster of Valkey whose nodes have sixteen databases. `None` where it is not installed.
async fn numbered(size: usize, primaries: usize) -> Option<Cluster> {
    let program = valkey()?;
    let setup = || Server::builder().program(program.clone()).set("cluster-databases", "16");
    Some(Cluster::start_as(size, primaries, setup).await)
}

/// A client of this database.
async fn of(cluster: &Cluster, database: usize, config: Config) -> Client {
    client(&format!("{}/{database}", cluster.url()), config).await
}

/// Looks at this database of a node.
async fn look(cluster: &Cluster, at: usize, database: usize) -> Admin {
    let admin = cluster.admin(at).await;
    admin.cmd::<()>(&["SELECT", &database.to_string()]).await;
    admin
}

/// The keys of this database of a node, but for the counters of the tokens.
async fn keys(cluster: &Cluster, at: usize, database: usize) -> Vec<String> {
    let mut keys = look(cluster, at, database).await.keys().await;
    keys.retain(|key| !key.starts_with("lock:grants"));
    keys
}

#[tokio::test]
async fn the_same_name_in_two_databases_of_a_cluster_is_two_locks() {
    let Some(cluster) = numbered(3, 3).await else { return };
    let (zero, three, five) = tokio::join!(
        of(&cluster, 0, patient()),
        of(&cluster, 3, patient()),
        of(&cluster, 5, patient())
    );
    let theirs = of(&cluster, 3, patient()).await;
    let home = cluster.home("a");
    let take = async |client: &Client| {
        let taken = client.lock("a").try_lock().await.expect("it is answered");
        taken.expect("it is free in this database")
    };
    let (zeroth, third, fifth) = (take(&zero).await, take(&three).await, take(&five).await);
    for database in [0, 3, 5] {
        assert_eq!(keys(&cluster, home, database).await, ["lock:{a}"], "{database}");
    }
    let waiter = waiting(theirs.lock("a"));
    stand_in_line(&look(&cluster, home, 3).await, "a", 1).await;

    // A release in another database is none in this one. The park of the waiter is a minute.
    fifth.unlock().await.expect("it is ours");
    zeroth.unlock().await.expect("it is ours");
    assert!(three.lock("a").try_lock().await.expect("it is answered").is_none());
    assert!(!waiter.is_finished(), "the lock is held");
    let before = third.token();
    third.unlock().await.expect("it is ours");
    let next = granted(waiter).await;
    assert!(next.token() > before);
    next.unlock().await.expect("it is ours");
    for database in [0, 3, 5] {
        let clean = async || keys(&cluster, home, database).await.is_empty();
        eventually(SOON, "nothing is left", clean).await;
    }
}

#[tokio::test]
async fn a_moved_slot_is_followed_into_the_same_database_of_its_new_node() {
    let Some(cluster) = numbered(3, 3).await else { return };
    let (ours, theirs, third) = tokio::join!(
        of(&cluster, 7, patient()),
        of(&cluster, 7, patient()),
        of(&cluster, 7, patient())
    );
    let (from, to) = (cluster.home("a"), (cluster.home("a") + 1) % 3);
    // It has used all nodes, and hears of no change.
    for at in 0..3 {
        let name = cluster.names_at(at, "other:", 1).remove(0);
        third.lock(&name).lock().await.expect("it is free").unlock().await.expect("it is ours");
    }
    let guard = ours.lock("a").lock().await.expect("it is free");
    let waiter = waiting(theirs.lock("a"));
    stand_in_line(&look(&cluster, from, 7).await, "a", 1).await;

    cluster.migrate_slot(slot("a"), from, to).await;
    let busy = third.lock("a").try_lock().await.expect("it is answered");
    assert!(busy.is_none(), "it is held over there");
    let moved = cluster.admin(from).await.info("errorstats", "errorstat_MOVED").await;
    assert!(moved.is_some(), "nobody was sent on");
    is_held_once(&look(&cluster, to, 7).await, "a").await;
    assert_eq!(keys(&cluster, to, 0).await, Vec::<String>::new());
    let before = guard.token();
    guard.unlock().await.expect("it is ours");
    let next = granted(waiter).await;
    assert!(next.token() > before, "the counter of the tokens has moved, too");
    next.unlock().await.expect("it is ours");
    let clean = async || keys(&cluster, to, 7).await.is_empty();
    eventually(SOON, "nothing is left", clean).await;
}

#[tokio::test]
async fn a_failover_is_outlived_in_another_database() {
    let Some(cluster) = numbered(6, 3).await else { return };
    let config = || patient().ride_out(LONG);
    let (ours, theirs) = tokio::join!(of(&cluster, 3, config()), of(&cluster, 3, config()));
    let name = cluster.names_at(0, "failover:", 1).remove(0);
    let guard = ours.lock(&name).lock().await.expect("it is free");
    let waiter = waiting(theirs.lock(&name));
    stand_in_line(&look(&cluster, 0, 3).await, &name, 1).await;
    replicated(&cluster.nodes[0], &cluster.nodes[3]).await;

    cluster.fail_over(3, None).await;
    // An extension does not wait for a connection to the new primary.
    let extended = async || match guard.extend(LONG).await {
        Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => false,
        answer => answer.map(|()| true).expect("it was never lost"),
    };
    eventually(SOON, "it is extended", extended).await;
    is_held_once(&look(&cluster, 3, 3).await, &name).await;
    guard.unlock().await.expect("it is ours");
    granted(waiter).await.unlock().await.expect("it is ours");
    let clean = async || keys(&cluster, 3, 3).await.is_empty();
    eventually(SOON, "nothing is left", clean).await;
}

#[tokio::test]
async fn a_database_that_the_nodes_do_not_have_is_named_with_the_setting() {
    let Some(cluster) = numbered(1, 1).await else { return };
    of(&cluster, 15, patient()).await;
    let refused = refusal(format!("{}/16", cluster.url())).await;
    assert!(matches!(refused, Error::Config { .. }), "{refused}");
    for words in ["no database 16", "`cluster-databases`"] {
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let refused = refusal(format!("{}/3", cluster.nodes[0].url())).await;
    assert!(refused.to_string().contains("write redis-cluster://"), "{refused}");
}
