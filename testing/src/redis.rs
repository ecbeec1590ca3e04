//! The server, as a test sees it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parklock::streams::Dial;
use parklock::{Client, Config, Result};

use crate::port::Port;
use crate::process::Process;
use crate::stream::Stream;

/// What clients show as the server's URL.
const IN_PROCESS: &str = "redis://in-process";

/// A private, empty server in memory, with faults by name.
///
/// It answers within the poll that sends the request. Its time is Tokio's, and starts at the same moment in each test. One
/// server can have many clients. Use it from one runtime. Dropping it ends it: connections break, and new ones are refused.
///
/// ```
/// use parklock::{Config, Error};
/// use parklock_testing::Redis;
/// use std::time::Duration;
/// use tokio::time::advance;
///
/// # let paused = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
/// # paused().unwrap().block_on(async {
/// let redis = Redis::start();
/// let (ours, theirs) = (redis.client(Config::default()).await?, redis.client(Config::default()).await?);
/// let lease = Duration::from_secs(30);
/// let guard = ours.lock("orders:42").lease(lease).lock().await?;
/// assert!(theirs.lock("orders:42").try_lock().await?.is_none());
///
/// advance(lease + Duration::from_millis(1)).await; // at once
/// assert!(theirs.lock("orders:42").try_lock().await?.is_some());
/// assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: OnceLock<Port>,
}

impl Redis {
    /// Starts a server. It answers at once.
    ///
    /// ```
    /// let redis = parklock_testing::Redis::start();
    /// ```
    ///
    /// # Panics
    /// If the system has no thread for it.
    #[must_use = "dropping it ends the server"]
    pub fn start() -> Self {
        Self { process: Process::start(), port: OnceLock::new() }
    }

    /// A new client of this server, independent of the others like that of another process.
    ///
    /// ```
    /// # use parklock::Config;
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = redis.client(Config::default().namespace("billing")).await?;
    /// client.lock("orders:42").lock().await?.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// Same as [`Client::connect_with`].
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn client(&self, config: Config) -> Result<Client> {
        let process = self.process.clone();
        let dial = Dial(Arc::new(move |_, _| {
            let stream = Stream::open(&process);
            Box::pin(async move { Ok(Box::new(stream?) as Box<_>) })
        }));
        Client::connect_over(dial, IN_PROCESS, None, config).await
    }

    /// A URL for [`Client::connect`], for a service that connects by itself, and for clients in other languages. The first
    /// call opens a free port of the loopback interface. Sockets need time that runs: with a paused clock, an answer may
    /// come too late.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = parklock::Client::connect(redis.url()).await?;
    /// client.lock("orders:42").lock().await?.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Panics
    /// Outside a Tokio runtime with I/O enabled, or if the system has no free port.
    #[must_use]
    pub fn url(&self) -> String {
        let open = || Port::open(&self.process).expect("a free port of the loopback interface");
        format!("redis://{}", self.port.get_or_init(open).address)
    }

    /// The holders of this name are gone, in all namespaces. In production: an eviction, or somebody's `DEL`. In Redisson's layout, whose keys
    /// are names, a lock `orders:42` is taken for `42` in the namespace `orders`, too.
    ///
    /// A holder learns of it when it renews: after a third of its lease, it is [lost](parklock::Ended::Lost). Until then
    /// another client may hold the lock, too. Nobody tells the waiters: the first of them gets the lock when it asks again.
    ///
    /// ```
    /// # use parklock::{Config, Ended};
    /// # let paused = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # paused().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = redis.client(Config::default()).await?;
    /// let guard = client.lock("orders:42").lock().await?;
    /// redis.lose("orders:42");
    /// assert_eq!(guard.ended().await, Ended::Lost);
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Panics
    /// If nobody holds a lock of that name: then a test with a mistaken name would wait for a loss that never comes.
    #[track_caller]
    pub fn lose(&self, name: &str) {
        let lost = name.to_owned();
        let is_lost = self.process.call(move |host| host.lose(&lost));
        assert!(is_lost, "nobody holds a lock that is called {name:?}, so it cannot be lost");
    }

