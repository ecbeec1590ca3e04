//! Permits that either side takes: Redisson's `RSemaphore`, and its `RPermitExpirableSemaphore`.

use std::time::{Duration, Instant};

use parklock::{Client, Config, Error, Guard, Layout, Semaphore};
use tokio::task::JoinHandle;

use crate::common::fixture::{SOON, comes_in};
use crate::common::{Watch, Worker, WorkerSide, eventually, timeout};
use crate::peer::Thread;
use crate::scene::{AT_ONCE, FURTHER, QUICK, Scene, USUAL, client, granted};
use crate::version::{LEASES_OF_PERMITS, MANY_PERMITS, NOT_THERE, RELEASE_IF_EXISTS};

const CHANNEL: &str = "redisson_sc:{a}";

/// The two kinds. Orders for both are alike but for their beginnings.
const KINDS: [&str; 2] = ["sem", "permit"];

/// A client that listens only while it waits: so the number of listeners is the number of waiters.
async fn forgetful(scene: &Scene) -> Client {
    let config = Config::default().layout(Layout::Redisson).subscription_linger(Duration::ZERO);
    comes_in(scene.server.url(), config).await
}

fn permits(client: &Client, kind: &str, permits: u32) -> Semaphore {
    match kind {
        "permit" => client.redisson().expirable_semaphore("a", permits),
        _ => client.semaphore("a", permits),
    }
}

fn waiter(permits: &Semaphore, part: u32) -> JoinHandle<parklock::Result<Guard>> {
    let permits = permits.clone();
    tokio::spawn(async move { permits.acquire_many(part).await })
}

async fn told(waiter: JoinHandle<parklock::Result<Guard>>) -> Guard {
    granted(async { waiter.await.expect("no panic") }).await
}

async fn awaited_by(scene: &Scene, clients: usize) {
    scene.listened_to(CHANNEL, clients).await;
}

/// Takes a permit. Returns how to give it back.
async fn take(java: &mut Thread, kind: &str) -> String {
    let id = java.result(&format!("{kind}acquire a")).await;
    format!("{kind}release a {id}").trim_end().to_owned()
}

/// Takes two expirable permits, with so many milliseconds of lease if any are said. Returns their ids.
async fn take_two(scene: &Scene, java: &mut Thread, lease: &str) -> [String; 2] {
    if scene.has(MANY_PERMITS) {
        let ids = java.result(format!("permitmany a 2 {lease}").trim_end()).await;
        let (one, other) = ids.split_once(',').expect("two ids");
        return [one.to_owned(), other.to_owned()];
    }
    assert_eq!(java.refusal("permitmany a 2").await, NOT_THERE);
    let one = format!("permitacquire a {lease}");
    [java.result(one.trim_end()).await, java.result(one.trim_end()).await]
}

/// Asserts how many permits there are, how many of them are held, and how many are not.
async fn counts(scene: &Scene, java: &mut Thread, [total, acquired, available]: [&str; 3]) {
    assert_eq!(java.result("permitavailable a").await, available);
    for (word, number) in [("acquired", acquired), ("total", total)] {
        let order = format!("permit{word} a");
        match scene.has(MANY_PERMITS) {
            true => assert_eq!(java.result(&order).await, number, "{word}"),
            false => assert_eq!(java.refusal(&order).await, NOT_THERE),
        }
    }
}

/// Redisson's own keys have no TTL, as in Redisson. All keys of ours have one.
async fn nothing_of_ours_is_eternal(scene: &Scene) {
    for key in scene.admin.keys().await {
        let known = ["a", "{a}:timeout", "lock:grants", "counter"].contains(&key.as_str());
        assert!(known || scene.admin.pttl(&key).await != -1, "{key} never expires");
    }
}

