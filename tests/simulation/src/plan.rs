//! What a seed stands for: the clients, the names, and a list of faults. All of it is data, so that it can be cut down.

use std::time::Duration;

use fastrand::Rng;
use parklock::{Config, HandOff, Layout};

use crate::clock::{MICRO, MILLI, SECOND};
use crate::fleet;
use crate::replicas;
use crate::scene::Scene;

/// What a name is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Plain, re-entrant, and several at once.
    Lock,
    Fenced,
    Fair,
    Rw,
    Permits(u32),
    Expirable(u32),
    Latch,
}

#[derive(Debug, Clone)]
pub struct Name {
    pub text: String,
    pub kind: Kind,
    /// The namespace of the clients that use it.
    pub within: Option<&'static str>,
}

/// The namespace of every other client, in some seeds.
pub const WITHIN: &str = "other";

/// How a client is set up, and how far away it is.
#[derive(Debug, Clone)]
pub struct ClientPlan {
    pub seed: u64,
    /// How fast its clock goes, in parts of a million.
    pub rate: u64,
    pub config: Config,
    pub watchdog: Duration,
    pub claim: Duration,
    pub response: Duration,
    pub max_park: Duration,
    pub ride_out: Duration,
    pub max_waiters: usize,
    /// Whether its holds are renewed for some time only.
    pub max_hold: bool,
    /// How long it keeps a plain lock that nobody holds.
    pub keep: Duration,
    /// The grace of its session, if it has one.
    pub session: Option<Duration>,
    /// The shortest way of a message to or from the server, and the longest.
    pub way: (u64, u64),
    /// Its namespace.
    pub within: Option<&'static str>,
}

/// What tests/specification/Trace.cfg calls `Lease` and `Ttl`.
const STEPPED_LEASE: Duration = Duration::from_millis(1_200);
const STEPPED_TTL: Duration = Duration::from_millis(300);

/// What the servers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One server, which a replica may replace.
    One,
    /// A primary under one address, and replicas that follow it.
    Replicas { replicas: usize },
    /// A primary that three sentinels watch, and its replicas.
    Sentinel { replicas: usize },
    /// Three primaries with so many replicas each.
    Cluster { replicas: usize },
}

/// The primaries of a cluster.
const SHARDS: usize = 3;

const SENTINELS: usize = 3;

impl Topology {
    pub fn shards(self) -> usize {
        if let Self::Cluster { .. } = self { SHARDS } else { 1 }
    }

    /// Of each primary.
    pub fn replicas(self) -> usize {
        match self {
            Self::One => 0,
            Self::Replicas { replicas }
            | Self::Sentinel { replicas }
            | Self::Cluster { replicas } => replicas,
        }
    }

    pub fn sentinels(self) -> usize {
        if let Self::Sentinel { .. } = self { SENTINELS } else { 0 }
    }

    /// By which clients reach it.
    pub fn url(self) -> String {
        let hosts = |range: std::ops::Range<usize>| {
            let hosts = range.map(|at| format!("{}:{}", fleet::host(at), fleet::PORT));
            hosts.collect::<Vec<_>>().join(",")
        };
        match self {
            Self::One | Self::Replicas { .. } => "redis://simulated".to_owned(),
            Self::Cluster { .. } => format!("redis-cluster://{}", hosts(0..SHARDS)),
            Self::Sentinel { replicas } => {
                let sentinels = hosts(replicas + 1..replicas + 1 + SENTINELS);
                format!("redis-sentinel://{sentinels}/{}", replicas::SERVICE)
            }
        }
    }
}

/// How a replica comes to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The primary hands over all that it has, as at CLUSTER FAILOVER.
    Asked,
    /// It takes over without a word, and the primary goes on for as long as the fault lasts.
    Forced,
    /// The primary dies, and comes back as a replica when the fault is over.
    Killed,
}

/// One thing that goes wrong.
#[derive(Debug, Clone)]
pub struct Fault {
    pub at: u64,
    pub what: What,
}

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Now,
    BeforeRequest,
    AfterRequest,
    BeforeAnswer,
    AfterAnswer,
    /// The request arrives, and from then on nothing comes back.
    Silent,
}

/// Which of a client's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Any(usize),
    /// That of the scripts.
    Command,
    /// That of the messages.
    Subscriber,
}

