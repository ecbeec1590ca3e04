//! Scenes: short plays of what random work meets too seldom. A seed stages them with its own jitter.

use std::time::Duration;

use fastrand::Rng;
use parklock::Layout;

use crate::clock::{MILLI, SECOND};
use crate::plan::{ClientPlan, Fault, Kind, Moment, Name, Plan, What, Which, millis};

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
    /// The next in line dies, and who comes after it cannot hear.
    DeafBehindDead,
    /// A client that looks often comes and goes, while others stand in line.
    ShortVisitor,
    /// The lock is deleted under its holder; others wait for it.
    SilentDelete,
    /// The server takes its time; those who wait in a fair queue must not lose their order.
    Stall,
    /// The server restarts with its data; those who wait in a fair queue must not lose their order.
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
}

use Scene::{
    Braces, CloseBesideRenewals, CloseBesideRequests, CloseBesideUnlocks, Crowd, CutAttempts,
    DeafBehindDead, DeletedHandOff, ForgedGrant, JoinedWriters, KilledLinks, LatePart, LockTurn,
    NestedDrops, NestedMaxHold, Restart, SetPermits, ShortVisitor, SilentDelete, Stall, TryLoop,
};

impl Scene {
    pub const ALL: [Self; 21] = [
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
    ];

    pub fn named(name: &str) -> Result<Self, String> {
        let named = |scene: &&Self| format!("{scene:?}").eq_ignore_ascii_case(name);
        let all = || format!("no scene is called {name}; there are {:?}", Self::ALL);
        Self::ALL.iter().find(named).copied().ok_or_else(all)
    }

    pub fn any(rng: &mut Rng) -> Self {
        Self::ALL[rng.usize(..Self::ALL.len())]
    }

    /// Whether its processes do random work, as they do without a scene.
    pub fn is_work(self) -> bool {
        matches!(self, Braces | LockTurn | Crowd)
    }

    /// Sets the plan up for it.
    pub fn stage(self, plan: &mut Plan, rng: &mut Rng) {
        let redisson = matches!(self, Braces | LockTurn);
        plan.layout = if redisson { Layout::Redisson } else { Layout::Native };
        (plan.length, plan.callers) = (12 * SECOND, 4);
        plan.names = self.names();
        let clients = match self {
            CloseBesideUnlocks | CloseBesideRenewals | CloseBesideRequests | TryLoop
            | NestedMaxHold | JoinedWriters | CutAttempts | DeletedHandOff => 1,
            NestedDrops | ForgedGrant | SetPermits | LatePart => 2,
            KilledLinks | Stall | Restart | SilentDelete => 4,
            _ => 3,
        };
        plan.clients = (0..clients).map(|at| self.client(at, plan.layout, rng)).collect();
        plan.faults = self.faults(rng);
    }

    fn names(self) -> Vec<Name> {
        let name = |text: &str, kind| Name { text: text.to_owned(), kind };
        match self {
            CloseBesideUnlocks | CloseBesideRenewals | CloseBesideRequests => {
                (0..250).map(|at| name(&format!("n{at}"), Kind::Lock)).collect()
            }
            Stall | Restart | ForgedGrant => vec![name("in line", Kind::Fair)],
            JoinedWriters => vec![name("book", Kind::Rw)],
            SetPermits => vec![name("berths", Kind::Permits(10))],
            Braces => vec![name("a", Kind::Permits(2)), name("{a}", Kind::Permits(2))],
            LockTurn => vec![name("a", Kind::Lock), name("lock_turn:{a}", Kind::Lock)],
            LatePart => ["a", "b", "c"].map(|text| name(text, Kind::Lock)).into(),
            NestedDrops => vec![name("nested", Kind::Lock), name("dropped", Kind::Lock)],
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
            (Crowd, _) => usual().max_waiters(3),
            (ForgedGrant, _) => {
                ClientPlan::usual(layout, Duration::from_secs(8)).claim(Duration::from_secs(4))
            }
            (Restart, _) => {
                ClientPlan::usual(layout, Duration::from_secs(30)).claim(Duration::from_secs(4))
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
            SilentDelete => add(2 * SECOND + rng.u64(..SECOND), What::Delete { name: 0 }),
            DeletedHandOff => add(SECOND, What::Delete { name: 0 }),
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
