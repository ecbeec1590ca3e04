//! Everything there is to do with a client, once.

use crate::common;

use std::time::Duration;

use common::fixture::{LONG, SOON, comes_in};
use common::{Admin, eventually, timeout};
use parklock::{Client, Config, Error, Layout, Owner};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How the clients of a run name their keys.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) layout: Layout,
    pub(crate) namespace: Option<&'static str>,
}

impl Way {
    pub(crate) const NATIVE: Self = Self { layout: Layout::Native, namespace: None };
    pub(crate) const REDISSON: Self = Self { layout: Layout::Redisson, namespace: None };

    pub(crate) const fn within(self, namespace: &'static str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// A key of parklock's own beside this name, from what comes before the name and after it.
    fn own(self, before: &str, name: &str, after: &str) -> String {
        let prefix = self.namespace.map_or(String::new(), |namespace| format!("{namespace}:"));
        match self.layout {
            Layout::Redisson => format!("{before}{{{prefix}{name}}}{after}"),
            _ => format!("{prefix}{before}{{{name}}}{after}"),
        }
    }

    /// The key of a plain lock.
    fn lock(self, name: &str) -> String {
        let lock = self.own("lock:", name, "");
        if self.layout == Layout::Native { lock } else { lock["lock:{".len()..].replace('}', "") }
    }
}

pub(crate) async fn client_of(url: &str, way: Way) -> Client {
    let config =
        Config::default().watchdog_timeout(Duration::from_secs(3)).max_park(LONG).ride_out(SOON);
    let config = config.layout(way.layout).subscription_linger(Duration::from_millis(50));
    let config = way.namespace.into_iter().fold(config, Config::namespace);
    comes_in(url, config).await
}

/// Waits until somebody listens at a channel of this name.
async fn awaited(admin: &Admin, name: &str) {
    let ends = [format!("{{{name}}}"), format!(":{name}}}")];
    let is_its = |channel: &String| ends.iter().any(|end| channel.contains(end));
    let listens = async || admin.channels().await.iter().any(is_its);
    eventually(SOON, &format!("somebody waits for {name}"), listens).await;
}

async fn nobody_listens(admin: &Admin) {
    eventually(SOON, "nobody listens", async || admin.channels().await.is_empty()).await;
}

async fn granted<T>(waiter: JoinHandle<parklock::Result<T>>) -> T {
    timeout(SOON, waiter).await.expect("in time").expect("no panic").expect("it is free")
}

/// Everything there is to do with plain locks.
async fn everything_plain(url: &str, way: Way, admin: &Admin) {
    let (ours, theirs) = (client_of(url, way).await, client_of(url, way).await);
    let lock = ours.reentrant_lock("a");
    let outer = lock.lock().await.expect("it is free");
    let waiting = theirs.lock("a");
    let waiter = tokio::spawn(async move { waiting.lock().await });
    awaited(admin, "a").await;
    lock.lock().await.expect("it is ours").unlock().await.expect("it is ours");
    outer.extend(Duration::from_secs(4)).await.expect("it is ours");
    sleep(Duration::from_millis(1_500)).await; // a renewal and a heartbeat of each link
    outer.unlock().await.expect("it is ours");
    let guard = granted(waiter).await;

    admin.script_flush().await;
    assert!(ours.lock("a").is_locked().await.expect("an answer"));
    assert!(ours.lock("a").force_unlock().await.expect("an answer"));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    let fenced = ours.redisson().fenced_lock("a").lock().await.expect("it is free");
    fenced.unlock().await.expect("it is ours");
    let strange = way.lock("b");
    admin.cmd::<i64>(&["SADD", &strange, "v"]).await;
    let conflict = ours.lock("b").lock().await;
    assert!(
        matches!(&conflict, Err(Error::Conflict { kind, .. }) if kind == "set"),
        "{conflict:?}"
    );
    nobody_listens(admin).await;
}

/// Everything there is to do with several locks at once.
pub(crate) async fn everything_together(url: &str, way: Way, admin: &Admin) {
    let (ours, theirs) = (client_of(url, way).await, client_of(url, way).await);
    let both = ours.multi_lock(["m", "n"]);
    let held = both.lock().await.expect("they are free");
    let waiting = theirs.multi_lock(["n", "o"]);
    let waiter = tokio::spawn(async move { waiting.lock().await });
    awaited(admin, "n").await;
    assert!(theirs.multi_lock(["m", "o"]).try_lock().await.expect("an answer").is_none());
    sleep(Duration::from_millis(1_500)).await; // a renewal
    held.unlock().await.expect("they are ours");
    granted(waiter).await.unlock().await.expect("they are ours");
    let held = both.lock().await.expect("they are free");
    assert!(both.is_locked().await.expect("an answer"));
    assert!(both.force_unlock().await.expect("an answer"));
    assert!(held.unlock().await.is_err());
    nobody_listens(admin).await;
}

/// Everything there is to do with what has a queue, or would have one.
pub(crate) async fn everything_queued(url: &str, way: Way, admin: &Admin) {
    let (ours, theirs) = (client_of(url, way).await, client_of(url, way).await);
    let (fair, semaphore) = (ours.fair_lock("c"), ours.semaphore("e", 2));
    let rw = ours.rw_lock("d").owned_by(&Owner::new());
    let expirable = ours.redisson().expirable_semaphore("f", 2);
    let guards = [
        fair.lock().await.expect("it is free"),
        rw.write().await.expect("it is free").into_guard(),
        semaphore.acquire_many(2).await.expect("it is free"),
        expirable.acquire_many(2).await.expect("it is free"),
    ];
    let nested = rw.read().await.expect("it is ours");
    let mut waiters = Vec::new();
    for _ in 0..2 {
        let waiting = theirs.fair_lock("c");
        waiters.push(tokio::spawn(async move { waiting.lock().await }));
    }
    let waiting = theirs.rw_lock("d");
    waiters.push(tokio::spawn(async move { waiting.read().await }));
    for waiting in [theirs.semaphore("e", 2), theirs.redisson().expirable_semaphore("f", 2)] {
        waiters.push(tokio::spawn(async move { waiting.acquire().await }));
    }
    for name in ["c", "d", "e", "f"] {
        awaited(admin, name).await;
    }
    assert!(fair.is_locked().await.expect("an answer"));
    assert!(rw.is_write_locked().await.expect("an answer"));
    assert_eq!(semaphore.available_permits().await.expect("an answer"), 0);
    assert_eq!(expirable.available_permits().await.expect("an answer"), 0);
    nested.unlock().await.expect("it is ours");
    sleep(Duration::from_millis(1_500)).await; // a renewal of each
    for guard in guards {
        guard.extend(Duration::from_secs(4)).await.expect("it is ours");
        guard.unlock().await.expect("it is ours");
    }
    for waiter in waiters {
        granted(waiter).await.unlock().await.expect("it is ours");
    }

    admin.script_flush().await;
    let written = rw.write().await.expect("it is free");
    let read = written.downgrade().await.expect("it is ours");
    assert!(rw.force_unlock().await.expect("an answer"));
    assert!(matches!(read.unlock().await, Err(Error::Lost { .. })));
    let held = fair.lock().await.expect("it is free");
    assert!(fair.force_unlock().await.expect("an answer"));
    assert!(matches!(held.unlock().await, Err(Error::Lost { .. })));
    let held = semaphore.acquire().await.expect("it is free");
    assert!(matches!(ours.fair_lock("e").lock().await, Err(Error::Conflict { .. })));
    held.unlock().await.expect("it is ours");
    for semaphore in [semaphore, expirable] {
        let held = semaphore.acquire().await.expect("it is free");
        semaphore.set_permits(3).await.expect("an answer");
        assert!(semaphore.try_acquire().await.is_ok());
        assert!(semaphore.force_unlock().await.expect("an answer"));
        assert!(matches!(held.unlock().await, Err(Error::Lost { .. })));
    }
    admin
        .cmd::<usize>(&["DEL", &way.own("lock_notes:", "e", ""), &way.own("lock_notes:", "f", "")])
        .await; // the numbers that were set
    nobody_listens(admin).await;
}

/// Everything there is to do with a latch.
pub(crate) async fn everything_counted_down(url: &str, way: Way, admin: &Admin) {
    let (ours, theirs) = (client_of(url, way).await, client_of(url, way).await);
    let latch = ours.count_down_latch("l");
    assert!(latch.set(2).await.expect("an answer"));
    let waiting = theirs.count_down_latch("l");
    let waiter = tokio::spawn(async move { waiting.wait().await });
    awaited(admin, "l").await;
    assert_eq!(latch.count().await.expect("an answer"), Some(2));
    assert_eq!(latch.count_down().await.expect("an answer"), 1);
    admin.script_flush().await;
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    granted(waiter).await;
    assert!(latch.set(1).await.expect("an answer"));
    assert!(latch.delete().await.expect("an answer"));
    nobody_listens(admin).await;
}

/// Everything there is to do with a condition.
async fn everything_notified(url: &str, way: Way, admin: &Admin) {
    let (ours, theirs) = (client_of(url, way).await, client_of(url, way).await);
    let condition = ours.condition("n");
    for all in [false, true] {
        let (lock, awaited_for) = (theirs.fair_lock("c"), theirs.condition("n"));
        let waiter = tokio::spawn(async move { lock.lock().await?.wait(&awaited_for).await });
        awaited(admin, "n").await;
        let held = ours.fair_lock("c").lock().await.expect("it is free");
        if all {
            condition.notify_all().await.expect("an answer");
        } else {
            condition.notify_one().await.expect("an answer");
        }
        sleep(Duration::from_millis(1_500)).await; // a renewal of the notification
        held.unlock().await.expect("it is ours");
        granted(waiter).await.unlock().await.expect("it is ours");
    }
    nobody_listens(admin).await;
    admin.cmd::<usize>(&["DEL", &way.own("lock_notes:", "n", ":requests")]).await;
}

/// Everything there is to do with an election, and with a job that runs now and then.
async fn everything_agreed(url: &str, way: Way, admin: &Admin) {
    let ours = client_of(url, way).await;
    let election = ours.election("g").identity("ours");
    let leadership = election.campaign().await.expect("it is free");
    let leads = async || election.leader().await.expect("an answer").is_some();
    eventually(SOON, "it has said who it is", leads).await;
    leadership.step_down().await.expect("it led");
    let job = ours.every("h", LONG);
    assert_eq!(job.run_if_due(async |_| 1).await.expect("an answer"), Some(1));
    assert_eq!(job.run_if_due(async |_| 1).await.expect("an answer"), None);
    let marks = [("g", ":leader"), ("h", ":interval")];
    let [leader, interval] = marks.map(|(name, end)| way.own("lock_notes:", name, end));
    admin.cmd::<usize>(&["DEL", &leader, &interval]).await;
}

/// Everything there is to do.
pub(crate) async fn everything(url: &str, way: Way, admin: &Admin) {
    everything_plain(url, way, admin).await;
    everything_agreed(url, way, admin).await;
    everything_together(url, way, admin).await;
    everything_queued(url, way, admin).await;
    if way.layout == Layout::Native {
        everything_notified(url, way, admin).await;
        let left = [way.lock("b")];
        let is_counter = |key: &String| key.ends_with("lock:grants");
        let keys = async || -> Vec<_> {
            admin.keys().await.into_iter().filter(|key| !is_counter(key)).collect()
        };
        eventually(SOON, "nothing is left", async || keys().await == left).await;
    }
    everything_counted_down(url, way, admin).await;
}
