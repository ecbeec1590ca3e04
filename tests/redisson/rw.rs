//! One read-write lock, two libraries: readers of both sides share it, and each side's writers keep all others out.

use std::time::{Duration, Instant};

use parklock::{Client, Ended, Error, Guard, Owner, ReentrantRwLock, RwLock, WriteGuard};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::fixture::{A_WHILE, SOON};
use crate::common::site::left_out_in_a_cluster;
use crate::common::{Watch, judged, timeout};
use crate::peer::Thread;
use crate::scene::{AT_ONCE, QUICK, Scene, USUAL, WORK, not_in_time};
use crate::version::{GONE_IS_REFUSED, READS_WITHIN_A_WRITE};

const LEASE: Duration = Duration::from_millis(1500);

pub(crate) fn somebody(client: &Client) -> RwLock {
    client.rw_lock("a")
}

pub(crate) fn reading(lock: RwLock) -> JoinHandle<parklock::Result<Guard>> {
    tokio::spawn(async move { lock.read().await })
}

pub(crate) fn writing(lock: RwLock) -> JoinHandle<parklock::Result<WriteGuard>> {
    tokio::spawn(async move { lock.write().await })
}

async fn granted<T>(waiting: JoinHandle<parklock::Result<T>>) -> T {
    let granted = timeout(AT_ONCE, waiting).await.expect("the wake-up comes");
    granted.expect("no panic").expect("it is granted")
}

impl Scene {
    /// As [`awaited_by`](Self::awaited_by), for the read-write lock `a`.
    pub(crate) async fn rw_awaited_by(&self, clients: usize) {
        self.listened_to("redisson_rwlock:{a}", clients).await;
    }

    async fn somebody(&self) -> RwLock {
        somebody(&self.client().await)
    }

    /// The lock, for a new owner that may lock it again.
    async fn owner(&self) -> ReentrantRwLock {
        self.somebody().await.owned_by(&Owner::new())
    }

    async fn holds_of(&self, name: &str, owner: &str) -> Option<u32> {
        self.admin.cmd(&["HGET", name, owner]).await
    }
}

/// Asserts that Java carried out the order soon after this.
async fn woken(thread: &mut Thread, since: Instant) {
    let took = thread.answer().await.heard - since;
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn java_waits_for_rust_and_is_woken() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.owner().await, scene.thread("java"));

    let write = lock.write().await.unwrap();
    java.order("readlock a").await;
    scene.rw_awaited_by(1).await;
    scene.java_parks(1).await;
    lock.write().await.unwrap().unlock().await.unwrap(); // one write of two
    assert!(java.is_busy().await);
    let left = Instant::now();
    write.unlock().await.unwrap();
    woken(&mut java, left).await;
    java.ask("readunlock a").await;

    let write = lock.write().await.unwrap();
    java.order("writelock a").await;
    scene.rw_awaited_by(1).await;
    scene.java_parks(1).await;
    let left = Instant::now();
    write.unlock().await.unwrap();
    woken(&mut java, left).await;
    assert_eq!(java.result("writeisheld a").await, "true");
    java.ask("writeunlock a").await;

    let read = lock.read().await.unwrap();
    java.order("writelock a").await;
    scene.rw_awaited_by(1).await;
    scene.java_parks(1).await;
    assert!(java.is_busy().await);
    let left = Instant::now();
    read.unlock().await.unwrap();
    woken(&mut java, left).await;
    java.ask("writeunlock a").await;
    scene.is_clean().await;
}

/// Somebody deletes the lock. The release of its holder finds nothing.
#[tokio::test]
async fn a_release_of_a_lock_that_is_gone_wakes_java() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.somebody().await, scene.thread("java"));
    for waits_for in ["read", "write"] {
        let guard = match waits_for {
            "read" => lock.write().await.unwrap().into_guard(),
            _ => lock.read().await.unwrap(),
        };
        java.order(&format!("{waits_for}lock a")).await;
        scene.rw_awaited_by(1).await;
        scene.java_parks(1).await;
        scene.admin.cmd::<i64>(&["DEL", "a"]).await;
        let since = Instant::now();
        let left = guard.unlock().await;
        assert!(matches!(left, Err(Error::Lost { .. })), "{left:?}");
        woken(&mut java, since).await;
        java.ask(&format!("{waits_for}unlock a")).await;
    }
    scene.is_clean().await;
}

