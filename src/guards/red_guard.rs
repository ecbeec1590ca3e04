//! The proof of holding a lock on a majority of servers.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::engine::Ended;
use crate::error::Result;
use crate::guards::guard::Guard;
use crate::guards::guard_set::{GuardSet, View};

/// The proof that a [`RedLock`](crate::RedLock) is held on a majority of its servers, or on more of them.
///
/// It is valid as long as a majority of its parts is. A dropped guard gives all of them back in the background. It
/// has no fencing token, since each server counts for itself.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct RedGuard {
    parts: GuardSet,
}

impl RedGuard {
    pub(crate) fn new(guards: Vec<Guard>, majority: usize) -> Self {
        Self { parts: GuardSet::new(guards, majority) }
    }

    /// Gives the lock back on all servers at once, and reports the outcome.
    ///
    /// # Cancel safety
    /// As [`Guard::unlock`].
    ///
    /// # Errors
    /// None if a majority confirmed the release. Otherwise [`Error::Lost`](crate::Error::Lost) if the lock was lost
    /// on any of the servers, or else the first other error.
    pub async fn unlock(self) -> Result<()> {
        self.parts.unlock().await
    }

    /// Makes the lease at least this long from now, on all servers at once.
    ///
    /// # Cancel safety
    /// As [`Guard::extend`].
    ///
    /// # Errors
    /// As [`Guard::extend`], if fewer than a majority agreed. If the lock is lost already, no server is asked.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.parts.extend(lease).await
    }

    /// As [`Guard::is_valid`]: whether a majority of the parts is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.view().is_valid()
    }

    /// How long a majority stays ours if no renewal is confirmed from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.parts.view().remaining()
    }

    /// Resolves when the lock is no longer held: given back, or no longer by a majority.
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.parts.view().ended()
    }

    pub(crate) fn hold(&self) -> RedHold {
        RedHold { view: self.parts.view().clone() }
    }

    /// On how many servers it is held now.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.parts.view().parts.iter().filter(|part| part.is_valid()).count()
    }
}

impl fmt::Debug for RedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.view().described(f.debug_struct("RedGuard"))
    }
}

/// What work under a [`RedLock`](crate::RedLock) can ask about its hold. It does not keep the lock.
#[derive(Clone)]
pub struct RedHold {
    view: View,
}

impl RedHold {
    /// As [`RedGuard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.view.is_valid()
    }

    /// As [`RedGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// As [`RedGuard::ended`].
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.view.ended()
    }
}

impl fmt::Debug for RedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.described(f.debug_struct("RedHold"))
    }
}