#[derive(Debug, Clone)]
pub enum What {
    Crash {
        client: usize,
        back: u64,
    },
    Pause {
        client: usize,
        long: u64,
    },
    /// The client is closed while its callers are at work, and another one takes its place.
    Replace {
        client: usize,
    },
    Cut {
        client: usize,
        link: Which,
        moment: Moment,
    },
    Delay {
        client: usize,
        by: u64,
        long: u64,
    },
    Slice {
        client: usize,
        long: u64,
    },
    /// Nothing comes through. Bytes that are sent meanwhile arrive later, or never.
    Hole {
        client: usize,
        link: usize,
        long: u64,
        arrives: bool,
    },
    /// The server still believes in the connection, and the client does not hear of its end.
    HalfOpen {
        client: usize,
        link: usize,
    },
    Stall {
        long: u64,
    },
    Slow {
        by: u64,
        long: u64,
    },
    Restart {
        keeps: bool,
        long: u64,
    },
    /// A replica takes over that had heard nothing for so long.
    Failover {
        stale: u64,
        lag: u64,
    },
    Clock {
        by: i64,
    },
    MemoryFull {
        long: u64,
    },
    Loading {
        long: u64,
    },
    Busy {
        long: u64,
    },
    ForgetScripts,
    Delete {
        name: usize,
    },
    ForceUnlock {
        client: usize,
        name: usize,
    },
    DeleteAll,
    /// A message that no server of ours has sent.
    Forge {
        name: usize,
        form: u64,
        beat: u64,
    },
    /// The messages to one client are lost.
    Swallow {
        client: usize,
        long: u64,
    },
    /// The key of a name is a text that is not ours.
    Squat {
        name: usize,
    },
    /// The connections that a client makes lead to a replica that knows nothing.
    Mislead {
        client: usize,
        long: u64,
    },
    /// A replica takes over from the primary of a shard.
    TakeOver {
        shard: usize,
        how: How,
        long: u64,
    },
    /// What a primary writes does not get to its replicas.
    Behind {
        shard: usize,
        long: u64,
    },
    /// The slot of a name moves so many shards further on, key by key, and stands open for as long as it rests.
    Move {
        name: usize,
        by: usize,
        pace: u64,
        rest: u64,
    },
    /// A node tells everybody a wrong map.
    Lie {
        node: usize,
        long: u64,
    },
    /// The primary of a shard believes that the cluster is down.
    Down {
        shard: usize,
        long: u64,
    },
    /// A sentinel hears nothing of what happens.
    Deaf {
        sentinel: usize,
        long: u64,
    },
    /// A sentinel is dead.
    SentinelDown {
        sentinel: usize,
        long: u64,
    },
    /// Nobody may subscribe.
    Deny {
        long: u64,
    },
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub layout: Layout,
    pub clients: Vec<ClientPlan>,
    pub callers: usize,
    pub names: Vec<Name>,
    /// When the callers stop.
    pub length: u64,
    pub faults: Vec<Fault>,
    pub scene: Option<Scene>,
    pub topology: Topology,
    /// How many replicas have to acknowledge what a client is granted.
    pub acks: u32,
    /// Only the given number of callers and names, no faults: to measure how fast the simulation is.
    pub bare: bool,
    /// An eavesdropper stands there, whatever the seed says.
    pub is_overheard: bool,
    /// Work on one plain lock, of which `tests/specification` can say each step.
    pub in_steps: bool,
}

/// What of a seed is set by hand.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub clients: Option<usize>,
    pub callers: Option<usize>,
    pub names: Option<usize>,
    pub length: Option<u64>,
    /// Of the faults, only these.
    pub faults: Option<Vec<usize>>,
    pub scene: Option<Scene>,
    pub bare: bool,
    pub is_overheard: bool,
    pub in_steps: bool,
}