#[tokio::test]
async fn rust_waits_for_java_and_is_woken() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));

    java.ask("writelock a").await;
    let (reader, writer) = (reading(somebody(&client)), writing(scene.somebody().await));
    scene.rw_awaited_by(2).await;
    assert!(!reader.is_finished() && !writer.is_finished());
    java.ask("writeunlock a").await;
    // Whichever side is quicker.
    let both = async {
        let (read, write) =
            tokio::join!(async { reader.await.unwrap().unwrap().unlock().await }, async {
                writer.await.unwrap().unwrap().unlock().await
            },);
        read.and(write)
    };
    timeout(AT_ONCE, both).await.expect("both are woken").unwrap();

    java.ask("readlock a").await;
    let writer = writing(somebody(&client));
    sleep(A_WHILE).await;
    assert!(!writer.is_finished());
    java.ask("readunlock a").await;
    granted(writer).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// Redisson believes in no reader without its key, and frees the lock when its own last reader leaves.
#[tokio::test]
async fn readers_of_both_sides_share_and_a_writer_waits_for_all_of_them() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    let (mut reader, mut writer) = (scene.thread("reader"), scene.thread("writer"));

    let read = somebody(&client).read().await.unwrap();
    java.ask("readlock a").await;
    reader.ask("readlock a").await;
    let other = scene.somebody().await.read().await.unwrap();
    writer.order("writelock a").await;
    scene.rw_awaited_by(1).await;
    scene.java_parks(1).await;
    let mut ours = writing(scene.somebody().await);
    scene.rw_awaited_by(2).await;

    java.ask("readunlock a").await;
    other.unlock().await.unwrap();
    reader.ask("readunlock a").await;
    assert!(writer.is_busy().await && !ours.is_finished(), "one of ours reads");
    assert!(read.is_valid());
    java.ask("readlock a").await;
    read.unlock().await.unwrap();
    assert!(writer.is_busy().await && !ours.is_finished(), "one of Java's reads");
    assert_eq!(java.result("readcount a").await, "1");

    java.ask("readunlock a").await;
    // Redisson's message of a read-write lock wakes the threads that are parked when it comes. One that has just been
    // refused, and is not parked yet, sleeps until the lease is over. So ours keeps the lock until Java has been refused.
    let both = async {
        tokio::select! {
            guard = &mut ours => {
                sleep(A_WHILE).await;
                scene.java_parks(1).await;
                guard.unwrap().unwrap().unlock().await.unwrap();
                writer.answer().await;
                writer.ask("writeunlock a").await;
            }
            _ = writer.answer() => {
                writer.ask("writeunlock a").await;
                granted(ours).await.unlock().await.unwrap();
            }
        }
    };
    timeout(AT_ONCE, both).await.expect("both write, one after the other");
    scene.is_clean().await;
}

#[tokio::test]
async fn watchdogs_of_both_sides_keep_their_readers_and_nobody_elses() {
    judged(async || {
        let Some(scene) = Scene::begin(QUICK).await else { return };
        let (lock, mut java) = (scene.somebody().await, scene.thread("java"));
        let mut other = scene.thread("other");
        let read = lock.read().await.unwrap();
        java.ask("readlock a").await;

        other.order(&format!("writetrylock a {}", WORK.as_millis())).await;
        not_in_time(scene.somebody().await.try_write_for(WORK).await);
        assert_eq!(other.answer().await.result, "false");
        assert!(read.is_valid());
        assert_eq!(java.result("readisheld a").await, "true");

        java.ask("readunlock a").await;
        assert_eq!(other.result(&format!("writetrylock a {}", WORK.as_millis())).await, "false");
        assert!(read.is_valid(), "Java's watchdog has nothing to do with it");
        read.unlock().await.unwrap();

        let write = lock.write().await.unwrap();
        assert_eq!(other.result(&format!("readtrylock a {}", WORK.as_millis())).await, "false");
        assert!(write.is_valid());
        write.unlock().await.unwrap();

        java.ask("writelock a").await;
        not_in_time(scene.somebody().await.try_read_for(WORK).await);
        assert_eq!(java.result("writeisheld a").await, "true");
        java.ask("writeunlock a").await;
        scene.is_clean().await;
    })
    .await;
}

