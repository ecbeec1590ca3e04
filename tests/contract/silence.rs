//! A holder that falls silent, for any reason, keeps the lock no longer than its lease. A holder that does not keeps
//! it.

use std::time::Duration;

use parklock::{Config, Ended, Error, Guard};
use tokio::runtime::Builder;

use crate::common::fixture::quick;
use crate::common::{Watch, Worker, WorkerSide, judged};
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_free_soon, is_held_as, soon};

/// Of a holder that may fall silent.
const LEASE: Duration = Duration::from_secs(3);

/// What the next one may take beyond it.
const FURTHER: Duration = Duration::from_secs(3);

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_holds() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let (pair, name) = (Pair::named(&boss.variable("PAIR")), boss.variable("NAME"));
    let lease = Duration::from_secs(boss.variable("LEASE").parse().unwrap());
    let client = pair.client(&boss.variable("URL"), quick().watchdog_timeout(lease)).await;
    let guard = pair.of(&client, &name).lock().await.unwrap();
    boss.tell("holding");
    while let Some(order) = boss.order().await {
        match &*order {
            "unlock" => return boss.tell(&format!("{:?}", guard.unlock().await)),
            _ => boss.tell(&format!("{}", guard.is_valid())),
        }
    }
}

/// A process that takes the lock of this name, with such a lease.
fn worker(scene: &Scene, name: &str, lease: Duration) -> Worker {
    let (url, lease) = (scene.server.url(), lease.as_secs().to_string());
    let variables = [("URL", &*url), ("PAIR", scene.pair.name), ("NAME", name), ("LEASE", &*lease)];
    Worker::start("silence::worker_that_holds", &variables)
}

/// The same, and it holds the lock.
async fn holder(scene: &Scene, name: &str, lease: Duration) -> Worker {
    let mut worker = worker(scene, name, lease);
    assert_eq!(worker.hear().await, "holding");
    worker
}

/// Waits for what its holder has left, and keeps it.
async fn gets_it(scene: &Scene, name: &str, silence: impl AsyncFnOnce()) -> Guard {
    let mutex = scene.pair.of(&scene.theirs, name);
    let waiter = tokio::spawn(async move { mutex.lock().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    silence().await;
    let since = Watch::start();
    let guard = soon(waiter).await.unwrap().unwrap();
    let waited = since.passed();
    assert!(waited < LEASE + FURTHER, "{name}: {waited:?}");
    guard
}

async fn killed(scene: &Scene) {
    let mut worker = holder(scene, "killed", LEASE).await;
    let guard = gets_it(scene, "killed", async || worker.kill9()).await;
    guard.unlock().await.unwrap();
}

async fn stopped(scene: &Scene) {
    let mut worker = holder(scene, "stopped", LEASE).await;
    let guard = gets_it(scene, "stopped", async || worker.stop_process()).await;
    worker.continue_process();
    assert_eq!(
        worker.ask("valid?").await,
        "false",
        "it believes that it still holds the lost lock"
    );
    assert_eq!(worker.ask("unlock").await, "Err(the lock \"stopped\" was lost)");
    assert!(guard.is_valid());
    let third = scene.pair.of(&scene.ours, "stopped").try_lock().await;
    assert!(third.unwrap().is_none(), "the next holder was driven out");
    guard.unlock().await.unwrap();
}

async fn runtime_ended(scene: &Scene) {
    let (pair, url) = (scene.pair, scene.server.url());
    let holding = std::thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, guard) = runtime.block_on(async {
            let client = pair.client(&url, quick()).await;
            let guard = pair.of(&client, "runtime").lock().await.unwrap();
            (client, guard)
        });
        (runtime, client, guard)
    });
    let (runtime, client, guard) = holding.join().unwrap();
    let next = gets_it(scene, "runtime", async || runtime.shutdown_background()).await;
    assert_eq!(guard.ended().await, Ended::Lost);
    assert!(!guard.is_valid());
    assert_err!(guard.unlock().await, Error::Lost { .. });
    assert!(next.is_valid());
    next.unlock().await.unwrap();
    drop(client);
}

/// The worst moment: a waiter is let in, and killed before it can hear of it.
async fn killed_while_it_waits(scene: &Scene) {
    // This one is not silent: it may take its time to unlock.
    let mut worker = holder(scene, "waits", LEASE * 10).await;
    let mut next = self::worker(scene, "waits", LEASE);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let guard = gets_it(scene, "waits", async || {
        next.stop_process();
        assert_eq!(worker.ask("unlock").await, "Ok(())");
        next.kill9();
    });
    guard.await.unlock().await.unwrap();
    // On a busy machine, `next` lines up last. Redisson's fair queue keeps a dead waiter until somebody asks.
    is_free_soon(scene.pair.of(&scene.ours, "waits")).await;
}

/// Both kinds of holders: one that got the lock at once, and one that a message let in, which holds it only as long
/// as its sign of life lasts at first.
async fn renewed(scene: &Scene) {
    let lease = LEASE * 2;
    let config = Config::default().watchdog_timeout(lease).waiter_ttl(lease / 2);
    let client = scene.pair.client(&scene.server.url(), config).await;
    let mutex = |name| scene.pair.of(&client, name);
    let (at_once, before) =
        (mutex("at once").lock().await.unwrap(), mutex("called").lock().await.unwrap());
    let waiter = Waiter::parked(mutex("called")).await;
    before.unlock().await.unwrap();
    let called = waiter.gets_it().await;
    tokio::time::sleep(lease + lease / 5).await;
    for (name, guard) in [("at once", at_once), ("called", called)] {
        assert!(guard.is_valid(), "{name}");
        is_held_as(scene, name).await;
        guard.unlock().await.unwrap();
    }
}

/// All at once, since each takes a lease.
pub(crate) async fn a_silent_holder_loses_the_lock_when_its_lease_is_over_and_a_live_one_keeps_it(
    pair: Pair,
) {
    judged(async || {
        let scene = Scene::with(pair, Config::default()).await;
        tokio::join!(
            killed(&scene),
            stopped(&scene),
            runtime_ended(&scene),
            killed_while_it_waits(&scene),
            renewed(&scene)
        );
        scene.is_clean().await;
    })
    .await;
}
