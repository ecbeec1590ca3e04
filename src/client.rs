//! The client: connects, makes handles, closes. `client/builder.rs` says to which server.

mod builder;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
#[cfg(feature = "serde")]
use crate::config::Settings;
use crate::engine::{Engine, Holds};
use crate::error::Result;
use crate::fleet::{Election, Every};
use crate::kinds::Kind;
use crate::locks::{
    Condition, CountDownLatch, Lock, MultiLock, Redisson, ReentrantLock, RwLock, Semaphore,
};

pub use builder::ClientBuilder;

/// A client of one Redis server, of a primary behind Sentinel, or of a Redis Cluster: the source of all locks.
///
/// The client keeps two connections to each server in use, or three with [`Config::replicas`], however many locks and
/// waiters there are. Behind Sentinel, it keeps one more: to a sentinel. It also runs a few background tasks on the
/// runtime on which it connected. Clones are cheap and share everything: connect once per process and clone.
///
/// If this runtime ends, the client is closed. Handles and guards keep the client alive. When the last handle and guard
/// is dropped, the client finishes the releases in flight and ends its tasks.
///
/// A copy of a running process (a snapshot that is started twice) has the same client, and Redis takes both for one: both
/// may be granted the same lock. Connect after the snapshot is restored. See `docs/guarantees.md`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// use parklock::{Client, Error};
///
/// let client = Client::connect(&url).await?;
/// let clone = client.clone(); // the same client: no second connection
/// tokio::spawn(async move {
///     clone.lock("doc:client").run(|_| async { /* the critical section */ }).await
/// }).await.unwrap()?;
///
/// client.close().await; // for all clones
/// assert!(matches!(client.lock("doc:client").lock().await, Err(Error::Closed)));
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
}

