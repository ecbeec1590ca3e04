//! What users lock, in a cluster.

use std::time::Duration;

use crate::cluster::{is_clean, two};
use crate::common::{Cluster, Watch, eventually, judged};
use crate::kinds::each_is_taken_and_waited_for;
use crate::scene::*;

#[tokio::test]
async fn every_kind_is_taken_and_waited_for_and_given_back() {
    let cluster = Cluster::start().await;
    let (ours, theirs) = two(&cluster, patient()).await;
    for at in 0..3 {
        let names = cluster.names_at(at, "kind:", 5);
        let latch = &cluster.names_at(at, "latch:", 1)[0];
        // What waits is told by a message: a park is ten seconds, and so is what it may take.
        let started = Watch::start();
        each_is_taken_and_waited_for((&ours, &theirs), &names, latch).await;
        assert!(started.passed() < Duration::from_secs(10), "nobody waited for a park");
    }
    is_clean(&cluster).await;
}

/// 15: two clients name locks of three nodes in opposite orders. None waits for the other for ever.
#[tokio::test]
async fn a_multi_lock_over_several_nodes_makes_no_circle() {
    let cluster = Cluster::start().await;
    let mut names = Vec::new();
    for at in 0..3 {
        names.extend(cluster.names_at(at, "multi:", 1));
    }
    let (ours, theirs) = two(&cluster, patient()).await;
    let back: Vec<_> = names.iter().rev().cloned().collect();
    let turns = |client: parklock::Client, names: Vec<String>| async move {
        let several = client.multi_lock(names);
        for _ in 0..20 {
            let guard = several.lock().await.expect("they are free soon");
            assert_eq!(guard.tokens().len(), 3);
            guard.unlock().await.expect("they are ours");
        }
    };
    let (one, other) = (turns(ours.clone(), names.clone()), turns(theirs.clone(), back.clone()));
    let both = async { tokio::join!(tokio::spawn(one), tokio::spawn(other)) };
    let (one, other) = soon(both).await;
    one.and(other).expect("no panic");

    // All of them or none.
    let last = theirs.lock(&back[0]).lock().await.expect("it is free");
    assert!(ours.multi_lock(&names).try_lock().await.expect("it is answered").is_none());
    last.unlock().await.expect("it is ours");
    let all = ours.multi_lock(&names).try_lock().await.expect("it is answered");
    all.expect("they are free").unlock().await.expect("they are ours");
    is_clean(&cluster).await;
}

/// Many names of all nodes, taken at the same moment, renewed, and given back when their guards are dropped.
#[tokio::test]
async fn many_locks_of_all_nodes_are_kept_and_given_back() {
    judged(async || {
        let cluster = Cluster::start().await;
        let client = client(&cluster.url(), brisk()).await;
        let taken = (0..300).map(|number| {
            let lock = client.lock(format!("many:{number}"));
            async move { lock.lock().await.expect("it is free") }
        });
        let guards = futures_util::future::join_all(taken).await;
        let keys = cluster.lock_keys().await.len();
        assert_eq!(keys, 300, "each node has some of them");
        for guard in guards.iter().step_by(50) {
            is_renewed(guard).await;
        }
        assert!(guards.iter().all(parklock::Guard::is_valid));
        drop(guards);
        is_clean(&cluster).await;
        client.close().await;
    })
    .await;
}

/// Two applications lock the same names of all nodes. They do not meet, and each hears of its own releases.
#[tokio::test]
async fn two_namespaces_share_a_cluster_and_do_not_meet() {
    let cluster = Cluster::start().await;
    // A busy machine may let a node rest for longer than the default, and one try has one answer.
    let config = || patient().watchdog_timeout(SOON * 4).response_timeout(SOON);
    let (billing, shipping) = tokio::join!(
        two(&cluster, config().namespace("billing")),
        two(&cluster, config().namespace("shipping")),
    );
    for at in 0..3 {
        let (name, admin) =
            (&cluster.names_at(at, "shared:", 1)[0], cluster.nodes[at].admin().await);
        let holders = [&billing, &shipping].map(|(ours, _)| ours.lock(name));
        let mut guards = Vec::new();
        for holder in &holders {
            let held = holder.try_lock().await.expect("it is answered");
            guards.push(held.expect("the other namespace is another lock"));
        }
        let waiters = [&billing, &shipping].map(|(_, theirs)| waiting(theirs.lock(name)));
        for namespace in ["billing", "shipping"] {
            let line = format!("{namespace}:lock_queue:{{{name}}}");
            let stands = async || admin.cmd::<usize>(&["ZCARD", &line]).await == 1;
            eventually(SOON, &format!("one stands in {line}"), stands).await;
        }
        let [of_billing, of_shipping] = waiters;
        let [first, second] = <[_; 2]>::try_from(guards).expect("two");
        first.unlock().await.expect("it is ours");
        let next = granted(of_billing).await;
        assert!(second.is_valid() && !of_shipping.is_finished(), "its own namespace holds it");
        second.unlock().await.expect("it is ours");
        for guard in [next, granted(of_shipping).await] {
            guard.unlock().await.expect("it is ours");
        }
    }
    for node in &cluster.nodes {
        let keys = node.admin().await.keys().await;
        let is_theirs = |key: &String| key.starts_with("billing:") || key.starts_with("shipping:");
        assert!(keys.iter().all(is_theirs), "{keys:?}");
    }
}
