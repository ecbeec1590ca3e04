//! A client that is closed, or whose runtime ends, with locks held and waited for.

use std::collections::BTreeSet;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parklock::{Client, Ended, Error, Guard};
use tokio::runtime::{Builder, Runtime};

use crate::common::{
    Server, Watch, Worker, WorkerSide, eventually, judged, judged_beside_its_load, timeout,
};
use crate::guards::drop_at_the_end_of_a_thread;
use crate::log::Log;
use crate::{
    A_WHILE, LEASE, SOON, brief, connect, fields, is_clean, is_deserted, key, left, patient,
    somebody_waits, tasks,
};

/// A client on a runtime of its own, with these locks held.
fn holding(url: &str, names: &[String]) -> (Runtime, Client, Vec<Guard>) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (client, guards) = runtime.block_on(async {
        let (client, mut guards) = (connect(url, brief()).await, Vec::new());
        for name in names {
            guards.push(client.lock(name).lock().await.expect("it is free"));
        }
        (client, guards)
    });
    (runtime, client, guards)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("lock {n}")).collect()
}

/// F60: guards are dropped when their runtime has ended.
#[tokio::test]
async fn guards_dropped_after_their_runtime_do_not_panic_and_say_so_once() {
    judged_beside_its_load(async || {
        let server = Server::start().await;
        let (admin, url) = (server.admin().await, server.url());
        let ended = thread::spawn(move || {
            let (log, _listening) = Log::here();
            let (runtime, client, mut guards) = holding(&url, &names(5));
            drop(runtime);
            drop_at_the_end_of_a_thread(guards.pop().expect("there are five"))?;
            drop(guards);
            drop(client);
            Ok::<_, Box<dyn std::any::Any + Send>>(log)
        });
        let log = ended.join().and_then(|ended| ended).expect("no panic");
        assert_eq!(admin.keys().await.len(), 6, "nobody could give them back");

        let said = log.lines_with("its locks are left to their leases");
        assert!(said <= 1, "{}", log.text());
        for name in names(5) {
            let ttl = admin.pttl(&key(&name)).await;
            assert!(ttl != -1, "{name} would stay for ever");
        }
        is_clean(&admin, SOON, "the leases free them").await;
    })
    .await;
}

/// F61: the client is closed with locks held and waited for, then its runtime ends.
#[tokio::test]
async fn close_gives_back_all_that_is_held_and_ends_every_task() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let idle = tasks();
    let response = Duration::from_secs(7);
    let client = connect(&server.url(), patient().response_timeout(response)).await;
    let mut guards = Vec::new();
    for name in names(300) {
        guards.push(client.lock(name).lock().await.unwrap());
    }
    let waiter = tokio::spawn({
        let lock = client.lock("lock 0");
        async move { lock.lock().await }
    });
    eventually(SOON, "all are held", async || admin.keys().await.len() == 301).await;
    assert!(tasks() > idle);

    let closing = Watch::apart();
    client.close().await;
    let took = closing.passed();

    assert!(took < response, "{took:?}, more than one response timeout");
    assert_eq!(left(&admin).await, Vec::<String>::new());
    assert!(matches!(waiter.await.unwrap(), Err(Error::Closed)));
    assert_eq!(tasks(), idle);
    for guard in guards {
        assert!(!guard.is_valid());
        assert_eq!(guard.ended().await, Ended::Lost);
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    }
    assert!(matches!(client.lock("a").lock().await, Err(Error::Closed)));
    drop(client);
    is_deserted(&admin).await;
}

/// F61: the client is closed while the server does not answer.
#[tokio::test]
async fn close_does_not_wait_for_a_server_that_is_gone() {
    judged(async || {
        let server = Server::start().await;
        let idle = tasks();
        let client = connect(&server.url(), brief()).await;
        let guard = client.lock("a").lock().await.unwrap();
        server.pause();

        let closing = Watch::apart();
        client.close().await;
        let took = closing.passed();
        assert!(took < LEASE / 4 + Duration::from_secs(1), "{took:?}");
        assert!(!guard.is_valid());
        assert_eq!(tasks(), idle);
        server.resume();
        let admin = server.admin().await;
        is_clean(&admin, SOON, "it is given back after all, or left to its lease").await;
    })
    .await;
}

