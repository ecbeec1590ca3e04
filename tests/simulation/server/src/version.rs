//! The servers that this one can be.

/// Which server is simulated. They differ in the wording of errors and in small things that can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Redis 6.2
    Redis6_2,
    /// Redis 7.0
    Redis7_0,
    /// Redis 8.2
    Redis8_2,
    /// Valkey 9.1
    Valkey9_1,
}

impl Version {
    pub(crate) fn is_6(self) -> bool {
        self == Self::Redis6_2
    }

    pub(crate) fn is_valkey(self) -> bool {
        self == Self::Valkey9_1
    }

    /// Whether it has what came with Redis 7.2, from which Valkey descends.
    pub(crate) fn is_recent(self) -> bool {
        self >= Self::Redis8_2
    }

    pub(crate) fn name(self) -> &'static str {
        if self.is_valkey() { "Valkey" } else { "Redis" }
    }
}

impl Version {
    pub(crate) fn number(self) -> &'static str {
        match self {
            Self::Redis6_2 => "6.2.14",
            Self::Redis7_0 => "7.0.15",
            Self::Redis8_2 => "8.2.3",
            Self::Valkey9_1 => "9.1.2",
        }
    }
}
