//! What befalls the process that holds: stopped, killed, blocked, panicking.

use std::sync::Arc;
use std::thread::{self};
use std::time::{Duration, Instant};

use parklock::{Ended, Error, Guard, Hold};

use crate::common::{
    Proxy, Server, Watch, Worker, WorkerSide, clock, judged, judged_beside_its_load,
};
use crate::{
    A_WHILE, LEASE, SOON, brief, connect, fields, is_clean, is_stopped, patient, somebody_waits,
    state_of,
};

/// The first `is_valid()` after a pause of this process that is longer than the lease.
fn first_look_after_a_long_pause(guard: &Guard, mut last: u64) -> bool {
    let pause = u64::try_from(LEASE.as_nanos()).unwrap_or(u64::MAX);
    loop {
        let now = clock::now();
        let valid = guard.is_valid();
        if now - last > pause {
            return valid;
        }
        last = now;
        thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_is_stopped_while_it_holds() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = connect(&boss.variable("URL"), brief()).await;
    let guard = Arc::new(client.lock("a").lock().await.unwrap());
    let (watching, last) = (Arc::clone(&guard), clock::now());
    let first_look = thread::spawn(move || first_look_after_a_long_pause(&watching, last));
    let lost = tokio::spawn(guard.ended());
    boss.tell(&format!("{}", guard.is_valid()));
    boss.order().await.unwrap();
    let (ended, looked) = (lost.await.unwrap(), first_look.join().unwrap());
    let unlocked = Arc::into_inner(guard).unwrap().unlock().await;
    boss.tell(&format!("{looked} {ended:?} {unlocked:?}"));
    boss.order().await;
}

/// F54: a holder is stopped for longer than its lease, then goes on.
#[tokio::test]
async fn a_holder_that_was_stopped_past_its_lease_knows_it_at_its_first_look() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let test = "process::worker_that_is_stopped_while_it_holds";
    let mut worker = Worker::start(test, &[("URL", &server.url())]);
    assert_eq!(worker.hear().await, "true");

    worker.stop_process();
    is_stopped(worker.pid()).await;
    let stopped = Instant::now();
    let guard = client.lock("a").lock().await.unwrap();
    assert_eq!(state_of(worker.pid()), Some('T'), "it sleeps while another one takes the lock");
    let ours = fields(&admin, "a").await;
    tokio::time::sleep(LEASE.saturating_sub(stopped.elapsed()) + A_WHILE).await;
    worker.continue_process();

    assert_eq!(worker.ask("go on").await, "false Lost Err(the lock \"a\" was lost)");
    assert_eq!(fields(&admin, "a").await, ours, "the next holder's hold is untouched");
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

/// Of a holder that is killed: its waiter is to stand in line before that is over.
const LEASE_OF_THE_KILLED: Duration = Duration::from_secs(3);

/// What the next holder may take beyond it.
const FURTHER: Duration = Duration::from_secs(3);

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_holds_until_it_is_killed() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let config = brief().watchdog_timeout(LEASE_OF_THE_KILLED);
    let client = connect(&boss.variable("URL"), config).await;
    let _guard = client.lock("a").lock().await.unwrap();
    boss.tell("holding");
    boss.order().await;
}

/// F55: a holder is killed.
#[tokio::test]
async fn a_killed_holder_frees_the_lock_within_its_lease() {
    judged(async || {
        let server = Server::start().await;
        // A waiter that would park for long if only messages woke it.
        let config = patient().max_park(Duration::from_secs(60));
        let (client, admin) = (connect(&server.url(), config).await, server.admin().await);
        let test = "process::worker_that_holds_until_it_is_killed";
        let mut worker = Worker::start(test, &[("URL", &server.url())]);
        assert_eq!(worker.hear().await, "holding");
        let theirs = fields(&admin, "a").await;
        let lock = client.lock("a");
        let waiter = tokio::spawn(async move { lock.lock().await });
        somebody_waits(&admin, "a").await;

        worker.kill9();
        let killed = Watch::start();
        assert_eq!(fields(&admin, "a").await, theirs, "it left its lock behind");

        let guard = waiter.await.unwrap().unwrap();
        let waited = killed.passed();
        assert!(waited < LEASE_OF_THE_KILLED + FURTHER, "{waited:?}");
        assert_eq!(admin.command_calls("publish").await, 0, "nobody told the waiter");
        guard.unlock().await.unwrap();
    })
    .await;
}

/// F56: the only thread of the runtime is blocked for longer than the lease.
#[tokio::test]
async fn a_guard_whose_runtime_was_blocked_past_its_lease_is_not_valid() {
    let server = Server::start().await;
    let (client, url) = (connect(&server.url(), brief()).await, server.url());
    let asked = Instant::now();
    let guard = client.lock("a").lock().await.unwrap();
    // Another process' part is played by another runtime.
    let other = thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = connect(&url, patient()).await;
            let guard = client.lock("a").lock().await.unwrap();
            (client, guard, Instant::now())
        })
    });

    let blocked = Instant::now();
    while !other.is_finished() && blocked.elapsed() < SOON {
        thread::sleep(Duration::from_millis(5));
    }
    let valid_at_first = guard.is_valid();
    let resumed = Instant::now();
    assert!(resumed - asked > LEASE - LEASE / 10, "{:?}", resumed - asked);

    let (other_client, theirs, taken) = other.join().unwrap();
    assert!(taken <= resumed, "somebody else got it meanwhile");
    assert!(!valid_at_first);
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.ended().await, Ended::Lost);
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    let admin = server.admin().await;
    assert_eq!(fields(&admin, "a").await.len(), 1, "the next holder's hold is untouched");
    drop((theirs, other_client));
}

/// F56: the only thread of the runtime is blocked for longer than a renewal period, but not than the lease.
#[tokio::test]
async fn a_guard_whose_runtime_was_blocked_within_its_lease_is_renewed_late_and_kept() {
    judged_beside_its_load(async || {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
        let client =
            connect(&proxy.url(), patient().watchdog_timeout(Duration::from_secs(8))).await;
        let guard = client.lock("a").lock().await.unwrap();
        let renewals = proxy.script("renew").count();
        renewals.happened().await;

        let before = renewals.fired();
        thread::sleep(LEASE * 2); // a renewal is due after a third of the lease
        assert_eq!(renewals.fired(), before, "nobody renews while the thread is blocked");
        assert!(guard.is_valid());

        renewals.happened_times(before + 2).await;
        assert!(guard.is_valid() && guard.remaining() > LEASE * 2);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// F62: the work under a lock panics.
#[tokio::test]
async fn a_panic_in_the_critical_section_gives_the_lock_back() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let lock = client.lock("a");

    let in_task = tokio::spawn({
        let lock = lock.clone();
        async move {
            let _guard = lock.lock().await.unwrap();
            panic!("in a task");
        }
    });
    assert!(in_task.await.unwrap_err().is_panic());
    is_clean(&admin, SOON, "the task's lock is given back").await;

    let in_run = tokio::spawn({
        let lock = lock.clone();
        let work = async |_: Hold| -> () { panic!("in the work of run") };
        async move { lock.run(work).await }
    });
    assert!(in_run.await.unwrap_err().is_panic());
    is_clean(&admin, SOON, "the lock of run is given back").await;

    let guard = lock.lock().await.unwrap();
    let in_thread = thread::spawn(move || {
        let _guard = guard;
        panic!("in a thread outside of the runtime");
    });
    assert!(in_thread.join().is_err());
    is_clean(&admin, SOON, "the thread's lock is given back").await;

    lock.try_lock().await.unwrap().expect("free").unlock().await.unwrap();
}
