//! The proof of holding a lock on a majority of servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use crate::core::tenure::Ended;
use crate::error::Result;
use crate::guards::guard_set::{GuardSet, View};

/// The proof that a [`RedLock`](crate::RedLock) is held on at least a majority of its servers.
///
/// It is valid as long as a majority of its parts is. A part that is lost is taken again when a renewal is due, if its
/// server grants it. Once a majority is lost, the guard stays lost. A dropped guard releases all of them in the background. It has no
/// fencing token, since each server counts separately. The guard of one lock, a [`Guard`](crate::Guard), says what a guard cannot
/// promise.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// use parklock::{Client, RedLock};
///
/// # let mut locks = Vec::new();
/// # for number in 0..3 { // the examples have one server for all
/// #     locks.push(Client::connect(&url).await?.lock(format!("doc:red_guard:{number}")));
/// # }
/// // `locks`: one of each of three independent servers.
/// let guard = RedLock::new(locks).lock().await?;
/// assert!(guard.servers() >= 2); // a majority
/// guard.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct RedGuard {
    parts: Arc<GuardSet>,
    _retaking: Option<AbortOnDropHandle<()>>,
}

impl RedGuard {
    /// The task takes parts again that are lost.
    pub(crate) fn new(parts: Arc<GuardSet>, retaking: Option<AbortOnDropHandle<()>>) -> Self {
        Self { parts, _retaking: retaking }
    }

    /// Releases the lock on all servers at once, and reports the outcome.
    ///
    /// # Cancel safety
    /// Same as [`Guard::unlock`](crate::Guard::unlock).
    ///
    /// # Errors
    /// None if a majority confirmed the release. Otherwise [`Error::Lost`](crate::Error::Lost) if the lock was lost on
    /// any of the servers, or else the first other error.
    ///
    /// # Panics
    /// Same as [`Guard::unlock`](crate::Guard::unlock).
    pub async fn unlock(self) -> Result<()> {
        self.parts.unlock().await
    }

    /// See [`GuardSet::run`].
    pub(crate) async fn run<T, F>(self, work: impl FnOnce(RedHold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let work = work(self.hold());
        self.parts.run(work).await
    }

    /// Extends the lease to at least `lease` from now, between 10 ms and 24 h, on all servers at once.
    ///
    /// # Cancel safety
    /// Same as [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    /// Same as [`Guard::extend`](crate::Guard::extend), if fewer than a majority agreed. If the lock is already lost, no server is asked.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.parts.extend(lease).await
    }

    /// Whether a majority of the parts is valid: see [`Guard::is_valid`](crate::Guard::is_valid).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.view.is_valid()
    }

    /// How long a majority stays ours if no renewal is confirmed from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.parts.view.remaining()
    }

    /// Resolves when the lock is no longer held: released, or no longer held on a majority.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// Same as [`Guard::ended`](crate::Guard::ended).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.parts.view.ended()
    }

    /// A view of this hold that does not keep the lock: see [`Guard::hold`](crate::Guard::hold).
    #[must_use]
    pub fn hold(&self) -> RedHold {
        RedHold { view: self.parts.view.clone() }
    }

    /// The number of servers on which the lock is held now.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.parts.view.parts().iter().filter(|part| part.is_valid()).count()
    }
}

impl fmt::Debug for RedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.view.described(f.debug_struct("RedGuard"))
    }
}

/// A view of a [`RedLock`](crate::RedLock)'s hold, for the work that runs under it. It does not keep the lock.
/// [`RedLock::run`](crate::RedLock::run) passes it to the work, and has an example.
#[derive(Clone)]
pub struct RedHold {
    view: View,
}

impl RedHold {
    /// Same as [`RedGuard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.view.is_valid()
    }

    /// Same as [`RedGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// Same as [`RedGuard::ended`].
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// Same as [`Guard::ended`](crate::Guard::ended).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.view.ended()
    }
}

impl fmt::Debug for RedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.described(f.debug_struct("RedHold"))
    }
}
