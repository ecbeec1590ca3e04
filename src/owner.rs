//! Owners, which may lock a re-entrant lock again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// An explicit owner of a [`ReentrantLock`](crate::ReentrantLock): every call in its name may nest.
///
/// Without one, the owner is the current Tokio task. That is wrong where one task polls several
/// futures side by side (`join!`, `select!`, `FuturesUnordered`), since they would all be one owner,
/// and where one piece of work spans several tasks. Give each piece of work an `Owner` of its own.
///
/// Clones are the same owner. Two tasks that share an owner share its locks: what one holds, the
/// other enters. A call that was already waiting when its owner got the lock keeps its place in
/// the queue, as any other waiter.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let order = parklock::Owner::new();
/// let outer = client.reentrant_lock("doc:owner").owned_by(&order).lock().await?;
///
/// let (client, order) = (client.clone(), order.clone());
/// tokio::spawn(async move {
///     let inner = client.reentrant_lock("doc:owner").owned_by(&order).lock().await?;
///     assert_eq!(inner.hold_count(), 2);
///     inner.unlock().await
/// }).await.unwrap()?;
/// outer.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// An owner like no other in this process.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two defaults that differ would surprise")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An owner as the engine compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OwnerId {
    Explicit(u64),
    Task(tokio::task::Id),
    Thread(ThreadId),
}

impl OwnerId {
    /// The current Tokio task; outside a task the current thread, where `block_on` keeps its future.
    pub(crate) fn current() -> Self {
        match tokio::task::try_id() {
            Some(id) => Self::Task(id),
            None => Self::Thread(std::thread::current().id()),
        }
    }
}

impl From<&Owner> for OwnerId {
    fn from(owner: &Owner) -> Self {
        Self::Explicit(owner.0)
    }
}
