//! One lock on a majority of servers: F50, and what holds for every exclusive lock.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::fixture::{A_WHILE, LONG, SOON, channel, client, comes_in, key, lock_keys, parked};
use common::{Admin, Proxy, Server, Watch, eventually, judged, timeout};
use futures_util::FutureExt;
use parklock::{Client, Config, Ended, Error, RedGuard, RedHold, RedLock};
use parklock_testing::Redis;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What a wake-up may take on a machine that has other things to do: far less than the round in which a waiter looks.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Several servers that know nothing of each other, each behind a proxy.
struct Stage {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    admins: Vec<Admin>,
}

impl Stage {
    async fn set(servers: usize) -> Self {
        let mut stage = Self { servers: Vec::new(), proxies: Vec::new(), admins: Vec::new() };
        for _ in 0..servers {
            let server = Server::start().await;
            let proxy = Proxy::before(&server).await;
            proxy.name_acquires();
            stage.proxies.push(proxy);
            stage.admins.push(server.admin().await);
            stage.servers.push(server);
        }
        stage
    }

    /// A client of each server, as one process has them.
    async fn lock_with(&self, config: Config) -> RedLock {
        let mut locks = Vec::new();
        for proxy in &self.proxies {
            locks.push(comes_in(proxy.url(), config.clone()).await.lock("a"));
        }
        RedLock::new(locks)
    }

    async fn lock(&self) -> RedLock {
        self.lock_with(Config::default()).await
    }

    /// On how many of these servers the lock is held.
    async fn held(&self) -> usize {
        let mut held = 0;
        for admin in &self.admins {
            held += usize::from(!lock_keys(admin).await.is_empty());
        }
        held
    }

    /// One of them loses everything.
    async fn restarts_empty(&mut self, at: usize) {
        self.servers[at].restart().await;
        self.admins[at] = self.servers[at].admin().await;
    }

    async fn is_free(&self) {
        eventually(SOON, "it is free everywhere", async || self.held().await == 0).await;
    }
}

/// With a lease of three seconds, and an end of patience that a test can wait for.
fn quick() -> Config {
    Config::default()
        .watchdog_timeout(Duration::from_secs(3))
        .response_timeout(Duration::from_millis(500))
        .ride_out(Duration::from_secs(1))
}

/// Waits for a server that does not answer for longer than a test does.
fn patient() -> Config {
    Config::default().watchdog_timeout(LONG).response_timeout(LONG / 10)
}

fn wait(lock: &RedLock) -> JoinHandle<Result<RedGuard, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// Held on so many servers. On a busy machine one of them may answer too late, and is given back.
async fn held_on(servers: usize, lock: &RedLock) -> RedGuard {
    loop {
        let guard = in_time(lock.lock()).await.expect("the lock");
        if guard.servers() == servers {
            return guard;
        }
        guard.unlock().await.expect("it is ours");
    }
}

/// On how many servers it is held, which only its `Debug` tells.
fn servers_of(hold: &RedHold) -> usize {
    format!("{hold:?}").matches("Hold {").count() - 1 // without itself
}

/// As `try_lock`, once a majority has answered in time.
async fn answered(lock: &RedLock) -> Option<RedGuard> {
    loop {
        match lock.try_lock().await {
            Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {}
            answer => return answer.expect("an answer"),
        }
    }
}

