//! What there is to lock: one row of data for each kind in each layout.
//!
//! Code that treats one kind differently from another looks the difference up here, in a column of the row. The scripts
//! of a row are in `wire/family.rs`, under its [`Family`].

use crate::config::Layout;

/// The kind of thing that a name is for: one name, one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Lock,
    /// Redisson's lock with a counter of its own.
    Fenced,
    Fair,
    Read,
    Write,
    Semaphore {
        permits: u32,
    },
    /// Redisson's semaphore whose permits have names.
    Expirable {
        permits: u32,
    },
    Latch,
}

/// The permits that a writer takes: there are never so many readers.
pub(crate) const ALL: u32 = 1 << 30;

/// The scripts that serve a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Lock,
    Line,
    Latch,
    RedissonLock,
    RedissonFenced,
    RedissonFair,
    RedissonRead,
    RedissonWrite,
    RedissonSemaphore,
    RedissonLatch,
}

/// How a key is made of a name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyFormat {
    /// The name between these, with the braces that it has in the channel.
    Tagged(&'static str, &'static str),
    /// The name as the user wrote it.
    Bare,
    /// A key that parklock alone uses. It begins like this, and ends with a brace.
    Own(&'static str),
    /// One key for all names.
    Shared(&'static str),
}

/// The keys of a name, and the type that each of them has.
#[derive(Debug)]
pub(crate) struct KeyFormats {
    /// The holders, or how much is left.
    pub(crate) lock: (KeyFormat, &'static str),
    /// The waiters, in their order; in Redisson's layout also the leases of permits. For a latch, the requests
    /// that were carried out.
    pub(crate) line: (KeyFormat, &'static str),
    /// Further notes about waiters and holders.
    pub(crate) notes: (KeyFormat, &'static str),
    /// The counter of the tokens.
    pub(crate) tokens: KeyFormat,
}

/// What is true of a kind in a layout, whatever the name.
#[derive(Debug)]
pub(crate) struct Row {
    /// What the scripts call the kind.
    pub(crate) word: &'static str,
    pub(crate) family: Family,
    /// What its channels begin with.
    pub(crate) channel: &'static str,
    pub(crate) keys: KeyFormats,

    // The names.
    /// In keys and channels, a name has no brace of its own, and channels say the database.
    pub(crate) escapes: bool,
    /// A name that brings braces is put into braces all the same.
    pub(crate) always_braced: bool,
    /// A waiter is told on a channel of its own that it is let in.
    pub(crate) waiter_has_channel: bool,

    // The requests.
    /// The hash, and the scripts, of a plain lock: several are asked for, kept and given back in one request.
    pub(crate) lies_as_plain: bool,
    /// It is acquired and forced in the same form as all that has a [`Family`], and an acquire can give back in the same
    /// step what its client had before.
    pub(crate) exchanges: bool,
    /// Waiters stand in a line of parklock's on the server.
    pub(crate) has_line: bool,
    /// Each caller waits for itself, since the server knows the order of all. Otherwise one caller of a client waits
    /// for all of them.
    pub(crate) waits_alone: bool,
    /// Its token is the server's number, which others count too.
    pub(crate) token_is_number: bool,

    // The callers of one client.
    /// A client finds its entry by name, re-entrant holders among them.
    pub(crate) is_plain: bool,
    /// Several callers may have it at once.
    pub(crate) is_shared: bool,
    /// One caller at a time may have it, and its client hands it from caller to caller without a request to the server.
    pub(crate) is_handed_on: bool,
    /// A caller may join what another one of its client holds.
    pub(crate) is_joined: bool,
    /// Callers pass it, and do not hold it.
    pub(crate) is_passed: bool,
    /// A latch that is not there counts as open.
    pub(crate) is_open_if_absent: bool,
    /// How many permits a caller asks for that names no number.
    pub(crate) asks_for: u32,
}

pub(crate) const NATIVE_CHANNEL: &str = "lock_channel:";
pub(crate) const REDISSON_CHANNEL: &str = "redisson_lock__channel:";
const REDISSON_RW_CHANNEL: &str = "redisson_rwlock:";
const REDISSON_SEMAPHORE_CHANNEL: &str = "redisson_sc:";
const REDISSON_LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__";

/// What our own keys beside a lock begin with. In Redisson's layout a name is a key, so that no name may
/// begin like this.
const PERMITS: &str = "lock_permits:{";
const REQUESTS: &str = "lock_requests:{";
const NOTES: &str = "lock_notes:{";
pub(crate) const OWN_PREFIXES: [&str; 3] = [PERMITS, REQUESTS, NOTES];

/// The counter behind all fencing tokens, the one key that never expires. In the native layout no
/// lock can have this key, since theirs have braces.
pub(crate) const TOKEN_COUNTER: &str = "lock:grants";

const TOKENS: KeyFormat = KeyFormat::Shared(TOKEN_COUNTER);

/// The keys of a kind in the native layout, of which only the lock's type differs.
const fn native_keys(lock: &'static str) -> KeyFormats {
    KeyFormats {
        lock: (KeyFormat::Tagged("lock:", ""), lock),
        line: (KeyFormat::Tagged("lock_queue:", ""), "zset"),
        notes: (KeyFormat::Own(NOTES), "hash"),
        tokens: TOKENS,
    }
}

/// A kind in the native layout that one caller may have at a time.
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
    has_line: true,
    waits_alone: false,
    token_is_number: false,
    is_plain: false,
    is_shared: false,
    is_handed_on: false,
    is_joined: false,
    is_passed: false,
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
    ..NATIVE
};

static FAIR: Row = Row { word: "fair", waits_alone: true, ..NATIVE };

static READ: Row = Row { word: "rw", is_shared: true, is_joined: true, ..NATIVE };

static WRITE: Row = Row { word: "rw", is_handed_on: true, asks_for: ALL, ..NATIVE };

static SEMAPHORE: Row = Row { word: "semaphore", is_shared: true, ..NATIVE };

static LATCH: Row = Row {
    word: "latch",
    family: Family::Latch,
    keys: native_keys("string"),
    has_line: false,
    is_shared: true,
    is_passed: true,
    ..NATIVE
};

/// A lock in Redisson's layout. It has one key: where a script expects another, it is given the same.
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
        line: (KeyFormat::Tagged("redisson_lock_queue:", ""), "list"),
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

static REDISSON_WRITE: Row = REDISSON_RW;

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
    // Redisson's latches go when they open.
    is_open_if_absent: true,
    ..REDISSON_PERMITS
};

impl Kind {
    /// What is true of this kind in this layout. This is the one place that asks which kind or layout it is.
    pub(crate) fn row(self, layout: Layout) -> &'static Row {
        match (layout, self) {
            // What the two layouts tell apart for Redisson's sake is one in ours.
            (Layout::Native, Self::Lock | Self::Fenced) => &LOCK,
            (Layout::Native, Self::Fair) => &FAIR,
            (Layout::Native, Self::Read) => &READ,
            (Layout::Native, Self::Write) => &WRITE,
            (Layout::Native, Self::Semaphore { .. } | Self::Expirable { .. }) => &SEMAPHORE,
            (Layout::Native, Self::Latch) => &LATCH,
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

    /// How much of it there is.
    pub(crate) fn capacity(self) -> u32 {
        match self {
            Self::Lock | Self::Fenced | Self::Fair => 1,
            Self::Read | Self::Write => ALL,
            Self::Semaphore { permits } | Self::Expirable { permits } => permits,
            Self::Latch => 0,
        }
    }
}

impl Layout {
    /// The message that a release publishes: the client's name, so that no client takes its own message for another's.
    /// Redisson's subscribers parse a number and fail on anything else.
    pub(crate) fn message(self, from: &str) -> &str {
        match self {
            Self::Native => from,
            Self::Redisson => "0",
        }
    }

    /// The folder of scripts that no client of this layout calls.
    pub(crate) fn never_calls(self) -> &'static str {
        match self {
            Self::Native => "redisson/",
            Self::Redisson => "line/",
        }
    }

    /// Whether waiters stand in a line of parklock's.
    pub(crate) fn has_lines(self) -> bool {
        self == Self::Native
    }
}
