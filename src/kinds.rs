//! The kinds of locks: one row of data for each kind in each layout.
//!
//! Code that treats kinds differently looks up the difference here, in a column of the row. The scripts of a row are in
//! `wire/family.rs`, under its [`Family`].

use std::borrow::Cow;

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
    /// One key for all names.
    Shared(&'static str),
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
    /// The token counter.
    pub(crate) tokens: KeyFormat,
}

/// The properties of a kind in a layout, the same for all names.
#[derive(Debug)]
pub(crate) struct Row {
    /// What scripts call the kind.
    pub(crate) word: &'static str,
    pub(crate) family: Family,
    /// The prefix of its channels.
    pub(crate) channel: &'static str,
    pub(crate) keys: KeyFormats,

    // The names.
    /// In keys and channels, the braces of a name are encoded, and channels contain the number of the database.
    pub(crate) escapes: bool,
    /// A name with braces is still wrapped in braces.
    pub(crate) always_braced: bool,
    /// A waiter hears of its grant on its own channel.
    pub(crate) waiter_has_channel: bool,

    // The requests.
    /// It has the hash and the scripts of a plain lock: one request takes, renews or releases several locks.
    pub(crate) lies_as_plain: bool,
    /// One acquire can also release, in the same step, an earlier tenure of its client. Acquire and force then have the
    /// form that all native kinds share.
    pub(crate) exchanges: bool,
    /// Its scripts get the key of the requests that the server has carried out, after the other keys.
    pub(crate) has_requests: bool,
    /// Waiters stand in parklock's line on the server.
    pub(crate) has_line: bool,
    /// Each caller waits separately, since the server keeps the order of all callers. Otherwise one caller of a client
    /// waits for all of them.
    pub(crate) waits_alone: bool,
    /// A renewal touches only the key of the holders.
    pub(crate) is_renewed_alone: bool,
    /// Its token is the number of the server's counter, which Java shares.
    pub(crate) token_is_number: bool,

    // The callers of one client.
    /// A client finds its entry by name, and in the entry the holder, which may be re-entrant.
    pub(crate) is_plain: bool,
    /// Several callers may hold it at once.
    pub(crate) is_shared: bool,
    /// One caller at a time may hold it, and its client hands it from caller to caller without a request to the server.
    /// If each caller waits separately, the client hands it only to the caller right behind in the line.
    pub(crate) is_handed_on: bool,
    /// A client may keep it idle while no other client wants it.
    pub(crate) is_kept: bool,
    /// A caller may join the hold of another caller of its client.
    pub(crate) is_joined: bool,
    /// Callers pass it, and do not hold it.
    pub(crate) is_passed: bool,
    /// Its guards can wait for a condition.
    pub(crate) has_conditions: bool,
    /// Its holds are notifications: a hold lasts only as long as a sign of life, and is not a lock that can be lost.
    pub(crate) is_notice: bool,
    /// A missing latch counts as open.
    pub(crate) is_open_if_absent: bool,
    /// How many permits a caller asks for if it names no number.
    pub(crate) asks_for: u32,
}

/// The prefixes of a native lock's keys. The name follows, in braces.
pub(crate) const NATIVE_LOCK: &str = "lock:";
pub(crate) const NATIVE_LINE: &str = "lock_queue:";
pub(crate) const NATIVE_CHANNEL: &str = "lock_channel:";
pub(crate) const REDISSON_CHANNEL: &str = "redisson_lock__channel:";
pub(crate) const REDISSON_FAIR_LINE: &str = "redisson_lock_queue:";
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

const TOKENS: KeyFormat = KeyFormat::Shared(TOKEN_COUNTER);

/// The keys of a kind in the native layout. Kinds differ only in the type of the lock's key.
const fn native_keys(lock: &'static str) -> KeyFormats {
    KeyFormats {
        lock: (KeyFormat::Tagged(NATIVE_LOCK, ""), lock),
        line: (KeyFormat::Tagged(NATIVE_LINE, ""), "zset"),
        notes: (KeyFormat::Own(NOTES), "hash"),
        tokens: TOKENS,
    }
}

/// A native kind that one caller may hold at a time.
const NATIVE: Row = Row {
    word: "",
    family: Family::Line,
    channel: NATIVE_CHANNEL,
    keys: native_keys("zset"),
    escapes: true,
    always_braced: true,
    waiter_has_channel: false,
    lies_as_plain: false,
    exchanges: true,
    has_requests: false,
    has_line: true,
    waits_alone: false,
    is_renewed_alone: true,
    token_is_number: false,
    is_plain: false,
    is_shared: false,
    is_handed_on: false,
    is_kept: false,
    is_joined: false,
    is_passed: false,
    has_conditions: false,
    is_notice: false,
    is_open_if_absent: false,
    asks_for: 1,
};