/// Redisson's own writers tell nobody when they go on reading.
#[tokio::test]
async fn a_writer_of_rust_that_goes_on_reading_lets_in_the_readers_of_both_sides() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let write = scene.somebody().await.write().await.unwrap();
    let mut readers: Vec<_> = (0..10).map(|n| scene.thread(&format!("reader{n}"))).collect();
    let mut writer = scene.thread("writer");
    for reader in &readers {
        reader.order("readlock a").await;
    }
    // Redisson wakes its threads one after the other. One that must go on waiting can take the wake-up of one behind it.
    scene.java_parks(readers.len()).await;
    writer.order("writelock a").await;
    let ours = reading(scene.somebody().await);
    scene.rw_awaited_by(2).await;
    scene.java_parks(readers.len() + 1).await;

    let left = Instant::now();
    let read = write.downgrade().await.unwrap();

    let ours = granted(ours).await;
    for reader in &mut readers {
        woken(reader, left).await;
    }
    assert!(writer.is_busy().await);
    for reader in &mut readers {
        reader.ask("readunlock a").await;
    }
    ours.unlock().await.unwrap();
    assert!(writer.is_busy().await, "the writer reads");
    assert!(read.is_valid());
    let left = Instant::now();
    read.unlock().await.unwrap();
    woken(&mut writer, left).await;
    writer.ask("writeunlock a").await;
    scene.is_clean().await;
}

/// It tells nobody, so our clients look again after a while.
#[tokio::test]
async fn a_writer_of_java_that_goes_on_reading_lets_ours_in() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.owner().await, scene.thread("java"));
    java.ask("writelock a").await;
    java.ask("readlock a").await;
    assert!(lock.try_read().await.unwrap().is_none());
    java.ask("writeunlock a").await;
    let read = lock.try_read().await.unwrap().expect("it only reads now");
    assert!(scene.somebody().await.try_write().await.unwrap().is_none());
    java.ask("readunlock a").await;
    assert!(scene.somebody().await.try_write().await.unwrap().is_none());
    assert!(read.is_valid());
    read.unlock().await.unwrap();
    scene.is_clean().await;
}