/// It is somebody else's for as long as we look. On a busy machine that may be too short for an answer.
async fn is_not_to_be_had(lock: &RedLock) {
    match lock.try_lock_for(A_WHILE).await {
        Ok(None) | Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {}
        other => panic!("{other:?}"),
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.expect("it takes less")
}

#[tokio::test]
async fn one_client_holds_it_and_a_waiter_is_told_of_the_release() {
    let stage = Stage::set(3).await;
    let (one, other) = (stage.lock().await, stage.lock().await);

    let guard = held_on(3, &one).await;
    assert!(guard.is_valid());
    let held = async || stage.held().await == 3;
    assert!(held().await);
    assert!(one.is_locked().await.unwrap());
    assert!(answered(&other).await.is_none());
    is_not_to_be_had(&other).await;
    assert!(guard.is_valid());
    eventually(SOON, "the caller that did not get it took nothing away, and keeps nothing", held)
        .await;

    let waiting = wait(&other);
    parked(&stage.admins[0], "a", 1).await;
    guard.unlock().await.unwrap();
    // The lease is thirty seconds: what comes sooner was told.
    in_time(waiting).await.unwrap().unwrap().unlock().await.unwrap();
    stage.is_free().await;
    assert!(!one.is_locked().await.unwrap());
}

#[tokio::test]
async fn many_take_turns_and_never_two_at_once() {
    const TURNS: u64 = 20;
    let stage = Arc::new(Stage::set(3).await);
    let counter = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for _ in 0..6 {
        let (lock, counter) = (stage.lock().await, Arc::clone(&counter));
        workers.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.unwrap();
                let seen = counter.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                counter.store(seen + 1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            }
        }));
    }
    for worker in workers {
        timeout(SOON * 6, worker).await.expect("callers do not block each other").unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 6 * TURNS);
    stage.is_free().await;
}

/// F50: a minority is down before, and goes down meanwhile.
#[tokio::test]
async fn a_minority_that_is_down_is_not_missed() {
    judged(async || {
        let stage = Stage::set(5).await;
        let config = || quick().watchdog_timeout(Duration::from_secs(8));
        let (one, other) = (stage.lock_with(config()).await, stage.lock_with(config()).await);
        stage.servers[0].kill();

        let guard = held_on(4, &one).await;
        assert!(answered(&other).await.is_none());
        stage.servers[4].kill();
        sleep(Duration::from_secs(9)).await; // longer than the lease: renewed on a majority
        assert!(guard.is_valid());
        assert_eq!(guard.servers(), 3);

        let waiting = wait(&other);
        guard.unlock().await.unwrap();
        in_time(waiting).await.unwrap().unwrap().unlock().await.unwrap();
        for admin in &stage.admins[1..4] {
            eventually(SOON, "it is free", async || lock_keys(admin).await.is_empty()).await;
        }
    })
    .await;
}

/// F50: one server is held, one is down, and one says nothing: it may be down too.
#[tokio::test]
async fn a_lock_is_not_reported_as_held_before_a_majority_has_answered() {
    let stage = Stage::set(3).await;
    let (one, other) = (stage.lock_with(quick()).await, stage.lock_with(quick()).await);
    let guard = held_on(3, &one).await;
    stage.servers[0].kill();
    let _silent = stage.proxies[2].blackhole(None);
    let answer = in_time(other.try_lock()).await;
    let told = matches!(answer, Err(Error::Unavailable { .. } | Error::Indeterminate { .. }));
    assert!(told, "{answer:?}");
    drop(guard);
}

/// F50: without a majority nobody gets the lock, and its holder loses it by its deadline.
#[tokio::test]
async fn without_a_majority_the_lock_is_lost_and_cannot_be_taken() {
    let stage = Stage::set(3).await;
    let (one, other) = (stage.lock_with(quick()).await, stage.lock_with(quick()).await);
    let guard = one.lock().await.unwrap();
    stage.servers[0].kill();
    stage.servers[2].kill();

    // The first request on a connection that has just been cut may have run.
    for answer in [in_time(other.try_lock()).await, in_time(other.lock()).await.map(Some)] {
        let told = matches!(answer, Err(Error::Unavailable { .. } | Error::Indeterminate { .. }));
        assert!(told, "{answer:?}");
    }
    let asked = in_time(other.is_locked()).await;
    assert!(matches!(asked, Err(Error::Unavailable { .. })), "{asked:?}");

    assert_eq!(in_time(guard.ended()).await, Ended::Lost);
    assert!(!guard.is_valid());
    assert!(in_time(guard.unlock()).await.is_err());
}

