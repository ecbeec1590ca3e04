//! What users lock, in a cluster.

use std::time::{Duration, Instant};

use parklock::Lock;
use tokio::time::sleep;

use crate::cluster::{is_clean, two};
use crate::common::Cluster;
use crate::scene::*;

#[tokio::test]
async fn every_kind_is_taken_and_waited_for_and_given_back() {
    let cluster = Cluster::start().await;
    let (ours, theirs) = two(&cluster, patient()).await;
    for at in 0..3 {
        let names = cluster.names_at(at, "kind:", 5);
        let [lock, fair, rw, semaphore, reentrant] = names.as_slice() else { panic!("five") };
        let latch = &cluster.names_at(at, "latch:", 1)[0];
        // What waits is told by a message: a park is ten seconds, and so is what it may take.
        let started = Instant::now();
        exclusive(&ours.lock(lock), &theirs.lock(lock)).await;
        exclusive(&ours.fair_lock(fair), &theirs.fair_lock(fair)).await;

        let (here, there) = (ours.rw_lock(rw), theirs.rw_lock(rw));
        let reading = here.read().await.expect("it is free");
        let also = there.read().await.expect("readers share it");
        let writes = tokio::spawn(async move { there.write().await });
        sleep(A_WHILE).await;
        assert!(!writes.is_finished());
        reading.unlock().await.expect("it is ours");
        also.unlock().await.expect("it is ours");
        let writing = writes.await.expect("no panic").expect("it is free");
        assert!(here.try_read().await.expect("it is answered").is_none());
        writing.unlock().await.expect("it is ours");

        let (here, there) = (ours.semaphore(semaphore, 2), theirs.semaphore(semaphore, 2));
        let (one, two) = (here.acquire().await.expect("two"), there.acquire().await.expect("one"));
        let third = tokio::spawn(async move { there.acquire().await });
        sleep(A_WHILE).await;
        assert!(!third.is_finished());
        one.unlock().await.expect("it is ours");
        third.await.expect("no panic").expect("there is one").unlock().await.expect("it is ours");
        two.unlock().await.expect("it is ours");

        let (here, there) = (ours.count_down_latch(latch), theirs.count_down_latch(latch));
        assert!(here.set(1).await.expect("it is new"));
        let waits = tokio::spawn(async move { there.wait().await });
        sleep(A_WHILE).await;
        assert!(!waits.is_finished());
        here.count_down().await.expect("it is set");
        waits.await.expect("no panic").expect("it is open");
        here.delete().await.expect("it is there");

        let again = ours.reentrant_lock(reentrant);
        let outer = again.lock().await.expect("it is free");
        let inner = again.lock().await.expect("it is ours");
        assert!(theirs.lock(reentrant).try_lock().await.expect("answered").is_none());
        inner.unlock().await.expect("it is ours");
        outer.unlock().await.expect("it is ours");
        assert!(started.elapsed() < Duration::from_secs(10), "nobody waited for a park");
    }
    is_clean(&cluster).await;
}

/// One has it, the other waits for it and is told.
async fn exclusive(ours: &Lock, theirs: &Lock) {
    let guard = ours.lock().await.expect("it is free");
    assert!(theirs.try_lock().await.expect("it is answered").is_none());
    let first = guard.token();
    let theirs = theirs.clone();
    let waits = tokio::spawn(async move { theirs.lock().await });
    sleep(A_WHILE).await;
    assert!(!waits.is_finished());
    guard.unlock().await.expect("it is ours");
    let next = granted(waits).await;
    assert!(next.token() > first);
    next.unlock().await.expect("it is ours");
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
}