impl Plan {
    pub fn draw(seed: u64, set: &Overrides) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51);
        let scene = set.scene.or(Scene::of(seed)).filter(|_| !set.bare);
        rng.u32(..100); // not used any more: without it, every seed of random work would be another history
        let layout = if rng.u32(..100) < 70 { Layout::Native } else { Layout::Redisson };
        let crowd = crowd(seed).filter(|_| scene.is_none() && !set.bare);
        let layout = if set.bare { Layout::Native } else { layout };
        let (drawn_clients, drawn_callers) = (rng.usize(1..=5), rng.usize(1..=8));
        let drawn_names = if rng.bool() { rng.usize(1..=2) } else { rng.usize(2..=8) };
        let drawn_length = rng.u64(8..=30) * SECOND;
        let (drawn_clients, drawn_callers, drawn_names, drawn_length) = match crowd {
            Some(clients) => (clients, 1, 1, 8 * SECOND),
            None => (drawn_clients, drawn_callers, drawn_names, drawn_length),
        };
        let mut names_rng = rng.fork();
        let names = (0..set.names.unwrap_or(drawn_names))
            .map(|at| Name::any(at, layout, set.bare, &mut names_rng))
            .collect::<Vec<_>>();
        let mut clients_rng = rng.fork();
        let clients = (0..set.clients.unwrap_or(drawn_clients))
            .map(|_| ClientPlan::any(layout, set.bare, &mut clients_rng))
            .collect::<Vec<_>>();
        let faults = if set.bare || scene.is_some() {
            Vec::new()
        } else {
            faults(drawn_length, drawn_clients, drawn_names, &mut rng)
        };
        let mut plan = Self {
            seed,
            layout,
            clients,
            callers: set.callers.unwrap_or(drawn_callers),
            names,
            length: drawn_length,
            faults,
            scene,
            topology: Topology::One,
            acks: 0,
            bare: set.bare,
            is_overheard: set.is_overheard,
            in_steps: set.in_steps,
        };
        if let Some(scene) = scene {
            scene.stage(&mut plan, &mut rng);
        } else if seed % 4 == 1 && crowd.is_none() && !set.bare {
            plan.split();
        }
        if set.in_steps {
            plan.work_in_steps(&mut rng);
        }
        plan.length = set.length.unwrap_or(plan.length);
        plan.keep(set);
        plan
    }

    /// Clients with one caller each want one plain lock. Their leases are alike, and what goes wrong is what
    /// tests/specification/Line.tla has: nothing happens to the data of the server, nor to its clock.
    fn work_in_steps(&mut self, rng: &mut Rng) {
        (self.layout, self.scene, self.topology, self.acks) =
            (Layout::Native, None, Topology::One, 0);
        self.names = vec![Name { text: "one".to_owned(), kind: Kind::Lock, within: None }];
        (self.callers, self.length) = (1, 6 * SECOND);
        let client = |rng: &mut Rng| {
            let (seed, near) = (rng.u64(..), rng.u64(50 * MICRO..4 * MILLI));
            let client = ClientPlan::usual(Layout::Native, STEPPED_LEASE).claim(STEPPED_TTL);
            let client = client.max_park(millis(rng.u64(100..2_000)));
            let rate = 1_000_000 + rng.u64(..20_000) - 10_000;
            ClientPlan { seed, rate, way: (near, near + rng.u64(MICRO..2 * MILLI)), ..client }
        };
        self.clients = (0..rng.usize(2..=6)).map(|_| client(rng)).collect();
        let clients = self.clients.len();
        self.faults = (0..rng.usize(..8))
            .map(|_| Fault {
                at: rng.u64(200 * MILLI..self.length),
                what: What::in_steps(clients, rng),
            })
            .collect();
        self.faults.sort_by_key(|fault| fault.at);
    }

    /// Puts every other client into a namespace, in which the names are those of other locks.
    fn split(&mut self) {
        let others = self.names.iter().map(|name| Name { within: Some(WITHIN), ..name.clone() });
        self.names.extend(others.collect::<Vec<_>>());
        for client in self.clients.iter_mut().skip(1).step_by(2) {
            client.config = client.config.clone().namespace(WITHIN);
            client.within = Some(WITHIN);
        }
    }

    /// The names that a client of this namespace uses.
    pub fn names_within(&self, within: Option<&str>) -> Vec<usize> {
        let of = |at: &usize| self.names[*at].within == within;
        (0..self.names.len()).filter(of).collect()
    }

    /// Of the faults, those that were asked for.
    fn keep(&mut self, set: &Overrides) {
        let kept = |at: &usize| set.faults.as_ref().is_none_or(|kept| kept.contains(at));
        let faults = std::mem::take(&mut self.faults).into_iter().enumerate();
        self.faults = faults.filter(|(at, _)| kept(at)).map(|(_, fault)| fault).collect();
    }

    /// When the last fault is over: a process that is dead until then has its work before it.
    pub fn mended(&self) -> u64 {
        self.faults.iter().map(|fault| fault.at + fault.what.long()).max().unwrap_or(0)
    }

    /// Whether no replica can take over that lacks something that a client was granted.
    pub fn is_acknowledged_by_all(&self) -> bool {
        self.acks > 0 && self.acks as usize == self.topology.replicas()
    }

    /// The longest of a setting over all clients, in the world's time.
    pub fn longest(&self, of: impl Fn(&ClientPlan) -> Duration) -> u64 {
        self.clients.iter().map(|client| nanos(of(client))).max().unwrap_or(0)
    }

    /// By how much faults up to this time set the server's clock back, in nanoseconds.
    pub fn set_back(&self, until: u64) -> u64 {
        let past = self.faults.iter().filter(|fault| fault.at <= until);
        past.map(|fault| match fault.what {
            What::Clock { by } => by.min(0).unsigned_abs(),
            _ => 0,
        })
        .sum()
    }
}

