//! What users lock, one after the other: the same turn on whatever topology a test has built.

use parklock::{Client, Lock};
use tokio::time::sleep;

use crate::scene::*;

/// Two clients take each kind in turn, wait for each other, and are told. `names`: five, and one for a latch.
pub(crate) async fn each_is_taken_and_waited_for(
    (ours, theirs): (&Client, &Client),
    names: &[String],
    latch: &str,
) {
    let [lock, fair, rw, semaphore, reentrant] = names else { panic!("five") };
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