    /// All connections break, and new ones are let in. In production: a proxy or a firewall that drops its connections.
    ///
    /// Clients reconnect by themselves. A call that had no answer asks again, or returns
    /// [`Error::Unavailable`](parklock::Error::Unavailable). Locks stay held.
    ///
    /// ```
    /// # use parklock::Config;
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = redis.client(Config::default()).await?;
    /// let guard = client.lock("orders:42").lock().await?;
    /// redis.cut();
    /// assert!(guard.is_valid());
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn cut(&self) {
        self.process.call(|host| host.cut());
    }

    /// All connections break, and new ones are refused until [`allow`](Self::allow). In production: the server is down, or
    /// its address is wrong.
    ///
    /// Calls return [`Error::Unavailable`](parklock::Error::Unavailable), and those that wait do so after
    /// [`Config::ride_out`]. Guards are valid until their leases are over.
    ///
    /// ```
    /// # use parklock::{Config, Error};
    /// # let paused = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # paused().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = redis.client(Config::default()).await?;
    /// redis.refuse();
    /// let refused = client.lock("orders:42").lock().await;
    /// assert!(matches!(refused, Err(Error::Unavailable { .. })));
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn refuse(&self) {
        self.process.call(|host| host.refuse(true));
    }

    /// Lets clients in again, after [`refuse`](Self::refuse). The server has kept its keys.
    ///
    /// ```
    /// # use parklock::Config;
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// redis.refuse();
    /// redis.allow();
    /// redis.client(Config::default()).await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn allow(&self) {
        self.process.call(|host| host.refuse(false));
    }

    /// The server answers nothing for so long, and then carries out what has arrived meanwhile. Connections stay open. In
    /// production: a stopped process, a machine that swaps, or a script that runs for long.
    ///
    /// Calls return [`Error::Unavailable`](parklock::Error::Unavailable) or
    /// [`Error::Indeterminate`](parklock::Error::Indeterminate). A guard whose lease is over meanwhile is lost. A second call
    /// replaces the first, so [`Duration::ZERO`] ends the silence.
    ///
    /// ```
    /// # use parklock::{Config, Ended};
    /// # use std::time::Duration;
    /// # let paused = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # paused().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = redis.client(Config::default()).await?;
    /// let guard = client.lock("orders:42").lock().await?;
    /// redis.silent_for(Duration::from_secs(60));
    /// assert_eq!(guard.ended().await, Ended::Lost); // thirty seconds of the paused clock
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub fn silent_for(&self, time: Duration) {
        self.process.call(move |host| host.fall_silent(time));
    }

    /// The server starts again without keys. In production: a restart without persistence.
    ///
    /// Connections break, and clients reconnect. All locks are free. A holder learns of it when it renews. Tokens go on to
    /// grow, since they come from the server's clock.
    ///
    /// ```
    /// # use parklock::Config;
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = redis.client(Config::default()).await?;
    /// let guard = client.lock("orders:42").lock().await?;
    /// redis.restart_empty();
    /// let other = redis.client(Config::default()).await?;
    /// let later = other.lock("orders:42").lock().await?;
    /// assert!(later.token() > guard.token());
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn restart_empty(&self) {
        self.process.call(|host| host.restart_empty());
    }

    /// A replica takes over at the same address, without what was written in the last second. In production: a primary that
    /// died before its replica had everything.
    ///
    /// Connections break, and clients reconnect. A lock that was granted or renewed earlier is still held, up to the lease
    /// that the replica knows. A younger one is free, although its holder believes in it until it renews.
    ///
    /// ```
    /// # use parklock::Config;
    /// # use std::time::Duration;
    /// # let paused = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # paused().unwrap().block_on(async {
    /// let redis = parklock_testing::Redis::start();
    /// let client = redis.client(Config::default()).await?;
    /// let _old = client.lock("old").lock().await?;
    /// tokio::time::advance(Duration::from_secs(2)).await;
    /// let _young = client.lock("young").lock().await?;
    /// redis.fail_over();
    ///
    /// let other = redis.client(Config::default()).await?;
    /// assert!(other.lock("old").is_locked().await?);
    /// assert!(!other.lock("young").is_locked().await?);
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn fail_over(&self) {
        self.process.call(|host| host.fail_over());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.send(|host| host.refuse(true));
    }
}
