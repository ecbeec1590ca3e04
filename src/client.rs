//! Connect, hand out handles, close.

use std::fmt;
use std::sync::Arc;

use crate::config::Config;
use crate::engine::Engine;
use crate::error::Result;
use crate::lock::Lock;
use crate::reentrant_lock::ReentrantLock;

/// A client of one Redis server: the source of all locks.
///
/// It has two connections, whatever the number of locks and waiters, and a few background tasks on
/// the runtime on which it connected. Clones are cheap and share everything. Connect once per
/// process and clone.
///
/// If that runtime ends, the client is closed. Handles and guards keep the client alive; when the
/// last of them is dropped, what is being given back is given back, and its tasks end.
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
}

impl Client {
    /// Connects to `redis://[user:password@]host[:port][/database]`, `rediss://...` (feature `tls`)
    /// or `redis+unix:///path?db=0&user=...&pass=...`.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let guard = client.lock("doc:connect").lock().await?;
    /// guard.unlock().await?;
    /// client.close().await;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the URL cannot be understood,
    /// [`Error::Permission`](crate::Error::Permission) if the server refuses the password, and
    /// [`Error::Unavailable`](crate::Error::Unavailable) if it is not there, or not a primary,
    /// within [`Config::connect_timeout`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::connect_with(url, Config::default()).await
    }

    /// Connects with settings of your own.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`Error::Config`](crate::Error::Config) naming the
    /// relation between two settings that does not hold.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn connect_with(url: impl AsRef<str>, config: Config) -> Result<Self> {
        let engine = Engine::connect(url.as_ref(), config).await?;
        Ok(Self { engine })
    }

    /// A lock that one guard holds at a time. Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; what is wrong with it is said by the first call.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock::new(Arc::clone(&self.engine), name.into())
    }

    /// A lock that its owner may take again. Making the handle does no I/O.
    ///
    /// The name is 1 byte to 1 KiB of UTF-8; what is wrong with it is said by the first call.
    pub fn reentrant_lock(&self, name: impl Into<String>) -> ReentrantLock {
        ReentrantLock::new(Arc::clone(&self.engine), name.into())
    }

    /// Closes the client, for all of its clones.
    ///
    /// Waiters end with [`Error::Closed`](crate::Error::Closed). What is held is given back and its
    /// guards report lost. The background tasks end; all within one response timeout. What could
    /// not be given back in this time is left to its lease.
    ///
    /// # Cancel safety
    /// The client is closed when the future is first polled; the rest goes on without it.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.engine.client).finish_non_exhaustive()
    }
}
