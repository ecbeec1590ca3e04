//! What kind of lock is asked for: every library has the plain one, parklock and Redisson have them all.

use std::fmt;

use serde::{Deserialize, Serialize};

/// On the wire to a worker: `"fair"`, or `{"permits": 64}`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    #[default]
    Lock,
    Fair,
    Read,
    Write,
    /// One permit of a semaphore that has so many.
    Permits(u32),
}

impl Kind {
    /// The kinds that are compared. A semaphore of one permit excludes as a lock does, one of 64 shares.
    pub const ALL: [Self; 6] =
        [Self::Lock, Self::Fair, Self::Read, Self::Write, Self::Permits(64), Self::Permits(1)];

    /// Whether two may be inside at once.
    pub const fn shares(self) -> bool {
        match self {
            Self::Lock | Self::Fair | Self::Write => false,
            Self::Read => true,
            Self::Permits(permits) => permits > 1,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::Fair => f.write_str("fair"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Permits(permits) => write!(f, "semaphore{permits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_travels_as_the_java_program_reads_it() {
        let said = |kind: Kind| serde_json::to_string(&kind).expect("serializes");
        assert_eq!(said(Kind::Fair), r#""fair""#);
        assert_eq!(said(Kind::Permits(64)), r#"{"permits":64}"#);
    }
}
