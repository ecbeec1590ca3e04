//! A job that one process of a fleet does in each interval, and no process twice.

use crate::common;

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::fixture::{LONG, SOON, client, client_with, comes_in, is_pending, key, quick};
use common::{Proxy, Server, eventually, timeout};
use parklock::{Config, Error, Every, HandOff};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const MARK: &str = "lock_notes:{a}:interval";

fn runs(job: Every, count: &Arc<AtomicUsize>) -> JoinHandle<Error> {
    let count = Arc::clone(count);
    tokio::spawn(async move {
        let Err(error) = job.run(async |_| _ = count.fetch_add(1, Ordering::SeqCst)).await;
        error
    })
}

/// The server counts from claim to claim. So `n` claims take at least `n - 1` periods, however slow the machine is.
#[tokio::test]
async fn a_fleet_runs_a_job_once_in_each_interval() {
    let (server, period) = (Server::start().await, Duration::from_millis(250));
    let (count, mut fleet) = (Arc::new(AtomicUsize::new(0)), Vec::new());
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(client(&server).await);
    }
    let start = Instant::now();
    for client in &clients {
        fleet.extend([0, 1].map(|_| runs(client.every("a", period), &count)));
    }
    sleep(Duration::from_secs(3)).await;
    let enough = async || count.load(Ordering::SeqCst) >= 6;
    eventually(SOON, "it runs again and again", enough).await;

    let (most, ran) = (start.elapsed().as_millis() / 250 + 1, count.load(Ordering::SeqCst));

    assert!(ran as u128 <= most, "{ran} runs in {most} intervals");
    for client in clients {
        client.close().await;
    }
    for running in fleet {
        let error = timeout(SOON, running).await.expect("it ends").unwrap();
        assert!(matches!(error, Error::Closed), "{error:?}");
    }
}

/// A deployment makes the period shorter, while the old one has been claimed.
#[tokio::test]
async fn a_period_that_becomes_shorter_counts_at_once() {
    let server = Server::start().await;
    let client = client(&server).await;
    let ran = client.every("a", LONG).run_if_due(async |_| ()).await.unwrap();
    assert_eq!(ran, Some(()));
    let (count, period) = (Arc::new(AtomicUsize::new(0)), Duration::from_millis(250));
    let _runs = runs(client.every("a", period), &count);
    let again = async || count.load(Ordering::SeqCst) >= 2;
    eventually(SOON, "it runs again and again", again).await;
    // A process that still has the old period claims once more.
    let claims = ["SET", MARK, "another", "PX", "600000"];
    server.admin().await.cmd::<()>(&claims).await;
    let before = count.load(Ordering::SeqCst);
    let goes_on = async || count.load(Ordering::SeqCst) > before + 1;
    eventually(SOON, "it goes on", goes_on).await;
}

#[tokio::test]
async fn an_interval_is_used_once_and_over_in_its_time() {
    let server = Server::start().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let period = Duration::from_secs(1);
    let (start, once) = (Instant::now(), ours.every("a", period).run_if_due(async |_| 7).await);
    assert_eq!(once.unwrap(), Some(7));
    // Both would be let in if only the lock kept them out.
    let again = [&ours, &theirs].map(|client| client.every("a", period));
    for job in &again {
        let ran = job.run_if_due(async |_| 8).await.unwrap();
        assert!(ran.is_none() || start.elapsed() >= period, "{ran:?} after {:?}", start.elapsed());
    }
    let due = async || again[1].run_if_due(async |_| 9).await.unwrap() == Some(9);
    eventually(SOON, "the interval is over", due).await;
    assert!(start.elapsed() >= period);
}

/// The lock goes from hold to hold of this client under one owner field. The claim is of a hold, not of the field.
#[tokio::test]
async fn a_caller_that_is_handed_the_lock_does_not_take_the_interval_for_its_own() {
    let server = Server::start().await;
    let endless = HandOff { max_consecutive: 1_000, max_time: LONG };
    let client = client_with(&server, Config::default().hand_off(endless)).await;
    let count = Arc::new(AtomicUsize::new(0));
    let held = client.lock("a").lock().await.unwrap();
    let fleet: Vec<_> = [0; 8].map(|_| runs(client.every("a", LONG), &count)).into();
    sleep(common::fixture::A_WHILE).await; // all have seen that the interval is free, and wait for the lock
    held.unlock().await.unwrap();
    let ran = async || count.load(Ordering::SeqCst) > 0;
    eventually(SOON, "one of them runs", ran).await;
    drop(client.lock("a").lock().await.unwrap()); // it comes after all of them
    assert_eq!(count.load(Ordering::SeqCst), 1);
    fleet.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_made_once() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("claim", include_str!("../../lua/marks/claim.lua"));
    let client = comes_in(proxy.url(), quick()).await;
    let lost = proxy.script("claim").first(2).cut_after();
    let ran = client.every("a", LONG).run_if_due(async |_| ()).await.unwrap();
    assert_eq!(ran, Some(()));
    assert!(lost.fired() == 2, "the answers were lost");
    assert_eq!(client.every("a", LONG).run_if_due(async |_| ()).await.unwrap(), None);
}

