//! All settings, each with its default, reason and cost. `config/relations.rs` checks that they do not contradict each other,
//! `config/settings.rs` reads them from a file, and `config/environment.rs` from variables.

#[cfg(feature = "serde")]
mod environment;
mod relations;
#[cfg(feature = "serde")]
mod settings;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::credentials::{Credentials, Provider};
use crate::error::{Error, Result};
use crate::meters::Labels;
#[cfg(feature = "streams")]
use crate::streams::Dial;
#[cfg(feature = "tls")]
use crate::tls::Tls;

pub(crate) use relations::LONGEST_NAMESPACE;
#[cfg(feature = "serde")]
pub use settings::Settings;

/// The allowed range of a lease or an extension.
const LEASE: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(24 * 60 * 60);

pub(crate) fn longest_lease() -> Duration {
    *LEASE.end()
}

/// By how much later than wanted a server may notice that it has waited for its replicas for long enough: it looks ten times a
/// second.
const ACK_DELAY: Duration = Duration::from_millis(100);

/// A waiter gives three signs of life in this time, and each is a round trip. With a shorter time, waiters would do
/// nothing but ask.
const SHORTEST_LIFE: Duration = Duration::from_millis(50);

/// # Errors
/// [`Error::InvalidLease`] if the lease is not between 10 ms and 24 h.
pub(crate) fn checked_lease(lease: Duration) -> Result<Duration> {
    if LEASE.contains(&lease) { Ok(lease) } else { Err(Error::InvalidLease { lease }) }
}

/// How a [`Client`](crate::Client) behaves. The defaults suit most services.
///
/// With the feature `serde`, it can be read from a file as part of `Settings`. A setter checks nothing:
/// [`Client::connect_with`](crate::Client::connect_with) checks all settings together, and returns [`Error::Config`] if
/// one is out of its range.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// use parklock::{Client, Config};
/// use std::time::Duration;
///
/// let config = Config::default()
///     .watchdog_timeout(Duration::from_secs(10)) // a lock of a dead process is free after 10 s
///     .max_hold(Duration::from_secs(300)); // a forgotten guard loses its lock after 5 min
/// let client = Client::connect_with(&url, config).await?;
/// # drop(client);
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use = "a setter does not change the settings in place: it returns them"]
pub struct Config {
    pub(crate) watchdog_timeout: Duration,
    pub(crate) layout: Layout,
    /// The namespace and a colon, or nothing.
    pub(crate) prefix: String,
    pub(crate) hand_off: HandOff,
    pub(crate) keep: Duration,
    pub(crate) session: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) start_timeout: Duration,
    response_timeout: Option<Duration>,
    ride_out: Option<Duration>,
    pub(crate) max_park: Duration,
    waiter_ttl: Option<Duration>,
    pickup_timeout: Option<Duration>,
    pub(crate) subscription_linger: Duration,
    pub(crate) plain_channels: bool,
    pub(crate) max_waiters: usize,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) replicas: Replicas,
    ack_timeout: Option<Duration>,
    pub(crate) credentials: Option<Provider>,
    pub(crate) describe: Option<String>,
    /// The process that the description names: this one, unless it works for another one.
    pub(crate) pid: u32,
    pub(crate) labels: Labels,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    /// What opens streams in place of sockets.
    #[cfg(feature = "streams")]
    pub(crate) dial: Option<Dial>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog_timeout: Duration::from_secs(30),
            layout: Layout::Native,
            prefix: String::new(),
            hand_off: HandOff::default(),
            keep: Duration::ZERO,
            session: None,
            connect_timeout: Duration::from_secs(2),
            start_timeout: Duration::ZERO,
            response_timeout: None,
            ride_out: None,
            max_park: Duration::from_secs(10),
            waiter_ttl: None,
            pickup_timeout: None,
            subscription_linger: Duration::from_secs(5),
            plain_channels: false,
            max_waiters: 100_000,
            max_hold: None,
            replicas: Replicas::Count(0),
            ack_timeout: None,
            credentials: None,
            describe: None,
            pid: std::process::id(),
            labels: Labels::default(),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "streams")]
            dial: None,
        }
    }
}

