//! What both sides of the run must agree on.

use std::time::Duration;

use fastrand::Rng;
use parklock::{Config, Layout};

use crate::judge::rules;

/// Where the run takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// A primary with a replica, behind one address.
    Pair,
    /// Three primaries with a replica each. Grants count when so many replicas have them.
    Cluster { replicas: u32 },
    /// The same, or a primary with two replicas and three sentinels: each server and each worker is on a host of its own, and
    /// the network between them is cut. See `scripts/partitions`.
    Hosts { is_cluster: bool, replicas: u32 },
    /// As a pair, with the locks in Redisson's layout. Half of the workers are JVMs: see `java/`.
    Redisson,
    /// As a pair whose primary forgets nothing. Half of the clients have a session: their holds end with them, and not with their lease.
    Sessions,
}

impl Topology {
    pub fn is_cluster(self) -> bool {
        matches!(self, Self::Cluster { .. } | Self::Hosts { is_cluster: true, .. })
    }

    pub fn has_hosts(self) -> bool {
        matches!(self, Self::Hosts { .. })
    }

    /// How many replicas must have what is granted.
    fn replicas(self) -> u32 {
        match self {
            Self::Pair | Self::Redisson | Self::Sessions => 0,
            Self::Cluster { replicas } | Self::Hosts { replicas, .. } => replicas,
        }
    }

    /// How many hosts servers have.
    pub fn servers(self) -> usize {
        if self.is_cluster() { 6 } else { 3 }
    }

    pub fn workers(self) -> usize {
        if self.has_hosts() { 8 } else { 5 }
    }

    /// The worker that keeps a lock. No proxy stands before this one.
    pub fn keeper(self) -> usize {
        self.workers() - 1
    }

    /// Whether a failover can forget nothing that anybody was granted.
    pub fn is_acknowledged(self) -> bool {
        self.replicas() > 0
    }

    /// How long a free lock may keep somebody waiting in calm times. A grant may miss its acknowledgement twice. What a client with a
    /// session had when it died is free a grace after somebody asks for it.
    pub fn prompt(self) -> Duration {
        match self {
            Self::Sessions => PROMPT + GRACE,
            _ if self.is_acknowledged() => PROMPT + ACK * 2,
            _ => PROMPT,
        }
    }

    /// The longest lease of a watched lock.
    pub fn longest_lease(self) -> Duration {
        watched(self == Self::Sessions)
    }

    /// How long, in nanoseconds, what nobody knows may still take effect: no request of a run is late by more than a second, and
    /// then there is a lease.
    pub fn felt(self) -> u64 {
        nanos(self.longest_lease() + Duration::from_millis(1_300))
    }

    /// From the beginning of one bout to that of the next.
    fn period(self) -> Duration {
        Duration::from_secs(if self == Self::Sessions { 20 } else { 12 })
    }

    /// So long after a bout all that was broken must have mended. A worker may be stopped until five seconds after its end, and what
    /// the dead have is free two graces after it, even if the head of the line died with them.
    pub fn mended(self) -> Duration {
        Duration::from_millis(if self == Self::Sessions { 7_500 } else { 3_000 })
    }

    /// Whether something may be broken, so long after the start.
    pub fn is_bout(self, since: Duration) -> bool {
        since.as_nanos() % self.period().as_nanos() < BOUT.as_nanos()
    }

    /// Whether a server fault may be drawn, so long after the start.
    pub fn is_open_stage(self, since: Duration) -> bool {
        self.is_bout(since) && since.as_nanos() % self.period().as_nanos() >= OPENING.as_nanos()
    }

    /// When the bouts of a run begin.
    pub fn bouts(self, length: Duration) -> impl Iterator<Item = Duration> {
        let begin = move |bout| self.period() * bout;
        (0..).map(begin).take_while(move |begin| *begin + BOUT <= length)
    }

    /// Whether all that was broken must have mended.
    pub fn is_calm(self, since: Duration) -> bool {
        since.as_nanos() % self.period().as_nanos() >= (BOUT + self.mended()).as_nanos()
    }

    pub fn layout(self) -> Layout {
        if self == Self::Redisson { Layout::Redisson } else { Layout::Native }
    }

    /// As it stands on the command line.
    pub fn words(self) -> Vec<&'static str> {
        let mut words = match self {
            Self::Pair => vec![],
            Self::Redisson => vec!["--topology", "redisson"],
            Self::Sessions => vec!["--topology", "sessions"],
            Self::Cluster { .. } => vec!["--topology", "cluster"],
            Self::Hosts { is_cluster: true, .. } => {
                vec!["--topology", "hosts", "--servers", "cluster"]
            }
            Self::Hosts { .. } => vec!["--topology", "hosts", "--servers", "sentinel"],
        };
        if self.is_acknowledged() {
            words.extend(["--replicas", "all"]);
        }
        words
    }
}

/// The lease of a watched lock without a session. Short, so that the locks of the dead come back within the run.
pub const LEASE: Duration = Duration::from_millis(1_200);

/// The grace of a session.
pub const GRACE: Duration = Duration::from_secs(3);

/// The lease of a lock that ends with a session. It is renewed each ten seconds, and all that may go wrong in a row takes twelve. So it
/// never ends while its holder lives.
pub const SESSION_LEASE: Duration = Duration::from_secs(30);

/// The lease of a watched lock.
pub fn watched(in_session: bool) -> Duration {
    if in_session { SESSION_LEASE } else { LEASE }
}