impl Name {
    pub fn any(at: usize, layout: Layout, bare: bool, rng: &mut Rng) -> Self {
        let kind = match rng.u32(..100) {
            _ if bare => Kind::Lock,
            0..38 => Kind::Lock,
            38..56 => Kind::Fair,
            56..70 => Kind::Rw,
            70..84 => Kind::Permits(rng.u32(1..=4)),
            84..88 => Kind::Latch,
            88..94 if layout == Layout::Redisson => Kind::Fenced,
            _ if layout == Layout::Redisson => Kind::Expirable(rng.u32(1..=4)),
            _ => Kind::Lock,
        };
        let text = ["orders", "stock{7}", "naïve", "a b", "50%"][rng.usize(..5)];
        Self { text: format!("{text}-{at}"), kind, within: None }
    }

    /// The namespace and a colon, or nothing.
    pub fn prefix(&self) -> String {
        self.within.map_or(String::new(), |within| format!("{within}:"))
    }

    /// What the judge calls the lock: the same name in two namespaces is two locks.
    pub fn label(&self) -> String {
        self.prefix() + &self.text
    }
}

impl ClientPlan {
    /// A client that differs from the usual in its watchdog's timeout only, and whose clock is true.
    pub fn usual(layout: Layout, watchdog: Duration) -> Self {
        let config = Config::default().layout(layout).watchdog_timeout(watchdog);
        let response = Duration::from_secs(2).min(watchdog / 4);
        Self {
            seed: 0,
            rate: 1_000_000,
            config,
            watchdog,
            claim: Duration::from_secs(1).min(watchdog / 4),
            response,
            max_park: Duration::from_secs(10),
            ride_out: watchdog,
            max_waiters: 100_000,
            max_hold: false,
            keep: Duration::ZERO,
            session: None,
            way: (MILLI, MILLI),
            within: None,
        }
    }

    pub fn max_park(self, max_park: Duration) -> Self {
        Self { config: self.config.max_park(max_park), max_park, ..self }
    }

    pub fn max_hold(self, time: Duration) -> Self {
        Self { config: self.config.max_hold(time), max_hold: true, ..self }
    }

    pub fn max_waiters(self, max_waiters: usize) -> Self {
        Self { config: self.config.max_waiters(max_waiters), max_waiters, ..self }
    }

    pub fn claim(self, claim: Duration) -> Self {
        Self { config: self.config.waiter_ttl(claim), claim, ..self }
    }

    /// A client with a session, whose leases do not end while the faults of a seed last.
    pub fn in_session(rng: &mut Rng) -> Self {
        let client = Self::usual(Layout::Native, Duration::from_secs(30))
            .claim(millis(rng.u64(200..1_000)))
            .max_park(millis(rng.u64(100..10_000)));
        let (grace, near) = (millis(rng.u64(1_000..3_000)), rng.u64(50 * MICRO..4 * MILLI));
        Self {
            seed: rng.u64(..),
            rate: 1_000_000 + rng.u64(..20_000) - 10_000,
            config: client.config.session(grace),
            session: Some(grace),
            way: (near, near + rng.u64(MICRO..2 * MILLI)),
            ..client
        }
    }

