//! So many permits and no more: of a name, of all or nothing, and back when their holder is gone.
//!
//! Three of them are tested side by side: our own, and those of Redisson's two semaphores.

use crate::common;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::fixture::{
    LONG, SOON, comes_in, got_nothing, is_pending, lock_keys, quick, scripts, settled,
};
use common::site::left_out_in_a_cluster;
use common::{Admin, Fault, Proxy, Site, Watch, Worker, WorkerSide, eventually, judged, timeout};
use futures_util::StreamExt;
use parklock::{Client, Config, Ended, Error, Guard, HandOff, Layout, Result, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::latch::NO_NUMBERS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Ours.
    Native,
    /// `RSemaphore`.
    Plain,
    /// `RPermitExpirableSemaphore`.
    Expirable,
}

use Of::{Expirable, Native, Plain};

const ALL: [Of; 3] = [Native, Plain, Expirable];

impl Of {
    async fn client(self, url: &str, config: Config) -> Client {
        let layout = if self == Native { Layout::Native } else { Layout::Redisson };
        let config = config.layout(layout);
        comes_in(url, config).await
    }

    fn permits(self, client: &Client, permits: u32) -> Semaphore {
        match self {
            Expirable => client.redisson().expirable_semaphore("a", permits),
            Native | Plain => client.semaphore("a", permits),
        }
    }

    fn named(word: &str) -> Self {
        ALL.into_iter().find(|of| format!("{of:?}") == word).expect("one of them")
    }

    fn script(self, native: &'static str, redissons: &'static str) -> &'static str {
        if self == Native { native } else { redissons }
    }

    /// What is there for good in Redisson's layout, as Redisson has it: the number of the permits that are free, and the
    /// permits that Java could have.
    fn is_redissons(self, key: &str) -> bool {
        self != Native && key == "a" || self == Expirable && key == "{a}:timeout"
    }
}

/// A server, a client with these settings, and its semaphore.
struct Scene {
    of: Of,
    server: Site,
    admin: Admin,
    client: Client,
}

impl Scene {
    async fn with(of: Of, config: Config) -> Self {
        let server = Site::start().await;
        let (admin, client) = (server.admin().await, of.client(&server.url(), config).await);
        Self { of, server, admin, client }
    }

    /// No lease and no park ends during a test, so only messages wake waiters.
    async fn of(of: Of) -> Self {
        Self::with(of, Config::default().max_park(LONG)).await
    }

    fn permits(&self, permits: u32) -> Semaphore {
        self.of.permits(&self.client, permits)
    }

    async fn another(&self) -> Client {
        self.of.client(&self.server.url(), Config::default().max_park(LONG)).await
    }

    /// Waits until so many clients listen.
    async fn awaited_by(&self, clients: usize) {
        let channel = if self.of == Native { "lock_channel:{a}" } else { "redisson_sc:{a}" };
        let listen = async || self.admin.subscribers(channel).await == clients;
        eventually(SOON, &format!("{clients} clients listen"), listen).await;
        sleep(common::fixture::A_WHILE).await;
    }

    async fn frees(&self, permits: &Semaphore, free: u32) {
        let freed = async || permits.available_permits().await.expect("an answer") == free;
        eventually(SOON, &format!("{free} are free, {:?}", self.of), freed).await;
    }

    async fn nothing_is_eternal(&self) {
        for key in lock_keys(&self.admin).await {
            let known = self.of.is_redissons(&key);
            assert!(known || self.admin.pttl(&key).await != -1, "{key} never expires");
        }
    }

    /// The keys of holders and waiters.
    async fn traces(&self) -> Vec<String> {
        let keys = lock_keys(&self.admin).await;
        keys.into_iter().filter(|key| self.of == Native || key != "a").collect()
    }
}

fn waiting(permits: &Semaphore, part: u32) -> JoinHandle<Result<Guard>> {
    let permits = permits.clone();
    tokio::spawn(async move { permits.acquire_many(part).await })
}

async fn granted(waiter: JoinHandle<Result<Guard>>) -> Guard {
    timeout(SOON, waiter).await.expect("it is told").expect("no panic").expect("it is granted")
}

#[tokio::test]
async fn no_more_permits_are_held_than_there_are() {
    for of in ALL {
        // What a message grants lasts for this long until it is confirmed: longer than a busy machine stands still.
        let config = || Config::default().watchdog_timeout(LONG).waiter_ttl(LONG / 4);
        let scene = Scene::with(of, config().max_park(LONG)).await;
        let (holding, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let another = async || of.client(&scene.server.url(), config().max_park(LONG)).await;
        let (mut tasks, others) = (JoinSet::new(), [another().await, another().await]);
        for client in others.iter().chain([&scene.client]).cycle().take(12) {
            let permits = of.permits(client, 4);
            let (holding, most) = (Arc::clone(&holding), Arc::clone(&most));
            tasks.spawn(async move {
                for turn in 0..40 {
                    let part = 1 + turn % 3;
                    let guard = permits.acquire_many(part).await.unwrap();
                    let part = part as usize;
                    most.fetch_max(
                        holding.fetch_add(part, Ordering::SeqCst) + part,
                        Ordering::SeqCst,
                    );
                    tokio::task::yield_now().await;
                    holding.fetch_sub(part, Ordering::SeqCst);
                    guard.unlock().await.unwrap();
                }
            });
        }
        timeout(LONG, tasks.join_all()).await.expect("all get their turns");
        assert!(most.load(Ordering::SeqCst) <= 4, "{of:?}");
        // What is idle at the other clients is on its way back.
        scene.frees(&scene.permits(4), 4).await;
        eventually(SOON, "no key is left", async || scene.traces().await.is_empty()).await;
        scene.nothing_is_eternal().await;
    }
}

#[tokio::test]
async fn several_permits_are_taken_at_once_or_none() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(4);
        let (one, another) = (permits.acquire().await.unwrap(), permits.acquire().await.unwrap());
        assert!(permits.try_acquire_many(3).await.unwrap().is_none());
        let mut three = waiting(&of.permits(&scene.another().await, 4), 3);
        scene.awaited_by(1).await;
        assert!(is_pending(&mut three).await);
        assert_eq!(permits.available_permits().await.unwrap(), 2, "{of:?}: none of them is taken");
        scene.nothing_is_eternal().await;

        one.unlock().await.unwrap();

        let three = granted(three).await;
        assert_eq!(permits.available_permits().await.unwrap(), 0);
        three.unlock().await.unwrap();
        another.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 4);
    }
}

