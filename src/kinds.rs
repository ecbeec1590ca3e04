//! The kinds of locks: one row of data for each kind in each layout.
//!
//! Code that treats kinds differently matches on a column of the row: on [`Line`] (how callers wait), on [`Holders`] (who
//! may hold it together), or on [`Family`] (how the holders are stored, and the scripts, which are in `wire/family.rs`).

use crate::config::Layout;

/// The kind of a lock. A name belongs to one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Lock,
    /// Redisson's lock with its own counter.
    Fenced,
    Fair,
    Read,
    Write,
    Semaphore {
        permits: u32,
    },
    /// Redisson's semaphore whose permits have ids.
    Expirable {
        permits: u32,
    },
    Latch,
    Condition,
}

/// How many permits a writer takes. There are never this many readers.
pub(crate) const ALL: u32 = 1 << 30;

/// The scripts that serve a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Lock,
    Line,
    Latch,
    Condition,
    RedissonLock,
    RedissonFenced,
    RedissonFair,
    RedissonRead,
    RedissonWrite,
    RedissonSemaphore,
    RedissonLatch,
}

/// How a name becomes a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyFormat {
    /// The name between these two, with the same braces as in the channel.
    Tagged(&'static str, &'static str),
    /// The name as the user wrote it.
    Bare,
    /// A key that only parklock uses. It begins with this text, and ends with a brace.
    Own(&'static str),
}

/// The counter that numbers the grants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TokenCounter {
    /// One for all names.
    Shared,
    /// One for each name, which Java shares: a token is its number.
    Redissons,
}

/// The keys of a name, and their types.
#[derive(Debug)]
pub(crate) struct KeyFormats {
    /// The holders, or the count of a latch.
    pub(crate) lock: (KeyFormat, &'static str),
    /// The waiters, in order; in Redisson's layout also the leases of permits. For a latch in that layout, the requests that
    /// the server has carried out.
    pub(crate) line: (KeyFormat, &'static str),
    /// More notes about waiters and holders.
    pub(crate) notes: (KeyFormat, &'static str),
    pub(crate) tokens: TokenCounter,
}

/// How callers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// In parklock's line on the server. One caller of a client stands there for all of them.
    OfClients,
    /// In parklock's line. Each caller stands there separately, since the server keeps the order of all callers.
    OfCallers,
    /// In Redisson's line. Each caller stands there separately, and hears of its grant on its own channel.
    Redissons,
    /// In no line: the server knows no waiters. One caller of a client asks for all of them.
    None,
}

/// Who may hold it, and how the callers of one client share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holders {
    /// As [`HandedOn`](Self::HandedOn). A client finds its entry by name, and in the entry the holder, which
    /// may be re-entrant.
    Plain,
    /// One caller. Its client hands it from caller to caller without a request to the server. If each caller waits
    /// separately, the client hands it only to the caller right behind in the line.
    HandedOn,
    /// One caller. The next one has to ask the server.
    Single,
    /// Several callers at once, each with its own permits.
    Several,
    /// Several callers at once. A caller may join the hold of another caller of its client.
    Readers,
    /// Nobody: callers pass it.
    Nobody,
    /// One caller, which was notified. Its hold lasts only as long as a sign of life, and is not a lock that can be lost.
    Notified,
}

/// The properties of a kind in a layout, the same for all names.
#[derive(Debug)]
pub(crate) struct Row {
    /// What scripts call the kind.
    pub(crate) word: &'static str,
    pub(crate) layout: Layout,
    pub(crate) family: Family,
    /// The prefix of its channels.
    pub(crate) channel: &'static str,
    pub(crate) keys: KeyFormats,
    pub(crate) line: Line,
    pub(crate) holders: Holders,
}

impl Line {
    /// Whether waiters stand in parklock's line on the server.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::OfClients | Self::OfCallers)
    }