impl Config {
    /// How long a lock stays held after its holder falls silent. Default 30 s, the default of Redisson's
    /// `lockWatchdogTimeout`.
    ///
    /// The watchdog renews a lock every third of this time, so two renewals in a row may fail. A shorter time frees the
    /// locks of a crashed process sooner; a longer one survives longer pauses and outages.
    ///
    /// Allowed: 100 ms to 24 h.
    pub fn watchdog_timeout(self, timeout: Duration) -> Self {
        Self { watchdog_timeout: timeout, ..self }
    }

    /// Which keys and channels to use. Default [`Layout::Native`].
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The part of the key space that belongs to this application. Default: none.
    ///
    /// Clients with different namespaces share a Redis and lock the same names without meeting each other: `billing` and
    /// `orders`, or `staging` and `test`. With the namespace `billing`, every key and every channel of the client begins
    /// with `billing:`. So the ACL rules `~billing:* &billing:*` confine the client to them. All clients that share locks
    /// need the same namespace. A client without one meets none that has one.
    ///
    /// With [`Layout::Redisson`] it does what Redisson's `NameMapper` does with a prefix: the lock `a` has Redisson's name
    /// `billing:a`, and its keys and channels are derived from that.
    ///
    /// Allowed: 1 to 64 bytes, without braces, blanks and control characters. An ACL reads `*`, `?`, `[` and `\` as parts of
    /// a pattern, and the rules of `billing` also cover `billing:eu`.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::{Client, Config};
    ///
    /// let billing = Client::connect_with(&url, Config::default().namespace("doc-billing")).await?;
    /// let orders = Client::connect_with(&url, Config::default().namespace("doc-orders")).await?;
    /// let ours = billing.lock("nightly").lock().await?;
    /// let theirs = orders.lock("nightly").try_lock().await?;
    /// assert!(theirs.is_some(), "it is another lock");
    /// # ours.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn namespace(self, namespace: impl AsRef<str>) -> Self {
        Self { prefix: format!("{}:", namespace.as_ref()), ..self }
    }

    /// How long a client may hand a lock from caller to caller before it offers the lock to other clients. Default: see
    /// [`HandOff`].
    pub fn hand_off(self, hand_off: HandOff) -> Self {
        Self { hand_off, ..self }
    }

    /// How long the client keeps a plain lock that its last holder has given back, for its own next caller. Default zero:
    /// the client gives each lock back at once.
    ///
    /// The next [`lock`](crate::Lock::lock) or [`try_lock`](crate::Lock::try_lock) of this client takes a kept lock without
    /// a request to the server, within about a microsecond. When another client asks for the lock, the server tells the
    /// client that keeps it, the *keeper*. The keeper gives an idle lock back at once. If one of its callers holds the lock,
    /// it gives the lock back when that caller leaves. Lock managers cache locks in the same way, for example that of
    /// OpenVMS. Use this setting if one process locks the same names again and again, and others seldom do.
    ///
    /// What it costs:
    ///
    /// - While a lock is kept, it is held for all other clients: `is_locked` is true, and another kind of lock with the
    ///   same name is an [`Error::Conflict`]. Neither makes the keeper give the lock back.
    /// - A client that waits gets an idle lock after two round trips, and the time in which both clients react.
    /// - A `try_lock` of another client asks again 2 to 50 ms after its first answer. Usually the keeper has given an idle
    ///   lock back by then; if not, the call returns `None`. The call also asks twice if a caller of the keeper holds the
    ///   lock. After such a call, the keeper does not keep that lock for 300 ms, so that it cannot refuse every call.
    /// - If the process dies, the locks that it keeps are free when their leases expire, like those that it holds.
    /// - The client subscribes to two channels for each plain lock that it takes. So do not use this setting in a client
    ///   that locks many names once each. The client keeps a lock only if the channels were live before it asked, so never
    ///   at the first use of a name. All its channels linger for this time or for
    ///   [`subscription_linger`](Self::subscription_linger), whichever is longer.
    /// - If the server forgets a lock and does not say so, for example in a failover of a cluster, the client notices that when the watchdog
    ///   renews the lock, at most a third of [`watchdog_timeout`](Self::watchdog_timeout) later. Until then it grants the
    ///   kept lock to its callers, and their `unlock` is `Ok`. A client that does not keep locks asks the server each time.
    ///
    /// While no other client wants a lock, the limits of [`hand_off`](Self::hand_off) do not apply: callers of this client
    /// hand the lock over until a token cannot count more hand-overs, 1,023 times for each grant.
    ///
    /// These are never kept: a lock with a fixed lease; a lock that `extend` has lengthened, as long as more than
    /// `watchdog_timeout` is left; fair locks, semaphores, read-write locks; the locks of a `MultiLock` or a `RedLock`;
    /// elections and jobs.
    ///
    /// Allowed: zero to 24 h. With [`Layout::Redisson`] it must be zero, since Redisson asks nobody to give up a lock.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::{Client, Config};
    /// use std::time::Duration;
    ///
    /// let client = Client::connect_with(&url, Config::default().keep(Duration::from_secs(1))).await?;
    /// let lock = client.lock("doc:kept");
    /// for _ in 0..1_000 {
    ///     let guard = lock.lock().await?; // soon without a request
    ///     // ...
    ///     guard.unlock().await?;
    /// }
    /// client.close().await; // gives back what it keeps
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn keep(self, time: Duration) -> Self {
        Self { keep: time, ..self }
    }

    /// Frees this client's locks soon after its process dies: within this grace, if somebody waits in line. Default: none. Without it,
    /// they are free when their leases end. A good grace is 3 s.
    ///
    /// Redis knows at once when a process dies: the connection on which the client listens for messages ends. With a
    /// session, the first waiter in line looks whether the holder's client still listens. If it has not listened for five sixths of the
    /// grace, the waiter gets the lock, however long the lease is. A process that stands still keeps its connection, and its locks until
    /// their leases are over. So do a process whose host dies, and one whose network is cut.
    ///
    /// What it means for a holder: the client hears itself every second or more often. If it has not heard itself for five sixths of
    /// the grace, since its connection has broken or the server does not answer, its holds are *suspended*: another client may
    /// take the lock soon. Then [`Guard::is_valid`](crate::Guard::is_valid) is `false`, and
    /// [`Guard::remaining`](crate::Guard::remaining) zero. But the lock is not lost yet: [`Guard::ended`](crate::Guard::ended) stays
    /// silent, and `run` goes on. When the client is connected again, it asks for all its holds at once. Each of them is then valid
    /// again, or lost, which `ended` reports. So check `is_valid` before each critical step, as always, and wait for what follows if it
    /// is `false`. `remaining` is never longer than the grace: it says for how long nobody else can have the lock whatever happens.
    ///
    /// What it costs:
    ///
    /// - Only a waiter in line looks. A [`try_lock`](crate::Lock::try_lock) alone finds the lock held until its lease is over.
    /// - This client publishes one message each second or more often, and hears it.
    /// - The first waiter in line for a lock of such a client asks six times within the grace once it rests, however long it waits:
    ///   with a grace of 3 s, up to twenty times in ten seconds, in place of once. So if ten thousand locks are held and waited for,
    ///   that costs twenty thousand requests a second.
    /// - A client that loses its connection for messages for longer than the grace may lose its locks. Without a session it keeps them. A
    ///   call that begins meanwhile waits up to [`response_timeout`](Self::response_timeout) for the connection. Then it may be
    ///   granted a lock that is suspended.
    ///
    /// All native kinds profit alike, and so do elections and jobs. A client without this setting takes the locks of clients that have
    /// it, in the same way. Clients of versions that do not know sessions do not, and wait for the lease. Behind a
    /// proxy that keeps the connection to the server when the process dies, the locks end with their leases.
    ///
    /// After a failover, a hold lasts for its lease until its client has come to the new primary. From then on it ends with the process again.
    ///
    /// The users of all clients need the permissions `+pubsub|numsub +info +get +del`. Without them, a waiter waits for the lease. In a cluster,
    /// [`Client::connect_with`](crate::Client::connect_with) refuses a session.
    ///
    /// Allowed: 1 s to the watchdog timeout. It must not be set together with [`replicas`](Self::replicas). With [`Layout::Redisson`] it must not be set, since Redisson looks at leases only.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::{Client, Config};
    /// use std::time::Duration;
    ///
    /// let grace = Duration::from_secs(3);
    /// let client = Client::connect_with(&url, Config::default().session(grace)).await?;
    /// let guard = client.lock("doc:session").lock().await?;
    /// assert!(guard.is_valid() && guard.remaining() < grace);
    /// guard.unlock().await?; // if the process were killed instead, the lock would be free after 3 s
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn session(self, grace: Duration) -> Self {
        Self { session: Some(grace), ..self }
    }

    /// How long it may take to open a connection and make it usable. Default 2 s.
    ///
    /// Behind Sentinel, the client asks the sentinels before each connection. That may take the same time again, but at
    /// most 1 s.
    ///
    /// Allowed: more than zero, up to 24 h.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: timeout, ..self }
    }

    /// How long [`Client::connect_with`](crate::Client::connect_with) tries again while no server is there. Default 0: the first
    /// failure is returned.
    ///
    /// With a time here, a service may start before Redis does: it waits, and says so in the log. Only failures that may pass are tried
    /// again: a wrong password or a URL that does not fit is returned at once. Each attempt has
    /// [`connect_timeout`](Self::connect_timeout), so the last one may end that much later.
    ///
    /// Allowed: up to 24 h.
    pub fn start_timeout(self, time: Duration) -> Self {
        Self { start_timeout: time, ..self }
    }

    /// How long to wait for one answer of the server. Default 2 s, or a quarter of
    /// [`watchdog_timeout`](Self::watchdog_timeout) if that is less.
    ///
    /// A shorter time detects a stopped server sooner; a time that is too short mistakes a slow server for a dead one.
    ///
    /// Allowed: 1 ms to a quarter of the watchdog timeout, so that an unanswered renewal can be repeated in time.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        Self { response_timeout: Some(timeout), ..self }
    }

    /// How long a call keeps trying while the server is unreachable, before it returns [`Error::Unavailable`]. Default:
    /// the watchdog timeout. The caller's own time limit takes precedence. Allowed: any time, also zero; more than a
    /// year counts as a year.
    ///
    /// A change of a latch or a notification that may have been carried out is repeated for five minutes at most: the
    /// server has to remember it meanwhile, so that it counts once.
    pub fn ride_out(self, time: Duration) -> Self {
        Self { ride_out: Some(time), ..self }
    }

    /// The longest time before one waiter of each client asks again for a name, even if the holder's TTL is longer. Default
    /// 10 s.
    ///
    /// This time bounds the delay if a message is lost. The cost is one request per client and awaited lock in this
    /// time. If the lease of the holder is shorter, there are a few requests more. Clients with different values keep
    /// their places in the line.
    ///
    /// Allowed: 10 ms to 24 h.
    pub fn max_park(self, time: Duration) -> Self {
        Self { max_park: time, ..self }
    }

    /// How long a waiter near the front of a line counts as alive without a sign of life. Default 1 s, or a quarter of
    /// the watchdog timeout if that is less, but at least 50 ms.
    ///
    /// A waiter that comes near the front sends three signs of life in this time, and then fewer and fewer. Each is one
    /// request. So this time must be longer than three round trips, or waiters lose their places. A shorter time skips
    /// dead waiters sooner, and costs more requests. Time in which the server stalls does not count: see
    /// [`Client::fair_lock`](crate::Client::fair_lock).
    ///
    /// A line waits for a silent waiter as long as *its* client says here. So a process with a long time delays all
    /// others, when it dies near the front.
    ///
    /// Allowed: 50 ms to half of the watchdog timeout, and at most ten minutes.
    pub fn waiter_ttl(self, time: Duration) -> Self {
        Self { waiter_ttl: Some(time), ..self }
    }

    /// How long the client waits for a caller to poll its future, once that caller has been given the lock or told that
    /// its turn has come. After that, the client serves other callers, and the caller waits again once it is polled.
    /// Default: the same as [`waiter_ttl`](Self::waiter_ttl).
    ///
    /// Allowed: 1 ms to half of the watchdog timeout.
    pub fn pickup_timeout(self, time: Duration) -> Self {
        Self { pickup_timeout: Some(time), ..self }
    }

    /// How long a subscription outlives its last waiter. Default 5 s.
    ///
    /// It saves a busy lock a SUBSCRIBE and UNSUBSCRIBE for every wait, and costs about 200 bytes of the server's
    /// memory.
    ///
    /// Allowed: zero to 24 h.
    pub fn subscription_linger(self, time: Duration) -> Self {
        Self { subscription_linger: time, ..self }
    }

    /// Set this for a cluster shared with a Redisson that does not use sharded channels: versions before 3.29, or with
    /// `shardedSubscriptionMode: OFF`. Default `false`.
    ///
    /// Redis and Valkey have sharded channels (redis.io, *Sharded Pub/Sub*) from version 7 on, and by default both
    /// libraries use them. With `true`, this client listens on cluster-wide channels and publishes on both kinds. Every
    /// Redisson hears it, and it hears the Redissons named above. Without this setting, the two sides do not hear each
    /// other: a waiter notices a free lock only when the lock's TTL is over, and Redisson waits for a semaphore or a
    /// latch forever. The cost: each release goes to all nodes. The setting has no effect on other servers, or with
    /// [`Layout::Native`].
    pub fn plain_channels(self, plain: bool) -> Self {
        Self { plain_channels: plain, ..self }
    }

    /// How many callers may wait in this client at once, for all locks together. Default 100,000. A caller beyond this
    /// limit gets [`Error::TooManyWaiters`]. Allowed: at least 1.
    pub fn max_waiters(self, waiters: usize) -> Self {
        Self { max_waiters: waiters, ..self }
    }

    /// The longest time for which the watchdog renews one lock. Default: as long as the lock is held.
    ///
    /// After this time the watchdog stops renewing, and the lock is lost when its current lease expires, even if its
    /// holder takes it again and again. This ends a forgotten guard; it also ends work that merely takes longer. A
    /// caller that explicitly asks for more time, with [`Guard::extend`](crate::Guard::extend) or a fixed lease, still
    /// gets it.
    ///
    /// Allowed: at least the watchdog timeout.
    pub fn max_hold(self, time: Duration) -> Self {
        Self { max_hold: Some(time), ..self }
    }

    /// Which replicas must acknowledge a grant before it counts: a number of them, or [`Replicas::Connected`]. Default 0: the primary
    /// alone decides.
    ///
    /// With `n` replicas, each grant, each renewal, each [`Guard::extend`](crate::Guard::extend) and each nested hold
    /// is followed by `WAIT n` on a separate connection. If fewer than `n` acknowledge within
    /// [`ack_timeout`](Self::ack_timeout), the client releases the grant, and the call tries again until
    /// [`ride_out`](Self::ride_out) is over. Then the call returns [`Error::Unavailable`], which says how many replicas
    /// acknowledged; `try_lock` returns it at once. The same holds for what nobody holds: a notification of a condition, a
    /// change of a latch, the claim of an interval, `set_permits` and `force_unlock`. A renewal that was not acknowledged
    /// does not move the deadline: the guard ends ([`Guard::ended`](crate::Guard::ended)) when its last acknowledged lease
    /// expires.
    ///
    /// What this prevents depends on `n`:
    ///
    /// - `n` is the number of *all* replicas: a replica without the grant cannot be promoted. A primary that does not know
    ///   that it was replaced can grant nothing once one of its replicas has left it. The cost: while one replica is
    ///   down, nothing is granted.
    /// - `n` is less: grants continue while a replica is down. Both dangers get smaller, but remain. A failover may
    ///   promote a replica that was not among the `n`, since Sentinel ranks `replica-priority` above how much data a
    ///   replica has. And a replaced primary may still grant a lock while it has `n` other replicas.
    /// - [`Replicas::Connected`]: `n` is what the primary counts when it answers. Nothing has to be told when replicas come or go. A
    ///   replica whose connection has ended stops nothing; one that hangs stops everything until the primary gives it up
    ///   (`repl-timeout`, by default a minute). Nobody waits for a replica that has left, even if it was just promoted: a primary that does
    ///   not know that it was replaced goes on granting with those that remain, or alone.
    ///
    /// This setting does not replace the [`FencingToken`](crate::FencingToken): as the manual of
    /// [`WAIT`](https://redis.io/docs/latest/commands/wait/) says, it does not make Redis a strongly consistent store.
    /// Redis may lose acknowledged data if replicas restart without it, and nothing stops a process that sleeps through
    /// its lease. A release is never acknowledged: if a failover forgets one, the lock stays blocked for one lease.
    ///
    /// The cost is one round trip from the primary to its replicas for each grant, and for each attempt that finds the
    /// lock held. With a number, while a replica is down, an attempt takes as long as [`ack_timeout`](Self::ack_timeout). Requests
    /// that arrive at the same time share one `WAIT`. Passing a lock from caller to caller within this client is not
    /// slower, but a grant that arrives by message costs one more request. The Redis user needs the permission `+wait`, and `+info` for
    /// [`Replicas::Connected`].
    ///
    /// ```no_run
    /// # async fn connected() -> Result<(), parklock::Error> {
    /// use parklock::{Client, Config};
    ///
    /// // A primary with two replicas: both have a grant before anybody works under it.
    /// let config = Config::default().replicas(2);
    /// let client = Client::connect_with("redis-sentinel://s1,s2,s3/orders", config).await?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    pub fn replicas(self, replicas: impl Into<Replicas>) -> Self {
        Self { replicas: replicas.into(), ..self }
    }

    /// How long replicas have to acknowledge a grant, if [`replicas`](Self::replicas) is not 0. Default 500 ms, or half
    /// of [`response_timeout`](Self::response_timeout) if that is less, or 100 ms less than it if that is still less.
    /// Allowed: at least 1 ms, and at least 100 ms less than the response timeout. So with replicas, the watchdog timeout
    /// has to be 404 ms or more.
    ///
    /// The server may take about 100 ms longer, since it looks for expired waits ten times a second. A shorter time gives
    /// up sooner while a replica is down. A time that is too short gives up grants that a slow replica was about to
    /// acknowledge.
    pub fn ack_timeout(self, timeout: Duration) -> Self {
        Self { ack_timeout: Some(timeout), ..self }
    }

    /// Provides the user name and password for each connection, instead of those in the URL. Default: those in the URL.
    ///
    /// Use it for tokens that live for minutes, such as those of AWS IAM, and for passwords that change while services
    /// run. The client calls the provider for each connection that it opens, and again when three quarters of
    /// [`Credentials::valid_for`] are over. Then it sends `AUTH` on the live connection, which interrupts nothing. If
    /// the server refuses or does not answer, the connection continues as it is, and the client asks again soon.
    ///
    /// A call of the provider counts toward [`connect_timeout`](Self::connect_timeout), and runs on the client's
    /// runtime. Several connections may call it at once: if a call is expensive, let the provider cache its answer. The
    /// provider's errors appear in [`Error::Unavailable`] and in the log, so they must not contain a secret. The
    /// credentials are for the servers that store the locks; the URL has those for the sentinels.
    ///
    /// A provider that panics has failed, like one that returns an error, and so has one that does not answer within
    /// `connect_timeout`: the client calls it again for its next attempt. It must not block its thread: use
    /// [`spawn_blocking`](tokio::task::spawn_blocking) for work that blocks.
    ///
    /// ```
    /// use std::time::Duration;
    /// use parklock::{Config, Credentials};
    ///
    /// async fn token() -> Result<Credentials, std::io::Error> {
    ///     let token = tokio::fs::read_to_string("/run/secrets/redis").await?;
    ///     Ok(Credentials::new(token.trim()).user("app").valid_for(Duration::from_secs(900)))
    /// }
    /// let config = Config::default().credentials(token);
    /// # let _ = config;
    /// ```
    ///
    /// # Errors
    /// [`Client::connect_with`](crate::Client::connect_with) returns [`Error::Config`] if the URL also has a user or a
    /// password, [`Error::Unavailable`] if the provider fails or takes too long, and [`Error::Permission`] if the
    /// server refuses the credentials.
    pub fn credentials<P, A, E>(self, provider: P) -> Self
    where
        P: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let provider = Provider::new(move || {
            let asked = provider();
            Box::pin(async move { asked.await.map_err(|error| Arc::from(error.into())) })
        });
        Self { credentials: Some(provider), ..self }
    }

    /// Writes to Redis who this client is, so that an operator can tell who holds a lock. Default: the client writes
    /// nothing.
    ///
    /// `app` is the name of the program: at most 64 letters, digits and `.`, `_`, `-`, `:`, `/`, `@`. The client writes
    /// it to `lock_client:{<id>}`, with the host name (on Linux), the process id and the time of connecting. The key expires
    /// after 15 s, and the client rewrites it every 5 s. Each connection has the name `parklock:<app>` in `CLIENT LIST`. The
    /// command line tool shows all this next to the locks that the client holds or waits for.
    ///
    /// This is informational only: nothing depends on it, and a client without the permission to write it works as
    /// usual. The Redis user needs the permissions `+set +client|setname ~lock_client:*`. In a cluster, the key may
    /// cost the client a connection to one more node.
    ///
    /// ```
    /// let config = parklock::Config::default().describe("billing");
    /// # let _ = config;
    /// ```
    pub fn describe(self, app: impl Into<String>) -> Self {
        Self { describe: Some(app.into()), ..self }
    }

    /// Derives the metrics label `lock` from a lock's name (feature `metrics`). Default: no such label.
    ///
    /// The client calls the function with the name of the lock each time a handle is made. Map names to a few labels:
    /// each label is a separate time series in seven metrics, and is never forgotten. `None` means no label. If
    /// the function panics, so does the call that makes the handle.
    ///
    /// ```
    /// let config = parklock::Config::default().label(|name| Some(name.split(':').next()?.to_owned()));
    /// # let _ = config; // `orders:42` and `orders:43` are counted together, as `lock="orders"`.
    /// ```
    #[cfg(feature = "metrics")]
    pub fn label(self, of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { labels: Labels::new(of), ..self }
    }

    /// The certificates for a `rediss://` URL (feature `tls`). Default: public root certificates, and no client
    /// certificate. [`Tls`] has an example.
    ///
    /// # Errors
    /// [`Client::connect_with`](crate::Client::connect_with) returns [`Error::Config`] if the URL is not encrypted, or
    /// if something that should be PEM is not.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// See [`namespace`](Self::namespace).
    pub(crate) fn in_namespace(&self) -> Option<&str> {
        self.prefix.strip_suffix(':')
    }

    pub(crate) fn response(&self) -> Duration {
        self.response_timeout
            .unwrap_or_else(|| Duration::from_secs(2).min(self.watchdog_timeout / 4))
    }

    /// For how long waiters see nobody listen before they take a lock: so much less than the grace that a look, of which there are
    /// five in this time, and the answer to it fit into the grace.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let millis = |grace: Duration| grace.as_millis() / 6 * 5;
        let patience = self.session.map(millis)?;
        Some(Duration::from_millis(u64::try_from(patience).unwrap_or(u64::MAX)))
    }

    pub(crate) fn acks(&self) -> Duration {
        self.ack_timeout.unwrap_or_else(|| {
            let latest = self.response().saturating_sub(ACK_DELAY);
            Duration::from_millis(500).min(self.response() / 2).min(latest)
        })
    }

    pub(crate) fn life(&self) -> Duration {
        self.waiter_ttl.unwrap_or_else(|| {
            (self.watchdog_timeout / 4).clamp(SHORTEST_LIFE, Duration::from_secs(1))
        })
    }

    /// How long a channel outlives its last waiter. A client that keeps locks needs the channels of a name when it next asks
    /// for it.
    pub(crate) fn linger(&self) -> Duration {
        self.subscription_linger.max(self.keep)
    }

    pub(crate) fn pickup(&self) -> Duration {
        self.pickup_timeout.unwrap_or_else(|| self.life())
    }

    pub(crate) fn riding_out(&self) -> Duration {
        // A year is as good as forever, and adding it to a time does not overflow.
        self.ride_out.unwrap_or(self.watchdog_timeout).min(Duration::from_secs(365 * 24 * 60 * 60))
    }
}