/// Redis counts with the number, so a text that only Lua takes for one is a conflict before anything is written.
#[tokio::test]
async fn in_redissons_layout_a_text_that_redis_takes_for_no_number_is_a_conflict() {
    let server = Site::start().await;
    let admin = server.admin().await;
    for of in [Plain, Expirable] {
        let permits = of.permits(&of.client(&server.url(), quick()).await, 3);
        for number in NO_NUMBERS {
            admin.cmd::<()>(&["SET", "a", number]).await;
            let taken = permits.try_acquire().await;
            assert!(matches!(taken, Err(Error::Conflict { .. })), "{of:?} {number}: {taken:?}");
            assert_eq!(lock_keys(&admin).await, ["a"], "{of:?} {number}");
        }
        admin.cmd::<()>(&["SET", "a", "3"]).await;
        permits.try_acquire().await.unwrap().expect("three are free").unlock().await.unwrap();
        admin.cmd::<()>(&["DEL", "a"]).await;
    }
}

/// Redisson keeps each of these permits as a member of a sorted set.
#[tokio::test]
async fn one_call_takes_a_limited_number_of_expirable_permits() {
    judged(async || {
        let scene = Scene::of(Expirable).await;
        let permits = scene.permits(1 << 29);
        let refused = permits.acquire_many(10_001).await;
        assert!(matches!(refused, Err(Error::InvalidPermits { asked: 10_001, of: 10_000 })));
        assert!(lock_keys(&scene.admin).await.is_empty());
        let most = permits.acquire_many(10_000).await.unwrap();
        most.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn more_permits_than_there_are_is_refused_at_once() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let refused = |answer| matches!(answer, Err(Error::InvalidPermits { .. }));
        assert!(refused(scene.permits(4).acquire_many(5).await));
        assert!(refused(scene.permits(4).acquire_many(0).await));
        assert!(refused(scene.permits(0).acquire().await));
        assert!(lock_keys(&scene.admin).await.is_empty());
    }
}

/// Ours alone: Redisson's have no queue.
#[tokio::test]
async fn a_large_request_is_not_overtaken_by_small_ones() {
    let scene = Scene::of(Native).await;
    let permits = scene.permits(3);
    let (held, other) = (permits.acquire_many(2).await.unwrap(), scene.another().await);
    let all = waiting(&permits, 3);
    scene.awaited_by(1).await;
    let mut one = waiting(&Native.permits(&other, 3), 1);
    scene.awaited_by(2).await;
    assert!(is_pending(&mut one).await, "one permit is free, but not for later callers");
    assert!(permits.try_acquire().await.unwrap().is_none());

    held.unlock().await.unwrap();

    let all = granted(all).await;
    assert!(is_pending(&mut one).await);
    all.unlock().await.unwrap();
    granted(one).await.unlock().await.unwrap();
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_takes_two() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let of = Of::named(&boss.variable("OF"));
    let client = of.client(&boss.variable("URL"), quick()).await;
    let _guard = of.permits(&client, 3).acquire_many(2).await.unwrap();
    boss.tell("granted");
    boss.order().await;
}

#[tokio::test]
async fn the_permits_of_a_process_that_was_killed_come_back() {
    judged(async || {
        for of in ALL {
            let scene = Scene::of(of).await;
            let (permits, url) = (scene.permits(3), scene.server.url());
            let variables = [("URL", &*url), ("OF", &format!("{of:?}"))];
            let mut worker = Worker::start("semaphore::worker_that_takes_two", &variables);
            assert_eq!(worker.hear().await, "granted");
            let mut two = waiting(&permits, 2);
            scene.awaited_by(1).await;
            assert!(is_pending(&mut two).await, "{of:?}");

            worker.kill9();

            let two = granted(two).await;
            assert_eq!(
                permits.available_permits().await.unwrap(),
                1,
                "{of:?}: neither more nor less"
            );
            two.unlock().await.unwrap();
            assert_eq!(permits.available_permits().await.unwrap(), 3);
            assert!(scene.traces().await.is_empty());
        }
    })
    .await;
}

/// The holder's client is cut off, and nobody asks before the lease is long over.
#[tokio::test]
async fn permits_come_back_although_their_lease_ended_long_ago() {
    for of in [Plain, Expirable] {
        let scene = Scene::of(of).await;
        let proxy = Proxy::before(&scene.server).await;
        let permits = of.permits(&of.client(&proxy.url(), Config::default()).await, 2);
        let lost = permits.lease(Duration::from_secs(1)).acquire_many(2).await.unwrap();
        let _cut_off = proxy.blackhole(None);
        assert_eq!(timeout(SOON, lost.ended()).await, Ok(Ended::Lost));
        sleep(Duration::from_secs(1)).await;

        assert_eq!(scene.admin.cmd::<i64>(&["GET", "a"]).await, 0, "{of:?}: nobody came by");
        assert_eq!(scene.permits(2).available_permits().await.unwrap(), 2, "{of:?}");
        scene.nothing_is_eternal().await;
    }
}

#[tokio::test]
async fn the_watchdog_keeps_permits_for_longer_than_its_timeout() {
    judged(async || {
        let [native, plain, expirable] = ALL.map(are_kept);
        tokio::join!(native, plain, expirable);
    })
    .await;
}

async fn are_kept(of: Of) {
    let lease = Duration::from_secs(6);
    let scene = Scene::with(of, Config::default().watchdog_timeout(lease)).await;
    let permits = scene.permits(3);
    let two = permits.acquire_many(2).await.expect("they are free");
    let until = Instant::now() + lease + lease / 3;
    while Instant::now() < until {
        match permits.available_permits().await {
            Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {} // the machine is busy
            free => assert_eq!(free.expect("an answer"), 1, "{of:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(two.is_valid());
    two.unlock().await.expect("they were ours");
    assert_eq!(permits.available_permits().await.expect("an answer"), 3);
}

/// F78. A semaphore that is made larger lets waiters in.
#[tokio::test]
async fn permits_that_are_added_while_others_are_held_let_in_waiters() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(1);
        let held = permits.acquire().await.unwrap();
        let waiter = waiting(&of.permits(&scene.another().await, 1), 1);
        scene.awaited_by(1).await;

        permits.set_permits(2).await.unwrap();

        let second = granted(waiter).await;
        assert_eq!(permits.available_permits().await.unwrap(), 0);
        held.unlock().await.unwrap();
        second.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 2, "{of:?}: it stays as it was set");
    }
}

/// F78. With fewer permits than are held, the semaphore takes none away, and grants none before enough came back.
#[tokio::test]
async fn permits_that_are_taken_away_while_held_do_not_come_back() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(3);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(permits.acquire().await.unwrap());
        }
        permits.set_permits(1).await.unwrap();
        assert!(held.iter().all(Guard::is_valid));
        let mut waiter = waiting(&of.permits(&scene.another().await, 1), 1);
        scene.awaited_by(1).await;

        for guard in held.drain(1..) {
            guard.unlock().await.unwrap();
            assert!(is_pending(&mut waiter).await, "{of:?}");
            assert_eq!(permits.available_permits().await.unwrap(), 0);
        }
        held.remove(0).unlock().await.unwrap();

        let last = granted(waiter).await;
        assert_eq!(permits.available_permits().await.unwrap(), 0, "{of:?}");
        last.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 1);
    }
}