/// For so long a waiter is known after a sign of life. What a message grants lasts no longer, until its client confirms it.
pub const WAITER_TTL: Duration = Duration::from_millis(100);

/// A fixed lease, or an extension, of at least so many milliseconds. It is shorter than a watched lease: then every deadline tells
/// when Redis last confirmed it.
pub fn drawn_lease(rng: &mut Rng, least: u64) -> Duration {
    let watched = u64::try_from(LEASE.as_millis()).expect("short");
    Duration::from_millis(rng.u64(least..watched))
}

/// A nested hold that asks for what is left of a lease brings its deadline nearer to the expiry. By so much may a
/// deadline be later than its last confirmation and the lease.
pub const SLACK: Duration = Duration::from_millis(30);

/// A line outlives its last sign of life by twice this.
pub const MAX_PARK: Duration = Duration::from_millis(600);

/// Nobody may wait longer than this for a lock, whatever happens.
pub const STUCK: Duration = Duration::from_secs(30);

pub const PROXIES: usize = 3;
pub const TASKS: usize = 12;

/// The first ones are the busy ones.
pub const LOCKS: [&str; 10] =
    ["hot", "warm", "busy{1}", "orders:42", "naïve", "a b", "50%", "stock", "quiet", "still"];

/// What is not a plain lock. One name is one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Fair,
    /// With Redisson's tokens, if it lies in Redisson's layout.
    Fenced,
    /// Read or written.
    Rw,
    /// A semaphore of so many permits.
    Permits(u32),
}

/// The rest of the family.
pub const FAMILY: [(&str, Kind); 6] = [
    ("in line", Kind::Fair),
    ("book", Kind::Rw),
    ("berths", Kind::Permits(3)),
    (BEHIND_JAVA, Kind::Fair),
    ("key", Kind::Permits(1)),
    (FENCED, Kind::Fenced),
];

/// What kind a name is, if it is not a plain lock.
pub fn kind_of(name: &str) -> Option<Kind> {
    FAMILY.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// The fair lock in whose line Redisson waits. A JVM that dies there keeps the others waiting for minutes.
pub const BEHIND_JAVA: &str = "line{2}";

pub const FENCED: &str = "gate";

/// How those are called who may wait for another lock than the one that is looked at.
pub const SEVERAL: &str = "several-";

/// What is in the owner's name of each hold of a JVM.
pub const JAVA: &str = "java-";

/// A lock that nobody but the keeper takes, and that no fault is drawn for.
pub const KEPT: &str = "kept";

/// A lock that only the keeper asks for, and each time goes before it is answered.
pub const HAUNTED: &str = "haunted";

/// A lock that is asked for through a `RedLock` alone.
pub const MAJORITY: &str = "majority";

/// A lock for which nobody waits: each call tries once.
pub const TRIED: &str = "tried";

/// The lock of the buffer that all workers share.
pub const BUFFER: &str = "buffer";

/// The namespace of every other worker. The keeper has none.
pub const NAMESPACE: &str = "other";

pub fn namespace(worker: usize) -> Option<&'static str> {
    (worker % 2 == 1).then_some(NAMESPACE)
}

/// What the judge calls a lock: the same name in two namespaces is two locks.
pub fn label(namespace: Option<&str>, lock: &str) -> String {
    namespace.map_or(String::new(), |namespace| format!("{namespace}:")) + lock
}

/// A key without its namespace.
pub fn bare(key: &str) -> &str {
    rules::bare(key, NAMESPACE)
}

/// Every name that is not made up on the way.
pub fn names() -> impl Iterator<Item = &'static str> {
    let others =
        FAMILY.iter().map(|(name, _)| *name).chain([KEPT, HAUNTED, MAJORITY, TRIED, BUFFER]);
    LOCKS.into_iter().chain(others)
}

/// What the judge calls the locks of those names that are meant, in all namespaces.
pub fn labels(is_meant: impl Fn(&str) -> bool) -> Vec<String> {
    let both = |name| [None, Some(NAMESPACE)].map(|of| label(of, name));
    names().filter(|name| is_meant(name)).flat_map(both).collect()
}

/// The key of a lock in Redis, in the native layout.
pub fn key(lock: &str) -> String {
    let name = lock.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    format!("lock:{{{name}}}")
}

pub fn config(topology: Topology, namespace: Option<&str>) -> Config {
    let config = Config::default().layout(topology.layout());
    namespace
        .map_or(config.clone(), |namespace| config.namespace(namespace))
        .replicas(topology.replicas())
        .ack_timeout(ACK)
        .watchdog_timeout(LEASE)
        .max_park(MAX_PARK)
        .connect_timeout(Duration::from_millis(500))
        .waiter_ttl(WAITER_TTL)
        .subscription_linger(Duration::from_millis(400))
}

/// How long after a request was sent its lease may be believed: the library's own rule, said once more.
pub fn validity(lease: Duration) -> Duration {
    lease - (lease / 100 + Duration::from_millis(2))
}

pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("far less than 584 years")
}

/// Faults come in bouts. In between, when the last ones are over, nobody may be left waiting for a lock that is free.
const BOUT: Duration = Duration::from_secs(7);

/// How long a free lock may keep somebody waiting then: far less than a park, which hides a wake-up that was lost.
const PROMPT: Duration = Duration::from_millis(350);

/// How long replicas have to acknowledge a grant. One that is late is given back and asked for again.
const ACK: Duration = Duration::from_millis(150);

/// Each bout opens with the set pieces, which want the server for themselves.
const OPENING: Duration = Duration::from_millis(2_500);