/// Each caller finds another one of its own client asking, which says nothing about the servers.
#[tokio::test]
async fn callers_of_one_client_do_not_prolong_each_others_wait_for_dead_servers() {
    let stage = Stage::set(1).await;
    let lock = stage.lock_with(quick()).await;
    stage.servers[0].kill();
    let callers: Vec<_> = (0..4).map(|_| wait(&lock)).collect();
    for caller in callers {
        let answer = in_time(caller).await.unwrap();
        let told = matches!(answer, Err(Error::Unavailable { .. } | Error::Indeterminate { .. }));
        assert!(told, "{answer:?}");
    }
}

/// F50: a server that answers too late does not count, and gets back what it granted.
#[tokio::test]
async fn a_slow_server_costs_little_and_keeps_nothing() {
    let stage = Stage::set(3).await;
    let lock = stage.lock_with(patient()).await;
    let slow = stage.proxies[1].script("acquire").first(1).hold_reply();

    let guard = in_time(lock.lock()).await.unwrap();
    slow.happened().await;
    assert_eq!(guard.servers(), 2);
    guard.unlock().await.unwrap();
    slow.lift();
    stage.is_free().await;
}

/// F50: a majority answers too late: that is known long before the lease or the patience with one server is over.
#[tokio::test]
async fn a_slow_majority_is_no_majority_and_keeps_nothing() {
    let stage = Stage::set(3).await;
    let lock = stage.lock_with(patient()).await.lease(Duration::from_secs(30));
    let slow = [0, 2].map(|at| stage.proxies[at].script("acquire").first(1).hold_reply());

    let attempt = in_time(lock.try_lock()).await;
    assert!(matches!(attempt, Err(Error::Indeterminate { .. })), "{attempt:?}");
    for slow in slow {
        slow.happened().await;
        slow.lift();
    }
    stage.is_free().await;
}

/// The request to the third server is cut off when the two others make a majority impossible. It may have run.
#[tokio::test]
async fn a_call_with_a_request_that_may_have_run_is_indeterminate() {
    let stage = Stage::set(3).await;
    let lock = stage.lock_with(patient()).await;
    for admin in &stage.admins[..2] {
        admin.config_set("maxmemory", "1").await; // it refuses for now
    }
    let slow = stage.proxies[2].script("acquire").first(1).hold_reply();

    let attempt = in_time(lock.try_lock()).await;
    assert!(matches!(attempt, Err(Error::Indeterminate { .. })), "{attempt:?}");
    slow.happened().await;
    slow.lift();
    stage.is_free().await;
}

/// F50: one server frees the lock early, as if its clock ran ahead.
#[tokio::test]
async fn one_server_that_frees_the_lock_early_lets_nobody_in() {
    let stage = Stage::set(3).await;
    let (one, other) = (stage.lock().await, stage.lock().await);
    let guard = held_on(3, &one).await;
    assert_eq!(stage.admins[1].cmd::<i64>(&["DEL", &key("a")]).await, 1);

    assert!(answered(&other).await.is_none());
    assert!(guard.is_valid());
    eventually(SOON, "the one that it took is given back", async || stage.held().await == 2).await;
    guard.unlock().await.unwrap();
    stage.is_free().await;
}

/// F50: what a majority confirmed is given back, though one server has just gone.
#[tokio::test]
async fn an_unlock_does_not_wait_for_a_minority() {
    let stage = Stage::set(3).await;
    let lock = stage.lock_with(patient().ride_out(LONG)).await;
    let guard = held_on(3, &lock).await;
    stage.servers[2].kill();
    in_time(guard.unlock()).await.unwrap();
    for admin in &stage.admins[..2] {
        assert!(lock_keys(admin).await.is_empty());
    }
}

/// If no server answers, a call that reaches its limit must not report that somebody holds the lock.
#[tokio::test]
async fn a_red_lock_does_not_take_dead_servers_for_another_holder() {
    let stage = Stage::set(3).await;
    let lock = stage.lock_with(quick().ride_out(LONG)).await;
    stage.servers.iter().for_each(Server::kill);
    let waited = in_time(lock.try_lock_for(Duration::from_secs(1))).await;
    let told = matches!(waited, Err(Error::Unavailable { .. } | Error::Indeterminate { .. }));
    assert!(told, "{waited:?}");
}

