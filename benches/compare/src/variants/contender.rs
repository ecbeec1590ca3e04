//! The trait that the workloads are written against.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;

use super::Kind;
use crate::worker::protocol::Setup;

/// A connected client of one library. A clone shares its connections.
pub trait Contender: Clone + Send + Sync + 'static {
    /// What a task makes once for a name and then locks many times.
    type Handle: Send + Sync + 'static;
    /// What it has while it holds the lock.
    type Guard: Send + 'static;

    fn connect(setup: &Setup) -> impl Future<Output = Result<Self>> + Send;

    /// Libraries that have only the plain lock take every kind for it: nothing else is asked of them.
    fn handle(&self, kind: Kind, name: &str) -> Self::Handle;

    /// Waits as the library waits, without a limit.
    fn acquire(&self, handle: &Self::Handle) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// Takes all that there is, so that nobody else gets in: to write instead of to read, every permit.
    fn acquire_whole(
        &self,
        handle: &Self::Handle,
    ) -> impl Future<Output = Result<Self::Guard>> + Send {
        self.acquire(handle)
    }

    /// Gives the lock back, and returns when the server has said so.
    fn release(&self, guard: Self::Guard) -> impl Future<Output = Result<()>> + Send;

    /// Whether the library still believes in the lock.
    fn is_valid(_guard: &Self::Guard) -> bool {
        true
    }
}

/// The lease where a library has no default and no watchdog: longer than any run that waits.
pub const FIXED_LEASE: Duration = Duration::from_secs(30);
