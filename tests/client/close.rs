//! How a client ends: closed, dropped, or left behind by its runtime.

use crate::common;

use std::time::Duration;

use common::fixture::{
    A_WHILE, LONG, SOON, client, client_with, comes_in, lock_keys, parked, quick,
};
use common::{Admin, Proxy, Site, Watch, eventually, timeout};
use futures_util::future::join_all;
use parklock::{Client, Config, Ended, Error, Guard, Lock};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::Level;

use crate::observability::Log;

/// How long closing may take beyond the response timeout on a busy machine.
const SLACK: Duration = Duration::from_secs(2);
const RESPONSE: Duration = Duration::from_secs(1);

fn wait(lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.lock().await })
}

async fn is_closed(waiter: JoinHandle<Result<Guard, Error>>) {
    let ended = timeout(SOON, waiter).await.expect("it ends").expect("no panic");
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
}

/// That a guard knows of the end of its client.
async fn is_lost(guard: Guard) {
    assert!(!guard.is_valid());
    assert_eq!(timeout(SOON, guard.ended()).await.expect("the end is told"), Ended::Lost);
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
}

/// That nobody but ourselves is connected.
async fn disconnected(admin: &Admin) {
    eventually(SOON, "the others disconnect", async || admin.clients().await.len() == 1).await;
}

#[tokio::test]
async fn closing_sends_waiters_away_and_gives_back_what_is_held() {
    let server = Site::start().await;
    let (ours, theirs, admin) =
        (client(&server).await, client(&server).await, server.admin().await);
    let held = ours.lock("held").lock().await.unwrap();
    let nested = [
        ours.reentrant_lock("nested").lock().await.unwrap(),
        ours.reentrant_lock("nested").lock().await.unwrap(),
    ];
    let fixed = ours.lock("fixed").lease(SOON * 6).lock().await.unwrap();
    let _theirs = theirs.lock("theirs").lock().await.unwrap();
    let waiters = ["held", "theirs", "theirs"].map(|name| wait(ours.lock(name)));
    parked(&admin, "theirs", 1).await;
    let heir = wait(theirs.lock("held"));
    parked(&admin, "held", 1).await;

    timeout(SOON, ours.close()).await.unwrap();

    for waiter in waiters {
        is_closed(waiter).await;
    }
    for guard in [held, fixed].into_iter().chain(nested) {
        is_lost(guard).await;
    }
    drop(timeout(SOON, heir).await.unwrap().unwrap().unwrap());
    let only_theirs = async || lock_keys(&admin).await == [common::fixture::key("theirs")];
    eventually(SOON, "ours are free", only_theirs).await;
}

#[tokio::test]
async fn a_closed_client_says_so_and_can_be_closed_again() {
    let server = Site::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    let lock = client.lock("a");
    client.close().await;
    timeout(SOON, client.clone().close()).await.unwrap();

    assert!(matches!(lock.lock().await, Err(Error::Closed)));
    assert!(matches!(client.lock("b").try_lock().await, Err(Error::Closed)));
    assert!(matches!(client.reentrant_lock("b").try_lock_for(SOON).await, Err(Error::Closed)));
    assert!(matches!(lock.is_locked().await, Err(Error::Closed)));
    assert!(matches!(lock.force_unlock().await, Err(Error::Closed)));
    assert!(matches!(lock.run(async |_| ()).await, Err(Error::Closed)));
    disconnected(&admin).await;
}

#[tokio::test]
async fn closing_takes_one_response_timeout_though_the_server_is_stopped() {
    let server = Site::start().await;
    let config = Config::default().response_timeout(RESPONSE);
    let (ours, theirs) = (client_with(&server, config).await, client(&server).await);
    let _theirs = theirs.lock("theirs").lock().await.unwrap();
    let held = ours.lock("held").lock().await.unwrap();
    let waiter = wait(ours.lock("theirs"));
    parked(&server.admin().await, "theirs", 1).await;
    server.pause();
    let asking = wait(ours.lock("free"));
    sleep(RESPONSE / 4).await;

    let begun = Watch::start();
    timeout(SOON, ours.close()).await.unwrap();
    is_lost(held).await;
    is_closed(waiter).await;
    is_closed(asking).await;

    assert!(begun.passed() < RESPONSE + SLACK, "it took {:?}", begun.passed());
}