#[tokio::test]
async fn rust_does_not_touch_the_hold_counts_of_java() {
    judged(async || {
        let Some(scene) = Scene::begin(QUICK).await else { return };
        let (lock, mut java) = (scene.owner().await, scene.thread("java"));
        let owner = java.result("owner").await;
        let key = |hold: u32| format!("{{a}}:{owner}:rwlock_timeout:{hold}");
        let lease = USUAL.as_millis();
        java.ask(&format!("readlock a {lease}")).await;
        java.ask(&format!("readlock a {lease}")).await;
        let asked = Instant::now();
        let before = [scene.admin.pttl(&key(1)).await, scene.admin.pttl(&key(2)).await];

        let outer = lock.read().await.unwrap();
        let inner = lock.read().await.unwrap();
        assert_eq!(scene.holds_of("a", &owner).await, Some(2));
        sleep(QUICK / 2).await; // our watchdog has renewed ours
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();

        assert_eq!(scene.holds_of("a", &owner).await, Some(2));
        for (hold, before) in [1, 2].into_iter().zip(before) {
            let (now, passed) = (scene.admin.pttl(&key(hold)).await, asked.elapsed());
            let gone = Duration::from_millis(u64::try_from(before - now).unwrap_or(0));
            assert!(
                gone + A_WHILE > QUICK / 2 && gone < passed + A_WHILE,
                "{gone:?} of {passed:?}"
            );
        }
        assert!(scene.admin.pttl("a").await > 20_000, "the lock lives as long as Java's reader");
        assert!(lock.try_write().await.unwrap().is_none());
        java.ask("readunlock a").await;
        assert_eq!(java.result("readcount a").await, "1");
        assert!(lock.try_write().await.unwrap().is_none());
        java.ask("readunlock a").await;

        java.ask("writelock a").await;
        java.ask("writelock a").await;
        assert!(lock.try_write().await.unwrap().is_none());
        assert!(lock.try_read().await.unwrap().is_none());
        assert_eq!(java.result("writecount a").await, "2");
        java.ask("writeunlock a").await;
        assert!(lock.try_read().await.unwrap().is_none());
        java.ask("writeunlock a").await;
        assert!(lock.try_read().await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn java_does_not_touch_the_holds_of_rust() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.owner().await, scene.thread("java"));
    let write = lock.write().await.unwrap();
    assert_eq!(java.result("writeislocked a").await, "true");
    assert_eq!(java.result("readislocked a").await, "false", "nobody reads");
    let read = lock.read().await.unwrap();
    assert_eq!(java.result("writeislocked a").await, "true");
    let reads = scene.has(READS_WITHIN_A_WRITE);
    assert_eq!(java.result("readislocked a").await, reads.to_string());
    for order in ["readunlock a", "writeunlock a"] {
        assert_eq!(java.refusal(order).await, "IllegalMonitorStateException");
    }
    assert_eq!(java.result("readforce a").await, "false", "somebody writes");
    assert!(java.result("writettl a").await.parse::<u128>().unwrap() <= USUAL.as_millis());
    write.unlock().await.unwrap();
    assert_eq!(java.result("writeislocked a").await, "false");
    assert_eq!(java.result("writeforce a").await, "false", "somebody reads");
    assert_eq!(java.refusal("readunlock a").await, "IllegalMonitorStateException");
    assert!(lock.is_locked().await.unwrap() && !lock.is_write_locked().await.unwrap());
    read.unlock().await.unwrap();

    java.ask("readlock a").await;
    assert!(lock.is_locked().await.unwrap() && !lock.is_write_locked().await.unwrap());
    java.ask("readunlock a").await;
    java.ask("writelock a").await;
    assert!(lock.is_write_locked().await.unwrap());
    java.ask("writeunlock a").await;
    assert!(!lock.is_locked().await.unwrap());
    scene.is_clean().await;
}

#[tokio::test]
async fn a_holder_learns_that_the_other_side_has_used_force() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.somebody().await, scene.thread("java"));
    let mut writer = scene.thread("writer");

    java.ask("readlock a").await;
    writer.order("writelock a").await;
    scene.rw_awaited_by(1).await;
    scene.java_parks(1).await;
    let taken = Instant::now();
    assert!(lock.force_unlock().await.unwrap());
    woken(&mut writer, taken).await;
    assert_eq!(java.refusal("readunlock a").await, "IllegalMonitorStateException");
    assert!(lock.force_unlock().await.unwrap());
    if scene.has(GONE_IS_REFUSED) {
        assert_eq!(writer.refusal("writeunlock a").await, "IllegalMonitorStateException");
    } else {
        writer.ask("writeunlock a").await; // without complaint
    }
    assert!(!lock.force_unlock().await.unwrap());

    // Long before their leases are over.
    let read = lock.read().await.unwrap();
    assert_eq!(java.result("readforce a").await, "true");
    assert_eq!(timeout(SOON, read.ended()).await, Ok(Ended::Lost));
    assert!(matches!(read.unlock().await, Err(Error::Lost { .. })));

    let write = lock.write().await.unwrap();
    assert_eq!(java.result("writeforce a").await, "true");
    assert_eq!(timeout(SOON, write.ended()).await, Ok(Ended::Lost));
    assert!(matches!(write.unlock().await, Err(Error::Lost { .. })));
    scene.nothing_is_eternal().await;
}

