//! The proof of holding several locks.

use std::fmt;
use std::time::Duration;

use crate::core::tenure::Ended;
use crate::engine::Hold;
use crate::error::Result;
use crate::guards::guard::Guard;
use crate::guards::guard_set::{GuardSet, View};
use crate::token::FencingToken;

/// The proof that all locks of a [`MultiLock`](crate::MultiLock) are held.
///
/// It is valid as long as every one of them is. The watchdog renews each lock separately. A dropped guard releases all
/// of them in the background. The guard of one lock, a [`Guard`], says what a guard cannot promise.
/// [`MultiLock`](crate::MultiLock) has an example.
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

    /// Releases all locks at once, and reports the outcome.
    ///
    /// # Cancel safety
    /// Same as [`Guard::unlock`].
    ///
    /// # Errors
    /// Same as [`Guard::unlock`]: [`Error::Lost`](crate::Error::Lost) if any of them was not ours any more, and
    /// otherwise the first other error. If one release fails, the others continue.
    ///
    /// # Panics
    /// Same as [`Guard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        self.parts.unlock().await
    }

    /// See [`GuardSet::run`].
    pub(crate) async fn run<T, F>(self, work: impl FnOnce(MultiHold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let work = work(self.hold());
        self.parts.run(work).await
    }

    /// Extends the lease of each lock to at least `lease` from now, between 10 ms and 24 h.
    ///
    /// # Cancel safety
    /// Same as [`Guard::extend`].
    ///
    /// # Errors
    /// Same as [`Guard::extend`], if it failed for any of them; others may have been extended.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.parts.extend(lease).await
    }

    /// The token of each lock, in the order in which the locks were named. A repeated name has one token. Tokens of
    /// different locks are not comparable: give each protected resource the token of its own lock.
    #[must_use]
    pub fn tokens(&self) -> Vec<FencingToken> {
        tokens(&self.parts.view.parts())
    }

    /// Whether all of them are valid: see [`Guard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.view.is_valid()
    }

    /// How long all of them stay ours if no renewal is confirmed from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.parts.view.remaining()
    }

    /// Resolves when the locks are no longer all held: released, or one of them lost.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// Same as [`Guard::ended`].
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.parts.view.ended()
    }

    /// A view of these holds that does not keep the locks: see [`Guard::hold`].
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.multi_lock(["doc:view:from", "doc:view:to"]).lock().await?;
    /// let hold = guard.hold();
    /// assert!(hold.is_valid());
    /// guard.unlock().await?;
    /// assert!(!hold.is_valid());
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn hold(&self) -> MultiHold {
        MultiHold { view: self.parts.view.clone() }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.view.described(f.debug_struct("MultiGuard"))
    }
}

/// A view of a [`MultiLock`](crate::MultiLock)'s hold, for the work that runs under it. It does not keep the locks.
/// [`MultiLock::run`](crate::MultiLock::run) passes it to the work, and has an example.
#[derive(Clone)]
pub struct MultiHold {
    view: View,
}

impl MultiHold {
    /// Same as [`MultiGuard::tokens`].
    #[must_use]
    pub fn tokens(&self) -> Vec<FencingToken> {
        tokens(&self.view.parts())
    }

    /// Same as [`MultiGuard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.view.is_valid()
    }

    /// Same as [`MultiGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// Same as [`MultiGuard::ended`].
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// Same as [`Guard::ended`].
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