/// Which keys and channels a client uses: see [`Config::layout`]. [`Redisson`](crate::Redisson) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// parklock's own: `lock:{name}` and `lock_channel:{name}`, for every name. In a database other than 0, the channel
    /// has the database number: `lock_channel:3:{name}`.
    #[default]
    Native,
    /// Redisson's (Java), so that Java and Rust programs share locks: `name` and `redisson_lock__channel:{name}`. In a
    /// cluster, a name whose keys Redisson would spread over several slots is an [`Error::InvalidName`].
    Redisson,
}

/// Which replicas must acknowledge a grant: see [`Config::replicas`].
///
/// ```
/// use parklock::{Config, Replicas};
///
/// let config = Config::default().replicas(Replicas::Connected);
/// # let _ = config;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replicas {
    /// So many, whichever they are. With 0, the primary alone decides.
    Count(u32),
    /// All that are connected to the primary when it answers, and have been sent their copy of its data. Until such a replica has
    /// loaded that copy, nothing is granted. This is Redisson's default, except that one replica is enough for Redisson.
    ///
    /// Requests take [`ack_timeout`](Config::ack_timeout) once when a replica leaves, and may take it once more each time that one joins.
    Connected,
}

impl Replicas {
    /// Whether the primary alone decides.
    pub(crate) fn is_none(self) -> bool {
        self == Self::Count(0)
    }
}

impl From<u32> for Replicas {
    fn from(count: u32) -> Self {
        Self::Count(count)
    }
}

/// How often and for how long a client may hand a lock over among its own callers: see [`Config::hand_off`].
///
/// If a caller of the same client waits, a release needs no request. The limits let other clients have their turns. This
/// is lock cohorting (David Dice, Virendra Marathe and Nir Shavit, *Lock Cohorting*, 2012), with clients as cohorts.
///
/// ```
/// use parklock::{Config, HandOff};
///
/// // Every release offers the lock to all clients.
/// let config = Config::default().hand_off(HandOff { max_consecutive: 0, ..HandOff::default() });
/// # let _ = config;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOff {
    /// The most hand-overs in a row, at most 1,023. A fair lock is handed over at most 64 times in a row, even if this
    /// number is greater. With 0, every holder releases the lock to Redis. Default 256.
    ///
    /// A greater number is faster, but other clients wait longer.
    pub max_consecutive: u32,
    /// How long the client may hand the lock from caller to caller. Default 2 ms. Every value is valid.
    pub max_time: Duration,
}

impl Default for HandOff {
    fn default() -> Self {
        Self { max_consecutive: 256, max_time: Duration::from_millis(2) }
    }
}
