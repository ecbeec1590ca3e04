//! Handles that matter in Redisson's layout only.

use std::fmt;
use std::sync::Arc;

use crate::config::Layout;
use crate::engine::Engine;
use crate::kinds::Kind;
use crate::locks::lock::Lock;
use crate::locks::semaphore::Semaphore;

/// The locks and semaphores that only Redisson has: see
/// [`Client::redisson`](crate::Client::redisson).
///
/// In [`Layout::Native`](crate::Layout::Native) each of them is the usual lock or semaphore, so that a program can be
/// written once and configured for either layout.
#[derive(Clone)]
pub struct Redisson {
    engine: Arc<Engine>,
}

impl Redisson {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Redisson's `RFencedLock`. Its tokens are counted together with those of a Java fleet, in a counter for each
    /// name that stays in Redis for ever.
    ///
    /// In [`Layout::Native`](crate::Layout::Native) every lock has a token, and this is
    /// [`Client::lock`](crate::Client::lock).
    pub fn fenced_lock(&self, name: impl Into<String>) -> Lock {
        let kind = match self.engine.config.layout {
            Layout::Native => Kind::Lock,
            Layout::Redisson => Kind::Fenced,
        };
        Lock::new(Arc::clone(&self.engine), kind, name.into())
    }

    /// Redisson's `RPermitExpirableSemaphore`, where [`Client::semaphore`](crate::Client::semaphore) is its
    /// `RSemaphore`.
    ///
    /// In [`Layout::Native`](crate::Layout::Native) every permit has a lease, and this is
    /// [`Client::semaphore`](crate::Client::semaphore).
    pub fn expirable_semaphore(&self, name: impl Into<String>, permits: u32) -> Semaphore {
        let engine = Arc::clone(&self.engine);
        match self.engine.config.layout {
            Layout::Native => Semaphore::new(engine, name.into(), permits),
            Layout::Redisson => Semaphore::expirable(engine, name.into(), permits),
        }
    }
}

impl fmt::Debug for Redisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redisson").finish_non_exhaustive()
    }
}