/// A server that refuses us is as good as one that is down.
#[tokio::test]
async fn a_server_that_refuses_the_lock_does_not_matter_in_a_minority() {
    let stage = Stage::set(3).await;
    let lock = stage.lock().await;
    stage.admins[1].cmd::<i64>(&["RPUSH", &key("a"), "no lock"]).await;
    let guard = in_time(lock.lock()).await.unwrap();
    assert_eq!(guard.servers(), 2);
    guard.unlock().await.unwrap();
    stage.admins[2].cmd::<i64>(&["RPUSH", &key("a"), "no lock"]).await;
    let refused = in_time(lock.lock()).await;
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
}

/// A client without room for a waiter returns an error, and does not let its caller ask forever.
#[tokio::test]
async fn a_waiter_beyond_max_waiters_of_a_server_is_told() {
    let stage = Stage::set(3).await;
    let alone = Config::default().max_waiters(1);
    let (one, other) = (stage.lock().await, stage.lock_with(alone).await);
    let _guard = held_on(3, &one).await;
    let _waiting = wait(&other);
    parked(&stage.admins[0], "a", 1).await;
    let told = in_time(other.lock()).await;
    assert!(matches!(told, Err(Error::TooManyWaiters { limit: 1 })), "{told:?}");
}

#[tokio::test]
async fn a_majority_that_is_taken_away_is_a_loss_and_ends_the_work() {
    judged(async || {
        let stage = Stage::set(3).await;
        let lock = stage.lock_with(quick()).await;
        let (working, hold) = loop {
            let (began, started) = tokio::sync::oneshot::channel();
            let runs = lock.clone();
            let working = tokio::spawn(async move {
                let work = |hold: RedHold| async move {
                    began.send(hold).unwrap();
                    std::future::pending::<()>().await;
                };
                runs.run(work).await
            });
            let hold = started.await.unwrap();
            if servers_of(&hold) == 3 {
                break (working, hold);
            }
            working.abort();
            stage.is_free().await;
        };
        stage.admins[0].cmd::<i64>(&["DEL", &key("a")]).await;
        sleep(Duration::from_millis(1500)).await; // a renewal is due each second
        assert!(hold.is_valid(), "a minority is no loss");
        assert!(in_time(lock.force_unlock()).await.unwrap());

        assert!(matches!(in_time(working).await.unwrap(), Err(Error::Lost { .. })));
        assert_eq!(in_time(hold.ended()).await, Ended::Lost);
        stage.is_free().await;
    })
    .await;
}

/// F50: each server loses its data in turn, and a majority has the lock all the time.
#[tokio::test]
async fn servers_that_restart_empty_in_turn_are_taken_again() {
    let mut stage = Stage::set(3).await;
    let config = || quick().watchdog_timeout(Duration::from_secs(9));
    let (one, other) = (stage.lock_with(config()).await, stage.lock_with(config()).await);
    let guard = held_on(3, &one).await;
    for at in 0..3 {
        stage.restarts_empty(at).await;
        let whole = async || stage.held().await == 3 && guard.servers() == 3;
        eventually(SOON, "the server is taken again", whole).await;
        assert!(guard.is_valid());
    }
    is_not_to_be_had(&other).await;
    guard.unlock().await.unwrap();
    stage.is_free().await;
}

/// F50: a server that was down when the process started and took the lock has its part as soon as it is there.
#[tokio::test]
async fn a_server_that_comes_later_is_taken_too() {
    let mut stage = Stage::set(3).await;
    stage.servers[0].kill();
    let config = quick().watchdog_timeout(Duration::from_secs(9));
    let part = |proxy: &Proxy| Client::connect_lazy(proxy.url(), config.clone()).unwrap().lock("a");
    let parts: Vec<_> = stage.proxies.iter().map(part).collect();
    for part in &parts[1..] {
        // It is not there when it is made.
        eventually(SOON, "it is connected", async || part.is_locked().await.is_ok()).await;
    }
    let lock = RedLock::new(parts);
    let guard = held_on(2, &lock).await;
    let ended = tokio::spawn(guard.ended());
    stage.restarts_empty(0).await;
    eventually(SOON, "it is taken too", async || guard.servers() == 3).await;
    stage.servers[1].kill();
    let is_noticed = async || guard.servers() == 2;
    eventually(SOON, "the other one is missed", is_noticed).await;
    assert!(guard.is_valid() && !ended.is_finished());

    drop(guard);
    assert_eq!(in_time(ended).await.unwrap(), Ended::Released);
    for admin in [&stage.admins[0], &stage.admins[2]] {
        eventually(SOON, "it is free", async || lock_keys(admin).await.is_empty()).await;
    }
}