static LOCK: Row = Row {
    word: "lock",
    family: Family::Lock,
    keys: native_keys("hash"),
    lies_as_plain: true,
    is_plain: true,
    is_handed_on: true,
    is_kept: true,
    has_conditions: true,
    ..NATIVE
};

static FAIR: Row =
    Row { word: "fair", waits_alone: true, is_handed_on: true, has_conditions: true, ..NATIVE };

static READ: Row = Row { word: "rw", is_shared: true, is_joined: true, ..NATIVE };

static WRITE: Row =
    Row { word: "rw", is_handed_on: true, has_conditions: true, asks_for: ALL, ..NATIVE };

static SEMAPHORE: Row = Row { word: "semaphore", is_shared: true, ..NATIVE };

static LATCH: Row = Row {
    word: "latch",
    family: Family::Latch,
    keys: native_keys("string"),
    has_requests: true,
    has_line: false,
    is_shared: true,
    is_passed: true,
    ..NATIVE
};

/// Each waiter has its own place, since each notification is for one waiter.
static CONDITION: Row = Row {
    word: "condition",
    family: Family::Condition,
    has_requests: true,
    waits_alone: true,
    is_notice: true,
    ..NATIVE
};

/// A lock in Redisson's layout. It has one key, and passes it for every other key of a script.
const REDISSON: Row = Row {
    word: "lock",
    family: Family::RedissonLock,
    channel: REDISSON_CHANNEL,
    keys: KeyFormats {
        lock: (KeyFormat::Bare, "hash"),
        line: (KeyFormat::Bare, "hash"),
        notes: (KeyFormat::Bare, "hash"),
        tokens: TOKENS,
    },
    escapes: false,
    always_braced: false,
    lies_as_plain: true,
    exchanges: false,
    has_line: false,
    is_renewed_alone: false,
    ..NATIVE
};

static REDISSON_LOCK: Row = Row { is_plain: true, is_handed_on: true, ..REDISSON };

static REDISSON_FENCED: Row = Row {
    family: Family::RedissonFenced,
    keys: KeyFormats { tokens: KeyFormat::Tagged("redisson_lock_token:", ""), ..REDISSON.keys },
    token_is_number: true,
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
    waiter_has_channel: true,
    lies_as_plain: false,
    waits_alone: true,
    ..REDISSON
};

static REDISSON_READ: Row = Row {
    family: Family::RedissonRead,
    is_shared: true,
    is_joined: true,
    is_handed_on: false,
    asks_for: 1,
    ..REDISSON_RW
};

const REDISSON_RW: Row = Row {
    word: "rw",
    family: Family::RedissonWrite,
    channel: REDISSON_RW_CHANNEL,
    keys: KeyFormats {
        line: (KeyFormat::Own(PERMITS), "zset"),
        notes: (KeyFormat::Tagged("", ""), "hash"),
        ..REDISSON.keys
    },
    lies_as_plain: false,
    is_handed_on: true,
    asks_for: ALL,
    ..REDISSON
};

static REDISSON_WRITE: Row = Row { is_renewed_alone: true, ..REDISSON_RW };

const REDISSON_PERMITS: Row = Row {
    word: "semaphore",
    family: Family::RedissonSemaphore,
    channel: REDISSON_SEMAPHORE_CHANNEL,
    keys: KeyFormats {
        lock: (KeyFormat::Bare, "string"),
        line: (KeyFormat::Own(PERMITS), "zset"),
        notes: (KeyFormat::Own(NOTES), "hash"),
        tokens: TOKENS,
    },
    lies_as_plain: false,
    is_shared: true,
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
    always_braced: true,
    is_passed: true,
    // Redisson deletes a latch when it opens.
    is_open_if_absent: true,
    ..REDISSON_PERMITS
};

impl Kind {
    /// The row of this kind in this layout. Only this function asks which kind or layout it is.
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
    pub(crate) fn called(words: &str) -> Cow<'_, str> {
        match words.split_once(' ').unwrap_or((words, "")) {
            ("fair", _) => "fair lock".into(),
            ("rw", _) => "read-write lock".into(),
            ("latch", _) => "count-down latch".into(),
            ("semaphore" | "expirable", "") => "semaphore".into(),
            ("semaphore" | "expirable", "1") => "semaphore of 1 permit".into(),
            ("semaphore" | "expirable", permits) => {
                format!("semaphore of {permits} permits").into()
            }
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

    /// The capacity: how many permits there are.
    pub(crate) fn capacity(self) -> u32 {
        match self {
            Self::Lock | Self::Fenced | Self::Fair => 1,
            Self::Read | Self::Write | Self::Condition => ALL,
            Self::Semaphore { permits } | Self::Expirable { permits } => permits,
            Self::Latch => 0,
        }
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

    /// Whether waiters stand in parklock's line.
    pub(crate) fn has_lines(self) -> bool {
        self == Self::Native
    }
}