/// A program that makes sure of the number at each start does not change it while it is in use.
#[tokio::test]
async fn a_number_is_set_only_where_none_is() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(2);
        assert!(permits.set_permits_if_unset(5).await.unwrap(), "{of:?}");
        assert!(!permits.set_permits_if_unset(7).await.unwrap(), "{of:?}: it is set");
        assert_eq!(permits.available_permits().await.unwrap(), 5);
        let four = permits.acquire_many(4).await.unwrap();
        assert!(!permits.set_permits_if_unset(7).await.unwrap(), "{of:?}: it is in use");

        permits.set_permits(1).await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 0);
        if of != Native {
            let free: String = scene.admin.cmd(&["GET", "a"]).await;
            assert_eq!(free, "-3", "{of:?}");
        }
        assert!(!permits.set_permits_if_unset(7).await.unwrap(), "{of:?}");
        four.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 1, "{of:?}");
        scene.nothing_is_eternal().await;
    }
}

/// Those who hold permits or wait go by the number of their handles, which nobody has set.
#[tokio::test]
async fn the_number_of_those_who_hold_or_wait_is_not_changed() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(2);
        let both = permits.acquire_many(2).await.unwrap();
        let one = waiting(&of.permits(&scene.another().await, 2), 1);
        scene.awaited_by(1).await;
        assert!(!permits.set_permits_if_unset(3).await.unwrap(), "{of:?}");
        both.unlock().await.unwrap();
        let one = granted(one).await;
        assert!(!permits.set_permits_if_unset(3).await.unwrap(), "{of:?}");
        one.unlock().await.unwrap();
        // In our own layout nobody uses it any more. Redisson keeps it.
        let is_forgotten = permits.set_permits_if_unset(3).await.unwrap();
        assert_eq!(is_forgotten, of == Native, "{of:?}");
        let left = if of == Native { 3 } else { 2 };
        assert_eq!(permits.available_permits().await.unwrap(), left, "{of:?}");
    }
}

/// Several processes set the same new number.
#[tokio::test]
async fn to_set_the_same_number_again_changes_nothing() {
    for of in [Plain, Expirable] {
        let scene = Scene::of(of).await;
        let permits = scene.permits(3);
        let held = permits.acquire_many(2).await.unwrap();
        for _ in 0..3 {
            permits.set_permits(5).await.unwrap();
        }
        let larger = of.permits(&scene.another().await, 5);
        assert_eq!(larger.available_permits().await.unwrap(), 3, "{of:?}");
        larger.set_permits(4).await.unwrap();
        held.unlock().await.unwrap();
        assert_eq!(scene.permits(4).available_permits().await.unwrap(), 4);
        scene.nothing_is_eternal().await;
    }
}

#[tokio::test]
async fn a_handle_of_another_number_of_permits_is_a_conflict() {
    let scene = Scene::of(Native).await;
    let _held = scene.permits(3).acquire().await.unwrap();
    let others = Native.permits(&scene.another().await, 4);
    assert!(matches!(others.acquire().await, Err(Error::Conflict { .. })));
    assert!(matches!(others.try_acquire().await, Err(Error::Conflict { .. })));
    assert_eq!(scene.permits(3).available_permits().await.unwrap(), 2);
}

/// As with Redisson's `trySetPermits`, a number that exists stays.
#[tokio::test]
async fn in_redissons_layout_the_first_caller_sets_the_number() {
    for of in [Plain, Expirable] {
        let scene = Scene::of(of).await;
        let held = scene.permits(3).acquire_many(3).await.unwrap();
        assert!(scene.permits(4).try_acquire().await.unwrap().is_none(), "{of:?}");
        held.unlock().await.unwrap();
        assert_eq!(scene.permits(4).available_permits().await.unwrap(), 3, "{of:?}");
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_nothing_behind() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(2);
        let held = permits.acquire().await.unwrap();
        let keys = lock_keys(&scene.admin).await;
        let other = of.permits(&scene.another().await, 2);
        let moment = Duration::from_secs(1);

        assert!(other.try_acquire_many(2).await.unwrap().is_none());
        let waiters = ["ZCARD", "lock_queue:{a}"];
        assert_eq!(scene.admin.cmd::<usize>(&waiters).await, 0, "it does not wait");
        got_nothing(other.try_acquire_many_for(2, moment).await);
        let cancelled = waiting(&other, 2);
        scene.awaited_by(1).await;
        cancelled.abort();
        let _ = cancelled.await;

        let gone = async || scene.admin.cmd::<usize>(&waiters).await == 0;
        eventually(SOON, "nobody waits", gone).await;
        assert_eq!(lock_keys(&scene.admin).await, keys, "{of:?}");
        let second = other.try_acquire().await.unwrap().expect("no other caller comes first");
        held.unlock().await.unwrap();
        second.unlock().await.unwrap();
        assert!(scene.traces().await.is_empty());
    }
}

