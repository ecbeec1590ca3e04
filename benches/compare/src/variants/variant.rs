//! The names of the variants, and what the workloads must know about each.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Kind, Library};

/// One row of every table: a library, and the kind of its locks that plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant {
    pub library: Library,
    pub kind: Kind,
}

impl Variant {
    pub const PARKLOCK: Self = Self::plain(Library::Parklock);
    pub const PARKLOCK_FAIR: Self = Self { kind: Kind::Fair, ..Self::PARKLOCK };
    pub const PARKLOCK_KEPT: Self = Self::plain(Library::ParklockKept);
    pub const FLOOR: Self = Self::plain(Library::Floor);
    pub const LINE: Self = Self::plain(Library::Line);
    pub const RSLOCK: Self = Self::plain(Library::Rslock);
    pub const REDISSON: Self = Self::plain(Library::Redisson);
    pub const REDISSON_FAIR: Self = Self { kind: Kind::Fair, ..Self::REDISSON };
    #[cfg(test)]
    pub const RLOCK: Self = Self::plain(Library::Rlock);

    const fn plain(library: Library) -> Self {
        Self { library, kind: Kind::Lock }
    }

    /// Every kind that the library has, the plain one first.
    pub fn all_of(library: Library) -> impl Iterator<Item = Self> {
        let kinds = if library.has_all_kinds() { &Kind::ALL[..] } else { &Kind::ALL[..1] };
        kinds.iter().map(move |&kind| Self { library, kind })
    }

    fn all() -> impl Iterator<Item = Self> {
        Library::ALL.into_iter().flat_map(Self::all_of)
    }

    /// Reads one entry of `--against`. `redisson` stands for its plain and its fair lock.
    pub fn family(entry: &str) -> Result<Vec<Self>> {
        let one: Self = entry.trim().parse()?;
        Ok(match one {
            Self::REDISSON => vec![Self::REDISSON, Self::REDISSON_FAIR],
            other => vec![other],
        })
    }

    /// Whether the Java program plays it.
    pub const fn on_the_jvm(self) -> bool {
        matches!(self.library, Library::Redisson)
    }

    /// Whether it knows how to wait for a lock that somebody holds.
    pub const fn waits(self) -> bool {
        !matches!(self.library, Library::Floor)
    }

    /// The commands that it sends as they are, outside scripts.
    pub const fn sent_bare(self) -> &'static [&'static str] {
        match self.library {
            Library::Rlock | Library::Rslock => &["set"],
            // With the EXISTS that it goes with, in one piece.
            Library::Parklock | Library::ParklockKept => &["client|caching"],
            _ => &[],
        }
    }

    /// How long after one renewal the next is due; `None` if nothing renews.
    pub fn renews_after(self, lease: Duration) -> Option<Duration> {
        match self.library {
            Library::Floor | Library::Line | Library::Rslock | Library::TokioMutex => None,
            Library::Rlock => Some(lease / 2),
            _ => Some(lease / 3),
        }
    }

    /// The key of a lock in Redis; the workloads' names need no escape.
    pub fn key(self, name: &str) -> String {
        match self.library {
            Library::Parklock | Library::ParklockKept | Library::Floor => {
                format!("lock:{{{name}}}")
            }
            _ => name.to_owned(),
        }
    }

    /// The channel of a name to which more than one client may be subscribed, if the variant has one. Every other
    /// channel that it publishes to is one client's own.
    pub fn shared_channel(self, name: &str) -> Option<String> {
        match self.library {
            Library::Parklock | Library::ParklockKept => Some(format!("lock_channel:{{{name}}}")),
            Library::Redisson => Some(format!("redisson_lock__channel:{{{name}}}")),
            _ => None,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Lock => f.pad(self.library.name()),
            kind => f.pad(&format!("{}-{kind}", self.library.name())),
        }
    }
}

impl FromStr for Variant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::all().find(|variant| variant.to_string() == text) {
            Some(variant) => Ok(variant),
            None => {
                let known: Vec<String> = Self::all().map(|variant| variant.to_string()).collect();
                bail!("{text:?} is none of {}", known.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_variant() {
        for variant in Variant::all() {
            assert_eq!(variant.to_string().parse::<Variant>().ok(), Some(variant));
        }
        assert!("mutex".parse::<Variant>().is_err());
    }

    #[test]
    fn redisson_comes_plain_and_fair() {
        let both = Variant::family("redisson").expect("known");
        assert_eq!(both, [Variant::REDISSON, Variant::REDISSON_FAIR]);
    }
}
