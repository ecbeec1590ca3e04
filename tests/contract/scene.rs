//! The scene of each test: a server, a proxy before it, clients on both sides, and an admin that looks at the keys.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex as Cell};
use std::time::Duration;

use parklock::{Client, Config, Error, Guard, Result};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::sleep;

use crate::common::fixture::{A_WHILE, SOON};
use crate::common::{Admin, Proxy, Site, eventually, timeout};
use crate::pair::{Mutex, Pair};

/// The keys that have no TTL, but those that stay and those of the test itself.
const ETERNAL: &str = "
    local eternal = {}
    for _, key in ipairs(redis.call('keys', '*')) do
      local stays = key:find('^lock:grants') or key:find('^test:') or key:find(ARGV[1]) or key:find(ARGV[2])
      if not stays and redis.call('pttl', key) == -1 then eternal[#eternal + 1] = key end
    end
    return eternal";

pub(crate) struct Scene {
    pub(crate) pair: Pair,
    pub(crate) admin: Admin,
    /// Behind the proxy.
    pub(crate) ours: Client,
    pub(crate) theirs: Client,
    pub(crate) proxy: Proxy,
    pub(crate) server: Site,
    eternal: Arc<Cell<BTreeSet<String>>>,
    looking: AbortHandle,
}

impl Scene {
    /// With leases of thirty seconds: if a lock is free much sooner, they have not freed it.
    pub(crate) async fn new(pair: Pair) -> Self {
        Self::with(pair, Config::default()).await
    }

    pub(crate) async fn with(pair: Pair, config: Config) -> Self {
        Self::apart(pair, config.clone(), config).await
    }

    /// With settings for our client, behind the proxy, and others for their client, to which nothing happens.
    pub(crate) async fn apart(pair: Pair, ours: Config, theirs: Config) -> Self {
        let server = Site::start().await;
        let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
        for (name, text) in pair.scripts {
            proxy.name_script(name, text);
        }
        let ours = pair.client(&proxy.url(), ours).await;
        let theirs = pair.client(&server.url(), theirs).await;
        if matches!(server, Site::Cluster(_)) {
            knows_the_way(&pair.of(&ours, "a")).await;
            knows_the_way(&pair.of(&theirs, "a")).await;
        }
        let eternal = Arc::default();
        let looking = tokio::spawn(look(server.admin().await, pair.stays(), Arc::clone(&eternal)))
            .abort_handle();
        Self { pair, admin, ours, theirs, proxy, server, eternal, looking }
    }

    /// For one more holder of ours.
    pub(crate) fn ours(&self) -> Mutex {
        self.pair.of(&self.ours, "a")
    }

    /// For one more holder of the other client.
    pub(crate) fn theirs(&self) -> Mutex {
        self.pair.of(&self.theirs, "a")
    }

    /// Nothing is left soon, long before a lease is over, and nothing ever was to stay.
    pub(crate) async fn is_clean(&self) {
        eventually(SOON, "no key is left", async || self.keys().await.is_empty()).await;
        self.nothing_stayed();
    }

    pub(crate) fn nothing_stayed(&self) {
        let eternal = self.eternal.lock().expect("no panic under it");
        assert!(eternal.is_empty(), "without a TTL at some time: {eternal:?}");
    }

    /// All keys, except for those that stay and for the test's own.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys = self.admin.keys().await;
        keys.retain(|key| {
            let stays = self.pair.counts() && !key.contains(':');
            let known = ["redisson_lock_token:", "test:"];
            !stays && key != "lock:grants" && !known.iter().any(|known| key.starts_with(known))
        });
        keys
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// A client of one server is connected before a test begins. That of a cluster connects to a node when it first needs it, which
/// on a busy machine takes longer than some calls have time.
async fn knows_the_way(mutex: &Mutex) {
    let answered = async || mutex.is_held().await.is_ok();
    eventually(SOON, "the node of this lock answers", answered).await;
}

/// Looks at all keys, again and again, for as long as the server is there.
async fn look(admin: Admin, [one, other]: [&str; 2], found: Arc<Cell<BTreeSet<String>>>) {
    while let Ok(eternal) = admin.try_cmd::<Vec<String>>(&["EVAL", ETERNAL, "0", one, other]).await
    {
        found.lock().expect("no panic under it").extend(eternal);
        sleep(Duration::from_millis(10)).await;
    }
}

/// Nothing that a test sees comes from the end of a lease, of a place or of a park.
pub(crate) fn only_told() -> Config {
    let long = Duration::from_secs(60);
    Config::default().watchdog_timeout(long * 2).waiter_ttl(long).max_park(long)
}

/// A waiting caller. If it is dropped, it gives up.
pub(crate) struct Waiter(JoinHandle<Result<Guard>>);

impl Waiter {
    /// Begins to wait for a lock that is held, and waits for a while.
    pub(crate) async fn parked(mutex: Mutex) -> Self {
        let waiter = Self::begin(mutex);
        sleep(A_WHILE).await;
        assert!(!waiter.0.is_finished(), "it is held");
        waiter
    }

    pub(crate) fn begin(mutex: Mutex) -> Self {
        Self(tokio::spawn(async move { mutex.lock().await }))
    }

    /// It gets it soon.
    pub(crate) async fn gets_it(self) -> Guard {
        self.ends().await.expect("the lock")
    }

    /// What comes of it, soon.
    pub(crate) async fn ends(mut self) -> Result<Guard> {
        soon(&mut self.0).await.expect("no panic")
    }
}

impl Deref for Waiter {
    type Target = JoinHandle<Result<Guard>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// It is free, or is so soon, and is given back.
pub(crate) async fn is_free_soon(mutex: Mutex) {
    soon(mutex.lock()).await.expect("the lock").unlock().await.expect("it is ours");
}

/// Now, without a wait, by whomever it is asked for.
pub(crate) async fn is_held(scene: &Scene) {
    is_held_as(scene, "a").await;
}

pub(crate) async fn is_held_as(scene: &Scene, name: &str) {
    for client in [&scene.ours, &scene.theirs] {
        let tried = soon(async {
            loop {
                match scene.pair.of(client, name).try_lock().await {
                    Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {
                        sleep(A_WHILE).await
                    }
                    tried => return tried.expect("an answer"),
                }
            }
        });
        assert!(tried.await.is_none(), "two hold it");
    }
}

/// What comes of it; it must come soon.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it ends soon")
}

/// Asserts the kind of an error, showing what else it is.
macro_rules! assert_err {
    ($result:expr, $kind:pat) => {
        match $result {
            Err($kind) => {}
            other => panic!("not {}: {other:?}", stringify!($kind)),
        }
    };
}
pub(crate) use assert_err;