#[tokio::test]
async fn java_gets_at_once_a_permit_that_rust_gives_back() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    for kind in KINDS {
        let (two, mut java) = (permits(&forgetful(&scene).await, kind, 2), scene.thread(kind));
        let both = two.acquire_many(2).await.unwrap();
        assert_eq!(java.result(&format!("{kind}available a")).await, "0");
        assert_eq!(java.result(&format!("{kind}set a 9")).await, "false", "it is set");
        nothing_of_ours_is_eternal(&scene).await;
        java.order(&format!("{kind}acquire a")).await;
        awaited_by(&scene, 1).await;
        assert!(java.is_busy().await);

        let given = Instant::now();
        both.unlock().await.unwrap();

        let answer = java.answer().await;
        assert!(answer.heard - given < AT_ONCE, "{kind}");
        assert_eq!(two.available_permits().await.unwrap(), 1);
        assert!(two.try_acquire_many(2).await.unwrap().is_none());
        java.ask(format!("{kind}release a {}", answer.result).trim_end()).await;
        assert_eq!(two.available_permits().await.unwrap(), 2, "{kind}");
        nothing_of_ours_is_eternal(&scene).await;
        scene.admin.cmd::<()>(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn rust_gets_at_once_a_permit_that_java_gives_back() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    for kind in KINDS {
        let (two, mut java) = (permits(&forgetful(&scene).await, kind, 2), scene.thread(kind));
        assert_eq!(java.result(&format!("{kind}set a 2")).await, "true");
        let first = take(&mut java, kind).await;
        let second = take(&mut java, kind).await;
        assert!(two.try_acquire().await.unwrap().is_none(), "{kind}");
        let both = waiter(&two, 2);
        awaited_by(&scene, 1).await;

        java.ask(&first).await;
        assert_eq!(two.available_permits().await.unwrap(), 1);
        assert!(!both.is_finished());
        java.ask(&second).await;

        let both = told(both).await;
        assert_eq!(java.result(&format!("{kind}available a")).await, "0");
        both.unlock().await.unwrap();
        assert_eq!(java.result(&format!("{kind}available a")).await, "2", "{kind}");
        scene.admin.cmd::<()>(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_takes_two() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = client(&boss.variable("URL"), QUICK).await;
    let _both = permits(&client, &boss.variable("KIND"), 2).acquire_many(2).await.unwrap();
    boss.tell("granted");
    boss.order().await;
}

/// Java knows of the leases of an expirable semaphore. Those of a plain one it leaves to the other Rust clients: one that
/// looks tells Java.
#[tokio::test]
async fn the_permits_of_a_rust_process_that_was_killed_come_back() {
    let Some(scene) = Scene::begin(QUICK).await else { return };
    let url = scene.server.url();
    for kind in KINDS {
        let mut java = scene.thread(kind);
        let variables = [("URL", &*url), ("KIND", kind)];
        let mut worker = Worker::start("semaphore::worker_that_takes_two", &variables);
        assert_eq!(worker.hear().await, "granted");
        java.order(&format!("{kind}acquire a")).await;
        awaited_by(&scene, 1).await;
        assert!(java.is_busy().await);

        let killed = Instant::now();
        worker.kill9();
        if kind == "sem" {
            let other = permits(&forgetful(&scene).await, kind, 2);
            let back = async || other.available_permits().await.unwrap() > 0;
            eventually(SOON, "the lease is over", back).await;
        }

        let answer = java.answer().await;
        assert!(answer.heard - killed < QUICK + FURTHER + AT_ONCE, "{kind}");
        assert_eq!(java.result(&format!("{kind}available a")).await, "1", "{kind}");
        nothing_of_ours_is_eternal(&scene).await;
        scene.admin.cmd::<()>(&["FLUSHALL"]).await;
    }
}

/// Nobody tells the waiters of the end of a lease: they know it.
#[tokio::test]
async fn rust_gets_the_permits_of_a_jvm_that_was_killed_when_their_leases_are_over() {
    let Some(mut scene) = Scene::begin(USUAL).await else { return };
    let two = forgetful(&scene).await.redisson().expirable_semaphore("a", 2);
    let mut java = scene.thread("java");
    java.ask("permitset a 2").await;
    java.ask("permitacquire a").await; // for ever
    java.ask("permitacquire a 3000").await;
    let taken = Instant::now();
    let one = waiter(&two, 1);
    awaited_by(&scene, 1).await;
    scene.jvm.kill9().await;

    let one = timeout(QUICK + AT_ONCE, one).await.expect("it is not for ever").unwrap().unwrap();

    assert!(taken.elapsed() > Duration::from_secs(1), "not before it is over");
    assert!(two.try_acquire().await.unwrap().is_none(), "the other one is for ever");
    one.unlock().await.unwrap();
    assert!(two.force_unlock().await.unwrap(), "but not for clients that know better");
    assert_eq!(two.available_permits().await.unwrap(), 2);
}

/// Redis does not know which client had them: the same as among Java's own.
#[tokio::test]
async fn permits_of_a_dead_jvm_stay_away_until_somebody_adds_them() {
    let Some(mut scene) = Scene::begin(USUAL).await else { return };
    let two = forgetful(&scene).await.semaphore("a", 2);
    let mut java = scene.thread("java");
    java.ask("semset a 2").await;
    java.ask("semacquire a").await;
    scene.jvm.kill9().await;
    assert!(!two.force_unlock().await.unwrap());
    assert_eq!(two.available_permits().await.unwrap(), 1);
}

/// Our permits lie among Java's, and look different.
#[tokio::test]
async fn javas_arithmetic_is_right_with_ours_among_its_permits() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let five = forgetful(&scene).await.redisson().expirable_semaphore("a", 5);
    let mut java = scene.thread("java");
    let two = five.acquire_many(2).await.unwrap();
    let id = java.result("permitacquire a 60000").await;
    assert_eq!(id.len(), 32);
    let more = take_two(&scene, &mut java, "60000").await;
    counts(&scene, &mut java, ["5", "5", "0"]).await;
    assert_eq!(java.result(&format!("permitlease a {id} 30000")).await, "true");
    let lease = format!("permitlease a {id}");
    if scene.has(LEASES_OF_PERMITS) {
        let left: u64 = java.result(&lease).await.parse().unwrap();
        assert!((1..=30_000).contains(&left), "{left}");
    } else {
        assert_eq!(java.refusal(&lease).await, NOT_THERE);
    }
    let both = format!("permitreleasemany a {}", more.join(","));
    if scene.has(MANY_PERMITS) {
        assert_eq!(java.result(&both).await, "2");
    } else {
        assert_eq!(java.refusal(&both).await, NOT_THERE);
        for id in more {
            assert_eq!(java.result(&format!("permitrelease a {id}")).await, "true");
        }
    }
    assert_eq!(java.result(&format!("permitrelease a {id}")).await, "true");
    assert_eq!(java.result(&format!("permitrelease a {id}")).await, "false");
    assert_eq!(java.result("permitavailable a").await, "3");
    assert!(two.is_valid());
    two.unlock().await.unwrap();
    counts(&scene, &mut java, ["5", "0", "5"]).await;
}

/// Java clears up, while no client of ours is there.
#[tokio::test]
async fn java_reaps_permits_that_rust_held_for_too_long() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let mut java = scene.thread("java");
    let url = scene.server.url();
    let variables = [("URL", &*url), ("KIND", "permit")];
    let mut worker = Worker::start("semaphore::worker_that_takes_two", &variables);
    assert_eq!(worker.hear().await, "granted");
    worker.kill9();
    assert_eq!(java.result("permitavailable a").await, "0");
    let both = take_two(&scene, &mut java, "").await;
    assert!(both.iter().all(|id| id.len() == 32), "{both:?}");
    counts(&scene, &mut java, ["2", "2", "0"]).await;
}

#[tokio::test]
async fn the_end_of_a_lease_of_either_side_frees_its_permit() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let one = forgetful(&scene).await.redisson().expirable_semaphore("a", 1);
    let (mut java, lease) = (scene.thread("java"), Duration::from_millis(1_000));
    let id = java.result("permitset a 1").await;
    assert_eq!(id, "true");
    let id = java.result("permitacquire a 1000").await;

    let held = one.acquire().await.unwrap();
    assert_eq!(java.result(&format!("permitrelease a {id}")).await, "false", "it is over");
    held.unlock().await.unwrap();

    let held = one.clone().lease(lease).acquire().await.unwrap();
    let since = Watch::start();
    let id = java.result("permittry a 10000 60000").await;
    assert_eq!(id.len(), 32);
    assert!(since.passed() < lease + AT_ONCE);
    assert!(matches!(held.unlock().await, Err(Error::Lost { .. })), "it is Java's");
    counts(&scene, &mut java, ["1", "1", "0"]).await;
}

