//! Many locks, many requests, long ways. Sizes fit a debug build on two cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, stream};
use parklock::{Client, Error, Guard};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::common::{Proxy, Server, Watch, eventually, judged, judged_beside_its_load, timeout};
use crate::{SOON, a_turn, connect, fields, is_clean, key, patient, scripts_run, tasks};

const MANY: usize = 20_000;

/// F81: one client holds very many locks.
#[tokio::test]
async fn twenty_thousand_locks_are_renewed_in_batches_and_none_is_lost() {
    judged(async || {
        let lease = Duration::from_secs(6);
        let server = Server::start().await;
        let client = connect(&server.url(), patient().watchdog_timeout(lease)).await;
        let admin = server.admin().await;
        let acquires = (0..MANY).map(|n| {
            let lock = client.lock(format!("lock {n}"));
            async move { lock.lock().await.expect("it is free") }
        });
        let mut guards: Vec<Guard> = Vec::new();
        let mut acquires = stream::iter(acquires).buffer_unordered(256);
        while let Some(guard) = acquires.next().await {
            guards.push(guard);
            assert!(guards[0].is_valid(), "lost beside {} others", guards.len());
        }
        assert_eq!(admin.cmd::<usize>(&["DBSIZE"]).await, MANY + 1, "all of them are held at once");
        let idle = tasks();

        admin.reset_stats().await;
        let watched = Instant::now();
        sleep(lease + lease / 6).await;
        let periods = watched.elapsed().as_secs_f64() / (lease / 3).as_secs_f64();
        let (scripts, renewals) = (scripts_run(&admin).await, admin.command_calls("pexpire").await);

        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!(lost, 0, "of {MANY}, after more than a lease");
        assert_eq!(admin.cmd::<usize>(&["DBSIZE"]).await, MANY + 1);
        let each = renewals as f64 / MANY as f64 / periods;
        assert!((0.5..1.3).contains(&each), "{each} renewals a lock and period");
        let batch = renewals / scripts;
        assert!((40..=500).contains(&batch), "{renewals} renewals in {scripts} scripts");
        assert!(tasks() <= idle, "no task for each of them");
        eprintln!("{MANY} locks: {renewals} renewals in {scripts} scripts, {periods:.1} periods");

        admin.reset_stats().await;
        drop(guards);
        is_clean(&admin, SOON, "all are given back").await;
        let scripts = scripts_run(&admin).await;
        assert!(scripts <= MANY as u64 / 40, "{scripts} scripts to give them back");
    })
    .await;
}

/// F83: the network takes 200 ms there and back.
#[tokio::test]
async fn a_slow_network_makes_locks_slow_and_nothing_else() {
    judged(async || {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        let (rtt, lease) = (Duration::from_millis(200), Duration::from_secs(3));
        let slow = proxy.everything().delay_reply(rtt, Duration::ZERO);
        let client = connect(&proxy.url(), patient().watchdog_timeout(lease)).await;
        let near = connect(&server.url(), patient()).await;
        slow.happened().await;

        let asked = Instant::now();
        let guard = client.lock("a").lock().await.unwrap();
        assert!(asked.elapsed() >= rtt, "the answer took its time");
        assert!(guard.remaining() <= lease - rtt, "the time of the answer is not counted as ours");
        let waiter = tokio::spawn({
            let lock = near.lock("a");
            async move { a_turn(&lock).await }
        });
        sleep(lease + lease / 6).await;
        assert!(guard.is_valid(), "it was renewed in time");
        let token = guard.token();
        guard.unlock().await.unwrap();
        assert!(waiter.await.unwrap() > token);

        // A lease that the network eats up is no lease: refused, told, and cleaned up.
        for late in [
            client.lock("b").lease(rtt / 2).try_lock().await.map(drop),
            client.lock("b").lease(rtt / 2).try_lock_for(rtt * 4).await.map(drop),
        ] {
            assert!(
                matches!(late, Err(Error::Indeterminate { .. } | Error::Unavailable { .. })),
                "{late:?}"
            );
        }
        is_clean(&server.admin().await, SOON, "nothing is left").await;

        // So is a lease whose answers could not arrive in time.
        let hasty = Client::connect_with(proxy.url(), patient().watchdog_timeout(rtt * 2)).await;
        assert!(matches!(hasty, Err(Error::Unavailable { .. })), "{hasty:?}");
    })
    .await;
}

/// How many ask at once. The queue of a connection holds 1,024 requests.
const FLOOD: usize = 3_000;