#[tokio::test]
async fn force_unlock_frees_all_permits() {
    for of in ALL {
        let scene = Scene::with(of, quick().max_park(LONG)).await;
        let permits = scene.permits(3);
        let two = permits.acquire_many(2).await.unwrap();
        let one = permits.acquire().await.unwrap();
        let other = scene.another().await;
        let waiter = waiting(&of.permits(&other, 3), 3);
        scene.awaited_by(1).await;

        assert!(of.permits(&other, 3).force_unlock().await.unwrap());

        let all = granted(waiter).await;
        for guard in [two, one] {
            assert_eq!(timeout(SOON, guard.ended()).await, Ok(Ended::Lost), "{of:?}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        }
        assert_eq!(
            permits.available_permits().await.unwrap(),
            0,
            "a holder that lost them gives nothing back"
        );
        all.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 3);
        assert!(!permits.force_unlock().await.unwrap());
    }
}

/// The answer is lost, so the client repeats the release: the server does not give the same permits back twice.
#[tokio::test]
async fn a_release_whose_answer_is_lost_gives_back_once() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let proxy = Proxy::before(&scene.server).await;
        let text = of.script(
            include_str!("../../lua/line/release.lua"),
            include_str!("../../lua/redisson/semaphore/release.lua"),
        );
        proxy.name_script("release", text);
        let permits = of.permits(&of.client(&proxy.url(), Config::default()).await, 5);
        let (_one, three) = (permits.acquire().await.unwrap(), permits.acquire_many(3).await);

        let lost = proxy.script("release").first(2).cut_after();
        three.unwrap().unlock().await.unwrap();

        assert_eq!(lost.fired(), 2);
        assert_eq!(scene.permits(5).available_permits().await.unwrap(), 4, "{of:?}");
    }
}

#[tokio::test]
async fn permits_of_an_acquire_whose_answer_is_lost_come_back() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let proxy = Proxy::before(&scene.server).await;
        let text = of.script(
            include_str!("../../lua/line/acquire.lua"),
            include_str!("../../lua/redisson/semaphore/acquire.lua"),
        );
        proxy.name_script("acquire", text);
        let permits = of.permits(&of.client(&proxy.url(), Config::default()).await, 5);

        let lost = proxy.script("acquire").nth(1).cut_after();
        let two = permits.acquire_many(2).await.unwrap();

        assert_eq!(lost.fired(), 1);
        scene.frees(&scene.permits(5), 3).await;
        two.unlock().await.unwrap();
        assert_eq!(scene.permits(5).available_permits().await.unwrap(), 5);
    }
}

/// A waiter whose request was not answered asks again under another owner field. It still counts as the same waiter.
#[tokio::test]
async fn a_waiter_goes_on_after_the_number_changed_and_an_answer_was_lost() {
    let scene = Scene::of(Native).await;
    let proxy = Proxy::before(&scene.server).await;
    proxy.name_acquires();
    let held = scene.permits(2).acquire_many(2).await.unwrap();
    let behind = Native.client(&proxy.url(), Config::default().max_park(LONG)).await;
    let mut waiter = waiting(&Native.permits(&behind, 2), 1);
    scene.awaited_by(1).await;
    let permits = scene.permits(2);
    permits.set_permits(1).await.unwrap();

    let queue =
        async || -> Vec<String> { scene.admin.cmd(&["ZRANGE", "lock_queue:{a}", "0", "-1"]).await };
    let before = queue().await;

    let lost = proxy.script("acquire").first(1).cut_after();
    lost.happened().await;
    let as_another = async || matches!(&queue().await[..], [who] if *who != before[0]);
    eventually(SOON, "it waits as another", as_another).await;
    assert!(is_pending(&mut waiter).await);
    held.unlock().await.unwrap();

    let last = granted(waiter).await;
    assert_eq!(permits.available_permits().await.unwrap(), 0);
    last.unlock().await.unwrap();
}

#[tokio::test]
async fn permits_come_back_although_the_server_is_full() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(3);
        let two = permits.acquire_many(2).await.unwrap();
        let third = permits.acquire().await.unwrap();
        scene.admin.config_set("maxmemory", "1").await;

        third.extend(LONG).await.unwrap();
        assert!(matches!(permits.try_acquire().await, Ok(None) | Err(Error::Unavailable { .. })));
        two.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 2, "{of:?}");
        assert!(matches!(permits.try_acquire().await, Err(Error::Unavailable { .. })));
        assert_eq!(
            permits.available_permits().await.unwrap(),
            2,
            "{of:?}: what is refused takes nothing"
        );

        scene.admin.config_set("maxmemory", "0").await;
        third.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 3);
    }
}

/// What a script of Redisson's semaphores answers to a client `c`: `code, ...`.
async fn runs(admin: &Admin, kind: &str, script: &str, further: &[&str]) -> Vec<i64> {
    let text = [
        include_str!("../../lua/lock/draw.lua"),
        include_str!("../../lua/redisson/semaphore/semaphore.lua"),
        script,
    ];
    let leases = if kind == "expirable" { "{a}:timeout" } else { "lock_permits:{a}" };
    let (text, floor) = (text.concat(), "1000");
    let keys = ["lock:grants", "a", leases, "lock_notes:{a}"];
    let mut words = vec!["EVAL", &text, "4"];
    words.extend(keys);
    words.extend([floor, kind, "5", "redisson_sc:{a}", "0", "1000"]);
    words.extend(further);
    admin.cmd(&words).await
}