impl Client {
    /// Connects to `redis://[user:password@]host[:port][/database]`, `rediss://...` (feature `tls`)
    /// or `redis+unix:///path?db=0&user=...&pass=...`.
    ///
    /// A Redis Cluster is `redis-cluster://[user:password@]host1[:port],host2[:port][/database]`, or
    /// `rediss-cluster://...`. The hosts are some of its nodes; at least one must answer. The client discovers the others,
    /// and connects to a node when it first needs a lock there. Clusters of Valkey 9 or later may have several databases,
    /// as many as `cluster-databases` says on each node; all others have database 0 alone.
    ///
    /// A primary behind Sentinel is `redis-sentinel://[user:password@]host1[:port],host2[:port]/service[/database]`, or
    /// `rediss-sentinel://...`, also written `redis+sentinel://...`. The hosts are the sentinels, by default at port
    /// 26379. The service is the sentinels' name for the primary; the option `sentinelMasterId` can also name it. User
    /// and password are for the primary. The options `sentinelUsername` and `sentinelPassword`, percent-encoded, are
    /// for the sentinels.
    ///
    /// The client asks all sentinels for the primary's address before each connection, and subscribes to one sentinel.
    /// When a primary is replaced, the client leaves it. The client learns of a failover about a second after it. Until
    /// then the old primary may grant locks that the new one does not know: see [`Config::replicas`]. If no sentinel
    /// answers any more, the client stays with the primary that it knows. Name all sentinels in the URL: a sentinel
    /// that was cut off may name an old primary, and the client believes it if no other sentinel answers.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.lock("doc:connect").lock().await?;
    /// guard.unlock().await?;
    /// client.close().await;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the URL cannot be parsed or does not fit the server (the error names
    /// the URL that does), or if the sentinels that answer do not know the service.
    /// [`Error::Permission`](crate::Error::Permission) if the server refuses the password.
    /// [`Error::Unavailable`](crate::Error::Unavailable) if, within [`Config::connect_timeout`], the server cannot be
    /// reached, is not a primary, or no sentinel answers.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::connect_with(url, Config::default()).await
    }

    /// Connects with your own settings. [`Config`] has an example.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// Same as [`connect`](Self::connect). [`Error::Config`](crate::Error::Config) also if two settings contradict each
    /// other; the error names them.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    pub async fn connect_with(url: impl AsRef<str>, config: Config) -> Result<Self> {
        Self::builder().url(url.as_ref()).config(config).connect().await
    }

    /// Makes a client piece by piece. For a service that has a `redis::Client`, and does not want to say its server twice:
    /// `ClientBuilder::redis_1`, with the feature `redis-1`.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::{Client, Config};
    ///
    /// let config = Config::default().namespace("billing");
    /// let client = Client::builder().url(url).config(config).connect().await?;
    /// # drop(client);
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Connects with the URL and the settings that variables of the environment name: `PARKLOCK_URL`, `PARKLOCK_NAMESPACE` and so
    /// on. [`Settings::from_env`](crate::Settings::from_env) has all of them, and lets a program add its own settings.
    ///
    /// ```no_run
    /// # async fn connected() -> Result<(), parklock::Error> {
    /// // PARKLOCK_URL=redis://redis:6379 PARKLOCK_WATCHDOG_TIMEOUT=10s
    /// let client = parklock::Client::from_env().await?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// Same as [`Settings::from_env`](crate::Settings::from_env) and [`connect_with`](Self::connect_with).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    #[cfg(feature = "serde")]
    pub async fn from_env() -> Result<Self> {
        let Settings { url, config } = Settings::from_env()?;
        Self::connect_with(url, config).await
    }

    /// Makes a client without waiting for its first connection, which it opens in the background.
    ///
    /// The service may start while Redis is away. A call then keeps trying for [`Config::ride_out`], as it does when a
    /// connection is lost. What [`connect_with`](Self::connect_with) reports about the server (its password, its version, whether it is
    /// a cluster), the calls report. [`Config::start_timeout`] is the way to wait for Redis instead.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::{Client, Config};
    ///
    /// let client = Client::connect_lazy(&url, Config::default())?;
    /// client.lock("doc:connect_lazy").lock().await?.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the URL cannot be parsed, or if two settings contradict each other.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    pub fn connect_lazy(url: impl AsRef<str>, config: Config) -> Result<Self> {
        Self::builder().url(url.as_ref()).config(config).connect_lazy()
    }

    /// A client over streams that `dial` opens to the servers of this URL: see [`streams`](crate::streams). It has this id, or one
    /// of its own.
    ///
    /// # Errors
    /// Same as [`connect_with`](Self::connect_with).
    #[cfg(feature = "streams")]
    #[doc(hidden)]
    pub async fn connect_over(
        dial: crate::streams::Dial,
        url: &str,
        id: Option<String>,
        mut config: Config,
    ) -> Result<Self> {
        config.dial = Some(dial);
        let endpoint = crate::wire::Endpoint::Url(url.to_owned());
        Ok(Self { engine: Engine::connect(&endpoint, id, config).await? })
    }

    /// An exclusive lock: one guard holds it at a time. Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; the first call reports an invalid name.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock::new(self.engine.another(), Kind::Lock, name.into())
    }

    /// A lock that is granted first come, first served, across all clients and tasks.
    ///
    /// [`lock`](Self::lock) is fair enough for most programs: a client serves its callers in order, and clients take
    /// turns. For a fair lock, the server keeps one order of all callers of all clients. So each caller costs a request,
    /// while a caller of a plain lock often costs none. A client passes the lock from one of its callers to another only
    /// if nobody stands between the two in the server's order, and within
    /// [`Config::hand_off`](crate::Config::hand_off).
    ///
    /// A waiter that comes near the front of the line shows three signs of life within
    /// [`Config::waiter_ttl`](crate::Config::waiter_ttl), and then fewer and fewer. When the turn of a silent waiter
    /// comes, the server asks it for a sign. If it shows none within `waiter_ttl`, the server skips the waiter. The
    /// waiter gets its place back when it asks again. A release grants the lock to the head of the line in the same
    /// step, and notifies that waiter.
    ///
    /// While the server stalls, no waiter can show a sign, and no place expires: a pause, a long script or a restart
    /// that keeps the data does not change the order. A waiter whose request goes unanswered keeps the last
    /// place that the server reported to it. While a waiter is silent for longer than `waiter_ttl`, the server serves
    /// others. After a restart of the server, a client may need more than a second to reconnect: choose a longer
    /// `waiter_ttl` if the order must survive that.
    ///
    /// In [`Layout::Redisson`](crate::Layout::Redisson) the lock is Redisson's `RFairLock`, and the line follows its
    /// rules. A dead Java waiter delays the others for minutes. A dead parklock waiter delays them for seconds, or for
    /// a minute if a Java waiter ahead of it has died or given up. A waiter whose request goes unanswered goes to the
    /// end of the line there.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; the first call reports an invalid name. A name belongs to one kind: using
    /// a name for both a lock and a fair lock is an [`Error::Conflict`](crate::Error::Conflict) (in Redisson's layout,
    /// the two exclude each other).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let (fair, served) = (client.fair_lock("doc:fair"), std::cell::RefCell::new(Vec::new()));
    /// let turn = async |number| {
    ///     let guard = fair.lock().await?;
    ///     served.borrow_mut().push(number);
    ///     guard.unlock().await
    /// };
    /// tokio::try_join!(turn(1), turn(2), turn(3))?; // they ask in this order
    /// assert_eq!(*served.borrow(), [1, 2, 3]);
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn fair_lock(&self, name: impl Into<String>) -> Lock {
        Lock::new(self.engine.another(), Kind::Fair, name.into())
    }

    /// A read-write lock: many readers or one writer. Making the handle does no I/O.
    ///
    /// Each guard is its own owner, as with [`lock`](Self::lock). [`RwLock::reentrant`] and [`RwLock::owned_by`] make a
    /// handle whose owner may lock again.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; the first call reports an invalid name.
    pub fn rw_lock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.engine.another(), name.into())
    }

    /// A semaphore with this many permits, shared by all processes. Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8, and the number is 1 to 2^30 - 1. The first call reports an invalid name or
    /// number.
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Semaphore {
        Semaphore::new(self.engine.another(), Kind::Semaphore { permits }, name.into())
    }

    /// Handles that exist only to share locks between Java and Rust programs. They differ from the usual handles only
    /// in [`Layout::Redisson`](crate::Layout::Redisson).
    #[must_use = "it makes handles, and does nothing else"]
    pub fn redisson(&self) -> Redisson {
        Redisson::new(self.engine.another())
    }

    /// A count that callers count down to zero while others wait for zero. Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; the first call reports an invalid name.
    pub fn count_down_latch(&self, name: impl Into<String>) -> CountDownLatch {
        CountDownLatch::new(self.engine.another(), name.into())
    }

    /// A condition variable: the holder of a lock waits until another process notifies it. See
    /// [`Guard::wait`](crate::Guard::wait). Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8, and not that of the lock; the first call reports an invalid name.
    pub fn condition(&self, name: impl Into<String>) -> Condition {
        Condition::new(self.engine.another(), name.into())
    }

    /// A re-entrant lock: its owner may take it again. Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; the first call reports an invalid name.
    pub fn reentrant_lock(&self, name: impl Into<String>) -> ReentrantLock {
        ReentrantLock::new(self.engine.another(), name.into())
    }

    /// Several locks at once: all of them or none. Making the handle does no I/O.
    ///
    /// Each name is the name of a [`lock`](Self::lock). The order does not matter, and a repeated name counts once.
    /// There may be 1 to 1,000 names; the first call reports an invalid list.
    pub fn multi_lock<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.lock(name)))
    }

    /// A candidate in the election of a leader. A fleet has at most one leader at a time. Making the handle does no
    /// I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; the first call reports an invalid name. The leader holds the
    /// [`lock`](Self::lock) of that name.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.engine.another(), name.into())
    }

    /// A job that one process of a fleet does in each period of 10 ms to 366 days. Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; the first call reports an invalid name. A run holds the
    /// [`lock`](Self::lock) of that name.
    pub fn every(&self, name: impl Into<String>, period: Duration) -> Every {
        Every::new(self.engine.another(), name.into(), period)
    }

    /// What this client holds and waits for at this moment, for a page of the service that shows its state, or for its log.
    ///
    /// The call sends nothing and waits for nothing. It looks at each lock by itself, so a lock that changes hands meanwhile may
    /// be missing, or counted twice. Its time grows with the number of locks: about a microsecond for each.
    ///
    /// It shows what this client believes. Other clients, also those of the same process, are not in it:
    /// [`Lock::is_locked`](crate::Lock::is_locked) asks the server, and the command line tool shows all holders.
    /// A leader of an [`Election`](crate::Election) and a run of an [`Every`](crate::Every) hold the `lock` of their name. A
    /// caller whose future nobody polls may be missing.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.lock("doc:holds").lock().await?;
    ///
    /// let holds = client.holds();
    /// for held in &holds.held {
    ///     println!("{} {} for {:?}, valid for {:?}", held.kind, held.name, held.held_for, held.remaining);
    /// }
    /// for awaited in &holds.awaited {
    ///     println!("{} callers wait for {} {}", awaited.callers, awaited.kind, awaited.name);
    /// }
    /// assert_eq!(holds.held[0].token, Some(guard.token()));
    /// # guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    #[must_use = "it changes nothing"]
    pub fn holds(&self) -> Holds {
        self.engine.holds()
    }

    /// Waits until no caller of this client holds or waits for anything, nor changes a latch or notifies a condition, but not
    /// longer than `limit`, and then [closes](Self::close) the client. Returns whether all holders and waiters had ended by themselves.
    /// Only the log says whether the server has confirmed the last releases.
    ///
    /// It is the end of a service: first stop what brings new work (as `axum::serve(..).with_graceful_shutdown(..)` does), then call
    /// `drain`. A request that was accepted is served to its end, even if it still waits for its lock, or takes another one. So `drain`
    /// refuses nobody: if new work keeps coming, it takes the whole `limit`. What has not ended then is closed: holders
    /// have lost their locks, and waiters get [`Error::Closed`](crate::Error::Closed).
    ///
    /// Guards of other clients of a [`RedLock`](crate::RedLock) or [`MultiLock`](crate::MultiLock) are waited for by those clients; a call
    /// that asks for such a lock, by all clients of its list.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use std::time::Duration;
    ///
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.lock("doc:drain").lock().await?;
    /// let work = tokio::spawn(async move {
    ///     tokio::time::sleep(Duration::from_millis(50)).await;
    ///     guard.unlock().await
    /// });
    /// assert!(client.drain(Duration::from_secs(10)).await);
    /// work.await.unwrap()?; // it had its lock to the end
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// A candidate of an [`Election`](crate::Election) waits, and a leader holds: end them first, or `drain` takes its whole limit.
    ///
    /// # Cancel safety
    /// As long as it waits for holders and waiters, a dropped future leaves the client open. After that: as [`close`](Self::close).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn drain(&self, limit: Duration) -> bool {
        let is_idle = self.engine.idle_within(limit).await;
        self.close().await;
        is_idle
    }

    /// Closes the client, for all of its clones.
    ///
    /// Waiters get [`Error::Closed`](crate::Error::Closed). The client releases everything that it holds. Its guards
    /// report a loss, and no guard is valid any more. Then `close` waits for every request that may have taken a lock,
    /// and for every release: unlocks in flight (they end as always), dropped guards, and calls that were cancelled
    /// before Redis answered. So when `close` returns, this client holds nothing, and its background tasks have ended.
    ///
    /// `close` takes at most one response timeout ([`Config::response_timeout`]). A lock whose release the server has
    /// not confirmed by then stays held until its lease expires. So does one whose request was cut off, and reaches the
    /// server only after `close` has asked there.
    ///
    /// [`Config::response_timeout`]: crate::Config::response_timeout
    ///
    /// # Cancel safety
    /// The first poll closes the client. If the future is dropped after that, closing continues in the background.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.engine.client).finish_non_exhaustive()
    }
}