/// F85: far more requests at once than the way to the server holds, and a new one for each that is answered. So a renewal that
/// waited for the others would never be sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_requests_does_not_keep_renewals_from_their_way() {
    judged_beside_its_load(async || {
        // Long enough for a slow machine: a renewal that is due has two thirds of it, and a request a quarter.
        let (server, lease) = (Server::start().await, Duration::from_secs(24));
        let client = connect(&server.url(), patient().watchdog_timeout(lease)).await;
        let guard = client.lock("a").lock().await.unwrap();
        let lost = tokio::spawn(guard.ended());
        let (watch, is_over) = (Watch::start(), Arc::new(AtomicBool::new(false)));
        let (mut asking, asked) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for n in 0..FLOOD {
            let lock = client.lock(format!("lock {n} {}", "x".repeat(900)));
            let (asked, is_over) = (Arc::clone(&asked), Arc::clone(&is_over));
            asking.spawn(async move {
                asked.fetch_add(1, Ordering::SeqCst);
                let (mut answered, mut failed) = (0, 0);
                while !is_over.load(Ordering::SeqCst) {
                    // Attempts travel together, and would not fill the way alone.
                    let ok = if n % 2 == 0 {
                        lock.try_lock().await.is_ok()
                    } else {
                        lock.is_locked().await.is_ok()
                    };
                    if ok { answered += 1 } else { failed += 1 }
                }
                (answered, failed)
            });
        }
        eventually(lease * 5, "all ask", async || asked.load(Ordering::SeqCst) == FLOOD).await;

        let deadline = || Instant::now() + guard.remaining();
        let before = deadline() + Duration::from_secs(1);
        let is_renewed = || guard.is_valid() && deadline() > before;
        eventually(lease * 5, "renewed or lost", async || is_renewed() || !guard.is_valid()).await;
        let (renewed, stalled) = (is_renewed(), watch.stalled());
        is_over.store(true, Ordering::SeqCst);
        let (answered, failed) = asking
            .join_all()
            .await
            .into_iter()
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        eprintln!("{answered} requests in {:?}, {FLOOD} at once, {failed} failed", watch.elapsed());

        assert!(
            renewed,
            "lost beside {answered} requests that were answered, and {failed} that failed"
        );
        assert!(guard.is_valid() && !lost.is_finished(), "it was renewed in between");
        // How many are answered in time is up to the machine: it is judged if the runtime had one to run on, beside this load too.
        let ran = stalled < watch.elapsed() / 8;
        assert!(!ran || failed < answered / 4, "{failed} failed, {answered} were answered");
        guard.unlock().await.unwrap();
    })
    .await;
}

const CALLS: u64 = 12_000;

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let started = Instant::now();
    (work.await, started.elapsed())
}

/// F85: the server does not read any more, so that the queue is full.
#[tokio::test]
async fn every_call_returns_in_its_time_though_the_queue_is_full() {
    judged(async || {
        let server = Server::start().await;
        let (limit, response) = (Duration::from_millis(500), Duration::from_secs(1));
        let config = patient().watchdog_timeout(response * 4).response_timeout(response);
        let client = connect(&server.url(), config).await;
        let guard = client.lock("a").try_lock().await.unwrap();
        guard.expect("the connection is well").unlock().await.unwrap();
        server.pause();

        let calls = (0..CALLS).map(|n| {
            let lock = client.lock(format!("lock {n} {}", "x".repeat(1_000)));
            // Attempts travel together, and would not fill the way alone.
            let call = async move {
                match n % 4 {
                    0 => lock.try_lock_for(limit).await.is_err(),
                    _ => lock.is_locked().await.is_err(),
                }
            };
            // A connection is waited for, then an answer. What a busy machine adds to that is seen by a plain timer.
            join(timed(call), timed(sleep(response * 2)))
        });
        let answers: Vec<_> = calls.collect::<FuturesUnordered<_>>().collect().await;
        assert!(
            answers.iter().all(|((refused, _), _)| *refused),
            "any other answer would be a guess"
        );
        let longest = answers.iter().map(|((_, took), _)| *took).max().unwrap();
        let allowed = answers.iter().map(|(_, (_, took))| *took).max().unwrap();
        assert!(longest < allowed + Duration::from_secs(1), "{longest:?}, and timers {allowed:?}");

        server.resume();
        let admin = server.admin().await;
        is_clean(&admin, SOON, "the late grant is given back").await;
        let arrived = scripts_run(&admin).await;
        assert!(arrived < CALLS / 2, "{arrived} arrived: the rest had no room on the way");
        let guard = timeout(SOON, client.lock("a").lock()).await.expect("it goes on").unwrap();
        assert_eq!(fields(&admin, "a").await.len(), 1);
        guard.unlock().await.unwrap();
        assert_eq!(admin.pttl(&key("a")).await, -2);
    })
    .await;
}