/// Under the same owner field: the network may deliver a request twice.
#[tokio::test]
async fn a_script_that_runs_twice_takes_and_gives_back_once() {
    if left_out_in_a_cluster("it calls a script as one server takes it") {
        return;
    }
    let server = Site::start().await;
    let admin = server.admin().await;
    let acquire = include_str!("../../lua/redisson/semaphore/acquire.lua");
    let release = include_str!("../../lua/redisson/semaphore/release.lua");
    for kind in ["semaphore", "expirable"] {
        let free = async || admin.cmd::<i64>(&["GET", "a"]).await;
        for _ in 0..2 {
            let taken = runs(&admin, kind, acquire, &["c:1", "3", "60000", "wait", "", "0"]).await;
            assert_eq!(taken[0], 1);
            assert_eq!(free().await, 2, "{kind}");
        }
        assert_eq!(runs(&admin, kind, release, &["c:1"]).await, [1]);
        assert_eq!(runs(&admin, kind, release, &["c:1"]).await, [0]);
        assert_eq!(free().await, 5, "{kind}");
        admin.cmd::<()>(&["FLUSHALL"]).await;
    }
}

/// Java deletes the number, or Redis evicts it: permits that are held are not granted anew.
#[tokio::test]
async fn a_number_that_was_deleted_is_set_anew_less_what_is_held() {
    for of in [Plain, Expirable] {
        let scene = Scene::of(of).await;
        let permits = scene.permits(3);
        let two = permits.acquire_many(2).await.unwrap();
        scene.admin.cmd::<()>(&["DEL", "a"]).await;
        assert_eq!(permits.available_permits().await.unwrap(), 1, "{of:?}");
        let one = permits.acquire().await.unwrap();
        assert!(permits.try_acquire().await.unwrap().is_none(), "{of:?}");
        scene.admin.cmd::<()>(&["DEL", "a"]).await;
        two.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 2);
        one.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 3);
    }
}

/// Leases are deleted by hand, or evicted. A permit without a lease is free, and nobody waits for it forever.
#[tokio::test]
async fn permits_are_free_when_their_leases_are_deleted() {
    let scene = Scene::of(Plain).await;
    let permits = scene.permits(5);
    for gives_back in [false, true] {
        let two = permits.acquire_many(2).await.unwrap();
        let one = permits.acquire().await.unwrap();
        scene.admin.cmd::<()>(&["DEL", "lock_permits:{a}"]).await;
        if gives_back {
            assert!(matches!(two.unlock().await, Err(Error::Lost { .. })));
        }
        assert_eq!(permits.available_permits().await.unwrap(), 5);
        let five = timeout(SOON, permits.acquire_many(5)).await.expect("all are free").unwrap();
        assert!(matches!(one.extend(LONG).await, Err(Error::Lost { .. })));
        five.unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 5, "they come back once");
    }
}

/// The holder's client is cut off. The keys outlive its lease, since another holder had a longer lease.
#[tokio::test]
async fn a_holder_whose_lease_is_over_does_not_fix_the_number_of_permits() {
    let scene = Scene::of(Native).await;
    let proxy = Proxy::before(&scene.server).await;
    let other = Native.permits(&Native.client(&proxy.url(), Config::default()).await, 2);
    let long = scene.permits(2).lease(LONG).acquire().await.unwrap();
    let lost = other.lease(Duration::from_secs(1)).acquire().await.unwrap();
    let _cut_off = proxy.blackhole(None);
    long.unlock().await.unwrap();
    assert_eq!(timeout(SOON, lost.ended()).await, Ok(Ended::Lost));
    sleep(Duration::from_secs(1)).await;

    let all = scene.permits(3).try_acquire_many(3).await;

    assert!(all.unwrap().is_some(), "nobody holds, nobody waits");
}

/// Otherwise this waiter could wait forever, and so could all callers that came after it.
#[tokio::test]
async fn a_waiter_for_more_permits_than_there_will_be_is_told() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(3);
        let held = permits.acquire().await.unwrap();
        let other = scene.another().await;
        let (three, permits) = (waiting(&of.permits(&other, 3), 3), permits);
        scene.awaited_by(1).await;

        permits.set_permits(2).await.unwrap();
        held.unlock().await.unwrap();

        let answer = timeout(SOON, three).await.expect("it is told").unwrap();
        let refused = matches!(answer, Err(Error::InvalidPermits { asked: 3, of: 2 }));
        assert!(refused, "{of:?}: {answer:?}");
        let both =
            timeout(SOON, permits.acquire_many(2)).await.expect("no other caller comes first");
        both.unwrap().unlock().await.unwrap();
    }
}

/// Redisson's subscribers read a number and fail on anything else; on one below zero, those of semaphores do too.
#[tokio::test]
async fn redisson_is_told_how_many_permits_are_free() {
    if left_out_in_a_cluster("nobody listens to all channels of all slots") {
        return;
    }
    for of in [Plain, Expirable] {
        let scene = Scene::of(of).await;
        let told = redis::Client::open(scene.server.store_of("a")).unwrap();
        let mut told = told.get_async_pubsub().await.unwrap();
        told.psubscribe("*").await.unwrap();
        let permits = scene.permits(3);

        let one = permits.acquire().await.unwrap(); // 2 are free, of a semaphore that is new
        let two = permits.acquire_many(2).await.unwrap();
        permits.set_permits(1).await.unwrap(); // -2
        two.unlock().await.unwrap(); // 0
        one.unlock().await.unwrap(); // 1
        permits.set_permits(4).await.unwrap(); // 4
        let _held = permits.acquire_many(4).await.unwrap();
        assert!(permits.force_unlock().await.unwrap()); // 4
        scene.admin.publish("end", "end").await;

        let messages = told.on_message();
        let messages = messages.map(|message| message.get_payload::<String>().unwrap());
        let messages: Vec<String> =
            messages.take_while(|text| ready(text != "end")).collect().await;
        assert_eq!(messages, ["2", "1", "4", "4"], "{of:?}");
    }
}