/// A part that is taken late would outlast the limit.
#[tokio::test]
async fn with_max_hold_nothing_is_taken_again() {
    let mut stage = Stage::set(3).await;
    let config = quick().watchdog_timeout(Duration::from_secs(9)).max_hold(LONG);
    let lock = stage.lock_with(config).await;
    let guard = held_on(3, &lock).await;
    stage.restarts_empty(0).await;
    eventually(SOON, "the loss is noticed", async || guard.servers() == 2).await;
    sleep(Duration::from_secs(7)).await; // a renewal is due each three seconds
    assert_eq!(stage.held().await, 2);
    guard.unlock().await.unwrap();
}

/// A busy holder polls its future only after one part was lost and taken again, and another one was lost.
#[tokio::test(start_paused = true)]
async fn a_hold_that_never_lost_its_majority_has_not_ended_for_a_future_that_is_polled_late() {
    let servers = [Redis::start(), Redis::start(), Redis::start()];
    let mut locks = Vec::new();
    for server in &servers {
        locks.push(server.client(Config::default()).await.expect("it is there").lock("a"));
    }
    let guard = RedLock::new(locks).lock().await.expect("it is free");
    let are = async |parts| {
        while guard.servers() != parts {
            sleep(Duration::from_millis(1)).await;
        }
    };
    are(3).await;
    // Each of them would err half of the time.
    let mut ends: Vec<_> = (0..20).map(|_| Box::pin(guard.ended())).collect();
    assert!(ends.iter_mut().all(|end| end.now_or_never().is_none()));
    servers[0].lose("a");
    are(2).await;
    are(3).await;
    servers[1].lose("a");
    are(2).await;
    assert!(guard.is_valid());
    assert!(ends.iter_mut().all(|end| end.now_or_never().is_none()), "two of three are left");
    guard.unlock().await.expect("it is ours");
    assert!(ends.into_iter().all(|end| end.now_or_never() == Some(Ended::Released)));
}

/// F50: a part that is taken again lends no validity to a hold that has lost its majority.
#[tokio::test]
async fn a_lost_majority_does_not_come_back() {
    let stage = Stage::set(3).await;
    let (one, other) = (stage.lock_with(quick()).await, stage.lock_with(quick()).await);
    let guard = held_on(3, &one).await;
    stage.servers[1].kill();
    stage.servers[2].kill();
    assert_eq!(in_time(guard.ended()).await, Ended::Lost);
    for server in &stage.servers[1..] {
        server.start_again().await;
    }
    sleep(Duration::from_secs(3)).await; // a renewal is due each second
    assert!(!guard.is_valid());
    assert_eq!(in_time(guard.ended()).await, Ended::Lost);
    assert_eq!(held_on(2, &other).await.servers(), 2);
}

#[tokio::test]
async fn force_frees_the_lock_on_all_servers() {
    let stage = Stage::set(3).await;
    let (one, other) = (stage.lock_with(quick()).await, stage.lock().await);
    let guard = one.lock().await.unwrap();
    assert!(other.force_unlock().await.unwrap());
    assert_eq!(stage.held().await, 0);
    assert!(!other.force_unlock().await.unwrap());
    assert_eq!(in_time(guard.ended()).await, Ended::Lost);
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
}