/// As its own tests say: more than are free, fewer than none, and back.
#[tokio::test]
async fn either_side_changes_the_number_while_it_is_held() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let client = forgetful(&scene).await;
    let (two, mut java) = (client.redisson().expirable_semaphore("a", 2), scene.thread("java"));
    let both = two.acquire_many(2).await.unwrap();
    let one = waiter(&two, 1);
    awaited_by(&scene, 1).await;

    if scene.has(MANY_PERMITS) {
        java.ask("permitresize a 3").await;
    } else {
        assert_eq!(java.refusal("permitresize a 3").await, NOT_THERE);
        client.redisson().expirable_semaphore("a", 2).set_permits(3).await.unwrap();
    }

    let third = told(one).await;
    counts(&scene, &mut java, ["3", "3", "0"]).await;
    assert!(two.try_acquire().await.unwrap().is_none(), "all three are held");
    let fewer = client.redisson().expirable_semaphore("a", 3);
    fewer.set_permits(1).await.unwrap();
    counts(&scene, &mut java, ["1", "3", "-2"]).await;
    both.unlock().await.unwrap();
    assert_eq!(java.result("permitavailable a").await, "0");
    assert!(fewer.try_acquire().await.unwrap().is_none());
    java.order("permitacquire a").await;
    awaited_by(&scene, 1).await;
    let given = Instant::now();
    third.unlock().await.unwrap();
    assert!(java.answer().await.heard - given < AT_ONCE);
}