#[tokio::test]
async fn a_name_of_another_kind_is_a_conflict() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let _lock = scene.client.lock("a").lock().await.unwrap();
        assert!(matches!(scene.permits(1).acquire().await, Err(Error::Conflict { .. })), "{of:?}");
        assert!(matches!(scene.permits(1).available_permits().await, Err(Error::Conflict { .. })));
    }
    let scene = Scene::of(Native).await;
    let read = scene.client.rw_lock("a").read().await.unwrap();
    assert!(matches!(scene.permits(1).acquire().await, Err(Error::Conflict { .. })));
    assert!(matches!(scene.permits(1).available_permits().await, Err(Error::Conflict { .. })));
    assert!(matches!(scene.permits(1).force_unlock().await, Err(Error::Conflict { .. })));
    read.unlock().await.unwrap();
    let scene = Scene::of(Plain).await;
    scene.admin.cmd::<()>(&["SET", "a", "text"]).await;
    assert!(matches!(scene.permits(1).acquire().await, Err(Error::Conflict { .. })));
}

/// B1: in Redisson's layout these are two keys, but Redisson's channels and key prefixes do not tell them apart.
#[tokio::test]
async fn names_that_differ_in_braces_only_are_two_semaphores() {
    let scene = Scene::of(Plain).await;
    let [bare, braced] = ["a", "{a}"].map(|name| scene.client.semaphore(name, 2));
    let proxy = Proxy::before(&scene.server).await;
    let dying = Plain.client(&proxy.url(), Config::default()).await;
    for permits in [&bare, &braced] {
        permits.acquire().await.unwrap().unlock().await.unwrap(); // now its number is there
    }
    let lease = Duration::from_millis(500);
    let _dead = dying.semaphore("a", 2).lease(lease).acquire().await.unwrap();
    let _cut_off = proxy.blackhole(None);
    let _both = braced.acquire_many(2).await.unwrap();
    sleep(lease * 2).await; // the next caller gives back the permits of the dead one

    assert!(braced.try_acquire().await.unwrap().is_none(), "three hold two permits");
    assert_eq!(bare.available_permits().await.unwrap(), 2);
}

/// B6: one process sets the number, and every handle in every process follows it, whatever number the handle was made
/// with.
#[tokio::test]
async fn a_number_that_was_set_counts_for_all_handles() {
    for of in ALL {
        let scene = Scene::of(of).await;
        let permits = scene.permits(10);
        let held = permits.acquire().await.unwrap();
        permits.set_permits(20).await.unwrap();
        let others = of.permits(&scene.another().await, 10);
        let fifteen = others.acquire_many(15).await.unwrap();
        assert_eq!(others.available_permits().await.unwrap(), 4, "{of:?}");
        fifteen.unlock().await.unwrap();
        held.unlock().await.unwrap();

        // Nobody holds and nobody waits: the number stays, and no handle is at odds with it.
        for handle in [&permits, &others, &of.permits(&scene.client, 20)] {
            assert_eq!(handle.available_permits().await.unwrap(), 20, "{of:?}");
            handle.acquire_many(20).await.unwrap().unlock().await.unwrap();
        }
        let more = others.acquire_many(21).await;
        assert!(matches!(more, Err(Error::InvalidPermits { asked: 21, of: 20 })), "{more:?}");
        scene.nothing_is_eternal().await;
    }
}

/// B6: there is no need to hold a permit in order to set their number.
#[tokio::test]
async fn the_number_can_be_set_while_nobody_holds_or_waits() {
    for of in ALL {
        let scene = Scene::of(of).await;
        scene.permits(10).set_permits(3).await.unwrap();
        let others = of.permits(&scene.another().await, 10);
        assert_eq!(others.available_permits().await.unwrap(), 3, "{of:?}");
        let _all = others.acquire_many(3).await.unwrap();
        assert!(others.try_acquire().await.unwrap().is_none(), "{of:?}");
        others.set_permits(4).await.unwrap();
        assert!(scene.permits(10).try_acquire().await.unwrap().is_some(), "{of:?}");
        scene.nothing_is_eternal().await;
    }
}

/// B6: the set number has a TTL, which each use makes long again; after it, the handle's number counts.
#[tokio::test]
async fn a_number_that_was_set_is_forgotten_when_nobody_uses_it_for_long() {
    const NOTES: &str = "lock_notes:{a}";
    const WEEKS: i64 = 29 * 24 * 60 * 60 * 1000;
    let scene = Scene::of(Native).await;
    let permits = scene.permits(2);
    permits.set_permits(3).await.unwrap();
    assert!(scene.admin.pttl(NOTES).await > WEEKS);
    scene.admin.cmd::<usize>(&["PEXPIRE", NOTES, "60000"]).await;
    permits.acquire_many(3).await.unwrap().unlock().await.unwrap();
    assert!(scene.admin.pttl(NOTES).await > WEEKS, "it was used");
    assert_eq!(scene.admin.hgetall(NOTES).await.len(), 2, "nothing else is remembered");

    scene.admin.cmd::<usize>(&["PEXPIRE", NOTES, "1"]).await;
    sleep(Duration::from_millis(5)).await;

    assert_eq!(permits.available_permits().await.unwrap(), 2);
    let held = permits.acquire().await.unwrap();
    assert!(matches!(scene.permits(3).acquire().await, Err(Error::Conflict { .. })));
    held.unlock().await.unwrap();
    assert!(lock_keys(&scene.admin).await.is_empty(), "nobody has set anything");
}

/// A renewal does not touch the note of the number. So the number outlives its note while permits are held, and the next
/// script that looks at the name writes the note again.
#[tokio::test]
async fn a_number_that_was_set_applies_for_as_long_as_permits_are_held() {
    const NOTES: &str = "lock_notes:{a}";
    let scene = Scene::of(Native).await;
    let permits = scene.permits(2);
    permits.set_permits(3).await.unwrap();
    let held = permits.acquire().await.unwrap();
    for number in [2, 3] {
        assert_eq!(scene.admin.cmd::<usize>(&["DEL", NOTES]).await, 1);
        let more = scene.permits(number).try_acquire_many(2).await.expect("no conflict");
        more.expect("three permits were set").unlock().await.unwrap();
        assert_eq!(permits.available_permits().await.unwrap(), 2);
        assert!(scene.admin.pttl(NOTES).await > 0, "the number is noted again");
    }
    scene.admin.cmd::<usize>(&["DEL", NOTES]).await;
    held.unlock().await.unwrap();
    assert_eq!(permits.available_permits().await.unwrap(), 3);
    scene.nothing_is_eternal().await;
}

