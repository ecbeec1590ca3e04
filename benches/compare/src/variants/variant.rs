//! The names of the variants, and what the workloads must know about each.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};

/// One row of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    Parklock,
    ParklockFair,
    Floor,
    Rlock,
    Rslock,
    AsyncRedisLock,
    Redisson,
    RedissonFair,
}

impl Variant {
    pub const ALL: [Self; 8] = [
        Self::Parklock,
        Self::ParklockFair,
        Self::Floor,
        Self::Rlock,
        Self::Rslock,
        Self::AsyncRedisLock,
        Self::Redisson,
        Self::RedissonFair,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Parklock => "parklock",
            Self::ParklockFair => "parklock-fair",
            Self::Floor => "floor",
            Self::Rlock => "rlock",
            Self::Rslock => "rslock",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::Redisson => "redisson",
            Self::RedissonFair => "redisson-fair",
        }
    }

    /// Reads one entry of `--against`. `redisson` stands for its plain and its fair lock.
    pub fn family(entry: &str) -> Result<Vec<Self>> {
        let one: Self = entry.trim().parse()?;
        Ok(match one {
            Self::Redisson => vec![Self::Redisson, Self::RedissonFair],
            other => vec![other],
        })
    }

    /// Whether the Java program plays it.
    pub const fn on_the_jvm(self) -> bool {
        matches!(self, Self::Redisson | Self::RedissonFair)
    }

    /// Whether it is the fair lock of a library that has others too.
    pub const fn is_fair(self) -> bool {
        matches!(self, Self::ParklockFair | Self::RedissonFair)
    }

    /// Whether it knows how to wait for a lock that somebody holds.
    pub const fn waits(self) -> bool {
        !matches!(self, Self::Floor)
    }

    /// The commands that it sends as they are, outside scripts.
    pub const fn sent_bare(self) -> &'static [&'static str] {
        match self {
            Self::Rlock | Self::Rslock => &["set"],
            _ => &[],
        }
    }

    /// How long after one renewal the next is due; `None` if nothing renews.
    pub fn renews_after(self, lease: Duration) -> Option<Duration> {
        match self {
            Self::Floor | Self::Rslock => None,
            Self::Rlock => Some(lease / 2),
            _ => Some(lease / 3),
        }
    }

    /// The key of a lock in Redis; the workloads' names need no escape.
    pub fn key(self, name: &str) -> String {
        match self {
            Self::Parklock | Self::ParklockFair | Self::Floor => format!("lock:{{{name}}}"),
            _ => name.to_owned(),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Variant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|variant| variant.name() == text) {
            Some(variant) => Ok(variant),
            None => bail!("{text:?} is none of {}", Self::ALL.map(Self::name).join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_variant() {
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse::<Variant>().ok(), Some(variant));
        }
        assert!("mutex".parse::<Variant>().is_err());
    }

    #[test]
    fn redisson_comes_plain_and_fair() {
        let both = Variant::family("redisson").expect("known");
        assert_eq!(both, [Variant::Redisson, Variant::RedissonFair]);
    }
}