/// Dropped at every moment of its way, a call leaves nothing behind.
#[tokio::test]
async fn a_dropped_call_gives_everything_back() {
    let stage = Stage::set(3).await;
    let (one, other) = (stage.lock().await, stage.lock().await);
    for round in 0..40_u64 {
        let _ = timeout(Duration::from_micros(round * 50), one.lock()).await.map(drop);
    }
    stage.is_free().await;

    let guard = other.lock().await.unwrap();
    for _ in 0..3 {
        is_not_to_be_had(&one).await;
    }
    guard.unlock().await.unwrap();
    in_time(other.lock()).await.unwrap().unlock().await.unwrap();
    stage.is_free().await;
}

#[tokio::test]
async fn a_dropped_guard_gives_it_back() {
    let stage = Stage::set(3).await;
    let lock = stage.lock().await;
    let lost = {
        let guard = lock.lock().await.unwrap();
        guard.ended()
    };
    assert_eq!(in_time(lost).await, Ended::Released);
    stage.is_free().await;
}

/// With a fixed lease it is valid as long as the majority's part with the least time.
#[tokio::test]
async fn a_fixed_lease_ends_and_can_be_made_longer() {
    const LEASE: Duration = Duration::from_secs(30);
    let stage = Stage::set(3).await;
    let lock = stage.lock().await;
    let guard = lock.clone().lease(LEASE).lock().await.unwrap();
    assert!(guard.remaining() < LEASE);
    guard.extend(LONG).await.unwrap();
    assert!(guard.remaining() > LONG / 2);
    guard.unlock().await.unwrap();

    let guard = lock.lease(Duration::from_secs(2)).lock().await.unwrap();
    assert_eq!(in_time(guard.ended()).await, Ended::Lost);
    assert!(matches!(guard.extend(LONG).await, Err(Error::Lost { .. })));
    stage.is_free().await;
}

/// On a busy machine, a server may answer so late that the call does not wait for it. So there are several tries.
#[tokio::test]
async fn a_lease_is_made_longer_on_every_server() {
    const LEASE: Duration = Duration::from_secs(2);
    let stage = Stage::set(3).await;
    let lock = stage.lock().await.lease(LEASE);
    in_time(async {
        loop {
            let guard = held_on(3, &lock).await;
            guard.extend(LONG).await.expect("it is ours");
            sleep(LEASE * 3 / 2).await;
            let (valid, held) = (guard.servers(), stage.held().await);
            guard.unlock().await.expect("it is ours");
            if (valid, held) == (3, 3) {
                return;
            }
            println!("valid on {valid} servers, and held on {held}");
        }
    })
    .await;
}

/// The servers that still have it must not keep it: it would be in the way of the next holder.
#[tokio::test]
async fn extending_a_lost_lock_does_not_lengthen_it_on_any_server() {
    let stage = Stage::set(3).await;
    let guard = held_on(3, &stage.lock().await.lease(LONG)).await;
    for admin in &stage.admins[..2] {
        assert_eq!(admin.cmd::<i64>(&["DEL", &key("a")]).await, 1);
    }
    // Two of them say that it is gone. The third did not know of it.
    assert!(matches!(guard.extend(LONG * 2).await, Err(Error::Lost { .. })));
    assert_eq!(in_time(guard.ended()).await, Ended::Lost);

    assert!(matches!(guard.extend(LONG * 8).await, Err(Error::Lost { .. })));
    let left = stage.admins[2].pttl(&key("a")).await;
    assert!(left <= i64::try_from((LONG * 2).as_millis()).unwrap(), "{left} ms");
    drop(guard);
    stage.is_free().await;
}

