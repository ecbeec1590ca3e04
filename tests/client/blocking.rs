//! Locks for code without a runtime: what blocks, what a drop does, and what happens within a runtime.

use crate::common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::fixture::{LONG, SOON, client, got_nothing, key, lock_keys, quick};
use common::{Proxy, Server, eventually, judged, timeout};
use parklock::blocking::Client;
use parklock::{Config, Error};
use tokio::sync::oneshot;

/// Does this on a thread of its own, which belongs to no runtime.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || _ = tell.send(work()));
    timeout(SOON * 3, told).await.expect("it comes to its end").expect("it does not panic")
}

/// A client of a server that is there, and may answer late on a machine that is busy.
fn comes_in(url: &str) -> Client {
    Client::connect_with(url, Config::default().start_timeout(LONG)).expect("it is there")
}

/// With a client that is dropped at the end.
async fn blocks<T: Send + 'static>(
    server: &Server,
    work: impl FnOnce(Client) -> T + Send + 'static,
) -> T {
    let url = server.url();
    beside(move || work(comes_in(&url))).await
}

#[tokio::test]
async fn threads_exclude_each_other() {
    let server = Server::start().await;
    let most = blocks(&server, |client| {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for caller in 0..4 {
                let (lock, fair) = (client.lock("a"), client.fair_lock("f"));
                let (inside, most) = (&inside, &most);
                scope.spawn(move || {
                    for _ in 0..10 {
                        let guard = lock.lock().unwrap();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        if caller % 2 == 0 {
                            guard.unlock().unwrap()
                        } else {
                            drop(guard)
                        }
                        drop(fair.lock().unwrap());
                    }
                });
            }
        });
        most.into_inner()
    })
    .await;
    assert_eq!(most, 1);
}

