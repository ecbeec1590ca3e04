//! Handles that matter in Redisson's layout only.

use std::fmt;
use std::sync::Arc;

use crate::config::Layout;
use crate::engine::Engine;
use crate::kinds::Kind;
use crate::locks::lock::Lock;
use crate::locks::semaphore::Semaphore;

/// The locks and semaphores that only Redisson has: see [`Client::redisson`](crate::Client::redisson).
///
/// In [`Layout::Native`](crate::Layout::Native) each of them is the usual lock or semaphore, so that one program can be
/// configured for either layout.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// use parklock::{Client, Config, Layout};
///
/// let config = Config::default().layout(Layout::Redisson);
/// let client = Client::connect_with(&url, config).await?;
/// // In Java: redisson.getFencedLock("doc:fenced").lockAndGetToken()
/// let guard = client.redisson().fenced_lock("doc:fenced").lock().await?;
/// println!("the next token in Java is greater than {}", guard.token());
/// guard.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Redisson {
    engine: Arc<Engine>,
}

impl Redisson {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Redisson's `RFencedLock`. Rust and Java programs share its tokens: one counter for each name, which stays in
    /// Redis forever.
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

    /// Redisson's `RPermitExpirableSemaphore`. ([`Client::semaphore`](crate::Client::semaphore) is its `RSemaphore`.)
    ///
    /// In [`Layout::Native`](crate::Layout::Native) every permit has a lease, and this is
    /// [`Client::semaphore`](crate::Client::semaphore).
    ///
    /// In [`Layout::Redisson`](crate::Layout::Redisson), one call takes at most 10,000 permits, and otherwise returns
    /// [`Error::InvalidPermits`](crate::Error::InvalidPermits): Redisson keeps each permit as a member of a sorted set,
    /// and a script that writes many of them stops the server for all others.
    pub fn expirable_semaphore(&self, name: impl Into<String>, permits: u32) -> Semaphore {
        let kind = match self.engine.config.layout {
            Layout::Native => Kind::Semaphore { permits },
            Layout::Redisson => Kind::Expirable { permits },
        };
        Semaphore::new(Arc::clone(&self.engine), kind, name.into())
    }
}

impl fmt::Debug for Redisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redisson").finish_non_exhaustive()
    }
}