    pub fn any(layout: Layout, bare: bool, rng: &mut Rng) -> Self {
        let watchdog = millis(match rng.u32(..10) {
            _ if bare => 30_000,
            0..2 => rng.u64(300..1_000),
            2..7 => rng.u64(1_000..4_000),
            7..9 => rng.u64(4_000..12_000),
            _ => 30_000,
        });
        let short = !bare && rng.bool();
        let divided = |by: u32, rng: &mut Rng| watchdog / rng.u32(by..by * 4);
        let usual = Duration::from_secs(2).min(watchdog / 4);
        let response = if short { divided(4, rng).max(millis(40)) } else { usual };
        let claim = if short { divided(4, rng) } else { usual / 2 };
        let claim = claim.max(millis(50));
        let max_park = if bare { millis(10_000) } else { millis(rng.u64(100..10_000)) };
        let ride_out = if short { millis(rng.u64(200..6_000)) } else { watchdog };
        let crowded = !bare && rng.u32(..6) == 0;
        let max_waiters = if crowded { rng.usize(2..12) } else { 100_000 };
        let hand_off = HandOff {
            max_consecutive: if short { rng.u32(..20) } else { 256 },
            max_time: if short { millis(rng.u64(..50)) } else { millis(2) },
        };
        let max_hold = (!bare && rng.u32(..8) == 0).then(|| watchdog + millis(rng.u64(..3_000)));
        let mut config = Config::default()
            .layout(layout)
            .watchdog_timeout(watchdog)
            .response_timeout(response)
            .connect_timeout(response.max(millis(500)))
            .waiter_ttl(claim)
            .max_park(max_park)
            .ride_out(ride_out)
            .max_waiters(max_waiters)
            .hand_off(hand_off)
            .subscription_linger(millis(rng.u64(..3_000)));
        if let Some(time) = max_hold {
            config = config.max_hold(time);
        }
        // So far away that three signs of life would not fit, nobody keeps a place.
        let far = !bare && rng.u32(..8) == 0 && claim >= millis(300);
        let near = rng.u64(50 * MICRO..2 * MILLI);
        let way =
            if far { (8 * MILLI, 12 * MILLI) } else { (near, near + rng.u64(MICRO..2 * MILLI)) };
        let rate = if bare { 1_000_000 } else { 1_000_000 + rng.u64(..20_000) - 10_000 };
        let seed = rng.u64(..);
        let max_hold = max_hold.is_some();
        // Of its own dice: so the clients that keep nothing stay as they were.
        let mut dice = Rng::with_seed(seed);
        let keeps = !bare && layout == Layout::Native && dice.u32(..3) == 0;
        let keep = if keeps { millis(dice.u64(1..1_500)) } else { Duration::ZERO };
        let config = config.keep(keep);
        Self {
            seed,
            rate,
            config,
            watchdog,
            claim,
            response,
            max_park,
            ride_out,
            max_waiters,
            max_hold,
            keep,
            session: None,
            way,
            within: None,
        }
    }
}

/// How many clients want one name, if the seed stands for a crowd. Few do: a crowd takes long to live through.
fn crowd(seed: u64) -> Option<usize> {
    match seed % 5000 {
        7 => Some(300),
        number if number % 1000 == 7 => Some(100),
        number if number % 100 == 7 => Some(10 + usize::try_from(number / 100).unwrap_or(0)),
        _ => None,
    }
}

