//! What is to be broken, and when: drawn from the seed alone, before anything has started.

use std::iter;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use crate::settings::{self, FAMILY, GRACE, Kind, LEASE, LOCKS, PROXIES, Topology};

/// Something that goes wrong, or that an operator does.
#[derive(Debug, Clone)]
pub enum Action {
    Kill {
        worker: usize,
    },
    Stop {
        worker: usize,
        time: Duration,
    },
    Network {
        proxy: usize,
        fault: NetworkFault,
        time: Duration,
    },
    /// A worker's host is cut off these servers.
    CutOff {
        worker: usize,
        servers: Range<usize>,
        way: Way,
        wire: Wire,
        time: Duration,
    },
    /// The wire of a worker's host is pulled out.
    Unplug {
        worker: usize,
        time: Duration,
    },
    Server(ServerFault),
}

/// In which direction a wire is cut, as seen from the first of two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Both,
    Out,
    In,
}

impl Way {
    pub fn named(self) -> &'static str {
        match self {
            Self::Both => "both ways",
            Self::Out => "out only",
            Self::In => "in only",
        }
    }
}

/// What becomes of a wire.
#[derive(Debug, Clone, Copy)]
pub enum Wire {
    Cut,
    /// Of a hundred packets it loses so many.
    Lossy(u32),
}

/// What befalls a server of one part of the data.
#[derive(Debug, Clone, Copy)]
pub enum Blow {
    Part {
        near: Near,
        far: Far,
        way: Way,
        wire: Wire,
    },
    /// All that it says, or hears, or both, goes through a thin wire.
    Slow {
        near: Near,
        way: Way,
    },
    /// Its processes are stopped and go on.
    Freeze(Near),
    /// They are killed, and started again with their data.
    Kill(Near),
}

/// Which servers are meant; the rest are on the far side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Near {
    Primary,
    Replica,
    /// Together with half of the workers.
    PrimaryAndWorkers,
}

/// From whom they are parted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Far {
    All,
    Servers,
    Workers,
}