    /// Whether each caller waits separately.
    pub(crate) fn is_of_callers(self) -> bool {
        matches!(self, Self::OfCallers | Self::Redissons)
    }
}

impl Holders {
    /// Whether at most one caller holds it at a time.
    pub(crate) fn is_one(self) -> bool {
        matches!(self, Self::Plain | Self::HandedOn | Self::Single | Self::Notified)
    }

    /// Whether callers of one client may hold it side by side, in one entry.
    pub(crate) fn are_several(self) -> bool {
        matches!(self, Self::Several | Self::Readers)
    }

    pub(crate) fn is_handed_on(self) -> bool {
        matches!(self, Self::Plain | Self::HandedOn)
    }
}

impl Row {
    /// Whether a client may keep it idle while no other client wants it: only parklock's line says who wants it.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.line.is_ours() && self.holders == Holders::Plain
    }

    /// Whether the server tells the client of a change of the holders' key: see `wire/tracking.rs`. Where several clients hold it
    /// together, each of them changes the key all the time.
    pub(crate) fn is_tracked(&self) -> bool {
        let is_alone = self.holders.is_one() && self.holders != Holders::Notified;
        is_alone && (self.family.is_plain() || self.family == Family::Line)
    }

    /// Whether its guards can wait for a condition.
    pub(crate) fn has_conditions(&self) -> bool {
        self.layout == Layout::Native && self.holders.is_handed_on()
    }
}

impl Family {
    /// Whether the holder is in the hash of a plain lock.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::Lock | Self::RedissonLock | Self::RedissonFenced)
    }

    /// Whether one request renews several of them: those for which it touches only the key of the holders.
    pub(crate) fn shares_renewals(self) -> bool {
        self.is_plain() || matches!(self, Self::Line | Self::Condition | Self::RedissonWrite)
    }
}

/// The prefixes of a native lock's keys. The name follows, in braces.
pub(crate) const NATIVE_LOCK: &str = "lock:";
pub(crate) const NATIVE_LINE: &str = "lock_queue:";
pub(crate) const NATIVE_CHANNEL: &str = "lock_channel:";
pub(crate) const REDISSON_CHANNEL: &str = "redisson_lock__channel:";
pub(crate) const REDISSON_FAIR_LINE: &str = "redisson_lock_queue:";
pub(crate) const REDISSON_TOKENS: &str = "redisson_lock_token:";
const REDISSON_RW_CHANNEL: &str = "redisson_rwlock:";
const REDISSON_SEMAPHORE_CHANNEL: &str = "redisson_sc:";
const REDISSON_LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__";

/// The prefixes of parklock's own keys beside a lock. In Redisson's layout a name is a key, so no name may have such a
/// prefix.
pub(crate) const PERMITS: &str = "lock_permits:{";
const REQUESTS: &str = "lock_requests:{";
pub(crate) const NOTES: &str = "lock_notes:{";
/// What clients write about themselves: the id of the client follows.
pub(crate) const CLIENTS: &str = "lock_client:{";
pub(crate) const OWN_PREFIXES: [&str; 4] = [PERMITS, REQUESTS, NOTES, CLIENTS];

/// The counter behind all fencing tokens, the only key that never expires. In the native layout no lock can have this
/// key, since the keys of locks have braces.
pub(crate) const TOKEN_COUNTER: &str = "lock:grants";

/// The keys of a kind in the native layout. Kinds differ only in the type of the lock's key.
const fn native_keys(lock: &'static str) -> KeyFormats {
    KeyFormats {
        lock: (KeyFormat::Tagged(NATIVE_LOCK, ""), lock),
        line: (KeyFormat::Tagged(NATIVE_LINE, ""), "zset"),
        notes: (KeyFormat::Own(NOTES), "hash"),
        tokens: TokenCounter::Shared,
    }
}

/// What native kinds have in common, unless their rows say otherwise.
const NATIVE: Row = Row {
    word: "lock",
    layout: Layout::Native,
    family: Family::Line,
    channel: NATIVE_CHANNEL,
    keys: native_keys("zset"),
    line: Line::OfClients,
    holders: Holders::HandedOn,
};