/// Nobody publishes when a lease is over.
#[tokio::test]
async fn a_writer_of_either_side_enters_when_the_longest_lease_of_the_readers_is_over() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.somebody().await, scene.thread("java"));
    for ours_is_longer in [true, false] {
        let leases = if ours_is_longer { [LEASE, LEASE / 2] } else { [LEASE / 2, LEASE] };
        let asked = Instant::now();
        let read = lock.clone().lease(leases[0]).read().await.unwrap();
        java.ask(&format!("readlock a {}", leases[1].as_millis())).await;
        let had = Watch::start();
        if ours_is_longer {
            java.ask("writelock a").await;
        } else {
            let write = timeout(USUAL, scene.somebody().await.write()).await.unwrap();
            write.unwrap().unlock().await.unwrap();
        }
        assert!(asked.elapsed() + A_WHILE >= LEASE, "{:?}: too early", asked.elapsed());
        assert!(had.passed() < LEASE + AT_ONCE, "{:?}: too late", had.passed());
        assert!(!read.is_valid());
        if ours_is_longer {
            java.ask("writeunlock a").await;
        }
    }
    scene.is_clean().await;
}

/// The scenario `testName` of Redisson: each side finds the other's holds under any name.
#[tokio::test]
async fn both_sides_call_the_keys_of_readers_the_same() {
    if left_out_in_a_cluster(
        "names whose keys lie in several slots are refused there: see cluster.rs",
    ) {
        return;
    }
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    for name in ["a:b", "{a}", "a{b}c", "x{}", "a}b", "rwlock_timeout:1", "%7B"] {
        let read = client.rw_lock(name).read().await.unwrap();
        java.ask(&format!("readlock {name}")).await;
        java.ask(&format!("readunlock {name}")).await;
        // Redisson has looked for our key: without it, the lock would be free.
        let other = client.rw_lock(name);
        assert!(other.is_locked().await.unwrap(), "{name}");
        assert_eq!(java.result(&format!("writetrylock {name}")).await, "false", "{name}");
        java.ask(&format!("readlock {name}")).await;
        read.unlock().await.unwrap();
        assert!(other.try_write().await.unwrap().is_none(), "{name}: we see its key");
        java.order(&format!("readunlock {name}")).await;
        java.answer().await;
        scene.is_clean().await;
    }
}

/// Redisson grants a read lock to any caller, although a plain lock of that name is held.
#[tokio::test]
async fn another_kind_of_java_under_the_name_is_a_conflict() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    let rw = somebody(&client);
    let is_conflict = |error: Error| matches!(error, Error::Conflict { .. });
    for [take, leave] in [["lock a", "unlock a"], ["fairlock a", "fairunlock a"]] {
        java.ask(take).await;
        assert!(rw.read().await.is_err_and(is_conflict), "{take}");
        assert!(rw.write().await.is_err_and(is_conflict), "{take}");
        assert!(rw.try_read_for(USUAL).await.is_err_and(is_conflict), "{take}");
        assert!(rw.force_unlock().await.is_err_and(is_conflict), "{take}");
        java.ask(leave).await;
    }
    for [take, leave] in [["readlock a", "readunlock a"], ["writelock a", "writeunlock a"]] {
        java.ask(take).await;
        assert!(client.lock("a").lock().await.is_err_and(is_conflict), "{take}");
        assert!(client.redisson().fenced_lock("a").lock().await.is_err_and(is_conflict), "{take}");
        java.ask(leave).await;
    }
    let read = rw.read().await.unwrap();
    assert_eq!(java.result("trylock a 100").await, "false");
    assert!(read.is_valid());
    read.unlock().await.unwrap();
    java.ask("semset b 1").await;
    let rw = client.rw_lock("b");
    assert!(rw.read().await.is_err_and(is_conflict));
    assert!(rw.write().await.is_err_and(is_conflict));
    assert_eq!(java.result("semavailable b").await, "1");
}