/// Bouts of faults, with calm times between them in which all that was broken must mend.
fn faults(length: u64, clients: usize, names: usize, rng: &mut Rng) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut bout = SECOND;
    while bout + 2 * SECOND < length {
        let long = rng.u64(SECOND..6 * SECOND).min(length - bout);
        for _ in 0..rng.usize(..7) {
            let at = bout + rng.u64(..long);
            faults.push(Fault { at, what: What::any(clients, names, rng) });
        }
        bout += long + rng.u64(2 * SECOND..12 * SECOND);
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// As `faults`, fewer of a kind that one server has too, and others that several have.
pub fn faults_among_servers(plan: &Plan, rng: &mut Rng) -> Vec<Fault> {
    let (mut faults, mut bout) = (Vec::new(), SECOND);
    while bout + 2 * SECOND < plan.length {
        let long = rng.u64(SECOND..6 * SECOND).min(plan.length - bout);
        for _ in 0..rng.usize(..4) {
            let at = bout + rng.u64(..long);
            faults.push(Fault { at, what: What::among_servers(plan, rng) });
        }
        for _ in 0..rng.usize(..3) {
            let at = bout + rng.u64(..long);
            let what = match What::any(plan.clients.len(), plan.names.len(), rng) {
                // What is lost like this, replicas lose too.
                What::Restart { long, .. } => What::Restart { keeps: true, long },
                What::Failover { .. } => What::among_servers(plan, rng),
                what => what,
            };
            faults.push(Fault { at, what });
        }
        bout += long + rng.u64(4 * SECOND..14 * SECOND);
    }
    // A replica that takes over has often been behind for a while.
    let behind = faults.iter().filter_map(|fault| match fault.what {
        What::TakeOver { shard, .. } if rng.bool() => {
            let by = rng.u64(MILLI..2 * SECOND);
            let what = What::Behind { shard, long: by + MILLI };
            Some(Fault { at: fault.at.saturating_sub(by), what })
        }
        _ => None,
    });
    let behind: Vec<Fault> = behind.collect();
    faults.extend(behind);
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// What befalls clients with sessions and others beside them, on a server that forgets nothing. Much of it lasts for longer than a
/// grace; and a process that is paused often loses its connection for messages meanwhile.
pub fn faults_of_sessions(clients: usize, rng: &mut Rng) -> Vec<Fault> {
    let mut faults = Vec::new();
    for _ in 0..rng.usize(3..10) {
        let (at, client) = (rng.u64(SECOND..12 * SECOND), rng.usize(..clients));
        let long = rng.u64(500 * MILLI..6 * SECOND);
        let cut = What::Cut { client, link: Which::Subscriber, moment: Moment::Now };
        let what = match rng.u32(..10) {
            0 | 1 => What::Crash { client, back: long },
            2 => What::Pause { client, long },
            3..6 => {
                faults.push(Fault { at: at + MILLI, what: cut });
                What::Pause { client, long }
            }
            6 => What::Hole { client, link: rng.usize(..4), long, arrives: rng.bool() },
            7 => cut,
            _ => What::in_steps(clients, rng),
        };
        faults.push(Fault { at, what });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

impl What {
    fn among_servers(plan: &Plan, rng: &mut Rng) -> Self {
        let shard = rng.usize(..plan.topology.shards());
        let long = match rng.u32(..4) {
            0 => rng.u64(MILLI..50 * MILLI),
            1 => rng.u64(50 * MILLI..400 * MILLI),
            2 => rng.u64(400 * MILLI..3 * SECOND),
            _ => rng.u64(3 * SECOND..11 * SECOND),
        };
        let how = [How::Asked, How::Forced, How::Killed][rng.usize(..3)];
        let how = match (plan.topology, how) {
            // Only the nodes of a cluster can hand over.
            (Topology::Replicas { .. } | Topology::Sentinel { .. }, How::Asked) => How::Forced,
            (_, how) => how,
        };
        let take_over = Self::TakeOver {
            shard,
            how,
            long: match how {
                How::Asked => 0,
                How::Forced => long,
                How::Killed => long.max(600 * MILLI),
            },
        };
        let short = long.min(3 * SECOND);
        match (plan.topology, rng.u32(..100)) {
            (Topology::Sentinel { .. }, 0..25) => Self::Deaf { sentinel: rng.usize(..3), long },
            (Topology::Sentinel { .. }, 25..45) => {
                Self::SentinelDown { sentinel: rng.usize(..3), long }
            }
            (Topology::Cluster { .. }, 0..50) => Self::Move {
                name: rng.usize(..plan.names.len()),
                by: rng.usize(1..plan.topology.shards()),
                pace: rng.u64(100 * MICRO..30 * MILLI),
                rest: if rng.bool() { 0 } else { long },
            },
            (Topology::Cluster { .. }, 50..60) => {
                let nodes = plan.topology.shards() * (1 + plan.topology.replicas());
                Self::Lie { node: rng.usize(..nodes), long }
            }
            (Topology::Cluster { .. }, 60..66) => Self::Down { shard, long: short },
            (_, 66..78) => Self::Behind { shard, long: short },
            _ => take_over,
        }
    }

    /// Of all faults, one that leaves the data of the server and its clock alone.
    fn in_steps(clients: usize, rng: &mut Rng) -> Self {
        loop {
            match Self::any(clients, 1, rng) {
                Self::Restart { long, .. } => return Self::Restart { keeps: true, long },
                Self::Failover { .. }
                | Self::Clock { .. }
                | Self::MemoryFull { .. }
                | Self::Loading { .. }
                | Self::Busy { .. }
                | Self::Delete { .. }
                | Self::ForceUnlock { .. }
                | Self::DeleteAll
                | Self::Deny { .. } => {}
                what => return what,
            }
        }
    }

    fn any(clients: usize, names: usize, rng: &mut Rng) -> Self {
        let (client, name, link) = (rng.usize(..clients), rng.usize(..names), rng.usize(..4));
        let long = match rng.u32(..4) {
            0 => rng.u64(MILLI..50 * MILLI),
            1 => rng.u64(50 * MILLI..400 * MILLI),
            _ => rng.u64(400 * MILLI..3 * SECOND),
        };
        match rng.u32(..100) {
            0..8 => Self::Crash { client, back: long },
            8..16 => Self::Pause { client, long },
            16..20 => Self::Replace { client },
            20..38 => Self::Cut { client, link: Which::Any(link), moment: Moment::any(rng) },
            38..42 => Self::Delay { client, by: rng.u64(MILLI..400 * MILLI), long },
            42..45 => Self::Slice { client, long },
            45..52 => Self::Hole { client, link, long, arrives: rng.bool() },
            52..55 => Self::HalfOpen { client, link },
            55..60 => Self::Stall { long },
            60..63 => Self::Slow { by: rng.u64(MICRO..3 * MILLI), long },
            63..67 => Self::Restart { keeps: rng.bool(), long: long.min(SECOND) },
            67..71 => Self::Failover { stale: rng.u64(..2 * SECOND), lag: rng.u64(..SECOND) },
            71..74 => Self::Clock { by: clock_step(rng) },
            74..77 => Self::MemoryFull { long },
            77..79 => Self::Loading { long: long.min(SECOND) },
            79..81 => Self::Busy { long: long.min(SECOND) },
            81..84 => Self::ForgetScripts,
            84..87 => Self::Delete { name },
            87..90 => Self::ForceUnlock { client, name },
            90..91 => Self::DeleteAll,
            91..95 => Self::Forge { name, form: rng.u64(..8), beat: rng.u64(..6) },
            95..98 => Self::Swallow { client, long },
            _ => Self::Deny { long },
        }
    }

    /// For how long it goes on.
    pub fn long(&self) -> u64 {
        match self {
            Self::Crash { back: long, .. }
            | Self::Pause { long, .. }
            | Self::Delay { long, .. }
            | Self::Slice { long, .. }
            | Self::Hole { long, .. }
            | Self::Stall { long }
            | Self::Slow { long, .. }
            | Self::Restart { long, .. }
            | Self::Failover { lag: long, .. }
            | Self::MemoryFull { long }
            | Self::Loading { long }
            | Self::Busy { long }
            | Self::Swallow { long, .. }
            | Self::Mislead { long, .. }
            | Self::TakeOver { long, .. }
            | Self::Behind { long, .. }
            | Self::Lie { long, .. }
            | Self::Down { long, .. }
            | Self::Deaf { long, .. }
            | Self::SentinelDown { long, .. }
            | Self::Move { rest: long, .. }
            | Self::Deny { long } => *long,
            _ => 0,
        }
    }

    /// What it is counted as.
    pub fn word(&self) -> String {
        let words = format!("{self:?}");
        let name = words.split([' ', '{']).next().unwrap_or_default();
        match self {
            Self::Cut { moment, .. } => format!("fault: {name} {moment:?}"),
            Self::Restart { keeps, .. } => format!("fault: {name} keeps={keeps}"),
            Self::TakeOver { how, .. } => format!("fault: {name} {how:?}"),
            Self::Move { rest: 1.., .. } => format!("fault: {name} that rests"),
            _ => format!("fault: {name}"),
        }
    }
}

impl Moment {
    pub fn any(rng: &mut Rng) -> Self {
        use Moment::{AfterAnswer, AfterRequest, BeforeAnswer, BeforeRequest, Now, Silent};
        [Now, BeforeRequest, AfterRequest, BeforeAnswer, AfterAnswer, Silent][rng.usize(..6)]
    }
}

fn clock_step(rng: &mut Rng) -> i64 {
    let by = rng.i64(1..=20) * 500 * MILLI as i64;
    if rng.bool() { by } else { -by }
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("far less than 584 years")
}