static LOCK: Row =
    Row { family: Family::Lock, keys: native_keys("hash"), holders: Holders::Plain, ..NATIVE };

static FAIR: Row = Row { word: "fair", line: Line::OfCallers, ..NATIVE };

static READ: Row = Row { word: "rw", holders: Holders::Readers, ..NATIVE };

static WRITE: Row = Row { word: "rw", ..NATIVE };

static SEMAPHORE: Row = Row { word: "semaphore", holders: Holders::Several, ..NATIVE };

static LATCH: Row = Row {
    word: "latch",
    family: Family::Latch,
    keys: native_keys("string"),
    line: Line::None,
    holders: Holders::Nobody,
    ..NATIVE
};

/// Each waiter has its own place, since each notification is for one waiter.
static CONDITION: Row = Row {
    word: "condition",
    family: Family::Condition,
    line: Line::OfCallers,
    holders: Holders::Notified,
    ..NATIVE
};

/// A lock in Redisson's layout. It has one key, and passes it for every other key of a script.
const REDISSON: Row = Row {
    word: "lock",
    layout: Layout::Redisson,
    family: Family::RedissonLock,
    channel: REDISSON_CHANNEL,
    keys: KeyFormats {
        lock: (KeyFormat::Bare, "hash"),
        line: (KeyFormat::Bare, "hash"),
        notes: (KeyFormat::Bare, "hash"),
        tokens: TokenCounter::Shared,
    },
    line: Line::None,
    holders: Holders::Plain,
};

static REDISSON_LOCK: Row = REDISSON;

static REDISSON_FENCED: Row = Row {
    family: Family::RedissonFenced,
    keys: KeyFormats { tokens: TokenCounter::Redissons, ..REDISSON.keys },
    holders: Holders::Single,
    ..REDISSON
};

static REDISSON_FAIR: Row = Row {
    word: "fair",
    family: Family::RedissonFair,
    keys: KeyFormats {
        line: (KeyFormat::Tagged(REDISSON_FAIR_LINE, ""), "list"),
        notes: (KeyFormat::Tagged("redisson_lock_timeout:", ""), "zset"),
        ..REDISSON.keys
    },
    line: Line::Redissons,
    holders: Holders::Single,
    ..REDISSON
};

static REDISSON_READ: Row =
    Row { family: Family::RedissonRead, holders: Holders::Readers, ..REDISSON_RW };

const REDISSON_RW: Row = Row {
    word: "rw",
    family: Family::RedissonWrite,
    channel: REDISSON_RW_CHANNEL,
    keys: KeyFormats {
        line: (KeyFormat::Own(PERMITS), "zset"),
        notes: (KeyFormat::Tagged("", ""), "hash"),
        ..REDISSON.keys
    },
    holders: Holders::HandedOn,
    ..REDISSON
};

static REDISSON_WRITE: Row = REDISSON_RW;

const REDISSON_PERMITS: Row = Row {
    word: "semaphore",
    family: Family::RedissonSemaphore,
    channel: REDISSON_SEMAPHORE_CHANNEL,
    keys: KeyFormats {
        lock: (KeyFormat::Bare, "string"),
        line: (KeyFormat::Own(PERMITS), "zset"),
        notes: (KeyFormat::Own(NOTES), "hash"),
        ..REDISSON.keys
    },
    holders: Holders::Several,
    ..REDISSON
};

static REDISSON_SEMAPHORE: Row = REDISSON_PERMITS;

static REDISSON_EXPIRABLE: Row = Row {
    word: "expirable",
    keys: KeyFormats { line: (KeyFormat::Tagged("", ":timeout"), "zset"), ..REDISSON_PERMITS.keys },
    ..REDISSON_PERMITS
};

