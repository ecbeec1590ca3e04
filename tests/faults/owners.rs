//! The owner of a lock is not a process id, and not a thread.

use std::collections::BTreeSet;
use std::thread::{self, ThreadId};
use std::time::Duration;

use parklock::{Client, Ended, Hold, Owner};
use tokio::task::yield_now;

use crate::common::{Server, eventually, timeout};
use crate::{SOON, connect, fields, patient};

/// F66: two clients agree in host, process id and count, as two containers may.
#[tokio::test]
async fn owners_are_told_apart_by_chance_and_not_by_process_id() {
    let (server, mut ids, mut counts) = (Server::start().await, BTreeSet::new(), BTreeSet::new());
    let admin = server.admin().await;
    for _ in 0..20 {
        let client = connect(&server.url(), patient()).await;
        let guard = client.lock("a").lock().await.unwrap();
        let field = fields(&admin, "a").await.remove(0);
        let (id, tenure) = field.rsplit_once(':').unwrap();
        counts.insert(tenure.to_owned());
        let id = uuid::Uuid::parse_str(id).unwrap();
        // Random but for its version, which tells ours from Redisson's.
        assert_eq!(id.get_version(), Some(uuid::Version::Custom));
        assert!(ids.insert(id));
        guard.unlock().await.unwrap();
    }
    assert_eq!(counts.len(), 1, "all were at the same grant, in this process: {counts:?}");

    // So the one does not re-enter, nor give back, what the other holds.
    let [one, two] =
        [connect(&server.url(), patient()).await, connect(&server.url(), patient()).await];
    let guard = one.reentrant_lock("a").lock().await.unwrap();
    assert!(two.reentrant_lock("a").try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

/// Lets the task go on until another thread runs it.
async fn migrate(from: ThreadId) -> ThreadId {
    loop {
        // The worker's other tasks move to a new thread, and this one to whichever is free next.
        tokio::task::block_in_place(|| thread::sleep(Duration::from_millis(1)));
        yield_now().await;
        let now = thread::current().id();
        if now != from {
            return now;
        }
    }
}

/// F67: a task is moved to another thread while it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_task_that_was_moved_to_another_thread_still_owns_its_lock() {
    let server = Server::start().await;
    let client = connect(&server.url(), patient()).await;
    let lock = client.reentrant_lock("a");
    let task = tokio::spawn(async move {
        let first = thread::current().id();
        let outer = lock.lock().await.unwrap();
        let second = timeout(SOON, migrate(thread::current().id())).await.unwrap();
        let inner = lock.try_lock().await.unwrap().expect("it is the same owner");
        assert_eq!(inner.hold_count(), 2);

        // A task that it spawns is somebody else, on whatever thread.
        let other = tokio::spawn({
            let lock = lock.clone();
            async move { lock.try_lock().await.unwrap().is_none() }
        });
        assert!(other.await.unwrap(), "a spawned task is not the owner");
        // The thread it came from has no part in it either.
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        (first, second)
    });
    task.await.unwrap();
}

/// F67: one piece of work is spread over tasks and threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explicit_owner_holds_across_tasks_and_threads() {
    let server = Server::start().await;
    let client = connect(&server.url(), patient()).await;
    let (owner, lock) = (Owner::new(), client.reentrant_lock("a"));
    let outer = lock.clone().owned_by(&owner).lock().await.unwrap();
    let elsewhere = thread::spawn({
        let (owner, lock) = (owner.clone(), lock.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let (mine, others) = runtime.unwrap().block_on(async {
                let mine = lock.clone().owned_by(&owner).try_lock().await.unwrap();
                (mine, lock.owned_by(&Owner::new()).try_lock().await.unwrap())
            });
            (thread::current().id(), mine, others)
        }
    });
    let (there, inner, others) = elsewhere.join().unwrap();
    assert_ne!(there, thread::current().id(), "it was another thread");

    let inner = inner.expect("the owner may enter from anywhere");
    assert!(others.is_none());
    assert_eq!(outer.hold_count(), 2);
    outer.unlock().await.unwrap();
    inner.unlock().await.unwrap();
    let free = async || lock.try_lock().await.unwrap().is_some();
    eventually(SOON, "the last hold frees it", free).await;
}

/// F67: the futures themselves are moved, before and between their polls.
#[tokio::test]
async fn every_future_may_be_moved_to_another_thread() {
    fn movable<F: Future + Send>(future: F) -> F {
        future
    }
    let server = Server::start().await;
    let url = server.url();
    let client = movable(Client::connect_with(&url, patient())).await.unwrap();
    let (lock, reentrant) = (client.lock("a"), client.reentrant_lock("b"));
    // Generic code, such as a web framework's, asks for no less.
    let worked = tokio::spawn(async move {
        let guard = movable(lock.lock()).await?;
        movable(guard.extend(SOON)).await?;
        let lost = movable(guard.ended());
        assert!(movable(lock.try_lock()).await?.is_none());
        assert!(movable(lock.is_locked()).await? && movable(lock.ttl()).await?.is_some());
        movable(guard.unlock()).await?;
        assert_eq!(lost.await, Ended::Released);
        drop(movable(lock.try_lock_for(SOON)).await?);
        movable(lock.run(async |hold: Hold| hold.token())).await?;
        movable(lock.force_unlock()).await?;
        movable(reentrant.lock()).await?.unlock().await?;
        drop((movable(reentrant.try_lock()).await?, movable(reentrant.try_lock_for(SOON)).await?));
        movable(reentrant.run(async |hold: Hold| hold.is_valid())).await?;
        assert!(movable(reentrant.ttl()).await?.is_none() || movable(reentrant.is_locked()).await?);
        movable(reentrant.force_unlock()).await?;
        movable(client.close()).await;
        Ok::<_, parklock::Error>(())
    });
    worked.await.unwrap().unwrap();
}
