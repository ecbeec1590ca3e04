//! The proof of holding a lock on a majority of servers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::engine::Ended;
use crate::error::{Error, Result};
use crate::guard::{Guard, Hold};

/// A [`RedLock`](crate::RedLock) that is held: on a majority of its servers, or on more of them.
///
/// It is valid as long as a majority of its parts is. Dropped, it gives all of them back in the
/// background. It has no fencing token: the servers count each for itself.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct RedGuard {
    guards: Vec<Guard>,
    hold: RedHold,
}

impl RedGuard {
    pub(crate) fn new(guards: Vec<Guard>, majority: usize) -> Self {
        let hold = RedHold { parts: guards.iter().map(Guard::hold).collect(), majority };
        Self { guards, hold }
    }

    /// Gives the lock back on all servers at once, and tells how it went.
    ///
    /// # Cancel safety
    /// As [`Guard::unlock`].
    ///
    /// # Errors
    /// None if a majority confirmed it. Otherwise [`Error::Lost`] if some of them had it no more,
    /// or what the first of the others reported.
    pub async fn unlock(self) -> Result<()> {
        of_majority(self.guards.into_iter().map(Guard::unlock), self.hold.majority).await
    }

    /// Makes the lease at least this long from now, on all servers at once.
    ///
    /// # Cancel safety
    /// As [`Guard::extend`].
    ///
    /// # Errors
    /// As [`Guard::extend`], if fewer than a majority agreed.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        let extended = self.guards.iter().map(|guard| guard.extend(lease));
        of_majority(extended, self.hold.majority).await
    }

    /// As [`Guard::is_valid`], of a majority.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// How long a majority stays ours if no renewal is confirmed from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves when the lock is no longer held: given back, or no longer by a majority.
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn lost(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.hold.lost()
    }

    pub(crate) fn hold(&self) -> RedHold {
        self.hold.clone()
    }

    /// On how many servers it is held now.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.hold.parts.iter().filter(|part| part.is_valid()).count()
    }
}

impl fmt::Debug for RedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.described(f.debug_struct("RedGuard"))
    }
}

/// What the work under a [`RedLock`](crate::RedLock) may know of it. It does not keep the lock.
#[derive(Clone)]
pub struct RedHold {
    parts: Arc<[Hold]>,
    majority: usize,
}

impl RedHold {
    /// As [`RedGuard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// As [`RedGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let mut remaining: Vec<_> = self.parts.iter().map(Hold::remaining).collect();
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        remaining.get(self.majority - 1).copied().unwrap_or(Duration::ZERO)
    }

    /// As [`RedGuard::lost`].
    pub fn lost(&self) -> impl Future<Output = Ended> + Send + 'static {
        let mut ends: FuturesUnordered<_> = self.parts.iter().map(Hold::lost).collect();
        let majority = self.majority;
        async move {
            // The parts are given back together, but lost one by one.
            while ends.len() >= majority {
                if let Some(Ended::Released) = ends.next().await {
                    return Ended::Released;
                }
            }
            Ended::Lost
        }
    }

    fn described(&self, mut described: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        described
            .field("parts", &self.parts)
            .field("majority", &self.majority)
            .field("remaining", &self.remaining())
            .finish()
    }
}

impl fmt::Debug for RedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.described(f.debug_struct("RedHold"))
    }
}

/// What a majority says, as soon as it has said it: the others are left to the background. If there is
/// none, a loss is worse news than an outage.
async fn of_majority<F>(asked: impl Iterator<Item = F>, majority: usize) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let mut asked: FuturesUnordered<_> = asked.collect();
    let (mut agreed, mut worst) = (0, None);
    while let Some(said) = asked.next().await {
        match said {
            Ok(()) => agreed += 1,
            Err(Error::Lost) => worst = Some(Error::Lost),
            Err(error) => worst = worst.or(Some(error)),
        }
        if agreed >= majority {
            return Ok(());
        }
    }
    Err(worst.unwrap_or(Error::Lost))
}