/// The notes say nothing any more, and the key of the next holder does not say it either. So whoever lines up notes it again.
#[tokio::test]
async fn a_number_that_was_set_outlasts_a_holder_whose_lease_ends_while_another_waits() {
    const HOLDS: &str = "local over = redis.call('TIME')[1] * 1000 + 2000 \
        redis.call('ZADD', KEYS[1], string.format('%.0f', over), 'gone:1', \
        '-4503599627370495', '#semaphore 1', '-3377699720527360', '#set') \
        return redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', over))";
    judged(async || {
        let scene = Scene::of(Native).await;
        let permits = scene.permits(1);
        permits.set_permits(1).await.unwrap();
        scene.admin.cmd::<i64>(&["EVAL", HOLDS, "1", "lock:{a}"]).await;
        scene.admin.cmd::<usize>(&["DEL", "lock_notes:{a}"]).await;
        let next = timeout(SOON, permits.acquire()).await.expect("the lease ends").unwrap();
        let other = scene.permits(5).try_acquire().await.expect("one permit was set for all");
        assert!(other.is_none(), "it is taken");
        next.unlock().await.unwrap();
    })
    .await;
}

/// A script removes a hold whose lease is over, and then fails. Nobody counts the holds again.
#[tokio::test]
async fn a_permit_whose_lease_is_over_is_free_although_the_script_that_notices_it_fails() {
    const ADDS: &str = "redis.call('ZADD', KEYS[1], '1', 'gone:1') \
        redis.call('ZINCRBY', KEYS[1], 1, '#semaphore 3')";
    let scene = Scene::of(Native).await;
    let permits = scene.permits(3);
    let held = permits.acquire().await.unwrap();
    let _: Option<i64> = scene.admin.cmd(&["EVAL", ADDS, "1", "lock:{a}"]).await;
    scene.admin.cmd::<()>(&["SET", "lock_queue:{a}", "no line"]).await;
    assert!(permits.available_permits().await.is_err());
    scene.admin.cmd::<usize>(&["DEL", "lock_queue:{a}"]).await;
    assert_eq!(permits.available_permits().await.unwrap(), 2);
    held.unlock().await.unwrap();
}

/// How many scripts one turn takes, if this many tasks of one client take turns again and again.
async fn scripts_a_turn(of: Of, capacity: u32, tasks: usize) -> f64 {
    const TURNS: usize = 400;
    let scene = Scene::with(of, handing_on()).await;
    let permits = scene.permits(capacity);
    permits.acquire().await.expect("an answer").unlock().await.expect("an answer");
    scene.admin.reset_stats().await;
    let mut crowd = JoinSet::new();
    for _ in 0..tasks {
        let permits = permits.clone();
        crowd.spawn(async move {
            for _ in 0..TURNS {
                let guard = permits.acquire().await.expect("an answer");
                tokio::task::yield_now().await;
                guard.unlock().await.expect("an answer");
            }
        });
    }
    timeout(LONG / 10, crowd.join_all()).await.expect("all get their turns");
    let scripts = settled(&scene.admin).await;
    assert_eq!(permits.available_permits().await.expect("an answer"), capacity);
    assert!(scene.traces().await.is_empty(), "{of:?}");
    scripts as f64 / (tasks * TURNS) as f64
}

/// C4, C5: permits that are given back are handed on, whether or not there is room for all.
#[tokio::test]
async fn tasks_of_one_client_hand_permits_on_and_seldom_ask() {
    for of in ALL {
        for capacity in [1, 64] {
            let scripts = scripts_a_turn(of, capacity, 64).await;
            assert!(scripts <= 0.2, "{of:?}, of {capacity}: {scripts} scripts a turn");
        }
    }
}

/// C4: while there is room, nobody waits for the answer to another one's request.
#[tokio::test]
async fn callers_of_one_client_ask_side_by_side() {
    judged(async || {
        const DISTANCE: Duration = Duration::from_millis(100);
        for of in ALL {
            let scene = Scene::of(of).await;
            let proxy = Proxy::before(&scene.server).await;
            let client = of.client(&proxy.url(), Config::default()).await;
            let permits = of.permits(&client, 64);
            permits.acquire().await.unwrap().unlock().await.unwrap();
            let _far = proxy.everything().delay_reply(DISTANCE, Duration::ZERO);
            let began = Watch::start();
            let all: Vec<_> = (0..32).map(|_| waiting(&permits, 1)).collect();
            let mut guards = Vec::new();
            for waiter in all {
                guards.push(granted(waiter).await);
            }
            let took = began.passed();
            assert!(took < DISTANCE * 16, "{of:?}: {took:?}");
        }
    })
    .await;
}

/// A client hands permits on whatever their age, so that the speed of this machine does not matter.
fn handing_on() -> Config {
    let hand_off = HandOff { max_time: LONG, ..HandOff::default() };
    Config::default().max_park(LONG).hand_off(hand_off)
}

/// Nor does any lease, place or park end during a test, so only messages wake waiters.
fn only_told() -> Config {
    let config = handing_on().watchdog_timeout(LONG).waiter_ttl(LONG / 4);
    config.subscription_linger(Duration::ZERO)
}

/// The caller for which the permit was left is dropped before it takes the permit up.
#[tokio::test]
async fn a_permit_that_is_left_for_a_caller_that_is_dropped_is_given_back() {
    for of in ALL {
        let scene = Scene::with(of, only_told()).await;
        let other = of.client(&scene.server.url(), only_told()).await;
        let permits = scene.permits(1);
        for waiters in [1, 2] {
            let held = permits.acquire().await.unwrap();
            let mut ours: Vec<_> = (0..waiters).map(|_| waiting(&permits, 1)).collect();
            scene.awaited_by(1).await;
            let elsewhere = waiting(&of.permits(&other, 1), 1);
            scene.awaited_by(2).await;
            // Nobody else runs before they are dropped.
            held.unlock().await.unwrap();
            ours.iter().for_each(JoinHandle::abort);
            for waiter in ours.drain(..) {
                assert!(waiter.await.is_err_and(|gone| gone.is_cancelled()));
            }
            granted(elsewhere).await.unlock().await.unwrap();
            scene.awaited_by(0).await;
        }
    }
}