#[tokio::test]
async fn a_plain_semaphore_follows_what_java_does_with_it() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let client = forgetful(&scene).await;
    let (two, mut java) = (client.semaphore("a", 2), scene.thread("java"));
    // None at all, and then some.
    assert_eq!(java.result("semset a 0").await, "true");
    assert!(two.try_acquire().await.unwrap().is_none());
    let waiting = waiter(&two, 2);
    awaited_by(&scene, 1).await;
    java.ask("semadd a 2").await;
    let both = told(waiting).await;
    // Less than none.
    java.ask("semadd a -1").await;
    assert_eq!(java.result("semavailable a").await, "-1");
    both.unlock().await.unwrap();
    assert_eq!(java.result("semavailable a").await, "1");
    // All of it.
    assert_eq!(java.result("semdrain a").await, "1");
    assert!(two.try_acquire().await.unwrap().is_none());
    let waiting = waiter(&two, 1);
    awaited_by(&scene, 1).await;
    if scene.has(RELEASE_IF_EXISTS) {
        assert_eq!(java.result("semreleaseifexists a").await, "true");
    } else {
        assert_eq!(java.refusal("semreleaseifexists a").await, NOT_THERE);
        java.ask("semrelease a").await;
    }
    told(waiting).await.unlock().await.unwrap();
    // A release makes one that is not there.
    scene.admin.cmd::<()>(&["DEL", "a"]).await;
    if scene.has(RELEASE_IF_EXISTS) {
        assert_eq!(java.result("semreleaseifexists a").await, "false");
    }
    java.ask("semrelease a").await;
    let one = two.acquire().await.unwrap();
    assert!(two.try_acquire().await.unwrap().is_none());
    one.unlock().await.unwrap();
}