#[tokio::test]
async fn a_lock_that_is_being_renewed_is_given_back_by_closing_too() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let config = Config::default().response_timeout(RESPONSE * 2);
    let client = comes_in(proxy.url(), config).await;
    let guard = client.lock("a").lock().await.unwrap();
    let renewal = proxy.script("renew").nth(1).hold_reply();
    renewal.happened().await;

    tokio::join!(timeout(SOON, client.close()), async { renewal.lift() }).0.unwrap();

    is_lost(guard).await;
    let admin = server.admin().await;
    eventually(SOON, "it is free", async || lock_keys(&admin).await.is_empty()).await;
}

#[tokio::test]
async fn an_unlock_on_its_way_survives_closing() {
    let server = Site::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    let guard = client.lock("a").lock().await.unwrap();
    let (unlocked, ()) = tokio::join!(guard.unlock(), client.close());
    assert!(unlocked.is_ok(), "{unlocked:?}");
    assert!(lock_keys(&admin).await.is_empty());
}

#[tokio::test]
async fn the_log_names_each_lock_that_an_end_takes_away() {
    let (log, _capturing) = Log::capture();
    let server = Site::start().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guards = [ours.lock("a").lock().await.unwrap(), ours.lock("b").lock().await.unwrap()];
    let waiter = wait(ours.lock("a"));
    assert!(!ours.drain(A_WHILE).await, "they are held");
    is_closed(waiter).await;
    assert_eq!(log.said(Level::WARN, &["before all its callers have ended", "waiting=1"]), 1);
    for name in ["\"a\"", "\"b\""] {
        let lost = ["lock lost", name, "the client has ended"];
        assert_eq!(log.said(Level::ERROR, &lost), 1, "{}", log.all());
    }
    drop(guards);
    assert!(theirs.drain(SOON).await, "it has nothing");
    assert_eq!(log.said(Level::WARN, &["before all its callers"]), 1, "{}", log.all());
}

/// Its caller could not know whether it counts.
#[tokio::test]
async fn a_client_that_drains_waits_for_a_count_under_way() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("order", include_str!("../../lua/latch/order.lua"));
    let client = comes_in(proxy.url(), Config::default()).await;
    let latch = client.count_down_latch("a");
    latch.set(2).await.unwrap();
    let lost = proxy.script("order").about("\r\ncount_down\r\n").nth(1).cut_after();
    let counted = tokio::spawn(async move { latch.count_down().await });
    lost.happened().await;
    assert!(client.drain(SOON).await);
    assert_eq!(counted.await.expect("no panic").expect("it is repeated until it is answered"), 1);
}

/// Nobody holds the lock: so `None` would be wrong.
#[tokio::test]
async fn a_try_that_waits_for_a_release_of_its_client_ends_with_the_client() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("release", include_str!("../../lua/line/release.lua"));
    let client = comes_in(proxy.url(), Config::default()).await;
    let guard = client.lock("a").lock().await.unwrap();
    let held = proxy.script("release").nth(1).hold_reply();
    drop(guard);
    held.happened().await;
    let (again, closing) = (client.lock("a"), client.clone());
    let (tried, ()) = tokio::join!(again.try_lock(), async {
        let closing = tokio::spawn(async move { closing.close().await });
        sleep(A_WHILE).await;
        held.lift();
        closing.await.expect("it closes");
    });
    assert!(matches!(tried, Err(Error::Closed)), "{tried:?}");
}

#[tokio::test]
async fn unlocks_that_gather_while_the_client_is_closed_are_sent_and_answered() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("release", include_str!("../../lua/line/release.lua"));
    let client = comes_in(proxy.url(), Config::default().response_timeout(RESPONSE * 7)).await;
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(client.lock(format!("{number}")).lock().await.unwrap());
    }
    // The first one travels alone; the others gather behind it.
    let held = proxy.script("release").nth(1).hold_reply();
    let unlocks = tokio::spawn(join_all(guards.into_iter().map(Guard::unlock)));
    held.happened().await;

    let closed = async {
        client.close().await;
        lock_keys(&server.admin().await).await
    };
    let lifted = async {
        sleep(A_WHILE).await;
        held.lift();
    };
    let (left, ()) = tokio::join!(closed, lifted);

    assert_eq!(left, [""; 0], "held after close()");
    for unlocked in unlocks.await.unwrap() {
        assert!(unlocked.is_ok(), "{unlocked:?}");
    }
}

#[tokio::test]
async fn an_unlock_that_closing_cannot_wait_for_is_indeterminate() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("release", include_str!("../../lua/line/release.lua"));
    let config = Config::default().response_timeout(RESPONSE);
    let client = comes_in(proxy.url(), config).await;
    let guards = [client.lock("a").lock().await.unwrap(), client.lock("b").lock().await.unwrap()];
    let held = proxy.script("release").hold_reply();
    let unlocks = tokio::spawn(join_all(guards.into_iter().map(Guard::unlock)));
    held.happened().await;

    timeout(RESPONSE + SLACK, client.close()).await.unwrap();

    for unlocked in timeout(SOON, unlocks).await.unwrap().unwrap() {
        assert!(matches!(unlocked, Err(Error::Indeterminate { .. })), "{unlocked:?}");
    }
}