static REDISSON_LATCH: Row = Row {
    word: "latch",
    family: Family::RedissonLatch,
    channel: REDISSON_LATCH_CHANNEL,
    keys: KeyFormats { line: (KeyFormat::Own(REQUESTS), "zset"), ..REDISSON_PERMITS.keys },
    holders: Holders::Nobody,
    ..REDISSON_PERMITS
};

impl Kind {
    /// The row of this kind in this layout.
    pub(crate) fn row(self, layout: Layout) -> &'static Row {
        match (layout, self) {
            // Redisson has two kinds here; the native layout has one.
            (Layout::Native, Self::Lock | Self::Fenced) => &LOCK,
            (Layout::Native, Self::Fair) => &FAIR,
            (Layout::Native, Self::Read) => &READ,
            (Layout::Native, Self::Write) => &WRITE,
            (Layout::Native, Self::Semaphore { .. } | Self::Expirable { .. }) => &SEMAPHORE,
            (Layout::Native, Self::Latch) => &LATCH,
            // Redisson has no conditions, and `locks/condition.rs` creates none in its layout.
            (_, Self::Condition) => &CONDITION,
            (Layout::Redisson, Self::Lock) => &REDISSON_LOCK,
            (Layout::Redisson, Self::Fenced) => &REDISSON_FENCED,
            (Layout::Redisson, Self::Fair) => &REDISSON_FAIR,
            (Layout::Redisson, Self::Read) => &REDISSON_READ,
            (Layout::Redisson, Self::Write) => &REDISSON_WRITE,
            (Layout::Redisson, Self::Semaphore { .. }) => &REDISSON_SEMAPHORE,
            (Layout::Redisson, Self::Expirable { .. }) => &REDISSON_EXPIRABLE,
            (Layout::Redisson, Self::Latch) => &REDISSON_LATCH,
        }
    }

    /// What errors call a kind that scripts call by this word, perhaps with its capacity after it: `fair`, `semaphore 3`.
    pub(crate) fn called(words: &str) -> String {
        match words.split_once(' ').unwrap_or((words, "")) {
            ("fair", _) => "fair lock".into(),
            ("rw", _) => "read-write lock".into(),
            ("latch", _) => "count-down latch".into(),
            ("semaphore" | "expirable", "") => "semaphore".into(),
            ("semaphore" | "expirable", "1") => "semaphore of 1 permit".into(),
            ("semaphore" | "expirable", permits) => format!("semaphore of {permits} permits"),
            (word @ ("lock" | "condition"), _) => word.into(),
            _ => words.into(),
        }
    }

    /// The kind's name in the metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fenced => "fenced",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Semaphore { .. } => "semaphore",
            Self::Expirable { .. } => "expirable",
            Self::Latch => "latch",
            Self::Condition => "condition",
        }
    }

    /// Whether a user asks for a number of permits.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Self::Semaphore { .. } | Self::Expirable { .. })
    }

    /// The capacity: how many permits there are.
    pub(crate) fn capacity(self) -> u32 {
        match self {
            Self::Lock | Self::Fenced | Self::Fair => 1,
            Self::Read | Self::Write | Self::Condition => ALL,
            Self::Semaphore { permits } | Self::Expirable { permits } => permits,
            Self::Latch => 0,
        }
    }

    /// How many permits a caller asks for if it names no number.
    pub(crate) fn usual_permits(self) -> u32 {
        if self == Self::Write { ALL } else { 1 }
    }
}

impl Layout {
    /// The message that a release publishes: the client's id, so that a client recognizes its own messages. Redisson's
    /// subscribers parse a number and fail on anything else.
    pub(crate) fn message(self, from: &str) -> &str {
        match self {
            Self::Native => from,
            Self::Redisson => "0",
        }
    }

    /// The folder of scripts that a client of this layout never calls.
    pub(crate) fn never_calls(self) -> &'static str {
        match self {
            Self::Native => "redisson/",
            Self::Redisson => "line/",
        }
    }
}