#[tokio::test]
async fn java_takes_many_or_waits_for_many() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (ten, mut java) = (forgetful(&scene).await.semaphore("a", 10), scene.thread("java"));
    let eight = ten.acquire_many(8).await.unwrap();
    assert_eq!(java.result("semtry a 4").await, "false");
    assert_eq!(java.result("semtry a 4 50").await, "false");
    java.order("semtry a 4 20000").await;
    awaited_by(&scene, 1).await;
    let given = Instant::now();
    eight.unlock().await.unwrap();
    let answer = java.answer().await;
    assert!(answer.result == "true" && answer.heard - given < AT_ONCE);
    assert_eq!(ten.available_permits().await.unwrap(), 6);
}

/// As many as Java can count, and a TTL of Java's.
#[tokio::test]
async fn rust_follows_the_number_that_java_has_set() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (some, mut java) =
        (forgetful(&scene).await.semaphore("a", 1_000_000), scene.thread("java"));
    if scene.has(LEASES_OF_PERMITS) {
        assert_eq!(java.result("semset a 2147483647 60000").await, "true");
    } else {
        assert_eq!(java.refusal("semset a 2147483647 60000").await, NOT_THERE);
        assert_eq!(java.result("semset a 2147483647").await, "true");
        // As its `expire` does.
        scene.admin.cmd::<()>(&["PEXPIRE", "a", "60000"]).await;
    }
    let million = some.acquire_many(1_000_000).await.unwrap();
    assert_eq!(java.result("semavailable a").await, "2146483647");
    million.unlock().await.unwrap();
    assert_eq!(java.result("semavailable a").await, "2147483647");
    assert!((1..=60_000).contains(&scene.admin.pttl("a").await), "the TTL is Java's");
}

/// The scenario `testExpiration` of Redisson. The key of the leases begins with our permit, after Java has set the TTL.
#[tokio::test]
async fn an_expirable_semaphore_with_a_ttl_goes_with_the_key_of_its_leases() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let two = forgetful(&scene).await.redisson().expirable_semaphore("a", 2);
    let mut java = scene.thread("java");
    let held = loop {
        assert_eq!(java.result("permitset a 2").await, "true");
        assert_eq!(java.result("permitexpire a 2000").await, "true");
        let held = two.acquire().await.unwrap();
        if scene.admin.pttl("a").await != -1 {
            break held;
        }
        // Its time was over before we asked: this is another semaphore, which stays.
        scene.admin.cmd::<()>(&["FLUSHALL"]).await;
    };

    assert_ne!(scene.admin.pttl("{a}:timeout").await, -1, "the leases have a TTL too");
    scene.is_clean().await;
    assert!(matches!(held.unlock().await, Err(Error::Lost { .. })));
}

/// Two callers take two of two permits, one after the other.
#[tokio::test]
async fn both_sides_take_all_permits_in_turn() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (two, mut java) =
        (forgetful(&scene).await.redisson().expirable_semaphore("a", 2), scene.thread("java"));
    if !scene.has(MANY_PERMITS) {
        assert_eq!(java.refusal("permitmany a 2").await, NOT_THERE);
        return;
    }
    for _ in 0..3 {
        let both = two.acquire_many(2).await.unwrap();
        java.order("permitmany a 2").await;
        awaited_by(&scene, 1).await;
        assert!(java.is_busy().await);
        both.unlock().await.unwrap();
        let ids = java.answer().await.result;
        let both = waiter(&two, 2);
        awaited_by(&scene, 1).await;
        java.ask(&format!("permitreleasemany a {ids}")).await;
        told(both).await.unlock().await.unwrap();
    }
    assert_eq!(java.result("permitavailable a").await, "2");
}
