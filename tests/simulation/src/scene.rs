//! Scenes: short plays of what random work meets too seldom. A seed stages them with its own jitter.

use std::time::Duration;

use fastrand::Rng;
use parklock::{HandOff, Layout};

use crate::clock::{MILLI, SECOND};
use crate::plan::{
    ClientPlan, Fault, Kind, Moment, Name, Plan, Topology, What, Which, faults_among_servers,
    faults_of_sessions, millis,
};

/// Until when items are put into the buffer, and by when all of them must have been taken.
pub const BUFFER_FILLS: u64 = 9 * SECOND;
pub const BUFFER_ENDS: u64 = 24 * SECOND;

/// When the crowd of dead waiters dies.
pub const CROWD_DIES: u64 = 2 * SECOND;

/// One of the plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// `close()` while hundreds of guards are being unlocked.
    CloseBesideUnlocks,
    /// `close()` while the watchdog renews.
    CloseBesideRenewals,
    /// `close()` while locks are being asked for, by callers some of whom have gone.
    CloseBesideRequests,
    /// Many nested guards are dropped; another dropped guard's lock must be free all the same.
    NestedDrops,
    /// The next client in line dies, and the one after it cannot hear.
    DeafBehindDead,
    /// A client that looks often comes and goes, while others stand in line.
    ShortVisitor,
    /// The lock is deleted under its holder; others wait for it.
    SilentDelete,
    /// The server stalls. The waiters of a fair lock must not lose their order.
    Stall,
    /// The server restarts with its data. The waiters of a fair lock must not lose their order.
    Restart,
    /// Somebody publishes grants that the server has not made.
    ForgedGrant,
    /// One caller tries, and drops what it gets, again and again.
    TryLoop,
    /// A holder that nests is to be ended by `max_hold`.
    NestedMaxHold,
    /// More callers than may wait.
    Crowd,
    /// Two writers in one `join!`.
    JoinedWriters,
    /// The number of permits is set by one client and used by another.
    SetPermits,
    /// In Redisson's layout, a name and the same name in braces.
    Braces,
    /// In Redisson's layout, a lock that is called as our key for the line of another would be.
    LockTurn,
    /// All connections are cut again and again.
    KilledLinks,
    /// A lock of several parts, whose majority becomes free while an early part runs out.
    LatePart,
    /// The answers to attempts with a limit are lost.
    CutAttempts,
    /// A lock that is deleted and then handed on within its client.
    DeletedHandOff,
    /// The answers to counts of a latch are lost.
    LostCounts,
    /// The hold count in Redis, of a holder that nests.
    NestedCounts,
    /// A nested hold with a shorter lease, while somebody else waits.
    ShorterNested,
    /// A client with many callers beside one with a single caller.
    BusyNeighbour,
    /// Something that is no lock has the key of one of several that are asked for together.
    SquattedName,
    /// A waiter for a fair lock goes, and then its holder does.
    CancelledPlace,
    /// A writer waits while readers come.
    WriterBehindReaders,
    /// In Redisson's layout a reader that holds for longer than its lease, while others come and go.
    LongReader,
    /// The server forgets the scripts again and again.
    ForgottenScripts,
    /// A holder's new connections lead to a replica.
    MisledHolder,
    /// A lock is given back when its deadline is near, and another caller of the client waits.
    LateHandOff,
    /// Somebody gives back many permits at once, while somebody else keeps one.
    PartOfMany,
    /// The requests to give back are lost.
    LostReleases,
    /// A lock is deleted, and taken by another client before its holder renews it.
    TakenAway,
    /// A lock is handed to a caller that is not polled any more and then goes.
    HandedToNobody,
    /// Producers and consumers wait for conditions, and die.
    BoundedBuffer,
    /// As before, and nothing dies: connections and the server are in trouble.
    ShakenBuffer,
    /// The only waiter of a condition, whom nobody notifies.
    LoneWaiter,
    /// A process dies with hundreds of places in line, and callers of another one stand before, between and behind them.
    DeadCrowd,
    /// Random work on a primary whose replicas take over from it. All, some or none of them acknowledge.
    Replicas,
    /// Random work behind sentinels, likewise.
    Sentinel,
    /// Random work in a cluster, likewise, whose slots move.
    Cluster,
    /// Random work on one server. Half of the clients have a session.
    Sessions,
}

