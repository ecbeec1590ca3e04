//! Many read or one writes: what holds in both layouts, and what the queue of the native one adds.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::fixture::{A_WHILE, LONG, SOON, comes_in, got_nothing, is_pending};
use common::site::only_on_one_server;
use common::{Admin, Proxy, Site, Watch, Worker, WorkerSide, eventually, judged, timeout};
use parklock::{
    Client, Config, Ended, Error, Guard, HandOff, Layout, Owner, ReentrantRwLock, RwLock,
    WriteGuard,
};
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

const LAYOUTS: [Layout; 2] = [Layout::Native, Layout::Redisson];

/// A watchdog with which nobody asks by itself for ten seconds: whatever comes sooner was told and not waited for.
const USUAL: Duration = Duration::from_secs(60);

/// A watchdog whose lease is worth waiting for.
const QUICK: Duration = Duration::from_secs(5);

const LEASE: Duration = Duration::from_millis(600);

/// What a wake-up may take on a machine that has other things to do: less than a park, and with USUAL than it takes to the first sign of
/// life and the first renewal.
const AT_ONCE: Duration = Duration::from_secs(8);

/// A lease may end so much before its time. Its holder relies on it for 1 % and 2 ms less, and gives the lock back then.
/// And Redis counts whole milliseconds, from when it woke up for a request.
const COARSE: Duration = Duration::from_millis(6 + 2 + 5);

struct Scene {
    layout: Layout,
    watchdog: Duration,
    server: Site,
    admin: Admin,
    client: Client,
}

/// Has the same hold in both layouts, side by side.
async fn in_both(watchdog: Duration, test: impl AsyncFn(Scene)) {
    // A grant by message, and a short lease, may end on a machine that does not run the test.
    judged(async || {
        let [native, redisson] = LAYOUTS.map(|layout| Scene::begin(layout, watchdog));
        let (native, redisson) = tokio::join!(native, redisson);
        tokio::join!(test(native), test(redisson));
    })
    .await;
}

async fn connect(url: &str, layout: Layout, watchdog: Duration) -> Client {
    // A grant by message lasts for this long until the client has confirmed it.
    let config =
        Config::default().layout(layout).watchdog_timeout(watchdog).waiter_ttl(watchdog / 2);
    comes_in(url, config).await
}

impl Scene {
    async fn begin(layout: Layout, watchdog: Duration) -> Self {
        let server = Site::start().await;
        let (admin, client) =
            (server.admin().await, connect(&server.url(), layout, watchdog).await);
        Self { layout, watchdog, server, admin, client }
    }

    /// The lock of a client that gives back nothing for its age while it can hand it on.
    async fn handed_on(&self) -> RwLock {
        self.handed_on_at(self.server.url()).await
    }

    async fn handed_on_at(&self, url: String) -> RwLock {
        let hand_off = HandOff { max_time: LONG, ..HandOff::default() };
        let config = Config::default().layout(self.layout).hand_off(hand_off);
        comes_in(url, config).await.rw_lock("a")
    }

    async fn another_client(&self) -> Client {
        connect(&self.server.url(), self.layout, self.watchdog).await
    }

    fn somebody(&self) -> RwLock {
        self.client.rw_lock("a")
    }

    /// The lock, for an owner that may lock it again and whom nobody else knows.
    fn owner(&self) -> ReentrantRwLock {
        self.somebody().owned_by(&Owner::new())
    }

    async fn somebody_else(&self) -> RwLock {
        self.another_client().await.rw_lock("a")
    }

    async fn listeners(&self) -> usize {
        let channel = match self.layout {
            Layout::Native => "lock_channel:{a}",
            _ => "redisson_rwlock:{a}",
        };
        self.admin.subscribers(channel).await
    }

    /// Waits until so many clients listen, and gives them a while to look once more and to park.
    async fn awaited_by(&self, clients: usize) {
        let listen = async || self.listeners().await == clients;
        eventually(SOON, &format!("{clients} clients listen"), listen).await;
        sleep(A_WHILE).await;
    }

    /// That nothing is left of a lock but the counter of its tokens.
    async fn is_clean(&self) {
        let clean = async || self.admin.keys().await.iter().all(|key| key == "lock:grants");
        eventually(SOON, "no key is left", clean).await;
    }

    async fn nothing_is_eternal(&self) {
        for key in self.admin.keys().await {
            assert!(key == "lock:grants" || self.admin.pttl(&key).await != -1, "{key}");
        }
    }
}

fn reading(lock: RwLock) -> JoinHandle<parklock::Result<Guard>> {
    tokio::spawn(async move { lock.read().await })
}

fn writing(lock: RwLock) -> JoinHandle<parklock::Result<WriteGuard>> {
    tokio::spawn(async move { lock.write().await })
}

/// What somebody was waiting for is there soon.
async fn granted<T>(waiting: JoinHandle<parklock::Result<T>>) -> T {
    let granted = timeout(AT_ONCE, waiting).await.expect("the wake-up comes");
    granted.expect("no panic").expect("it is granted")
}

