//! The critical section: a read, a plain write, and a count of the updates that got lost between them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use tokio::task::yield_now;

use super::protocol::Check;

/// Every so many turns, a task lets others run between read and write: so a second holder shows.
const OPENED_EACH: u64 = 64;

/// A number that is only right if turns exclude each other.
#[derive(Debug)]
pub enum Section {
    Open,
    Memory(AtomicU64),
    File(File),
}

impl Section {
    pub fn new(check: &Check) -> Result<Self> {
        Ok(match check {
            Check::None => Self::Open,
            Check::Memory => Self::Memory(AtomicU64::new(0)),
            Check::File { path } => Self::File(File::options().read(true).write(true).open(path)?),
        })
    }

    /// Adds one, in two steps that nothing but the lock holds together. `turn` is the task's own count.
    pub async fn pass(&self, turn: u64) -> Result<()> {
        if matches!(self, Self::Open) {
            return Ok(());
        }
        let seen = self.read()?;
        if turn.is_multiple_of(OPENED_EACH) {
            yield_now().await;
        }
        self.write(seen + 1)
    }

    /// How many updates a number in memory lacks after `entered` turns. The process that hands out a file checks it.
    pub fn lost(&self, entered: u64) -> u64 {
        match self {
            Self::Memory(number) => entered.saturating_sub(number.load(Relaxed)),
            Self::Open | Self::File(_) => 0,
        }
    }

    fn read(&self) -> Result<u64> {
        Ok(match self {
            Self::Open => 0,
            Self::Memory(number) => number.load(Relaxed),
            Self::File(file) => read(file)?,
        })
    }

    fn write(&self, value: u64) -> Result<()> {
        match self {
            Self::Open => {}
            Self::Memory(number) => number.store(value, Relaxed),
            Self::File(file) => file.write_all_at(&value.to_le_bytes(), 0)?,
        }
        Ok(())
    }
}

/// The number in the file.
pub fn read(file: &File) -> Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_that_exclude_each_other_lose_nothing() {
        let section = Section::new(&Check::Memory).expect("needs nothing");
        for turn in 0..100 {
            section.pass(turn).await.expect("memory");
        }
        assert_eq!(section.lost(100), 0);
    }

    #[tokio::test]
    async fn turns_that_overlap_lose_an_update() {
        let section = Section::new(&Check::Memory).expect("needs nothing");
        let (a, b) = tokio::join!(section.pass(0), section.pass(0));
        a.and(b).expect("memory");
        assert_eq!(section.lost(2), 1);
    }
}