#[tokio::test]
async fn a_busy_lock_is_waited_for_for_so_long() {
    let server = Server::start().await;
    let held = client(&server).await.lock("a").lock().await.unwrap();
    blocks(&server, |client| {
        let lock = client.lock("a");
        assert!(lock.is_locked().unwrap() && lock.ttl().unwrap().is_some());
        assert!(lock.try_lock().unwrap().is_none());
        got_nothing(lock.try_lock_for(Duration::from_secs(1)));
        assert!(lock.force_unlock().unwrap());
        let guard = lock.try_lock_for(SOON).unwrap().expect("it is free");
        assert_eq!(client.holds().held[0].token, Some(guard.token()));
        guard.extend(Duration::from_secs(60)).unwrap();
        assert!(guard.remaining() > Duration::from_secs(31) && guard.hold().is_valid());
    })
    .await;
    assert!(matches!(held.unlock().await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn the_owner_of_a_reentrant_lock_is_the_thread() {
    let server = Server::start().await;
    blocks(&server, |client| {
        let lock = client.reentrant_lock("a");
        let outer = lock.lock().unwrap();
        let inner = lock.lock().unwrap();
        assert_eq!(inner.hold_count(), 2);
        let another = lock.clone();
        let is_its = thread::spawn(move || another.try_lock().unwrap().is_some()).join().unwrap();
        assert!(!is_its, "another thread is another owner");
        inner.unlock().unwrap();
        outer.unlock().unwrap();
    })
    .await;
}

#[tokio::test]
async fn readers_writers_and_permits_have_guards_too() {
    let server = Server::start().await;
    blocks(&server, |client| {
        let (rw, permits) = (client.rw_lock("d"), client.semaphore("e", 3));
        let reads = [rw.read().unwrap(), rw.try_read().unwrap().expect("beside")];
        assert!(rw.try_write().unwrap().is_none());
        reads.into_iter().for_each(|read| read.unlock().unwrap());
        rw.write().unwrap().unlock().unwrap();
        assert!(rw.run_write(|hold| hold.is_valid()).unwrap());
        let two = permits.acquire_many(2).unwrap();
        assert_eq!(permits.available_permits().unwrap(), 1);
        assert!(permits.try_acquire_many(2).unwrap().is_none());
        two.unlock().unwrap();
    })
    .await;
}

/// The lease is thirty seconds: only a release frees a lock sooner. It takes a while.
#[tokio::test]
async fn whoever_drops_the_last_of_a_client_waits_until_all_is_released() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let _slow = proxy.everything().delay_request(Duration::from_millis(50), Duration::ZERO);
    let (url, admin) = (proxy.url(), server.admin().await);
    let last = beside(move || {
        let client = comes_in(&url);
        let [first, last] = ["a", "b"].map(|name| client.lock(name).lock().unwrap());
        drop(client);
        assert!(first.is_valid() && last.is_valid(), "guards keep the client");
        drop(first);
        last
    })
    .await;
    let only_b = async || lock_keys(&admin).await == [key("b")];
    eventually(SOON, "the first one is released in the background", only_b).await;
    beside(move || drop(last)).await;
    assert!(lock_keys(&admin).await.is_empty(), "no need to wait");
}

#[tokio::test]
async fn a_thread_that_works_for_long_keeps_its_lock() {
    let server = Server::start().await;
    judged(async || {
        let (url, config) = (server.url(), quick().start_timeout(SOON));
        let kept = beside(move || {
            let client = Client::connect_with(&url, config)?;
            let guard = client.lock("a").lock()?;
            thread::sleep(Duration::from_millis(3_500));
            guard.unlock()
        });
        kept.await.expect("the watchdog has renewed it");
    })
    .await;
}

#[tokio::test]
async fn work_under_a_lock_ends_and_a_loss_is_reported() {
    let server = Server::start().await;
    blocks(&server, |client| {
        let lock = client.lock("a");
        let nested = lock.run(|hold| {
            assert!(hold.is_valid());
            client.lock("b").lock().unwrap().unlock().unwrap(); // a call within the work
            7
        });
        assert_eq!(nested.unwrap(), 7);
        assert!(!lock.is_locked().unwrap());

        let mut ended = false;
        let lost = lock.run(|_| {
            assert!(lock.force_unlock().unwrap());
            ended = true;
        });
        assert!(matches!(lost, Err(Error::Lost { .. })) && ended, "{lost:?}");

        let panics = catch_unwind(AssertUnwindSafe(|| lock.run(|_| panic!("as expected"))));
        assert!(panics.is_err());
        lock.try_lock_for(SOON).unwrap().expect("it was released").unlock().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_closed_client_says_so_and_panics_nowhere() {
    let server = Server::start().await;
    blocks(&server, |client| {
        let lock = client.lock("a");
        let guard = lock.lock().unwrap();
        client.close();
        assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
        assert!(matches!(lock.lock(), Err(Error::Closed)));
        assert!(matches!(lock.is_locked(), Err(Error::Closed)));
        client.close();
    })
    .await;
    let refused = beside(|| Client::connect("redis://127.0.0.1:1")).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
}

/// What a panic said, if it was one.
fn panic_of<T>(call: impl FnOnce() -> T) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(call)).err()?;
    Some(
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| Some((*panic.downcast_ref::<&str>()?).into()))
            .unwrap_or_default(),
    )
}

#[tokio::test]
async fn a_call_in_asynchronous_code_panics_and_a_drop_does_not() {
    let server = Server::start().await;
    let (url, admin) = (server.url(), server.admin().await);
    let told = panic_of(|| Client::connect(&url)).expect("it blocks");
    assert!(told.contains("runtime"), "{told}");

    let (lock, guard) = blocks(&server, |client| {
        let lock = client.lock("a");
        (lock.clone(), lock.lock().unwrap())
    })
    .await;
    assert!(panic_of(|| lock.try_lock()).is_some_and(|told| told.contains("runtime")));
    let guard = timeout(
        SOON,
        tokio::task::spawn_blocking(move || {
            guard.unlock().unwrap(); // here blocking is allowed
            lock.lock().unwrap()
        }),
    );
    let guard = guard.await.unwrap().unwrap();
    drop(guard); // the last one of the client, on the thread of this runtime
    let is_free = async || lock_keys(&admin).await.is_empty();
    eventually(SOON, "another thread closes the client", is_free).await;
}

#[tokio::test]
async fn what_has_no_method_is_called_all_the_same() {
    let server = Server::start().await;
    let left = blocks(&server, |client| {
        client.block_on(async |client| {
            let latch = client.count_down_latch("l");
            latch.set(3).await?;
            latch.count_down().await
        })
    });
    assert_eq!(left.await.unwrap(), 2);
    let again = Config::default().response_timeout(SOON);
    let url = server.url();
    let wrong = beside(move || Client::connect_with(&url, again)).await;
    assert!(matches!(wrong, Err(Error::Config { .. })), "{wrong:?}");
}