#[tokio::test]
async fn readers_share_and_a_writer_is_alone() {
    in_both(USUAL, async |scene| {
        let (here, there) = (scene.somebody(), scene.somebody_else().await);
        let one = here.read().await.unwrap();
        let other = there.read().await.unwrap();
        let third = scene.somebody().try_read().await.unwrap().expect("readers share");
        assert!(scene.somebody().try_write().await.unwrap().is_none());
        one.unlock().await.unwrap();
        third.unlock().await.unwrap();
        assert!(scene.somebody().try_write().await.unwrap().is_none(), "one reads on");
        other.unlock().await.unwrap();

        let alone = here.write().await.unwrap();
        assert!(there.try_read().await.unwrap().is_none());
        got_nothing(there.try_write_for(A_WHILE).await);
        got_nothing(scene.somebody().try_read_for(A_WHILE).await);
        alone.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// The scenario `testWriteReadReentrancy` of Redisson, and F79. Redisson lets the readers wait for a lease.
#[tokio::test]
async fn a_downgrade_lets_readers_in_and_no_writer() {
    in_both(USUAL, async |scene| {
        let write = scene.somebody().write().await.unwrap();
        let (reader, writer) = (scene.somebody_else().await, scene.somebody_else().await);
        let (reader, writer) = (reading(reader), writing(writer));
        scene.awaited_by(2).await;
        assert!(!reader.is_finished() && !writer.is_finished());

        let read = write.downgrade().await.unwrap();

        let reader = granted(reader).await;
        sleep(A_WHILE).await;
        assert!(!writer.is_finished(), "two read");
        reader.unlock().await.unwrap();
        sleep(A_WHILE).await;
        assert!(!writer.is_finished(), "one reads");
        assert!(read.is_valid());
        scene.nothing_is_eternal().await;
        read.unlock().await.unwrap();
        granted(writer).await.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_downgrade_of_a_nested_write_keeps_the_outer_write() {
    in_both(USUAL, async |scene| {
        let lock = scene.owner();
        let (outer, inner) = (lock.write().await.unwrap(), lock.write().await.unwrap());
        let read = inner.downgrade().await.unwrap();
        assert!(scene.somebody_else().await.try_read().await.unwrap().is_none());
        outer.unlock().await.unwrap();
        assert!(scene.somebody_else().await.try_read().await.unwrap().is_some());
        assert!(read.is_valid());
    })
    .await;
}

/// Readers of the same client that wait for the writer must not block the writer when it begins to read.
#[tokio::test]
async fn a_writer_does_not_queue_behind_callers_that_wait_for_it() {
    in_both(USUAL, async |scene| {
        let lock = scene.owner();
        let write = lock.write().await.unwrap();
        let waiting: Vec<_> = (0..3).map(|_| reading(scene.somebody())).collect();
        scene.awaited_by(1).await;

        let tried = timeout(AT_ONCE, lock.try_read()).await.expect("nobody is in its way");
        let tried = tried.unwrap().expect("it writes");
        let read = timeout(AT_ONCE, write.downgrade()).await.expect("nobody is in its way");

        for reader in waiting {
            granted(reader).await.unlock().await.unwrap();
        }
        tried.unlock().await.unwrap();
        read.unwrap().unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_write_that_was_lost_cannot_become_a_read_and_does_not_wait_to_find_out() {
    in_both(USUAL, async |scene| {
        let write = scene.somebody().lease(LEASE).write().await.unwrap();
        let next = writing(scene.somebody_else().await);
        let next = timeout(SOON, next).await.expect("the lease ends").unwrap().unwrap();
        let downgraded = timeout(AT_ONCE, write.downgrade()).await.expect("no reason to wait");
        assert!(matches!(downgraded, Err(Error::Lost { .. })));
        assert!(next.is_valid());
    })
    .await;
}

/// F79. It would wait for itself for ever, as Redisson does.
#[tokio::test]
async fn to_write_while_one_reads_is_an_error_and_no_deadlock() {
    in_both(USUAL, async |scene| {
        let lock = scene.owner();
        let read = lock.read().await.unwrap();
        let upgraded = timeout(SOON, lock.write()).await.expect("no deadlock");
        assert!(matches!(upgraded, Err(Error::Upgrade { name }) if name == "a"));
        assert!(matches!(lock.try_write().await, Err(Error::Upgrade { .. })));
        assert!(matches!(lock.try_write_for(SOON).await, Err(Error::Upgrade { .. })));
        assert!(read.is_valid());
        let nested = lock.read().await.unwrap();
        read.unlock().await.unwrap();
        assert!(matches!(lock.write().await, Err(Error::Upgrade { .. })), "it still reads");
        nested.unlock().await.unwrap();
        lock.write().await.unwrap().unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// Futures that one owner polls side by side: each has got a hold of its own, and none of them is forgotten.
#[tokio::test]
async fn an_owner_with_two_reads_still_reads_after_it_ends_either() {
    in_both(USUAL, async |scene| {
        for first in [0, 1] {
            let lock = scene.owner();
            let (one, other) = tokio::join!(lock.read(), lock.read());
            let mut reads = vec![one.unwrap(), other.unwrap()];
            reads.remove(first).unlock().await.unwrap();
            let upgraded = timeout(AT_ONCE, lock.write()).await.expect("no deadlock");
            assert!(matches!(upgraded, Err(Error::Upgrade { .. })), "{:?}", scene.layout);
            reads.remove(0).unlock().await.unwrap();
            lock.write().await.unwrap().unlock().await.unwrap();
        }
        scene.is_clean().await;
    })
    .await;
}

/// The scenario `testWriteRead` of Redisson.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_blocked_readers_are_all_in_as_soon_as_the_writer_has_left() {
    in_both(USUAL, async |scene| {
        let write = scene.somebody().write().await.unwrap();
        let clients = [scene.another_client().await, scene.another_client().await];
        let together = Arc::new(Barrier::new(20));
        let mut readers = JoinSet::new();
        for n in 0..20 {
            let (lock, together) = (clients[n % 2].rw_lock("a"), Arc::clone(&together));
            readers.spawn(async move {
                let guard = lock.read().await.expect("it is granted");
                let in_at = Instant::now();
                together.wait().await; // nobody leaves before all are in
                guard.unlock().await.expect("it was ours");
                in_at
            });
        }
        scene.awaited_by(2).await;
        let left = Instant::now();
        write.unlock().await.unwrap();
        let last = timeout(SOON, readers.join_all()).await.expect("all are in");
        let took = last.into_iter().max().expect("twenty") - left;
        assert!(took < AT_ONCE, "{:?}: {took:?}", scene.layout);
        scene.is_clean().await;
    })
    .await;
}

/// Redisson stops the watchdog of the write with that of the read.
#[tokio::test]
async fn a_nested_read_that_ends_leaves_the_watchdog_of_the_write_alone() {
    in_both(QUICK, async |scene| {
        let lock = scene.owner();
        let write = lock.write().await.unwrap();
        lock.read().await.unwrap().unlock().await.unwrap();

        let other = scene.somebody_else().await;
        assert!(other.try_write_for(QUICK * 2).await.unwrap().is_none());

        assert!(write.is_valid());
        write.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// F79.
#[tokio::test]
async fn a_reader_whose_lease_is_over_takes_no_other_with_it() {
    in_both(QUICK, async |scene| {
        let short = scene.somebody().lease(LEASE).read().await.unwrap();
        let long = scene.somebody_else().await.read().await.unwrap();
        let writer = writing(scene.somebody_else().await);
        let ended = timeout(SOON, short.ended()).await;
        assert_eq!(ended, Ok(Ended::Lost));

        sleep(QUICK * 2).await; // long after it, and twice what a silent one is given

        assert!(long.is_valid());
        assert!(!writer.is_finished(), "one reads");
        long.unlock().await.unwrap();
        granted(writer).await.unlock().await.unwrap();
        assert!(matches!(short.unlock().await, Err(Error::Lost { .. })));
        scene.is_clean().await;
    })
    .await;
}

/// The scenarios `testReadLockLeaseTimeout` of Redisson.
#[tokio::test]
async fn a_writer_enters_when_the_longest_lease_of_the_readers_is_over() {
    in_both(USUAL, async |scene| {
        let _short = scene.somebody().lease(LEASE / 2).read().await.unwrap();
        let asked = Instant::now();
        let long = scene.somebody_else().await.lease(LEASE).read().await.unwrap();
        let _third = scene.somebody().lease(LEASE / 3).read().await.unwrap();
        let had = Watch::start();

        let write = scene.somebody_else().await.try_write_for(SOON).await.unwrap();

        let write = write.expect("the leases are over");
        assert!(
            asked.elapsed() + COARSE >= LEASE,
            "{:?}, {:?}: too early",
            scene.layout,
            asked.elapsed()
        );
        assert!(had.passed() < LEASE + AT_ONCE, "{:?}: too late", had.passed());
        assert!(!long.is_valid());
        write.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_reader_enters_when_the_lease_of_the_writer_is_over() {
    in_both(USUAL, async |scene| {
        let asked = Instant::now();
        let write = scene.somebody().lease(LEASE).write().await.unwrap();
        let read = scene.somebody_else().await.try_read_for(SOON).await.unwrap();
        let read = read.expect("the lease is over");
        assert!(
            asked.elapsed() + COARSE >= LEASE,
            "{:?}, {:?}: too early",
            scene.layout,
            asked.elapsed()
        );
        assert!(matches!(write.unlock().await, Err(Error::Lost { .. })));
        assert!(read.is_valid());
        read.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// The scenario `testWriteLockExpiration` of Redisson, where the nested write adds its lease to what is left.
#[tokio::test]
async fn a_shorter_lease_of_a_nested_write_takes_nothing_from_the_outer_one() {
    in_both(USUAL, async |scene| {
        let (lock, other) = (scene.owner(), scene.somebody_else().await);
        let outer = lock.clone().lease(LONG).write().await.unwrap();
        let is_whole = async || {
            let left = other.ttl().await.unwrap().expect("it is held");
            assert!(left > LONG / 2 && left <= LONG, "{:?}: {left:?}", scene.layout);
            assert!(outer.remaining() > LONG / 2, "{:?}", scene.layout);
        };
        let inner = lock.lease(LEASE).write().await.unwrap();
        is_whole().await;
        assert!(inner.remaining() > LONG / 2, "{:?}: {:?}", scene.layout, inner.remaining());
        inner.unlock().await.unwrap();
        is_whole().await;
        outer.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// The reader with the longest lease leaves, and a dead one stays: a waiter must not wait for the lease of the one
/// that left.
#[tokio::test]
async fn a_writer_does_not_wait_for_the_lease_of_a_reader_that_left() {
    in_both(QUICK, async |scene| {
        let other = scene.somebody_else().await;
        let (asked, writer) = loop {
            let asked = Instant::now();
            let mut worker = worker_of(&scene).await;
            worker.kill9();
            let long = scene.somebody().lease(LONG).read().await.unwrap();
            let writer = writing(other.clone());
            scene.awaited_by(1).await;
            let is_in_time = asked.elapsed() < QUICK;
            long.unlock().await.unwrap();
            if is_in_time {
                break (asked, writer);
            }
            // The dead one's lease may be over already, and says nothing of this.
            let write = timeout(SOON, writer).await.expect("its lease is over");
            write.unwrap().unwrap().unlock().await.unwrap();
            scene.awaited_by(0).await;
        };

        let write = timeout(QUICK + AT_ONCE, writer).await.expect("its lease is over");
        assert!(
            asked.elapsed() + COARSE >= QUICK,
            "{:?}, {:?}: too early",
            scene.layout,
            asked.elapsed()
        );
        write.unwrap().unwrap().unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn each_owner_counts_its_reads_and_its_writes() {
    in_both(USUAL, async |scene| {
        let lock = scene.owner();
        let (outer, inner) = (lock.write().await.unwrap(), lock.write().await.unwrap());
        let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        assert_eq!((outer.hold_count(), two.hold_count()), (2, 2));
        assert_eq!((one.token(), outer.token()), (two.token(), inner.token()));
        assert!(one.token() > outer.token());

        outer.unlock().await.unwrap();
        assert_eq!(inner.hold_count(), 1);
        assert!(scene.somebody().try_read().await.unwrap().is_none(), "it still writes");
        inner.unlock().await.unwrap();
        one.unlock().await.unwrap();
        assert_eq!(two.hold_count(), 1);
        assert!(scene.somebody().try_read().await.unwrap().is_some());
        assert!(scene.somebody().try_write().await.unwrap().is_none(), "it still reads");
        two.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// The scenario `testReadLockIsLocked` of Redisson.
#[tokio::test]
async fn other_clients_see_whether_the_lock_is_read_or_written() {
    in_both(USUAL, async |scene| {
        let (lock, seen) = (scene.owner(), scene.somebody_else().await);
        let state = async || {
            let ttl = seen.ttl().await.unwrap();
            assert!(ttl.is_none_or(|ttl| ttl <= USUAL), "{ttl:?}");
            let (held, written) = (seen.is_locked().await, seen.is_write_locked().await);
            assert_eq!(ttl.is_some(), held.clone().unwrap());
            (held.unwrap(), written.unwrap())
        };
        assert_eq!(state().await, (false, false));
        let write = lock.write().await.unwrap();
        assert_eq!(state().await, (true, true));
        let read = lock.read().await.unwrap();
        assert_eq!(state().await, (true, true));
        write.unlock().await.unwrap();
        assert_eq!(state().await, (true, false));
        read.unlock().await.unwrap();
        assert_eq!(state().await, (false, false));
        scene.is_clean().await;
    })
    .await;
}

/// The scenario `testReadWriteTTL` of Redisson.
#[tokio::test]
async fn the_watchdog_keeps_both_a_write_and_the_read_within_it() {
    in_both(QUICK, async |scene| {
        let (lock, seen) = (scene.owner(), scene.somebody_else().await);
        let lives_on = async || {
            let start = Instant::now();
            while start.elapsed() < QUICK * 3 / 2 {
                match seen.ttl().await {
                    Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {} // the machine is busy
                    ttl => {
                        assert!(ttl.unwrap().expect("it is held") > QUICK / 4, "{:?}", scene.layout)
                    }
                }
                sleep(A_WHILE).await;
            }
        };
        let write = lock.write().await.unwrap();
        let read = lock.read().await.unwrap();
        lives_on().await;
        assert!(write.is_valid() && read.is_valid());
        write.unlock().await.unwrap();
        lives_on().await;
        assert!(read.is_valid());
        read.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_lock_taken_by_force_is_lost_for_all_readers_and_goes_to_a_waiter() {
    in_both(QUICK, async |scene| {
        let readers = [
            scene.somebody().read().await.unwrap(),
            scene.somebody_else().await.read().await.unwrap(),
        ];
        let writer = writing(scene.somebody_else().await);
        scene.awaited_by(1).await;

        assert!(scene.somebody_else().await.force_unlock().await.unwrap());

        let write = granted(writer).await;
        for reader in readers {
            assert_eq!(timeout(SOON, reader.ended()).await, Ok(Ended::Lost));
            assert!(matches!(reader.unlock().await, Err(Error::Lost { .. })));
        }
        assert!(write.is_valid());
        write.unlock().await.unwrap();
        assert!(!scene.somebody().force_unlock().await.unwrap(), "it is free");
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_lock_taken_by_force_is_lost_for_its_writer_and_goes_to_a_waiter() {
    in_both(USUAL, async |scene| {
        let write = scene.somebody().write().await.unwrap();
        let reader = reading(scene.somebody_else().await);
        scene.awaited_by(1).await;

        assert!(scene.somebody_else().await.force_unlock().await.unwrap());

        let read = granted(reader).await;
        assert!(matches!(write.unlock().await, Err(Error::Lost { .. })));
        assert!(read.is_valid());
        read.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// Somebody deletes the lock. The release of the reader finds nothing.
#[tokio::test]
async fn a_reader_that_learns_of_its_loss_tells_a_writer_that_waits() {
    in_both(LONG, async |scene| {
        let read = scene.somebody().read().await.unwrap();
        let writer = writing(scene.somebody_else().await);
        scene.awaited_by(1).await;
        let key = if scene.layout == Layout::Native { "lock:{a}" } else { "a" };
        scene.admin.cmd::<i64>(&["DEL", key]).await;

        let left = read.unlock().await;

        assert!(matches!(left, Err(Error::Lost { .. })), "{left:?}");
        granted(writer).await.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// The scenario `testReadLockAfterTimeout` of Redisson: the watchdog knows the new read, and not only the lost one.
#[tokio::test]
async fn after_a_restart_without_data_a_new_read_is_renewed() {
    in_both(QUICK, async |scene| {
        let lost = scene.somebody().read().await.unwrap();
        let other = scene.somebody_else().await;
        scene.server.restart().await;
        assert_eq!(timeout(SOON, lost.ended()).await, Ok(Ended::Lost), "{:?}", scene.layout);
        assert!(matches!(lost.unlock().await, Err(Error::Lost { .. })));

        let read = scene.somebody().read().await.unwrap();
        got_nothing(other.try_write_for(QUICK * 2).await);

        assert!(read.is_valid(), "{:?}", scene.layout);
        read.unlock().await.unwrap();
        other.write().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// The client receives its own message, and has to check like every other client.
#[tokio::test]
async fn a_client_that_uses_force_tells_its_own_holder_too() {
    in_both(USUAL, async |scene| {
        let write = scene.somebody().write().await.unwrap();
        let next = reading(scene.somebody());
        let other = writing(scene.somebody_else().await);
        scene.awaited_by(2).await;
        assert!(scene.somebody().force_unlock().await.unwrap());
        assert_eq!(timeout(AT_ONCE, write.ended()).await, Ok(Ended::Lost), "{:?}", scene.layout);
        let [next, other] = [
            tokio::spawn(async move { granted(next).await.unlock().await }),
            tokio::spawn(async move { granted(other).await.unlock().await }),
        ];
        next.await.unwrap().and(other.await.unwrap()).unwrap();
    })
    .await;
}

/// Its leases are long enough already, so a renewal has nothing to change. But a primary that was demoted must not confirm it.
#[tokio::test]
async fn a_replica_confirms_no_renewal() {
    if only_on_one_server("elsewhere, whoever demotes a primary makes another one") {
        return;
    }
    in_both(USUAL, async |scene| {
        for is_writer in [false, true] {
            let (reads, writes) = if is_writer {
                (None, Some(scene.somebody().write().await.unwrap()))
            } else {
                (Some(scene.somebody().read().await.unwrap()), None)
            };
            let guard: &Guard = reads.as_ref().or(writes.as_deref()).unwrap();
            guard.extend(2 * LONG).await.unwrap();
            scene.admin.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
            let extended = timeout(SOON, guard.extend(LONG)).await.unwrap();
            let layout = scene.layout;
            assert!(
                !matches!(extended, Ok(()) | Err(Error::Lost { .. })),
                "{layout:?}: {extended:?}"
            );
            scene.admin.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).await;
            drop((reads, writes));
            scene.is_clean().await;
        }
    })
    .await;
}

/// No reader excludes another, so no try may report that the lock is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_client_that_try_at_once_all_read() {
    in_both(USUAL, async |scene| {
        let mut readers = JoinSet::new();
        for _ in 0..20 {
            let lock = scene.somebody();
            readers.spawn(async move { lock.try_read().await });
        }
        for tried in readers.join_all().await {
            let read = tried.unwrap().expect("nobody writes");
            read.unlock().await.unwrap();
        }
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_reads() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let layout = LAYOUTS[usize::from(boss.variable("LAYOUT") == "Redisson")];
    let client = connect(&boss.variable("URL"), layout, QUICK).await;
    let _guard = client.rw_lock("a").read().await.expect("it is granted");
    boss.tell("reading");
    boss.order().await;
}

async fn worker_of(scene: &Scene) -> Worker {
    let (url, layout) = (scene.server.url(), format!("{:?}", scene.layout));
    let mut worker =
        Worker::start("rw_lock::worker_that_reads", &[("URL", &url), ("LAYOUT", &layout)]);
    assert_eq!(worker.hear().await, "reading");
    worker
}

/// The scenario `testMultiInstanceReadLockZombieCleanup` of Redisson, and F79.
#[tokio::test]
async fn a_reader_that_is_dead_is_not_kept_alive_by_another() {
    in_both(QUICK, async |scene| {
        let mut worker = worker_of(&scene).await;
        let alive = scene.somebody().read().await.unwrap();
        worker.kill9();
        let writer = writing(scene.somebody_else().await);
        sleep(QUICK * 2).await;
        assert!(alive.is_valid());
        assert!(!writer.is_finished());

        alive.unlock().await.unwrap();

        granted(writer).await.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_plain_lock_and_a_read_write_lock_of_one_name_are_a_conflict() {
    in_both(USUAL, async |scene| {
        let is_conflict = |error: Error| matches!(error, Error::Conflict { .. });
        let lock = scene.another_client().await.lock("a");
        let guard = lock.lock().await.unwrap();
        let rw = scene.somebody();
        assert!(rw.read().await.is_err_and(is_conflict));
        assert!(rw.write().await.is_err_and(is_conflict));
        assert!(rw.is_locked().await.is_err_and(is_conflict));
        assert!(rw.force_unlock().await.is_err_and(is_conflict));
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
        scene.is_clean().await;

        let read = rw.read().await.unwrap();
        assert!(lock.try_lock().await.is_err_and(is_conflict));
        assert!(lock.lock().await.is_err_and(is_conflict));
        assert!(lock.is_locked().await.is_err_and(is_conflict));
        assert!(lock.force_unlock().await.is_err_and(is_conflict));
        read.unlock().await.unwrap();
        let write = rw.write().await.unwrap();
        assert!(lock.lock().await.is_err_and(is_conflict));
        assert!(lock.force_unlock().await.is_err_and(is_conflict));
        write.unlock().await.unwrap();

        let key = if scene.layout == Layout::Native { "lock:{a}" } else { "a" };
        scene.admin.cmd::<()>(&["SET", key, "a string"]).await;
        assert!(rw.read().await.is_err_and(is_conflict));
        assert!(rw.write().await.is_err_and(is_conflict));
        assert!(rw.force_unlock().await.is_err_and(is_conflict));
        assert_eq!(scene.admin.cmd::<String>(&["GET", key]).await, "a string");
    })
    .await;
}

#[tokio::test]
async fn nobody_waits_for_a_writer_that_gave_up() {
    in_both(USUAL, async |scene| {
        let read = scene.somebody().read().await.unwrap();
        let other = scene.somebody_else().await;
        got_nothing(other.try_write_for(A_WHILE).await);
        // A client connects to a node of a cluster when it first has to. Who has gone by then has not listened.
        while scene.listeners().await == 0 {
            got_nothing(other.try_write_for(A_WHILE).await);
        }
        let cancelled = writing(scene.somebody_else().await);
        scene.awaited_by(2).await;
        cancelled.abort();
        let next = timeout(AT_ONCE, scene.somebody_else().await.read()).await;
        next.expect("no writer is in the way").unwrap().unlock().await.unwrap();
        read.unlock().await.unwrap();
        let write = timeout(AT_ONCE, scene.somebody().write()).await;
        write.expect("nobody is in the way").unwrap().unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn work_under_the_lock_has_it_and_gives_it_back() {
    in_both(USUAL, async |scene| {
        let (lock, other) = (scene.somebody(), scene.somebody_else().await);
        let seen = lock.run_read(async |hold| {
            assert!(hold.is_valid());
            other.is_locked().await.unwrap() && !other.is_write_locked().await.unwrap()
        });
        assert!(seen.await.unwrap());
        assert!(lock.run_write(async |_| other.is_write_locked().await.unwrap()).await.unwrap());
        scene.is_clean().await;
    })
    .await;
}

/// The callers inside, as all tasks of this process see them.
#[derive(Default)]
struct Room {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
}

impl Room {
    async fn read(&self) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "somebody writes");
        tokio::task::yield_now().await;
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "somebody writes");
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn write(&self) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "somebody writes");
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "somebody reads");
        tokio::task::yield_now().await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "somebody reads");
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The scenarios `testConcurrency...` of Redisson: readers and writers in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_inside_beside_a_writer() {
    // What a message grants lasts for a fourth of this until it is confirmed: longer than this machine stands still.
    in_both(LONG, async |scene| {
        let clients = [scene.another_client().await, scene.another_client().await];
        let (room, mut tasks) = (Arc::<Room>::default(), JoinSet::new());
        for n in 0..12 {
            let (lock, room) = (clients[n % 2].rw_lock("a"), Arc::clone(&room));
            tasks.spawn(async move {
                for _ in 0..60 {
                    match fastrand::u8(0..6) {
                        0 => {
                            let write = lock.write().await.expect("it is granted");
                            room.write().await;
                            let read = write.downgrade().await.expect("it writes");
                            room.read().await;
                            read.unlock().await.expect("it was ours");
                        }
                        1 => {
                            let write = lock.write().await.expect("it is granted");
                            room.write().await;
                            write.unlock().await.expect("it was ours");
                        }
                        _ => {
                            let read = lock.read().await.expect("it is granted");
                            room.read().await;
                            read.unlock().await.expect("it was ours");
                        }
                    }
                }
            });
        }
        tasks.join_all().await;
        assert!(room.most_readers.load(Ordering::SeqCst) > 1, "nobody read beside another");
        scene.is_clean().await;
    })
    .await;
}

/// F79, the policy: a writer waits only for the readers that were in before it came.
#[tokio::test]
async fn readers_that_come_later_stand_behind_a_writer_that_waits() {
    let scene = Scene::begin(Layout::Native, USUAL).await;
    let read = scene.somebody().read().await.unwrap();
    let writer = writing(scene.somebody_else().await);
    scene.awaited_by(1).await;
    let late = reading(scene.somebody_else().await);
    scene.awaited_by(2).await;
    assert!(!late.is_finished(), "the writer is first");
    assert!(scene.somebody_else().await.try_read().await.unwrap().is_none());

    read.unlock().await.unwrap();

    let write = granted(writer).await;
    sleep(A_WHILE).await;
    assert!(!late.is_finished());
    write.unlock().await.unwrap();
    granted(late).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// F79, the policy: the readers that waited while somebody wrote go before the next writer.
#[tokio::test]
async fn readers_that_waited_go_before_the_next_writer() {
    let scene = Scene::begin(Layout::Native, USUAL).await;
    let write = scene.somebody().write().await.unwrap();
    let next = writing(scene.somebody_else().await);
    scene.awaited_by(1).await;
    let readers = [reading(scene.somebody_else().await), reading(scene.somebody_else().await)];
    scene.awaited_by(3).await;

    write.unlock().await.unwrap();

    let [one, two] = readers;
    let (one, two) = (granted(one).await, granted(two).await);
    assert!(!next.is_finished(), "two read");
    one.unlock().await.unwrap();
    sleep(A_WHILE).await;
    assert!(!next.is_finished(), "one reads");
    two.unlock().await.unwrap();
    granted(next).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// The same for the readers of one client, of which only one stands in line. Each reads until all of them do.
#[tokio::test]
async fn readers_of_one_client_that_waited_go_together_before_the_next_writer() {
    const READERS: usize = 20;
    let scene = Scene::begin(Layout::Native, USUAL).await;
    let (write, ours) = (scene.somebody().write().await.unwrap(), scene.somebody_else().await);
    let (inside, together) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(READERS + 1)));
    let reads = |_: usize| {
        let (ours, inside, together) = (ours.clone(), Arc::clone(&inside), Arc::clone(&together));
        tokio::spawn(async move {
            let read = ours.read().await?;
            inside.fetch_add(1, Ordering::SeqCst);
            together.wait().await;
            read.unlock().await
        })
    };
    let readers: Vec<_> = (0..READERS).map(reads).collect();
    scene.awaited_by(1).await;
    let next = writing(scene.somebody_else().await);
    scene.awaited_by(2).await;

    write.unlock().await.unwrap();

    let all = async || inside.load(Ordering::SeqCst) == READERS;
    eventually(AT_ONCE, "all readers are inside", all).await;
    let late = reading(ours.clone());
    sleep(A_WHILE).await;
    assert!(!late.is_finished() && !next.is_finished(), "a newcomer stands behind the writer");
    together.wait().await;
    for reader in readers {
        granted(reader).await;
    }
    let write = granted(next).await;
    assert!(!late.is_finished());
    write.unlock().await.unwrap();
    granted(late).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// The same for reads that never overlap, since each takes the only thread of the runtime for some time.
#[tokio::test]
async fn readers_of_one_client_that_waited_go_one_by_one_before_the_next_writer() {
    const READERS: usize = 300; // more than the hand-off budget has hand-overs
    let scene = Scene::begin(Layout::Native, USUAL).await;
    let (write, ours) = (scene.somebody().write().await.unwrap(), scene.somebody_else().await);
    let reads = Arc::new(AtomicUsize::new(0));
    let read = |_: usize| {
        let (ours, reads) = (ours.clone(), Arc::clone(&reads));
        tokio::spawn(async move {
            let read = ours.read().await?;
            std::thread::sleep(Duration::from_millis(2));
            reads.fetch_add(1, Ordering::SeqCst);
            read.unlock().await
        })
    };
    let readers: Vec<_> = (0..READERS).map(read).collect();
    scene.awaited_by(1).await;
    let (next, before) = (scene.somebody_else().await, Arc::clone(&reads));
    let next = tokio::spawn(async move {
        let write = next.write().await?;
        let before = before.load(Ordering::SeqCst);
        write.unlock().await?;
        Ok(before)
    });
    scene.awaited_by(2).await;

    write.unlock().await.unwrap();

    assert_eq!(granted(next).await, READERS);
    for reader in readers {
        granted(reader).await;
    }
    scene.is_clean().await;
}

/// A reader that reads already is not a newcomer: behind the writer, it would wait for itself.
#[tokio::test]
async fn a_reader_may_read_again_though_a_writer_waits() {
    in_both(USUAL, async |scene| {
        let lock = scene.owner();
        let read = lock.read().await.unwrap();
        let writer = writing(scene.somebody_else().await);
        scene.awaited_by(1).await;
        let nested = timeout(AT_ONCE, lock.read()).await.expect("it reads already").unwrap();
        assert!(!writer.is_finished());
        assert!(is_pending(nested.ended()).await);
        nested.unlock().await.unwrap();
        read.unlock().await.unwrap();
        granted(writer).await.unlock().await.unwrap();
    })
    .await;
}

/// The owner is the current task, or the one that is named; another task is another owner.
#[tokio::test]
async fn a_task_nests_on_a_reentrant_handle_and_another_task_waits() {
    in_both(USUAL, async |scene| {
        let lock = scene.somebody().reentrant();
        let outer = lock.write().await.unwrap();
        let inner = scene.somebody().reentrant().write().await.unwrap();
        let read = lock.try_read().await.unwrap().expect("the task writes");
        assert_eq!((outer.hold_count(), read.hold_count()), (2, 1));
        assert_eq!(outer.token(), inner.token());
        assert!(scene.somebody().try_read().await.unwrap().is_none(), "a guard of its own");
        let other = lock.clone();
        let other = tokio::spawn(async move { other.try_read().await });
        assert!(other.await.unwrap().unwrap().is_none(), "another task");

        let owner = Owner::new();
        let named = lock.clone().owned_by(&owner);
        assert!(named.try_read().await.unwrap().is_none(), "another owner");
        outer.unlock().await.unwrap();
        inner.unlock().await.unwrap();
        assert!(matches!(lock.write().await, Err(Error::Upgrade { .. })));
        assert!(scene.somebody().try_write().await.unwrap().is_none(), "it waits, as tokio's does");
        read.unlock().await.unwrap();

        let write = named.write().await.unwrap();
        let again = scene.somebody().owned_by(&owner);
        let again = tokio::spawn(async move { again.write().await });
        let again = granted(again).await;
        assert_eq!(write.hold_count(), 2);
        write.unlock().await.unwrap();
        again.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

// --- Each guard is its own owner ------------------------------------------------------------------------------------

/// As with `tokio::sync::RwLock`: the second waits until the first has unlocked, though one task polls both.
#[tokio::test]
async fn two_writes_in_one_join_take_turns() {
    in_both(USUAL, async |scene| {
        let (lock, inside) = (scene.client.rw_lock("a"), AtomicUsize::new(0));
        let first_writes = tokio::sync::Notify::new();
        let work = async || {
            let write = lock.write().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two write at once");
            first_writes.notify_one();
            sleep(A_WHILE).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            assert_eq!(write.hold_count(), 1);
            write.unlock().await.unwrap();
        };
        let later = async {
            first_writes.notified().await;
            work().await;
        };
        timeout(SOON, async { tokio::join!(work(), later) }).await.expect("they take turns");
        timeout(SOON, async { tokio::join!(work(), work()) }).await.expect("they take turns");
        scene.is_clean().await;
    })
    .await;
}

/// As with `tokio::sync::RwLock`: it is no upgrade, since the other future may unlock while this one waits.
#[tokio::test]
async fn a_write_beside_a_read_of_the_same_task_waits_for_it() {
    in_both(USUAL, async |scene| {
        let lock = scene.client.rw_lock("a");
        let read = lock.read().await.unwrap();
        assert!(lock.try_write().await.unwrap().is_none());
        got_nothing(lock.try_write_for(A_WHILE).await);
        let stop = async {
            sleep(A_WHILE).await;
            assert!(read.is_valid());
            read.unlock().await.unwrap();
        };
        let both = async { tokio::join!(lock.write(), stop).0 };
        let write = timeout(SOON, both).await.expect("the reader has left").unwrap();
        assert!(lock.try_read().await.unwrap().is_none(), "a task does not nest by itself");
        write.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
async fn two_reads_of_one_task_are_two_holds() {
    in_both(USUAL, async |scene| {
        let lock = scene.client.rw_lock("a");
        let (one, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        assert_eq!((one.hold_count(), other.hold_count()), (1, 1));
        assert_ne!(one.token(), other.token());
        one.unlock().await.unwrap();
        assert!(lock.try_write().await.unwrap().is_none(), "the other reads on");
        other.unlock().await.unwrap();
        lock.try_write().await.unwrap().expect("nobody reads").unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// How many scripts one turn takes, if this many tasks of one client take turns again and again.
async fn scripts_a_turn<G>(scene: &Scene, take: impl AsyncFn() -> G, give: impl AsyncFn(G)) -> f64 {
    const TURNS: usize = 300;
    const TASKS: usize = 64;
    give(take().await).await;
    scene.admin.reset_stats().await;
    let turns = (0..TASKS).map(async |_| {
        for _ in 0..TURNS {
            let guard = take().await;
            tokio::task::yield_now().await;
            give(guard).await;
        }
    });
    let all = futures_util::future::join_all(turns);
    timeout(LONG / 10, all).await.expect("all get their turns");
    let scripts = common::fixture::settled(&scene.admin).await;
    scene.is_clean().await;
    scripts as f64 / (TASKS * TURNS) as f64
}

/// C4, C5: callers that read together ask once, and a client hands a write on like a plain lock.
#[tokio::test]
async fn tasks_of_one_client_read_together_hand_writes_on_and_seldom_ask() {
    in_both(USUAL, async |scene| {
        let lock = scene.handed_on().await;
        let read = async || lock.read().await.unwrap();
        let reads = scripts_a_turn(&scene, read, async |guard| guard.unlock().await.unwrap()).await;
        let write = async || lock.write().await.unwrap();
        let writes =
            scripts_a_turn(&scene, write, async |guard| guard.unlock().await.unwrap()).await;
        let scripts = (reads, writes);
        assert!(reads <= 0.2 && writes <= 0.2, "{:?}: {scripts:?} a turn", scene.layout);
    })
    .await;
}

/// C4: without a writer nobody waits for the answers to the others.
#[tokio::test]
async fn five_hundred_reads_far_away_take_a_few_round_trips() {
    const DISTANCE: Duration = Duration::from_millis(50);
    in_both(USUAL, async |scene| {
        let proxy = Proxy::before(&scene.server).await;
        let lock = scene.handed_on_at(proxy.url()).await;
        lock.read().await.unwrap().unlock().await.unwrap();
        scene.admin.reset_stats().await;
        let _far = proxy.everything().delay_reply(DISTANCE, Duration::ZERO);
        let began = Instant::now();
        let readers: Vec<_> = (0..500).map(|_| reading(lock.clone())).collect();
        let mut guards = Vec::new();
        for reader in readers {
            guards.push(timeout(SOON, reader).await.unwrap().unwrap().unwrap());
        }
        let (took, scripts) = (began.elapsed(), common::fixture::scripts(&scene.admin).await);
        assert!(scripts < 50, "{:?}: {scripts} scripts", scene.layout);
        assert!(took < DISTANCE * 50, "{:?}: {took:?}", scene.layout);
    })
    .await;
}

/// Two readers with one request to the server: the second asks while the first waits for its answer.
async fn two_together(lock: &RwLock) -> (Guard, Guard) {
    let (one, other) = tokio::join!(lock.read(), lock.read());
    (one.expect("a read"), other.expect("a read"))
}

/// Each caller that reads together with others has a hold of its own.
#[tokio::test]
async fn a_reader_that_leaves_the_others_has_left_for_itself() {
    in_both(USUAL, async |scene| {
        let lock = scene.handed_on().await;
        lock.read().await.unwrap().unlock().await.unwrap();
        scene.admin.reset_stats().await;
        let (one, other) = two_together(&lock).await;
        assert_eq!(common::fixture::scripts(&scene.admin).await, 1, "they did not ask together");
        assert!(one.token() != other.token());
        assert_eq!((one.hold_count(), other.hold_count()), (1, 1));
        let (left, hold) = (one.ended(), other.ended());
        let writer = writing(scene.somebody_else().await);
        scene.awaited_by(1).await;

        one.unlock().await.unwrap();
        assert_eq!(timeout(SOON, left).await.unwrap(), Ended::Released);
        assert!(other.is_valid() && is_pending(hold).await);
        assert!(!writer.is_finished());

        let lost = other.ended();
        scene.somebody_else().await.force_unlock().await.unwrap();
        let write = granted(writer).await;
        if scene.layout == Layout::Native {
            assert_eq!(timeout(SOON, lost).await.unwrap(), Ended::Lost);
            assert!(matches!(other.unlock().await, Err(Error::Lost { .. })));
        }
        write.unlock().await.unwrap();
    })
    .await;
}

/// P7: only so many callers join a read. Then a writer that stands in line comes first.
#[tokio::test]
async fn a_writer_elsewhere_comes_in_although_readers_come_and_go_without_a_pause() {
    const MOST: u32 = 40;
    const READERS: usize = 8;
    let scene = Scene::begin(Layout::Native, USUAL).await;
    let hand_off = HandOff { max_consecutive: MOST, max_time: LONG };
    let config = Config::default().watchdog_timeout(USUAL).waiter_ttl(USUAL / 3);
    let client = comes_in(scene.server.url(), config.hand_off(hand_off)).await;
    let (done, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let (lock, done, reads) = (client.rw_lock("a"), Arc::clone(&done), Arc::clone(&reads));
        readers.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let guard = lock.read().await.unwrap();
                reads.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(fastrand::u64(0..8))).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    let stands = async || scene.admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await > 0;
    for _ in 0..10 {
        eventually(SOON, "they read", async || reads.swap(0, Ordering::Relaxed) > READERS).await;
        let writer = writing(scene.somebody_else().await);
        eventually(SOON, "it stands in line", async || stands().await || writer.is_finished())
            .await;
        reads.store(0, Ordering::Relaxed);
        let write = timeout(SOON, writer).await.expect("it comes in").unwrap().unwrap();
        let reads = reads.load(Ordering::Relaxed);
        // The reads of the last tenure, one more for each reader, and those that come in behind the writer before it
        // is told.
        assert!(reads <= MOST as usize + 2 * READERS, "{reads} came first");
        write.unlock().await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    timeout(SOON, readers.join_all()).await.expect("all leave");
    scene.is_clean().await;
}

/// The server grants a read within a write. A writer of the same client must not be handed that write.
#[tokio::test]
async fn a_write_that_became_a_read_is_handed_to_no_writer_of_its_client() {
    in_both(USUAL, async |scene| {
        let lock = scene.handed_on().await;
        let write = lock.write().await.unwrap();
        let next = writing(lock);
        sleep(A_WHILE).await;
        let read = write.downgrade().await.unwrap();
        let mut next = next;
        assert!(is_pending(&mut next).await, "{:?}", scene.layout);
        read.unlock().await.unwrap();
        granted(next).await.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// When a client hands a write on, the new owner owns it, and the former owner does not.
#[tokio::test]
async fn the_owner_that_was_handed_a_write_may_nest_and_the_former_owner_may_not() {
    in_both(USUAL, async |scene| {
        let lock = scene.handed_on().await;
        let [one, other] = [(); 2].map(|()| lock.clone().owned_by(&Owner::new()));
        let first = one.write().await.unwrap();
        let asked = other.clone();
        let next = tokio::spawn(async move { asked.write().await });
        sleep(A_WHILE).await;
        scene.admin.reset_stats().await;
        first.unlock().await.unwrap();
        let second = granted(next).await;
        assert_eq!(common::fixture::scripts(&scene.admin).await, 0, "it was not handed on");
        let nested = timeout(SOON, other.write()).await.expect("it is its own").unwrap();
        assert_eq!(nested.hold_count(), 2);
        got_nothing(one.try_write().await);
        got_nothing(one.try_read().await);
        nested.unlock().await.unwrap();
        second.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}
