//! What this program and its workers say to each other: one JSON object a line, orders in, replies out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::Waits;
use crate::variants::Kind;

/// An order to a worker. The first six prepare a job and are answered by `Ready`; the others move it on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    Turns(Turns),
    Relay(Relay),
    Herd(Herd),
    Hold(Hold),
    Churn(Churn),
    Steady(Steady),
    Go,
    Lock,
    Unlock,
    /// A herd has so long to get through.
    Finish {
        limit_ms: u64,
    },
    Stop,
}

/// With what a client connects.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Setup {
    pub url: String,
    /// The lease that a watchdog keeps up; the library's default if absent.
    pub lease_ms: Option<u64>,
    /// Which of the library's locks.
    pub kind: Kind,
    /// parklock only: how long it stays subscribed to a name that nobody uses; its default if absent.
    pub linger_ms: Option<u64>,
    /// parklock only: how long it keeps a lock idle that was given back; not at all if absent.
    pub keep_ms: Option<u64>,
}

impl Setup {
    pub fn lease(&self) -> Option<Duration> {
        self.lease_ms.map(Duration::from_millis)
    }
}

/// Each task locks and unlocks its name until the time is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turns {
    pub setup: Setup,
    /// The name of each task.
    pub names: Vec<String>,
    pub warm_ms: u64,
    pub timed_ms: u64,
    pub check: Check,
    /// Each task is a client of its own, with its own connections.
    pub own_clients: bool,
}

/// How a turn proves that nobody else has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Check {
    /// Nobody contends.
    None,
    /// A number in this process.
    Memory,
    /// A number in a file, shared with other processes.
    File { path: PathBuf },
}

/// One task, one name, locked and unlocked at a word.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Relay {
    pub setup: Setup,
    pub name: String,
}

/// Callers of one client that wait for what somebody else holds. From `Go` on they ask, in their order; `Finish` is said
/// when the holder lets go, and is answered by `Through`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Herd {
    pub setup: Setup,
    /// Asked for in turn: the first caller wants the first kind.
    pub kinds: Vec<Kind>,
    pub callers: usize,
    /// Each caller takes the next of so many names.
    pub names: usize,
}

/// Takes all that there is of so many names, and keeps it until `Unlock` or the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hold {
    pub setup: Setup,
    pub names: usize,
}

/// Locks and unlocks ever new names, in `marks` equal parts, each at a `Go`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Churn {
    pub setup: Setup,
    pub names: usize,
    pub marks: usize,
}

/// Each task takes its name and gives it back until it is told to stop, while others are held from the beginning to the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Steady {
    pub setup: Setup,
    /// The name of each task.
    pub names: Vec<String>,
    pub held: Vec<String>,
    /// Turns are counted for each such part of the time.
    pub tick_ms: u64,
}

/// What a worker answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The first line of a worker: the versions it runs on.
    Hello {
        versions: BTreeMap<String, String>,
    },
    Ready,
    Turned(Turned),
    /// `asked_ns`: when the lock was asked for. The Java program does not say it.
    Locked {
        #[serde(default)]
        asked_ns: u64,
        at_ns: u64,
    },
    /// `called_ns`: when the unlock was called; `errors`: how many of many unlocks ended with one.
    Unlocked {
        called_ns: u64,
        #[serde(default)]
        errors: usize,
    },
    Parked,
    Held,
    /// One part of a churn is done; `violations`: waiters that got a lock which was held.
    Marked {
        violations: u64,
    },
    Through(Through),
    Steadied(Steadied),
    /// How many of the locks the client still believed in when it was told to stop.
    Stopped {
        valid: usize,
    },
    Failed {
        why: String,
    },
}

impl Steadied {
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }
}

/// The result of `Turns`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Turned {
    /// Turns of each task that ended within the time.
    pub turns: Vec<u64>,
    /// All turns since `Go`, those included that ended after the time.
    pub entered: u64,
    /// Lost updates of the number in memory.
    pub lost: u64,
    /// Tasks that did not get the lock long after the time was over.
    pub unfinished: u64,
    /// Calls that ended with an error, and the first of these errors. The Java program gives up at the first one.
    #[serde(default)]
    pub errors: u64,
    #[serde(default)]
    pub first_error: Option<String>,
    pub waits: Waits,
}

/// The result of `Steady`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Steadied {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Turns that ended in each part of the time.
    pub ticks: Vec<u64>,
    /// The longest turn of all, from the call that takes the lock to the answer of the one that gives it back.
    pub longest_ns: u64,
    /// When each long one was over, and how long it took; and from where on they are told.
    pub long: Vec<(u64, u64)>,
    pub told_from_ns: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    /// Locks that were held from the beginning, and lost.
    pub lost: u64,
}

/// What became of a herd.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Through {
    /// Callers that had their turn and gave it back.
    pub served: usize,
    /// Callers that got an error instead, and the first of these errors.
    pub failed: usize,
    pub error: Option<String>,
    /// When the first came in, and when the last had given back; 0 if nobody did.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Callers that were let in after one that had asked later.
    pub overtaken: usize,
    /// Times that more were inside than there is room for.
    pub overfull: u64,
}

/// The name of the `i`th lock of a job that makes up its own names.
pub fn name(i: usize) -> String {
    format!("bench:{i}")
}
