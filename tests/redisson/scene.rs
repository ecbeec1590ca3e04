//! The scene of each test: a server, a JVM with Redisson, and clients that share its locks.

use std::fmt::Debug;
use std::time::Duration;

use parklock::{Client, Config, Guard, Layout};
use tokio::time::sleep;

use crate::common::fixture::{A_WHILE, SOON, comes_in};
use crate::common::{Admin, Site, eventually, timeout};
use crate::peer::{Jvm, Thread};
use crate::version::{CLEARS_AWAY, Version};

/// The default of both sides.
pub(crate) const USUAL: Duration = Duration::from_secs(30);

/// How long Redisson waits for each in the queue of a fair lock, if nobody tells it otherwise.
pub(crate) const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// A watchdog whose lease is worth waiting for. It outlives a machine that stands still for five seconds, which may have been about to
/// renew it.
pub(crate) const QUICK: Duration = Duration::from_secs(9);

/// What a wake-up may take at the most, on a machine that has other things to do. Less than a park, which is ten seconds,
/// and far less than a lease.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(8);

/// What the next holder may take beyond the TTL.
pub(crate) const FURTHER: Duration = Duration::from_secs(3);

/// Long enough that a watchdog has had to renew three times.
pub(crate) const WORK: Duration = QUICK.saturating_add(FURTHER);

#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) jvm: Jvm,
    pub(crate) admin: Admin,
    pub(crate) server: Site,
    pub(crate) watchdog: Duration,
}

impl Scene {
    /// `None`, with a message, if there is no Redisson.
    pub(crate) async fn begin(watchdog: Duration) -> Option<Self> {
        Self::begin_impatient(watchdog, FIVE_MINUTES).await
    }

    /// A Redisson that waits no longer than this for each in the queue of a fair lock.
    pub(crate) async fn begin_impatient(watchdog: Duration, fair_wait: Duration) -> Option<Self> {
        Self::begin_with(Site::start().await, watchdog, fair_wait).await
    }

    /// There, wherever the other tests run.
    pub(crate) async fn begin_at(server: Site, watchdog: Duration) -> Option<Self> {
        Self::begin_with(server, watchdog, FIVE_MINUTES).await
    }

    async fn begin_with(server: Site, watchdog: Duration, fair_wait: Duration) -> Option<Self> {
        Self::begin_mapped(server, watchdog, fair_wait, "").await
    }

    /// A Redisson that puts this prefix before all names.
    pub(crate) async fn begin_mapped(
        server: Site,
        watchdog: Duration,
        fair_wait: Duration,
        prefix: &str,
    ) -> Option<Self> {
        let admin = server.admin().await;
        let jvm = Jvm::start_mapped(&server.url(), watchdog, fair_wait, prefix).await?;
        Some(Self { jvm, admin, server, watchdog })
    }

    /// Whether Redisson is of this version or a later one.
    pub(crate) fn has(&self, since: Version) -> bool {
        self.jvm.version() >= since
    }

    /// Whether Redisson is of this version alone.
    pub(crate) fn is(&self, version: Version) -> bool {
        self.jvm.version() == version
    }

    pub(crate) fn thread(&self, name: &str) -> Thread {
        self.jvm.thread(name)
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.server.url(), self.watchdog).await
    }

    /// Waits until this many clients, of either side, listen for the release of this lock. Then it gives them a while
    /// to look once more and to park: a release that they see by themselves would prove nothing.
    pub(crate) async fn awaited_by(&self, name: &str, clients: usize) {
        self.listened_to(&format!("redisson_lock__channel:{{{name}}}"), clients).await;
    }

    pub(crate) async fn listened_to(&self, channel: &str, clients: usize) {
        let listen = async || self.admin.subscribers(channel).await == clients;
        eventually(SOON, &format!("{clients} clients listen on {channel}"), listen).await;
        sleep(A_WHILE).await;
    }

    /// Waits until this many threads of Java are parked.
    pub(crate) async fn java_parks(&self, threads: usize) {
        self.jvm.parked(threads).await;
    }

    /// The hold count of each owner of a lock.
    pub(crate) async fn holds(&self, name: &str) -> Vec<u32> {
        let fields = self.admin.hgetall(name).await;
        fields.values().map(|count| count.parse().expect("a count")).collect()
    }

    /// Every key, but for the notes of its releases that a Redisson of version 3 leaves for some seconds.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys = self.admin.keys().await;
        if !self.has(CLEARS_AWAY) {
            keys.retain(|key| !key.starts_with("redisson_unlock_latch:"));
        }
        keys
    }

    /// Asserts that no key of a lock is left, except for those that Redisson leaves for some seconds: the notes of
    /// its releases.
    pub(crate) async fn is_clean(&self) {
        let known = |key: &String| {
            let kinds = ["lock:grants", "counter", "redisson_unlock_latch"];
            kinds.iter().any(|kind| key.starts_with(kind))
        };
        let clean = async || self.admin.keys().await.iter().all(known);
        eventually(SOON, "nothing is left", clean).await;
        self.nothing_is_eternal().await;
    }

    /// Asserts that no key of a lock stays for ever. Only the counter of the tokens may.
    pub(crate) async fn nothing_is_eternal(&self) {
        for key in self.admin.keys().await {
            let known = key == "lock:grants" || key.starts_with("counter");
            assert!(known || self.admin.pttl(&key).await != -1, "{key} never expires");
        }
    }
}

/// A client that shares its locks with Redisson.
pub(crate) async fn client(url: &str, watchdog: Duration) -> Client {
    let config = Config::default().layout(Layout::Redisson).watchdog_timeout(watchdog);
    // A server has little time to answer where the watchdog's is short. If the machine does not run it, callers ask again.
    let config = config.ride_out(USUAL);
    comes_in(url, config).await
}

/// Asserts that a call with a limit was not granted the lock. On a busy machine the limit may be over before the first answer.
pub(crate) fn not_in_time<T: Debug>(answer: parklock::Result<Option<T>>) {
    use parklock::Error::{Indeterminate, Unavailable};
    let over = matches!(answer, Ok(None) | Err(Unavailable { .. } | Indeterminate { .. }));
    assert!(over, "{answer:?}");
}

/// The guard of a waiter, which must come soon.
pub(crate) async fn granted(waiting: impl Future<Output = parklock::Result<Guard>>) -> Guard {
    timeout(AT_ONCE, waiting).await.expect("the wake-up comes").expect("the lock is granted")
}