/// The server counts the period from the claim that was answered, since the run begins then.
#[tokio::test]
async fn a_run_whose_claim_was_answered_late_has_a_whole_period_from_then() {
    let server = Server::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    proxy.name_script("claim", include_str!("../../lua/marks/claim.lua"));
    let client = comes_in(proxy.url(), quick().watchdog_timeout(LONG)).await;
    let lost = proxy.script("claim").first(1).cut_after();
    let period = LONG;
    let job = client.every("a", period);
    let work = async |_| admin.pttl(MARK).await;
    let back = async {
        lost.happened().await;
        proxy.refuse().await;
        sleep(Duration::from_secs(2)).await;
        let back = Instant::now();
        proxy.accept_again().await;
        back
    };
    let (left, back) = tokio::join!(job.run_if_due(work), back);
    let left = Duration::from_millis(left.unwrap().unwrap().try_into().unwrap());
    assert!(left + back.elapsed() >= period, "{left:?} are left {:?} later", back.elapsed());
}

#[derive(Default)]
struct Runs {
    now: usize,
    most: usize,
    all: usize,
}

fn begun(runs: &Mutex<Runs>) {
    let mut runs = runs.lock().expect("nobody panics with it");
    (runs.now, runs.all) = (runs.now + 1, runs.all + 1);
    runs.most = runs.most.max(runs.now);
}

#[tokio::test]
async fn a_long_run_keeps_the_next_one_waiting() {
    let server = Server::start().await;
    let (period, at_once) = (Duration::from_millis(50), Arc::new(Mutex::new(Runs::default())));
    let mut fleet = Vec::new();
    for _ in 0..3 {
        let (client, at_once) = (client(&server).await, Arc::clone(&at_once));
        fleet.push(tokio::spawn(async move {
            let work = async |_| {
                begun(&at_once);
                sleep(period * 5).await;
                at_once.lock().unwrap().now -= 1;
            };
            let _ = client.every("a", period).run(work).await;
        }));
    }
    let often = async || at_once.lock().unwrap().all >= 4;
    eventually(SOON, "four runs", often).await;
    assert_eq!(at_once.lock().unwrap().most, 1, "runs at once");
    fleet.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_run_that_loses_its_lock_is_dropped_and_has_used_its_interval() {
    let server = Server::start().await;
    let client = client_with(&server, quick()).await;
    let job = client.every("a", LONG);
    let lost = job.run_if_due(async |_| {
        server.admin().await.cmd::<i64>(&["DEL", &key("a")]).await;
        pending::<()>().await;
    });
    assert!(matches!(timeout(SOON, lost).await.unwrap(), Err(Error::Lost { .. })));
    assert_eq!(job.run_if_due(async |_| ()).await.unwrap(), None);
    let count = Arc::new(AtomicUsize::new(0));
    let running = runs(job, &count);
    assert!(is_pending(running).await && count.load(Ordering::SeqCst) == 0);
}

#[tokio::test]
async fn a_run_beyond_its_limit_is_dropped_and_the_lock_is_free() {
    let server = Server::start().await;
    let client = client(&server).await;
    let job = client.every("a", LONG).at_most(Duration::from_millis(50));
    let late = timeout(SOON, job.run_if_due(|_| pending::<()>())).await.expect("it is dropped");
    assert!(matches!(&late, Err(Error::TooLong { name, .. }) if name == "a"), "{late:?}");
    assert!(client.lock("a").try_lock().await.unwrap().is_some());
    let admin = server.admin().await;
    assert!(admin.pttl(MARK).await > 0, "the interval is used");
}

#[tokio::test]
async fn a_mark_without_a_ttl_does_not_stop_the_job_for_ever() {
    let server = Server::start().await;
    let (admin, client) = (server.admin().await, client(&server).await);
    admin.cmd::<()>(&["SET", MARK, "somebody"]).await;
    let job = client.every("a", Duration::from_millis(100));
    assert_eq!(job.run_if_due(async |_| ()).await.unwrap(), None);
    let due = async || job.run_if_due(async |_| ()).await.unwrap().is_some();
    eventually(SOON, "it runs", due).await;
}

#[tokio::test]
async fn an_invalid_period_is_refused() {
    let server = Server::start().await;
    let client = client(&server).await;
    for period in [Duration::ZERO, Duration::from_millis(9), Duration::MAX] {
        let refused = client.every("a", period).run_if_due(async |_| ()).await;
        assert!(matches!(refused, Err(Error::Config { .. })), "{period:?}: {refused:?}");
    }
    let nameless = client.every("", LONG).run_if_due(async |_| ()).await;
    assert!(matches!(nameless, Err(Error::InvalidName { .. })));
}