use Scene::{
    BoundedBuffer, Braces, BusyNeighbour, CancelledPlace, CloseBesideRenewals, CloseBesideRequests,
    CloseBesideUnlocks, Cluster, Crowd, CutAttempts, DeadCrowd, DeafBehindDead, DeletedHandOff,
    ForgedGrant, ForgottenScripts, HandedToNobody, JoinedWriters, KilledLinks, LateHandOff,
    LatePart, LockTurn, LoneWaiter, LongReader, LostCounts, LostReleases, MisledHolder,
    NestedCounts, NestedDrops, NestedMaxHold, PartOfMany, Replicas, Restart, Sentinel, Sessions,
    SetPermits, ShakenBuffer, ShortVisitor, ShorterNested, SilentDelete, SquattedName, Stall,
    TakenAway, TryLoop, WriterBehindReaders,
};

impl Scene {
    pub const ALL: [Self; 50] = [
        CloseBesideUnlocks,
        CloseBesideRenewals,
        CloseBesideRequests,
        NestedDrops,
        DeafBehindDead,
        ShortVisitor,
        SilentDelete,
        Stall,
        ForgedGrant,
        TryLoop,
        NestedMaxHold,
        Crowd,
        JoinedWriters,
        SetPermits,
        Braces,
        LockTurn,
        KilledLinks,
        LatePart,
        CutAttempts,
        DeletedHandOff,
        Restart,
        LostCounts,
        NestedCounts,
        ShorterNested,
        BusyNeighbour,
        SquattedName,
        CancelledPlace,
        WriterBehindReaders,
        LongReader,
        ForgottenScripts,
        MisledHolder,
        LateHandOff,
        PartOfMany,
        LostReleases,
        TakenAway,
        HandedToNobody,
        BoundedBuffer,
        ShakenBuffer,
        Cluster,
        Cluster,
        Cluster,
        Cluster,
        Replicas,
        Replicas,
        Sentinel,
        Sentinel,
        LoneWaiter,
        DeadCrowd,
        Sessions,
        Sessions,
    ];

    pub fn named(name: &str) -> Result<Self, String> {
        let named = |scene: &&Self| format!("{scene:?}").eq_ignore_ascii_case(name);
        let all = || format!("no scene is called {name}; there are {:?}", Self::ALL);
        Self::ALL.iter().find(named).copied().ok_or_else(all)
    }

    /// The scene that a seed plays, if it plays any: of a hundred seeds in a row, from 54 on, one plays each scene. Those of several
    /// servers are random work, and have more of them.
    pub fn of(seed: u64) -> Option<Self> {
        Self::ALL.get(((seed + 46) % 100) as usize).copied()
    }

    /// Whether its processes do random work, as they do without a scene.
    pub fn is_work(self) -> bool {
        matches!(self, Braces | LockTurn | Crowd | Sessions) || self.is_of_servers()
    }

    /// Whether its processes do not tell the board of all that they hold.
    pub fn is_discreet(self) -> bool {
        matches!(
            self,
            NestedDrops
                | NestedMaxHold
                | SetPermits
                | LatePart
                | NestedCounts
                | BoundedBuffer
                | ShakenBuffer
                | LoneWaiter
        )
    }

    /// Whether it is about several servers.
    fn is_of_servers(self) -> bool {
        matches!(self, Replicas | Sentinel | Cluster)
    }