/// The acquire of the last call was cut off, and might still arrive. Its lease, and the response timeout, last longer than this
/// test.
#[tokio::test]
async fn closing_waits_for_one_answer_whatever_was_cut_off_before() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    let config = Config::default().watchdog_timeout(LONG).response_timeout(LONG / 5);
    let (log, _capturing) = Log::capture();
    let client = comes_in(proxy.url(), config).await;
    for kind in [client.lock("a"), client.fair_lock("b")] {
        let cut = proxy.script("acquire").nth(1).cut_before();
        let tried = kind.try_lock().await;
        assert!(matches!(tried, Err(Error::Indeterminate { .. })), "{tried:?}");
        cut.lift();
    }

    timeout(SOON, client.close()).await.expect("the server answers at once");

    // H3: nothing is left, so nobody is warned of it.
    assert_eq!(log.said(Level::WARN, &["the client is closed before"]), 0, "{}", log.all());
}

/// Five calls that shared a request and were dropped before the server's answer arrived. Another client holds `0`.
async fn cancelled_together(proxy: &Proxy, client: &Client) -> common::Fault {
    proxy.name_acquires();
    // The first of the six travels alone, and finds that it is held: nothing has to be given back for it.
    let held = proxy.script("acquire").nth(2).hold_reply();
    let attempt = |number: usize| {
        let lock = client.lock(format!("{number}"));
        tokio::spawn(async move { lock.try_lock().await })
    };
    let mut attempts = (0..6).map(attempt).collect::<Vec<_>>().into_iter();
    let alone = attempts.next().expect("the first").await.expect("no panic");
    assert!(alone.expect("an answer").is_none());
    held.happened().await;
    for attempt in attempts {
        attempt.abort();
        let _ = attempt.await;
    }
    held
}

#[tokio::test]
async fn closing_waits_for_the_answers_to_calls_that_were_cancelled() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    let client = comes_in(proxy.url(), Config::default().response_timeout(RESPONSE * 7)).await;
    let theirs = common::fixture::client(&server).await;
    let _theirs = theirs.lock("0").lock().await.unwrap();
    let held = cancelled_together(&proxy, &client).await;

    let closed = async {
        client.close().await;
        lock_keys(&server.admin().await).await
    };
    let lifted = async {
        sleep(A_WHILE).await;
        held.lift();
    };
    let (left, ()) = tokio::join!(closed, lifted);

    assert_eq!(left, [common::fixture::key("0")], "held after close()");
}

#[tokio::test]
async fn the_last_handle_waits_for_the_answers_to_calls_that_were_cancelled() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    let client = comes_in(proxy.url(), Config::default().response_timeout(RESPONSE * 7)).await;
    let theirs = common::fixture::client(&server).await;
    let _theirs = theirs.lock("0").lock().await.unwrap();
    let held = cancelled_together(&proxy, &client).await;
    drop(client);
    sleep(A_WHILE).await;
    held.lift();
    let admin = server.admin().await;
    let only_theirs = async || lock_keys(&admin).await == [common::fixture::key("0")];
    eventually(SOON, "ours are free", only_theirs).await;
    let ended = async || admin.clients().await.len() == 1 + 2;
    eventually(SOON, "the client disconnects", ended).await;
}

