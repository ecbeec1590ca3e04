//! Whatever is dropped, whenever: nothing is left behind.

use crate::common;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use common::fixture::{LONG, SOON, client, client_with, lock_keys, parked};
use common::{Admin, Site, eventually, timeout};
use parklock::{Client, Config, Guard, Lock};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

const NAMES: usize = 5;
const CLIENTS: usize = 3;
const TASKS: usize = 20;

/// A random time of the order of one hold.
async fn a_moment() {
    match fastrand::u64(0..4) {
        0 => yield_now().await,
        _ => sleep(Duration::from_micros(fastrand::u64(0..3_000))).await,
    }
}

/// Waits for the lock until a random moment, and ends the wait in a random way.
async fn impatient(lock: &Lock) -> Option<Guard> {
    match fastrand::u8(0..4) {
        0 => tokio::select! {
            guard = lock.lock() => Some(guard.expect("a lock")),
            () = a_moment() => None,
        },
        1 => timeout(Duration::from_micros(fastrand::u64(0..3_000)), lock.lock()).await.ok()?.ok(),
        2 => lock.try_lock_for(Duration::from_micros(fastrand::u64(1..3_000))).await.ok()?,
        _ => {
            let lock = lock.clone();
            let waiter = tokio::spawn(async move { lock.lock().await.expect("a lock") });
            a_moment().await;
            waiter.abort();
            waiter.await.ok()
        }
    }
}

/// Runs until all tasks together have given up this many waits.
async fn give_up(client: Client, given_up: Arc<AtomicUsize>, enough: usize) {
    while given_up.load(Ordering::Relaxed) < enough {
        let name = format!("{}", fastrand::usize(..NAMES));
        let Some(guard) = impatient(&client.lock(name)).await else {
            given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        a_moment().await;
        match fastrand::bool() {
            true => drop(guard),
            false => {
                drop(timeout(Duration::from_micros(fastrand::u64(0..500)), guard.unlock()).await)
            }
        }
    }
}

/// That neither keys nor subscriptions are left.
async fn nothing_left(admin: &Admin) {
    let clean = async || lock_keys(admin).await.is_empty() && admin.channels().await.is_empty();
    eventually(SOON, "keys and channels are gone", clean).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waits_that_are_given_up_leave_nothing_behind() {
    let server = Site::start().await;
    let (admin, tasks) = (server.admin().await, Handle::current().metrics().num_alive_tasks());
    let config = Config::default().subscription_linger(Duration::from_millis(20));
    let (mut clients, mut crowd) = (Vec::new(), JoinSet::new());
    let given_up = Arc::new(AtomicUsize::new(0));
    for _ in 0..CLIENTS {
        let client = client_with(&server, config.clone()).await;
        for _ in 0..TASKS {
            crowd.spawn(give_up(client.clone(), Arc::clone(&given_up), 10_000));
        }
        clients.push(client);
    }
    timeout(LONG, crowd.join_all()).await.unwrap();

    nothing_left(&admin).await;
    for name in (0..NAMES).map(|name| name.to_string()) {
        for client in &clients {
            let free = timeout(SOON, client.lock(&name).lock()).await.expect("its turn is free");
            free.unwrap().unlock().await.unwrap();
        }
    }
    for client in clients {
        client.close().await;
    }
    let ended = async || Handle::current().metrics().num_alive_tasks() == tasks;
    eventually(SOON, "every task has ended", ended).await;
}

/// Polls a future this many times, each time after it was woken, and then drops it. Returns its output if it was done
/// by then.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(move |context| match left {
        0 => Poll::Ready(None),
        _ => {
            left -= 1;
            let output = future.as_mut().poll(context).map(Some);
            if left == 0 && output.is_pending() { Poll::Ready(None) } else { output }
        }
    })
    .await
}

/// Two clients of one server. Their leases are far longer than a test waits.
struct Pair {
    server: Site,
    ours: Client,
    theirs: Client,
}

impl Pair {
    async fn new() -> Self {
        let server = Site::start().await;
        let (ours, theirs) = (client(&server).await, client(&server).await);
        Self { server, ours, theirs }
    }

    /// That the lock comes free long before its lease is over, for others and for ourselves.
    async fn is_free(&self, step: &str) {
        for client in [&self.theirs, &self.ours] {
            let guard = client.lock("a").try_lock_for(SOON).await.expect("an answer");
            let guard = guard.unwrap_or_else(|| panic!("{step}: it is still held"));
            guard.unlock().await.expect("it is ours");
        }
        assert!(lock_keys(&self.server.admin().await).await.is_empty(), "{step}");
    }