    /// Random work on several servers.
    fn stage_servers(self, plan: &mut Plan, rng: &mut Rng) {
        let replicas = rng.usize(1..=2);
        plan.topology = match self {
            Cluster => Topology::Cluster { replicas },
            Sentinel => Topology::Sentinel { replicas },
            _ => Topology::Replicas { replicas },
        };
        let most = u32::try_from(replicas).unwrap_or(0);
        plan.acks = match rng.u32(..10) {
            0..4 => 0,
            4..8 => most,
            _ => rng.u32(1..=most),
        };
        // A client that waits for replicas has to give the server 100 ms more than them, and them more than their link takes.
        if plan.clients.iter().any(|client| client.response < Duration::from_millis(200)) {
            plan.acks = 0;
        }
        for client in &mut plan.clients {
            client.config = client.config.clone().replicas(plan.acks);
        }
        for name in plan.names.iter_mut().filter(|name| name.kind == Kind::Latch) {
            // Redisson puts a latch's name into braces in its channel, whatever braces it has.
            name.text = name.text.replace(['{', '}'], "");
        }
        plan.faults = faults_among_servers(plan, rng);
    }

    fn stage_sessions(plan: &mut Plan, rng: &mut Rng) {
        (plan.layout, plan.length) = (Layout::Native, 24 * SECOND);
        let name = |at| Name::any(at, Layout::Native, false, rng);
        plan.names = (0..plan.names.len().min(4)).map(name).collect();
        let clients = plan.clients.len().max(2);
        let client = |at: usize| match at % 2 {
            0 => ClientPlan::in_session(rng),
            _ => ClientPlan::any(Layout::Native, false, rng),
        };
        plan.clients = (0..clients).map(client).collect();
        plan.faults = faults_of_sessions(clients, rng);
    }

    /// Sets the plan up for it.
    pub fn stage(self, plan: &mut Plan, rng: &mut Rng) {
        if self.is_of_servers() {
            return self.stage_servers(plan, rng);
        }
        if self == Sessions {
            return Self::stage_sessions(plan, rng);
        }
        let redisson = matches!(self, Braces | LockTurn | LongReader);
        plan.layout = if redisson { Layout::Redisson } else { Layout::Native };
        (plan.length, plan.callers) = (12 * SECOND, 4);
        plan.names = self.names(rng);
        let clients = match self {
            CloseBesideUnlocks | CloseBesideRenewals | CloseBesideRequests | TryLoop
            | NestedMaxHold | JoinedWriters | CutAttempts | DeletedHandOff | LostCounts
            | NestedCounts | LostReleases | SquattedName | MisledHolder | LateHandOff
            | LoneWaiter => 1,
            NestedDrops | ForgedGrant | SetPermits | LatePart | ShorterNested | BusyNeighbour
            | ForgottenScripts | TakenAway | HandedToNobody => 2,
            KilledLinks | Stall | Restart | SilentDelete | BoundedBuffer | ShakenBuffer => 4,
            _ => 3,
        };
        if matches!(self, BoundedBuffer | ShakenBuffer) {
            plan.length = BUFFER_ENDS;
        }
        plan.clients = (0..clients).map(|at| self.client(at, plan.layout, rng)).collect();
        plan.faults = self.faults(rng);
    }

    fn names(self, rng: &mut Rng) -> Vec<Name> {
        let name = |text: &str, kind| Name { text: text.to_owned(), kind, within: None };
        match self {
            CloseBesideUnlocks | CloseBesideRenewals | CloseBesideRequests => {
                (0..250).map(|at| name(&format!("n{at}"), Kind::Lock)).collect()
            }
            Stall | Restart | ForgedGrant | CancelledPlace => vec![name("in line", Kind::Fair)],
            JoinedWriters | WriterBehindReaders | LongReader => vec![name("book", Kind::Rw)],
            LostCounts => vec![name("gate", Kind::Latch)],
            SquattedName => ["a", "b", "c", "d"].map(|text| name(text, Kind::Lock)).into(),
            ForgottenScripts => {
                vec![name("one", Kind::Lock), name("in line", Kind::Fair), name("book", Kind::Rw)]
            }
            SetPermits | PartOfMany => vec![name("berths", Kind::Permits(10))],
            Braces => vec![name("a", Kind::Permits(2)), name("{a}", Kind::Permits(2))],
            LockTurn => vec![name("a", Kind::Lock), name("lock_turn:{a}", Kind::Lock)],
            LatePart => ["a", "b", "c"].map(|text| name(text, Kind::Lock)).into(),
            NestedDrops => vec![name("nested", Kind::Lock), name("dropped", Kind::Lock)],
            DeadCrowd => vec![match rng.u32(..5) {
                0 => name("one", Kind::Lock),
                1 => name("in line", Kind::Fair),
                2 => name("berths", Kind::Permits(10)),
                _ => name("book", Kind::Rw),
            }],
            _ => vec![name("one", Kind::Lock)],
        }
    }

