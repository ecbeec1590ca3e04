//! The proof of holding several locks.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::engine::{Ended, Hold};
use crate::error::Result;
use crate::guards::guard::Guard;
use crate::guards::guard_set::{GuardSet, View};
use crate::token::FencingToken;

/// The proof that all locks of a [`MultiLock`](crate::MultiLock) are held.
///
/// It is valid as long as every one of them is. The watchdog renews each lock for itself. A dropped guard gives all
/// of them back in the background.
#[must_use = "the locks are given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    parts: GuardSet,
}

impl MultiGuard {
    /// The guards are in the order in which the user named the locks.
    pub(crate) fn new(guards: Vec<Guard>) -> Self {
        let all = guards.len();
        Self { parts: GuardSet::new(guards, all) }
    }

    /// Gives all of the locks back at once, and reports the outcome.
    ///
    /// # Cancel safety
    /// As [`Guard::unlock`].
    ///
    /// # Errors
    /// As [`Guard::unlock`]: [`Error::Lost`](crate::Error::Lost) if any of them was not ours any more, and otherwise
    /// the first other error. A failure of one release does not stop the others.
    pub async fn unlock(self) -> Result<()> {
        self.parts.unlock().await
    }

    /// Makes the lease of all of them at least this long from now.
    ///
    /// # Cancel safety
    /// As [`Guard::extend`].
    ///
    /// # Errors
    /// As [`Guard::extend`], if it failed for any of them; others may have been extended.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.parts.extend(lease).await
    }

    /// The token of each lock, in the order in which they were named. A name that came twice
    /// has one token. Tokens of different locks do not compare: give each protected resource the token of its lock.
    #[must_use]
    pub fn tokens(&self) -> Vec<FencingToken> {
        tokens(&self.parts.view().parts)
    }

    /// As [`Guard::is_valid`], of all of them.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.view().is_valid()
    }

    /// How long all of them stay ours if no renewal is confirmed from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.parts.view().remaining()
    }

    /// Resolves when the locks are no longer held: given back, or the first of them lost.
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.parts.view().ended()
    }

    pub(crate) fn hold(&self) -> MultiHold {
        MultiHold { view: self.parts.view().clone() }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.view().described(f.debug_struct("MultiGuard"))
    }
}

/// What work under a [`MultiLock`](crate::MultiLock) can ask about its hold. It does not keep the locks.
#[derive(Clone)]
pub struct MultiHold {
    view: View,
}

impl MultiHold {
    /// As [`MultiGuard::tokens`].
    #[must_use]
    pub fn tokens(&self) -> Vec<FencingToken> {
        tokens(&self.view.parts)
    }

    /// As [`MultiGuard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.view.is_valid()
    }

    /// As [`MultiGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// As [`MultiGuard::ended`].
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.view.ended()
    }
}

impl fmt::Debug for MultiHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.described(f.debug_struct("MultiHold"))
    }
}

fn tokens(parts: &[Hold]) -> Vec<FencingToken> {
    parts.iter().map(Hold::token).collect()
}