    /// Drops the future after each number of polls, until it is done before that; it must take a few.
    async fn dropped_at_each_poll<T>(&self, what: &str, mut call: impl AsyncFnMut() -> T) {
        for polls in 0.. {
            let done = polled(polls, call()).await;
            let is_done = done.is_some();
            drop(done);
            self.is_free(&format!("{what}, dropped after {polls} polls")).await;
            if is_done {
                assert!(polls > 1, "{what} never waited");
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_call_on_a_free_lock_that_is_dropped_at_any_poll_leaves_it_free() {
    let pair = Pair::new().await;
    let (lock, reentrant) = (pair.ours.lock("a"), pair.ours.reentrant_lock("a"));
    pair.dropped_at_each_poll("lock", async || lock.lock().await.unwrap()).await;
    pair.dropped_at_each_poll("try_lock", async || lock.try_lock().await.unwrap()).await;
    pair.dropped_at_each_poll("try_lock_for", async || lock.try_lock_for(SOON).await.unwrap())
        .await;
    pair.dropped_at_each_poll("lease", async || lock.clone().lease(LONG).lock().await.unwrap())
        .await;
    pair.dropped_at_each_poll("reentrant", async || reentrant.lock().await.unwrap()).await;
}

#[tokio::test]
async fn a_run_that_is_dropped_at_any_poll_gives_its_lock_back() {
    let pair = Pair::new().await;
    let lock = pair.ours.lock("a");
    let run = async || lock.run(async |_| yield_now().await).await.unwrap();
    pair.dropped_at_each_poll("run", run).await;
}

#[tokio::test]
async fn a_wait_that_is_dropped_at_any_poll_leaves_its_place() {
    let pair = Pair::new().await;
    for holder in [&pair.theirs, &pair.ours] {
        pair.dropped_at_each_poll("wait", async || {
            let held = holder.lock("a").lock().await.unwrap();
            let given_back = tokio::spawn(async move {
                sleep(Duration::from_millis(3)).await;
                held.unlock().await.unwrap();
            });
            let guard = pair.ours.lock("a").lock().await.unwrap();
            given_back.await.unwrap();
            guard
        })
        .await;
    }
}

#[tokio::test]
async fn an_unlock_that_is_dropped_at_any_poll_still_gives_the_lock_back() {
    let pair = Pair::new().await;
    for polls in 0.. {
        let guard = pair.ours.lock("a").lock().await.unwrap();
        let done = polled(polls, guard.unlock()).await;
        pair.is_free(&format!("unlock, dropped after {polls} polls")).await;
        if done.is_some_and(|done| done.is_ok()) {
            assert!(polls > 1, "unlock never waited");
            return;
        }
    }
}

#[tokio::test]
async fn a_nested_call_that_is_dropped_at_any_poll_adds_no_hold() {
    let pair = Pair::new().await;
    let lock = pair.ours.reentrant_lock("a");
    let admin = pair.server.admin().await;
    let counted =
        async || admin.hgetall(&common::fixture::key("a")).await.into_values().collect::<Vec<_>>();
    for polls in 0.. {
        let outer = lock.lock().await.unwrap();
        let nested = polled(polls, lock.lock()).await;
        let is_done = nested.is_some();
        drop(nested);
        assert_eq!(outer.hold_count(), 1);
        eventually(SOON, "Redis counts one too", async || counted().await == ["1"]).await;
        let left = polled(polls, lock.lock().await.unwrap().unlock()).await;
        eventually(SOON, "and again", async || counted().await == ["1"]).await;
        outer.unlock().await.unwrap();
        pair.is_free(&format!("nested, dropped after {polls} polls")).await;
        if is_done && left.is_some() {
            return;
        }
    }
}

#[tokio::test]
async fn an_extension_that_is_dropped_at_any_poll_changes_no_more_than_the_lease() {
    let pair = Pair::new().await;
    for polls in 0.. {
        let guard = pair.ours.lock("a").lock().await.unwrap();
        let done = polled(polls, guard.extend(LONG)).await;
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
        pair.is_free(&format!("extend, dropped after {polls} polls")).await;
        if done.is_some_and(|done| done.is_ok()) {
            return;
        }
    }
}

#[tokio::test]
async fn a_panic_gives_back_what_it_held() {
    let pair = Pair::new().await;
    let (lock, reentrant) = (pair.ours.lock("a"), pair.ours.reentrant_lock("a"));
    let holds = tokio::spawn({
        let lock = lock.clone();
        async move {
            let _guard = lock.lock().await.unwrap();
            panic!("this panic is part of the test");
        }
    });
    assert!(holds.await.is_err_and(|error| error.is_panic()));
    pair.is_free("a panic").await;
    let nests = tokio::spawn(async move {
        let _guards = [reentrant.lock().await.unwrap(), reentrant.lock().await.unwrap()];
        panic!("this panic is part of the test");
    });
    assert!(nests.await.is_err_and(|error| error.is_panic()));
    pair.is_free("a nested panic").await;
    let runs =
        tokio::spawn(
            async move { lock.run(async |_| panic!("this panic is part of the test")).await },
        );
    assert!(runs.await.is_err_and(|error| error.is_panic()));
    pair.is_free("a panic in run").await;
}

#[tokio::test]
async fn a_waiter_that_goes_leaves_its_place_to_the_next() {
    let pair = Pair::new().await;
    let held = pair.theirs.lock("a").lock().await.unwrap();
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let lock = pair.ours.lock("a");
            tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
        })
        .collect();
    parked(&pair.server.admin().await, "a", 1).await;
    for waiter in &waiters[..9] {
        waiter.abort();
    }
    held.unlock().await.unwrap();
    for (number, waiter) in waiters.into_iter().enumerate() {
        assert_eq!(timeout(SOON, waiter).await.unwrap().is_ok(), number == 9);
    }
    pair.is_free("cancelled waiters").await;
}