/// A part that was held while the call waited for another server has its whole lease again.
#[tokio::test]
async fn a_lease_is_whole_however_long_it_was_waited_for() {
    judged(async || {
        const LEASE: Duration = Duration::from_secs(4);
        let stage = Stage::set(3).await;
        let lock = stage.lock().await.lease(LEASE);
        // Somebody else's, on all but the first server.
        for (admin, lease) in stage.admins[1..].iter().zip(["2500", "600000"]) {
            admin.cmd::<i64>(&["HSET", &key("a"), "somebody", "1"]).await;
            admin.cmd::<i64>(&["PEXPIRE", &key("a"), lease]).await;
        }
        let guard = in_time(lock.lock()).await.unwrap();
        assert_eq!(guard.servers(), 2);
        assert!(guard.remaining() > Duration::from_millis(2500), "{:?}", guard.remaining());
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Has somebody hold one server's lock for so long.
async fn occupy(admin: &Admin, lease: Duration) {
    admin.cmd::<i64>(&["HSET", &key("a"), "somebody", "1"]).await;
    admin.cmd::<i64>(&["PEXPIRE", &key("a"), &lease.as_millis().to_string()]).await;
}

/// The first of the servers that are held stays held: the other one ends by its lease, and makes a majority.
#[tokio::test]
async fn a_majority_that_is_free_is_taken_at_once_and_for_the_whole_lease() {
    judged(async || {
        const LEASE: Duration = Duration::from_secs(6);
        let stage = Stage::set(3).await;
        let lock = stage.lock().await.lease(LEASE);
        occupy(&stage.admins[1], LONG * 10).await;
        occupy(&stage.admins[2], LEASE / 2).await;
        let asked = Instant::now();

        let guard = in_time(lock.lock()).await.unwrap();

        let (took, left) = (asked.elapsed(), guard.remaining());
        println!("granted after {took:?}, with {left:?} of {LEASE:?} left");
        assert!(took < LEASE / 2 + AT_ONCE, "a majority was free long before {took:?}");
        assert!(left > LEASE * 3 / 4, "{left:?} of {LEASE:?} is about to end");
        assert_eq!(guard.servers(), 2);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A majority is given back while the first server stays held: the waiter is told, whichever servers those are.
#[tokio::test]
async fn a_waiter_is_told_of_a_free_majority_though_one_server_stays_held() {
    let stage = Stage::set(5).await;
    let (one, other) = (stage.lock().await, stage.lock().await);
    for stuck in [0, 2] {
        occupy(&stage.admins[stuck], LONG * 10).await;
    }
    let guard = one.lock().await.unwrap();
    assert_eq!(guard.servers(), 3);
    let waiting = wait(&other);
    sleep(A_WHILE * 5).await;
    let left = Watch::start();
    guard.unlock().await.unwrap();
    let next = in_time(waiting).await.unwrap().unwrap();
    assert!(left.passed() < AT_ONCE, "{:?}", left.passed());
    next.unlock().await.unwrap();
}

/// While the first server is stuck, no caller can collect the servers in order. Each takes the servers that grant it
/// the lock, and gives them back if they are no majority.
#[tokio::test]
async fn many_take_turns_beside_a_server_that_stays_held() {
    const TURNS: u32 = 10;
    let stage = Stage::set(3).await;
    occupy(&stage.admins[0], LONG * 10).await;
    let inside = Arc::new(AtomicU64::new(0));
    let (mut workers, began) = (Vec::new(), Instant::now());
    for _ in 0..4 {
        let (lock, inside) = (stage.lock().await, Arc::clone(&inside));
        workers.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            }
        }));
    }
    for worker in workers {
        timeout(SOON * 3, worker).await.expect("callers do not block each other").unwrap();
    }
    println!("{} turns took {:?}", 4 * TURNS, began.elapsed());
    let free = async || {
        lock_keys(&stage.admins[1]).await.is_empty() && lock_keys(&stage.admins[2]).await.is_empty()
    };
    eventually(SOON, "it is free where it can be", free).await;
}

#[tokio::test]
async fn a_list_that_makes_no_majority_is_refused() {
    let (server, stage) = (Server::start().await, Stage::set(1).await);
    let one = client(&server).await;
    let none = RedLock::new([]).lock().await;
    assert!(matches!(none, Err(Error::InvalidLocks { .. })), "{none:?}");
    let twice = RedLock::new([one.lock("a"), one.lock("b")]).try_lock().await;
    assert!(matches!(twice, Err(Error::InvalidLocks { .. })), "{twice:?}");
    let short = stage.lock().await.lease(Duration::from_millis(1)).lock().await;
    assert!(matches!(short, Err(Error::InvalidLease { .. })), "{short:?}");
    assert_eq!(stage.admins[0].subscribers(&channel("a")).await, 0);
}