/// The second permit rests while the release of the first is in flight, and the client gives it back after that. The
/// first permit's answer comes after the lookout has found that the client has no handle left.
#[tokio::test]
async fn the_last_handle_gives_back_a_permit_that_is_idle_until_a_release_is_answered() {
    let server = Site::start().await;
    let admin = server.admin().await;
    for comes in [true, false] {
        let proxy = Proxy::before(&server).await;
        proxy.name_script("release", include_str!("../../lua/line/release.lua"));
        let pickup = RESPONSE * 2;
        let config = Config::default().response_timeout(RESPONSE * 4).pickup_timeout(pickup);
        let client = comes_in(proxy.url(), config).await;
        let semaphore = client.semaphore("a", 2);
        let (first, second) =
            (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
        let held = proxy.script("release").nth(1).hold_reply();
        drop(first);
        drop(second);
        drop((semaphore, client));
        held.happened().await;
        sleep(pickup / 2).await;
        if comes {
            held.lift();
        }
        // The lease is half a minute.
        eventually(SOON, "nothing is left", async || lock_keys(&admin).await.is_empty()).await;
        held.lift();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_acquire_at_the_edge_of_closing_leaves_no_key() {
    let server = Site::start().await;
    let admin = server.admin().await;
    for round in 0..150 {
        let client = client(&server).await;
        let take = |task: usize| {
            let client = client.clone();
            async move {
                let mut held = Vec::new();
                for number in 0.. {
                    match client.lock(format!("{round}-{task}-{number}")).lock().await {
                        Ok(guard) => held.push(guard),
                        Err(Error::Closed) => return held,
                        Err(error) => panic!("{error}"),
                    }
                }
                held
            }
        };
        let takers: Vec<_> = (0..4).map(|task| tokio::spawn(take(task))).collect();
        sleep(Duration::from_micros(fastrand::u64(0..4_000))).await;
        client.close().await;
        assert_eq!(lock_keys(&admin).await, [""; 0], "held after close() in round {round}");
        for taker in takers {
            let held = timeout(SOON, taker).await.unwrap().unwrap();
            assert!(held.iter().all(|guard| !guard.is_valid()), "valid in round {round}");
        }
    }
}

#[tokio::test]
async fn the_last_handle_ends_tasks_and_connections_and_what_was_dropped_before_is_given_back() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let client = client(&server).await;
    let lock = client.lock("a");
    let guard = lock.lock().await.unwrap();
    let clone = client.clone();
    drop((client, clone));
    assert!(guard.is_valid(), "a guard keeps its client");
    drop(guard);
    let guard = lock.lock().await.unwrap();
    drop(lock);

    drop(guard);

    disconnected(&admin).await;
    assert!(lock_keys(&admin).await.is_empty());
    let ended = async || Handle::current().metrics().num_alive_tasks() == tasks;
    eventually(SOON, "the tasks end", ended).await;
}

#[tokio::test]
async fn a_client_that_is_forgotten_while_its_server_is_gone_ends_with_the_lease() {
    let server = Site::start().await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let client = client_with(&server, quick()).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.kill();
    drop((client, guard));
    let ended = async || Handle::current().metrics().num_alive_tasks() == tasks;
    eventually(SOON, "the tasks end", ended).await;
}

#[tokio::test]
async fn connections_are_two_per_client_whatever_it_does() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let mut kept = Vec::new();
    let mut waiters = Vec::new();
    for number in 0..50 {
        kept.push(theirs.lock(format!("{number}")).lock().await.unwrap());
        waiters.push(wait(ours.lock(format!("{number}"))));
    }
    parked(&admin, "49", 1).await;
    assert_eq!(admin.clients().await.len(), 1 + 2 * 2);
}

/// A runtime of its own, with a client on it.
async fn elsewhere(server: &Site) -> (Runtime, Client) {
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let client = runtime.spawn(Client::connect(server.url())).await.expect("no panic");
    (runtime, client.expect("it connects"))
}

#[tokio::test]
async fn a_runtime_that_ends_takes_its_client_along() {
    let server = Site::start().await;
    let (runtime, client) = elsewhere(&server).await;
    let [first, second] =
        [client.lock("a").lock().await.unwrap(), client.lock("b").lock().await.unwrap()];
    let waiter = wait(client.lock("a"));
    tokio::task::yield_now().await;

    runtime.shutdown_background();

    is_closed(waiter).await;
    eventually(SOON, "the guards know", async || !first.is_valid() && !second.is_valid()).await;
    is_lost(first).await;
    drop(second);
    assert!(matches!(client.lock("c").lock().await, Err(Error::Closed)));
    timeout(SOON, client.close()).await.unwrap();
}

#[tokio::test]
async fn a_guard_may_be_dropped_outside_of_any_runtime() {
    let server = Site::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    let guard = client.lock("a").lock().await.unwrap();
    std::thread::spawn(|| drop(guard)).join().unwrap();
    eventually(SOON, "it is free", async || lock_keys(&admin).await.is_empty()).await;

    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let nested = client.reentrant_lock("a").lock().await.unwrap();
    std::thread::spawn(|| drop((guard, nested))).join().unwrap();
    eventually(SOON, "it is free", async || lock_keys(&admin).await.is_empty()).await;
}

#[tokio::test]
async fn a_guard_may_outlive_client_and_runtime() {
    let server = Site::start().await;
    let (runtime, client) = elsewhere(&server).await;
    let guard = client.lock("a").lock().await.unwrap();
    drop(client);
    runtime.shutdown_background();
    eventually(SOON, "it knows", async || !guard.is_valid()).await;
    std::thread::spawn(|| drop(guard)).join().unwrap();
}