    fn client(self, at: usize, layout: Layout, rng: &mut Rng) -> ClientPlan {
        let usual = || ClientPlan::usual(layout, Duration::from_secs(3));
        let mut client = match (self, at) {
            (CloseBesideRenewals, _) => ClientPlan::usual(layout, millis(600)),
            (TryLoop | CutAttempts, _) => ClientPlan::usual(layout, Duration::from_secs(1)),
            (ShortVisitor, 2) => {
                ClientPlan::usual(layout, Duration::from_secs(30)).max_park(millis(100))
            }
            (ShortVisitor, _) => ClientPlan::usual(layout, Duration::from_secs(30)),
            (NestedMaxHold, _) => {
                ClientPlan::usual(layout, millis(600)).max_hold(Duration::from_secs(1))
            }
            (LongReader, 0) => ClientPlan::usual(layout, millis(600)),
            (CancelledPlace | HandedToNobody, _) => {
                ClientPlan::usual(layout, Duration::from_secs(16)).claim(Duration::from_secs(4))
            }
            (MisledHolder | LostReleases, _) => ClientPlan::usual(layout, Duration::from_secs(6)),
            (LateHandOff, _) => {
                let (max_consecutive, max_time) = (256, Duration::from_secs(10));
                let client = usual();
                let config = client.config.hand_off(HandOff { max_consecutive, max_time });
                ClientPlan { config, ..client }
            }
            (Crowd, _) => usual().max_waiters(3),
            (LoneWaiter, _) => {
                ClientPlan::usual(layout, Duration::from_secs(2)).max_park(millis(600))
            }
            // So that whoever looks for itself does so in time.
            (BoundedBuffer | ShakenBuffer, _) => usual().max_park(Duration::from_secs(2)),
            (ForgedGrant, _) => {
                ClientPlan::usual(layout, Duration::from_secs(8)).claim(Duration::from_secs(4))
            }
            (Restart, _) => {
                ClientPlan::usual(layout, Duration::from_secs(30)).claim(Duration::from_secs(4))
            }
            (DeadCrowd, _) => {
                let watchdog = Duration::from_secs(if rng.bool() { 3 } else { 30 });
                let max_park = Duration::from_secs([1, 10, 60][rng.usize(..3)]);
                ClientPlan::usual(layout, watchdog).max_park(max_park)
            }
            (NestedDrops, 0) => ClientPlan { way: (1_300_000, 1_301_000), ..usual() },
            _ => usual(),
        };
        client.seed = rng.u64(..);
        if matches!(self, CloseBesideRenewals | CloseBesideRequests) {
            // So far away that much is on its way at any moment.
            client.way = (15 * MILLI, 18 * MILLI);
        } else if self != NestedDrops {
            let near = rng.u64(100_000..5 * MILLI);
            client.way = (near, near + rng.u64(1_000..MILLI));
        }
        client
    }