#[derive(Debug, Clone)]
pub enum NetworkFault {
    /// Strikes the first few requests of this kind, or their replies.
    Frames {
        target: Target,
        harm: Harm,
        times: usize,
    },
    Blackhole {
        subscribers: Option<bool>,
    },
    Reset {
        subscribers: Option<bool>,
    },
    Refuse,
    /// All connections of a kind end, and no new one gets through.
    Away {
        subscribers: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum Target {
    Script(&'static str),
    Command(&'static str),
    Messages,
}

#[derive(Debug, Clone, Copy)]
pub enum Harm {
    CutBefore,
    CutAfter,
    CutWithin(usize),
    DelayRequest(Duration),
    DelayReply(Duration),
    HoldRequest,
    HoldReply,
    Slice(usize),
    /// Messages only.
    Swallow,
}

#[derive(Debug, Clone, Copy)]
pub enum ServerFault {
    FlushScripts,
    KillConnections(&'static str),
    Pause(Duration),
    ClientPause(Duration, &'static str),
    MemoryFull(Duration),
    RestartWithData,
    RestartEmpty,
    /// The replica, which has heard nothing for this long, takes over from a killed primary.
    Promote(Duration),
    /// The replica takes over, and the old primary, demoted, keeps its clients for this long.
    Demote(Duration),
    /// Clients are led to a replica that has heard nothing for this long, and stay for twice as long.
    Misdirect(Duration),
    FlushAll,
    Del(&'static str),
    ForceUnlock(&'static str),
    /// While the keeper holds its lock, and is well.
    Kept(Trial),
    /// To the part of a cluster that has this lock.
    Upheaval(&'static str, Upheaval),
    /// To the servers that have this lock, for so long.
    Blow(&'static str, Blow, Duration),
}

/// What befalls the slots of a cluster and their primaries.
#[derive(Debug, Clone, Copy)]
pub enum Upheaval {
    /// The slot of the lock goes to another primary, or back to its first one, with this pause after each key.
    Move(Duration),
    /// Half of the keys go over, and nothing more for this long. Then the others follow.
    LeaveOpen(Duration),
    FailOver(Takes),
    /// The primary is killed, and its replica takes over.
    Kill(Takes),
    /// The primary is stopped, its replica takes over, and after this long the old one wakes and knows nothing of it.
    Zombie(Takes, Duration),
}

/// How a replica takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// The primary waits until its replica has everything.
    Politely,
    /// By election. The replica has heard nothing for this long.
    ByForce(Duration),
    /// Without asking anybody. The replica has heard nothing for this long.
    AtOnce(Duration),
    /// When the cluster itself finds that the primary is gone.
    WhenMissed,
}

/// What befalls the keeper's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// In a cluster it is a polite one.
    Failover,
    Restart,
    Del,
    /// Of its slot.
    Move,
    /// Its slot is left open for longer than a lease.
    StandOpen,
}

/// The whole run, in order of time.
pub fn drawn(topology: Topology, seed: u64, length: Duration) -> Vec<(Duration, Action)> {
    let mut rng = Rng::with_seed(seed);
    let mut plan = set_pieces(topology, &mut rng, length);
    let moments = |rng: &mut Rng, mean: u64, may: fn(Topology, Duration) -> bool| {
        let first = Duration::from_millis(rng.u64(300..300 + mean));
        let mut rng = rng.fork();
        let next = move |at: &Duration| Some(*at + ms(&mut rng, mean / 2..mean * 3 / 2));
        iter::successors(Some(first), next)
            .take_while(move |at| *at < length)
            .filter(move |at| may(topology, *at))
    };
    let workers = topology.workers();
    let lives = match topology {
        // A JVM needs seconds to start.
        Topology::Redisson => 3_000,
        // What the dead had is nobody's for a grace.
        Topology::Sessions => 1_500,
        _ => 540,
    };
    for at in moments(&mut rng, lives, Topology::is_bout) {
        plan.push((at, Action::Kill { worker: rng.usize(..workers) }));
    }
    let sleep = if topology == Topology::Sessions { GRACE } else { LEASE };
    for at in moments(&mut rng, 1_100, Topology::is_bout) {
        plan.push((at, Action::Stop { worker: rng.usize(..workers), time: stop(sleep, &mut rng) }));
    }
    let pause = if topology.has_hosts() { 500 } else { 250 };
    for at in moments(&mut rng, pause, Topology::is_bout) {
        if topology.has_hosts() {
            plan.push((at, cut_off(topology, &mut rng)));
            continue;
        }
        let (proxy, time) = (rng.usize(..PROXIES), ms(&mut rng, 20..500));
        let fault = network(&mut rng);
        let fault = match topology {
            Topology::Pair | Topology::Sessions | Topology::Hosts { .. } => fault,
            Topology::Cluster { .. } => in_cluster(fault, &mut rng),
            Topology::Redisson => with_redisson(fault, &mut rng),
        };
        plan.push((at, Action::Network { proxy, fault, time }));
    }
    let mut cards = Vec::new();
    // What befalls a cluster takes longer, and a partition longest.
    let (mean, deck) = match topology {
        Topology::Pair => (600, deck as fn(&mut Rng) -> _),
        Topology::Redisson => (600, redisson_deck as _),
        Topology::Sessions => (600, lasting_deck as _),
        Topology::Cluster { .. } => (900, cluster_deck as _),
        Topology::Hosts { .. } => (3_000, hosts_deck as _),
    };
    for at in moments(&mut rng, mean, Topology::is_open_stage) {
        if cards.is_empty() {
            cards = deck(&mut rng);
        }
        plan.push((at, Action::Server(cards.pop().expect("a new deck"))));
    }
    plan.sort_by_key(|(at, _)| *at);
    plan
}

/// What a run must have seen and chance alone might leave out, in each of its bouts.
fn set_pieces(topology: Topology, rng: &mut Rng, length: Duration) -> Vec<(Duration, Action)> {
    let mut plan = Vec::new();
    for (bout, begin) in topology.bouts(length).enumerate() {
        let mut at = |millis, action| plan.push((begin + Duration::from_millis(millis), action));
        let has_hosts = topology.has_hosts();
        let faults = if has_hosts { Vec::new() } else { on_stage(topology, bout, rng) };
        faults.into_iter().for_each(|(millis, fault)| at(millis, Action::Server(fault)));
        if topology == Topology::Sessions {
            unheard(rng).into_iter().for_each(|(millis, action)| at(millis, action));
        }
        let worker = rng.usize(..topology.keeper());
        at(3_000, Action::Stop { worker, time: LEASE * 2 });
        at(3_250, Action::Kill { worker });
        let scripts = if has_hosts { &[][..] } else { &["release", "acquire"] };
        for (proxy, name) in scripts.iter().enumerate() {
            let (target, harm) = (Target::Script(name), Harm::CutAfter);
            let fault = NetworkFault::Frames { target, harm, times: 2 };
            at(4_000, Action::Network { proxy, fault, time: Duration::from_secs(1) });
        }
    }
    plan
}

/// Two workers are stopped for longer than a grace, and all connections for messages end meanwhile (see `on_stage`). Then a proxy loses
/// those of its clients for as long, and one its other connections.
fn unheard(rng: &mut Rng) -> [(u64, Action); 4] {
    let (proxy, other, worker) = (rng.usize(..PROXIES), rng.usize(..PROXIES), rng.usize(..PROXIES));
    let beyond = |rng: &mut Rng| GRACE + ms(rng, 1_000..1_900);
    let away = |proxy, subscribers, time| {
        let fault = NetworkFault::Away { subscribers };
        Action::Network { proxy, fault, time }
    };
    [
        (500, Action::Stop { worker, time: beyond(rng) }),
        (500, Action::Stop { worker: worker + 1, time: beyond(rng) }),
        (1_500, away(proxy, true, beyond(rng))),
        (2_000, away(other, false, ms(rng, 300..1_000))),
    ]
}

/// What befalls the servers in each bout, and when, in ms since it began.
fn on_stage(topology: Topology, bout: usize, rng: &mut Rng) -> Vec<(u64, ServerFault)> {
    if topology == Topology::Sessions {
        return vec![
            (300, ServerFault::FlushScripts),
            (700, ServerFault::KillConnections("pubsub")),
        ];
    }
    let second = if topology.is_cluster() { Trial::Move } else { Trial::Restart };
    let may_fail_over = topology != Topology::Redisson && bout.is_multiple_of(2);
    let outlived = if may_fail_over { Trial::Failover } else { second };
    // A worker needs a moment at the start of the run to connect.
    let mut faults = vec![
        (300, ServerFault::FlushScripts),
        (300, ServerFault::Kept(outlived)),
        (300, ServerFault::Kept(Trial::Del)),
    ];
    if topology.is_cluster() {
        // Each fifth of a minute one of them, where most ask.
        let lock = LOCKS[rng.usize(..4)];
        let fault = match bout % 5 {
            0 => Upheaval::Zombie(Takes::AtOnce(ms(rng, 100..300)), ms(rng, 100..500)),
            1 => Upheaval::Kill(Takes::WhenMissed),
            // Of what its replica knows, every lease is over by then.
            2 => Upheaval::FailOver(Takes::AtOnce(LEASE + ms(rng, 100..400))),
            3 => Upheaval::FailOver(Takes::ByForce(ms(rng, 100..300))),
            _ => Upheaval::LeaveOpen(ms(rng, 300..900)),
        };
        faults.push((400, ServerFault::Upheaval(lock, fault)));
        if bout % 5 == 4 {
            faults.push((400, ServerFault::Kept(Trial::StandOpen)));
            faults.push((500, ServerFault::ForceUnlock("hot")));
        }
    }
    faults
}

fn ms(rng: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

/// One in three sleeps for longer than this.
fn stop(long: Duration, rng: &mut Rng) -> Duration {
    if rng.u32(..3) == 0 { long + ms(rng, 50..900) } else { ms(rng, 10..500) }
}

fn network(rng: &mut Rng) -> NetworkFault {
    let class = |rng: &mut Rng| [None, Some(false), Some(true)][rng.usize(..3)];
    match rng.u32(..100) {
        0..8 => NetworkFault::Blackhole { subscribers: class(rng) },
        8..14 => NetworkFault::Reset { subscribers: class(rng) },
        14..18 => NetworkFault::Refuse,
        _ => frames(rng),
    }
}

fn frames(rng: &mut Rng) -> NetworkFault {
    let target = match rng.u32(..100) {
        0..15 => Target::Script("acquire"),
        15..25 => Target::Script("enter the line"),
        25..30 => Target::Script("leave the line"),
        30..42 => Target::Script("acquire together"),
        42..58 => Target::Script("release"),
        58..75 => Target::Script("renew"),
        75..80 => Target::Command("TIME"),
        80..82 => Target::Command("PING"),
        82..85 => Target::Command("HELLO"),
        85..92 => Target::Command("SUBSCRIBE"),
        _ => Target::Messages,
    };
    let reply = |rng: &mut Rng| match rng.u32(..4) {
        0 => Harm::CutWithin(rng.usize(1..8)),
        1 => Harm::DelayReply(ms(rng, 1..400)),
        2 => Harm::HoldReply,
        _ => Harm::Slice(rng.usize(1..6)),
    };
    let harm = match (target, rng.u32(..8)) {
        (Target::Messages, 0..4) => Harm::Swallow,
        (Target::Messages, _) => reply(rng),
        (_, 0) => Harm::CutBefore,
        (_, 1 | 2) => Harm::CutAfter,
        (_, 3) => Harm::DelayRequest(ms(rng, 1..400)),
        (_, 4) => Harm::HoldRequest,
        _ => reply(rng),
    };
    NetworkFault::Frames { target, harm, times: rng.usize(1..4) }
}

/// What is asked of the nodes of a cluster, and of nobody else.
fn in_cluster(fault: NetworkFault, rng: &mut Rng) -> NetworkFault {
    let NetworkFault::Frames { target, harm, times } = fault else { return fault };
    let target = match target {
        Target::Command("SUBSCRIBE") => Target::Command("SSUBSCRIBE"),
        Target::Command(_) => {
            Target::Command(["CLUSTER", "ASKING", "WAIT", "HELLO"][rng.usize(..4)])
        }
        other => other,
    };
    NetworkFault::Frames { target, harm, times }
}

/// Never for so long that the connection needs more time to recover than a calm time leaves it: TCP repeats after a pause that
/// doubles.
fn cut_off(topology: Topology, rng: &mut Rng) -> Action {
    let (worker, time) = (rng.usize(..topology.workers()), ms(rng, 50..1_400));
    if rng.u32(..8) == 0 {
        return Action::Unplug { worker, time };
    }
    let (all, one) = (topology.servers(), rng.usize(..topology.servers()));
    let servers = if rng.bool() { 0..all } else { one..one + 1 };
    let (way, wire) = (way(rng), wire(rng));
    Action::CutOff { worker, servers, way, wire, time }
}

fn way(rng: &mut Rng) -> Way {
    [Way::Both, Way::Out, Way::In][rng.usize(..3)]
}

fn wire(rng: &mut Rng) -> Wire {
    if rng.u32(..4) == 0 { Wire::Lossy(rng.u32(5..60)) } else { Wire::Cut }
}

/// As `deck`, for servers on hosts. Half of it lasts for so long that a replica takes over, if the others miss the primary.
fn hosts_deck(rng: &mut Rng) -> Vec<ServerFault> {
    let mut blows = vec![
        Blow::Freeze(Near::Primary),
        Blow::Freeze(Near::Primary),
        Blow::Freeze(Near::Replica),
        Blow::Kill(Near::Primary),
        Blow::Kill(Near::Primary),
        Blow::Kill(Near::Replica),
        Blow::Slow { near: Near::Primary, way: way(rng) },
        Blow::Slow { near: Near::Replica, way: way(rng) },
    ];
    for way in [Way::Both, Way::Out, Way::In] {
        for far in [Far::All, Far::Servers, Far::Workers] {
            blows.push(Blow::Part { near: Near::Primary, far, way, wire: wire(rng) });
        }
        blows.push(Blow::Part { near: Near::Replica, far: Far::All, way, wire: wire(rng) });
        for _ in 0..2 {
            let near = Near::PrimaryAndWorkers;
            blows.push(Blow::Part { near, far: Far::All, way, wire: Wire::Cut });
        }
    }
    let long = |rng: &mut Rng| {
        if rng.bool() { ms(rng, 4_000..7_000) } else { ms(rng, 200..2_500) }
    };
    let mut deck: Vec<_> = blows
        .into_iter()
        .map(|blow| ServerFault::Blow(LOCKS[rng.usize(..LOCKS.len())], blow, long(rng)))
        .collect();
    rng.shuffle(&mut deck);
    deck
}

/// Redisson's scripts have no names here: half of the faults strike whatever script comes.
fn with_redisson(fault: NetworkFault, rng: &mut Rng) -> NetworkFault {
    match fault {
        NetworkFault::Frames { target: Target::Script(_), harm, times } if rng.bool() => {
            NetworkFault::Frames { target: Target::Command("EVALSHA"), harm, times }
        }
        other => other,
    }
}

/// As `deck`, without what takes from Redis the tokens of Redisson's fenced lock, which begin anew then. Nor is a semaphore
/// deleted: permits that are given back later would be more than there were.
fn redisson_deck(rng: &mut Rng) -> Vec<ServerFault> {
    let is_semaphore = |lock: &str| matches!(settings::kind_of(lock), Some(Kind::Permits(_)));
    let mut deck = deck(rng);
    deck.retain(|fault| match fault {
        ServerFault::RestartEmpty | ServerFault::FlushAll => false,
        ServerFault::Promote(_) | ServerFault::Demote(_) | ServerFault::Misdirect(_) => false,
        ServerFault::Del(lock) | ServerFault::ForceUnlock(lock) => !is_semaphore(lock),
        _ => true,
    });
    deck
}

/// As `deck`, without what takes from Redis what it has granted: nothing excuses two holders then, or a loss.
fn lasting_deck(rng: &mut Rng) -> Vec<ServerFault> {
    let mut deck = redisson_deck(rng);
    deck.retain(|fault| !matches!(fault, ServerFault::Del(_) | ServerFault::ForceUnlock(_)));
    deck
}

/// As `deck`, for a cluster. Whatever befalls its nodes hits the part that one of the locks lies in.
fn cluster_deck(rng: &mut Rng) -> Vec<ServerFault> {
    let locks: Vec<_> = LOCKS.into_iter().chain(FAMILY.map(|(name, _)| name)).collect();
    let lock = |rng: &mut Rng| locks[rng.usize(..locks.len())];
    let mut deck = vec![
        ServerFault::FlushScripts,
        ServerFault::KillConnections("pubsub"),
        ServerFault::KillConnections("normal"),
        ServerFault::Pause(ms(rng, 20..700)),
        ServerFault::ClientPause(ms(rng, 20..400), ["ALL", "WRITE"][rng.usize(..2)]),
        ServerFault::MemoryFull(ms(rng, 50..300)),
        ServerFault::FlushAll,
        ServerFault::Del(lock(rng)),
        ServerFault::ForceUnlock(lock(rng)),
    ];
    let deaf = ms(rng, 0..300);
    for upheaval in [
        Upheaval::Move(ms(rng, 0..40)),
        Upheaval::Move(ms(rng, 0..40)),
        Upheaval::Move(Duration::ZERO),
        Upheaval::LeaveOpen(ms(rng, 50..600)),
        Upheaval::LeaveOpen(ms(rng, 50..2_000)),
        Upheaval::FailOver(Takes::Politely),
        Upheaval::FailOver(Takes::Politely),
        Upheaval::FailOver(Takes::ByForce(deaf)),
        Upheaval::FailOver(Takes::AtOnce(Duration::ZERO)),
        Upheaval::FailOver(Takes::AtOnce(deaf)),
        Upheaval::FailOver(Takes::AtOnce(LEASE + deaf)),
        Upheaval::Kill(Takes::ByForce(Duration::ZERO)),
        Upheaval::Kill(Takes::AtOnce(deaf)),
        Upheaval::Zombie(Takes::AtOnce(deaf), ms(rng, 20..1_000)),
        Upheaval::Zombie(Takes::ByForce(Duration::ZERO), ms(rng, 20..1_000)),
        Upheaval::Zombie(Takes::WhenMissed, ms(rng, 0..300)),
    ] {
        deck.push(ServerFault::Upheaval(lock(rng), upheaval));
    }
    rng.shuffle(&mut deck);
    deck
}

/// One card of each kind at least, so that a minute meets them all.
fn deck(rng: &mut Rng) -> Vec<ServerFault> {
    let locks: Vec<_> = LOCKS.into_iter().chain(FAMILY.map(|(name, _)| name)).collect();
    let lock = |rng: &mut Rng| locks[rng.usize(..locks.len())];
    let mut deck = Vec::new();
    for round in 0..2 {
        // Somebody nearly always has the hot lock, and a run has to take one away at least.
        let taken = ["hot", lock(rng)][round];
        deck.extend([
            ServerFault::FlushScripts,
            ServerFault::FlushScripts,
            ServerFault::KillConnections(["pubsub", "normal"][round]),
            ServerFault::Pause(ms(rng, 20..700)),
            ServerFault::ClientPause(ms(rng, 20..400), ["ALL", "WRITE"][round]),
            ServerFault::MemoryFull(ms(rng, 50..300)),
            ServerFault::RestartWithData,
            ServerFault::RestartWithData,
            ServerFault::Promote(ms(rng, 0..300)),
            ServerFault::Del(lock(rng)),
            ServerFault::ForceUnlock(taken),
        ]);
    }
    deck.extend([
        ServerFault::RestartWithData,
        ServerFault::RestartEmpty,
        ServerFault::Promote(Duration::ZERO),
        ServerFault::Demote(ms(rng, 20..300)),
        ServerFault::Misdirect(ms(rng, 100..400)),
        ServerFault::FlushAll,
    ]);
    rng.shuffle(&mut deck);
    deck
}