/// F61: the runtime ends with locks held, and nobody closed the client.
#[tokio::test]
async fn a_client_whose_runtime_has_ended_is_closed_and_its_leases_free_its_locks() {
    judged_beside_its_load(async || {
        let server = Server::start().await;
        let (admin, url) = (server.admin().await, server.url());
        let (runtime, client, guards) =
            thread::spawn(move || holding(&url, &names(5))).join().unwrap();
        let waiter = tokio::spawn({
            let lock = client.lock("lock 0");
            async move { lock.lock().await }
        });
        let lost = tokio::spawn(guards[0].ended());
        let next = connect(&server.url(), patient()).await;
        let next = tokio::spawn(async move { next.lock("lock 0").lock().await });
        somebody_waits(&admin, "lock 0").await;

        runtime.shutdown_background();
        assert_eq!(fields(&admin, "lock 0").await.len(), 1, "nobody gave it back");

        let ended = timeout(SOON, lost).await.expect("the holder is told").unwrap();
        assert_eq!(ended, Ended::Lost);
        let all_lost = async || guards.iter().all(|guard| !guard.is_valid());
        eventually(SOON, "every guard is told", all_lost).await;
        let waited = timeout(SOON, waiter).await.expect("the waiter is told").unwrap();
        assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
        assert!(matches!(client.lock("other").lock().await, Err(Error::Closed)));
        assert!(matches!(client.lock("other").try_lock().await, Err(Error::Closed)));
        let guard = timeout(SOON, next).await.expect("the lease frees it").unwrap();
        guard.unwrap().unlock().await.unwrap();
        client.close().await;
        drop(guards);
    })
    .await;
}

/// Counts the panics of a whole process while a runtime ends in the middle of everything.
#[test]
#[ignore = "a worker process"]
fn worker_whose_runtime_ends() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let Some(boss) = WorkerSide::here() else { return };
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    panic::set_hook(Box::new(move |panic| {
        eprintln!("{panic}");
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let url = boss.variable("URL");
    let (told, tells) = mpsc::channel();
    let held = thread::spawn(move || {
        let ending = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = ending.block_on(connect(&url, brief()));
        for name in names(40) {
            // One holds it, three wait in line, and another lock comes and goes.
            for _ in 0..4 {
                let (lock, told, name) = (client.lock(&name), told.clone(), name.clone());
                ending.spawn(async move {
                    let _guard = lock.lock().await?;
                    let _ = told.send(name);
                    std::future::pending::<parklock::Result<()>>().await
                });
            }
            let lock = client.lock(format!("busy {name}"));
            ending.spawn(async move {
                while let Ok(guard) = lock.lock().await {
                    let _ = guard.unlock().await;
                }
            });
        }
        let mut held = BTreeSet::new();
        while held.len() < 40 {
            held.insert(tells.recv_timeout(SOON).expect("each has its holder"));
        }
        thread::sleep(A_WHILE * 3);
        drop(ending); // in the middle of everything
        held.len()
    })
    .join()
    .expect("no panic");
    boss.tell(&format!("{held} held, {} panics", panics.load(Ordering::Relaxed)));
}

/// F61: a busy runtime ends; no task of ours panics about it.
#[tokio::test]
async fn nothing_panics_when_a_busy_runtime_ends() {
    let server = Server::start().await;
    let mut worker =
        Worker::start("runtime_end::worker_whose_runtime_ends", &[("URL", &server.url())]);
    assert_eq!(worker.hear().await, "40 held, 0 panics");
    is_clean(&server.admin().await, SOON, "the leases free what was held").await;
}