    fn faults(self, rng: &mut Rng) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut add = |at: u64, what: What| faults.push(Fault { at, what });
        match self {
            DeafBehindDead => {
                add(2 * SECOND, What::Deny { long: 60 * SECOND });
                add(2 * SECOND + 1, What::Crash { client: 1, back: 60 * SECOND });
            }
            DeadCrowd => add(CROWD_DIES, What::Crash { client: 1, back: 10 * SECOND }),
            SilentDelete => add(2 * SECOND + rng.u64(..SECOND), What::Delete { name: 0 }),
            DeletedHandOff => add(SECOND, What::Delete { name: 0 }),
            LostCounts => (1..10).for_each(|at| {
                let moment = Moment::BeforeAnswer;
                add(at * SECOND, What::Cut { client: 0, link: Which::Command, moment });
            }),
            LostReleases => (1..10).for_each(|at| {
                let moment = Moment::BeforeRequest;
                add(at * SECOND, What::Cut { client: 0, link: Which::Command, moment });
            }),
            BoundedBuffer => (0..10).for_each(|_| {
                let (client, long) = (rng.usize(..4), rng.u64(50 * MILLI..2 * SECOND));
                let what = match rng.u32(..4) {
                    0 => What::Pause { client, long },
                    _ => What::Crash { client, back: long },
                };
                add(rng.u64(200 * MILLI..8 * SECOND), what);
            }),
            ShakenBuffer => (0..10).for_each(|_| {
                let (client, long) = (rng.usize(..4), rng.u64(50 * MILLI..SECOND));
                let what = match rng.u32(..12) {
                    0 => What::Stall { long },
                    1 => What::Restart { keeps: rng.bool(), long },
                    2 => What::ForgetScripts,
                    3 => What::Swallow { client, long },
                    4 => What::Failover { stale: long, lag: long },
                    5 => What::Delay { client, by: 200 * MILLI, long },
                    6 => What::Hole { client, link: rng.usize(..2), long, arrives: rng.bool() },
                    _ => What::Cut {
                        client,
                        link: Which::Any(rng.usize(..2)),
                        moment: Moment::any(rng),
                    },
                };
                add(rng.u64(200 * MILLI..8 * SECOND), what);
            }),
            TakenAway => add(2_400 * MILLI, What::Delete { name: 0 }),
            SquattedName => add(500 * MILLI, What::Squat { name: 0 }),
            ForgottenScripts => (1..16).for_each(|at| add(at * 500 * MILLI, What::ForgetScripts)),
            MisledHolder => {
                add(2 * SECOND, What::Mislead { client: 0, long: 1_500 * MILLI });
                for link in [Which::Command, Which::Subscriber] {
                    add(2 * SECOND + 1, What::Cut { client: 0, link, moment: Moment::Now });
                }
            }
            LateHandOff => add(500 * MILLI, What::Stall { long: 2_100 * MILLI }),
            Stall => add(SECOND + rng.u64(..SECOND), What::Stall { long: 1_050 * MILLI }),
            Restart => {
                let long = rng.u64(SECOND..6 * SECOND);
                add(SECOND + rng.u64(..SECOND), What::Restart { keeps: true, long });
            }
            // The waiter has given two signs of life by then: its first, and one when it could hear.
            ForgedGrant => add(1_500 * MILLI, What::Forge { name: 0, form: 4, beat: 1 }),
            Braces => (1..8).for_each(|at| {
                add(at * SECOND, What::Crash { client: at as usize % 3, back: 100 * MILLI });
            }),
            KilledLinks => {
                for client in 0..4 {
                    (0..50).for_each(|at| {
                        add(
                            SECOND + at * 100 * MILLI,
                            What::Cut { client, link: Which::Subscriber, moment: Moment::Now },
                        );
                    });
                    (0..10).for_each(|at| {
                        add(
                            SECOND + at * 500 * MILLI,
                            What::Cut { client, link: Which::Command, moment: Moment::Now },
                        );
                    });
                }
            }
            CutAttempts => (1..10).for_each(|at| {
                let moment = Moment::Silent;
                add(at * SECOND + 9 * MILLI, What::Cut { client: 0, link: Which::Command, moment });
            }),
            _ => {}
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }
}
