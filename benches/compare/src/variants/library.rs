//! The libraries by name, and the two loops that are no library.

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Library {
    Parklock,
    /// parklock with `Config::keep`.
    ParklockKept,
    /// The classic pair of scripts, called bare.
    Floor,
    /// The bare loop of a crowd: a line of clients on the server, a release that grants to its head.
    Line,
    Rlock,
    Rslock,
    AsyncRedisLock,
    Redisson,
    /// No lock on Redis: the limit within one process.
    TokioMutex,
}

impl Library {
    pub const ALL: [Self; 9] = [
        Self::Parklock,
        Self::ParklockKept,
        Self::Floor,
        Self::Line,
        Self::Rlock,
        Self::Rslock,
        Self::AsyncRedisLock,
        Self::Redisson,
        Self::TokioMutex,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Parklock => "parklock",
            Self::ParklockKept => "parklock-kept",
            Self::Floor => "floor",
            Self::Line => "bare-line",
            Self::Rlock => "rlock",
            Self::Rslock => "rslock",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::Redisson => "redisson",
            Self::TokioMutex => "tokio-mutex",
        }
    }

    /// Whether it has every kind, and not the plain lock alone.
    pub const fn has_all_kinds(self) -> bool {
        matches!(self, Self::Parklock | Self::Redisson)
    }
}