/// No answer comes until the fault is lifted. The release of one permit is in flight, and another permit is idle until that
/// release is answered.
async fn one_is_idle(of: Of) -> (Scene, Proxy, Fault, Semaphore, Client) {
    let scene = Scene::with(of, only_told()).await;
    let proxy = Proxy::before(&scene.server).await;
    let client = of.client(&proxy.url(), only_told().response_timeout(SOON)).await;
    let permits = of.permits(&client, 2);
    let [one, other] =
        [permits.acquire().await.expect("an answer"), permits.acquire().await.expect("an answer")];
    let answers = proxy.everything().hold_reply();
    scene.admin.reset_stats().await;
    let unlocked = tokio::spawn(one.unlock());
    eventually(SOON, "it is given back", async || scripts(&scene.admin).await == 1).await;
    drop(other);
    assert!(!unlocked.is_finished(), "it was to be on its way");
    (scene, proxy, answers, permits, client)
}

/// The answers come when the call has begun.
async fn answered<T>(call: impl Future<Output = T>, answers: Fault) -> T {
    tokio::join!(biased; call, async { answers.lift() }).0
}

/// Nobody holds a permit that is idle in the client.
#[tokio::test]
async fn an_idle_permit_is_free_for_the_next_request_of_its_client() {
    for of in ALL {
        let (_scene, _proxy, answers, permits, _client) = one_is_idle(of).await;
        assert_eq!(answered(permits.available_permits(), answers).await.unwrap(), 2, "{of:?}");
        let (_scene, _proxy, answers, permits, _client) = one_is_idle(of).await;
        let both = answered(permits.try_acquire_many(2), answers).await.unwrap();
        both.expect("it was given back").unlock().await.unwrap();
    }
}

#[tokio::test]
async fn an_idle_permit_is_taken_up_without_a_request() {
    for of in ALL {
        let (scene, _proxy, answers, permits, _client) = one_is_idle(of).await;
        let again = timeout(SOON, permits.acquire()).await.expect("it does not ask").unwrap();
        assert_eq!(scripts(&scene.admin).await, 1, "{of:?}");
        answers.lift();
        again.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn closing_a_client_gives_back_idle_permits() {
    for of in ALL {
        let (scene, _proxy, answers, _permits, client) = one_is_idle(of).await;
        answered(client.close(), answers).await;
        assert!(scene.traces().await.is_empty(), "{of:?}");
        let other = of.client(&scene.server.url(), only_told()).await;
        assert_eq!(of.permits(&other, 2).available_permits().await.unwrap(), 2);
    }
}

/// P7: a client that hands permits on makes no other client wait until a lease or a sign of life is over.
#[tokio::test]
async fn two_clients_share_the_permits_that_neither_can_have_alone() {
    const SHOW: Duration = Duration::from_secs(2);
    let config = || {
        let config = Config::default().max_park(LONG).watchdog_timeout(LONG).waiter_ttl(SOON);
        // A server that is gone is an error, and no wait of ten minutes.
        config.ride_out(SOON)
    };
    let scene = Scene::with(Native, config()).await;
    let other = Native.client(&scene.server.url(), config()).await;
    // A client may still be giving back its last permits of one number when the next crowd comes: so each has a name.
    for (name, capacity) in [("one", 1), ("three", 3)] {
        let mut crowds = Vec::new();
        for client in [&scene.client, &other] {
            let (turns, longest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let mut crowd = JoinSet::new();
            for _ in 0..8 {
                let permits = client.semaphore(name, capacity);
                let (turns, longest) = (Arc::clone(&turns), Arc::clone(&longest));
                crowd.spawn(async move {
                    let began = Instant::now();
                    while began.elapsed() < SHOW {
                        let asked = Instant::now();
                        let guard = permits.acquire().await.unwrap();
                        longest.fetch_max(asked.elapsed().as_millis() as usize, Ordering::Relaxed);
                        turns.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                        guard.unlock().await.unwrap();
                    }
                });
            }
            crowds.push((crowd, turns, longest));
        }
        let mut shares = Vec::new();
        for (crowd, turns, longest) in crowds {
            timeout(LONG, crowd.join_all()).await.expect("all get their turns");
            shares.push(turns.load(Ordering::Relaxed));
            let longest = Duration::from_millis(longest.load(Ordering::Relaxed) as u64);
            assert!(longest < SOON / 2, "of {capacity}: one waited for {longest:?}");
        }
        let (least, most) = (shares[0].min(shares[1]), shares[0].max(shares[1]));
        assert!(least * 4 > most, "of {capacity}: {shares:?}");
    }
}

/// P7: a crowd that already waits gets no more turns in a row than the hand-off budget allows.
#[tokio::test]
async fn a_crowd_of_one_client_hands_a_permit_to_another_client_when_its_time_is_over() {
    let scene = Scene::with(Native, Config::default()).await;
    let other = Native.client(&scene.server.url(), Config::default()).await;
    let turns = Arc::new(AtomicUsize::new(0));
    let mut crowd = JoinSet::new();
    for _ in 0..50 {
        let (permits, turns) = (scene.client.semaphore("a", 1), Arc::clone(&turns));
        crowd.spawn(async move {
            let guard = permits.acquire().await.unwrap();
            turns.fetch_add(1, Ordering::SeqCst);
            // Longer than the budget of 2 ms.
            sleep(Duration::from_millis(20)).await;
            guard.unlock().await.unwrap();
        });
    }
    let first = async || turns.load(Ordering::SeqCst) > 0;
    eventually(SOON, "one of them has the permit", first).await;
    let before = turns.load(Ordering::SeqCst);
    let guard = timeout(LONG, other.semaphore("a", 1).acquire()).await.unwrap().unwrap();
    let meanwhile = turns.load(Ordering::SeqCst) - before;
    assert!(meanwhile < 10, "{meanwhile} turns");
    guard.unlock().await.unwrap();
    crowd.join_all().await;
}
