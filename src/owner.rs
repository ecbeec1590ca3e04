//! Owners, which may lock a re-entrant lock again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// An explicit owner of a [`ReentrantLock`](crate::ReentrantLock) or a [`ReentrantRwLock`](crate::ReentrantRwLock):
/// calls of one client with the same owner may nest.
///
/// Without one, the owner is the current Tokio task. That is wrong in two cases. If one task polls several futures side
/// by side (`join!`, `select!`, `FuturesUnordered`), all of them are one owner. If one piece of work spans several
/// tasks, each task is a separate owner. In these cases, give each piece of work an `Owner`.
///
/// Clones are the same owner. Two tasks that share an owner share its locks: if one task holds a lock, the other may
/// take it too. A call that was already waiting when its owner got the lock keeps its place in the queue, like any
/// other waiter.
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
    /// A new owner, different from all others in this process.
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
    /// The current Tokio task; each call of `spawn_blocking` is one too. Outside a task it is the current thread, on which `block_on`
    /// keeps its future.
    pub(crate) fn current() -> Self {
        match tokio::task::try_id() {
            Some(id) => Self::Task(id),
            None => Self::Thread(std::thread::current().id()),
        }
    }

    pub(crate) fn task(self) -> Option<tokio::task::Id> {
        match self {
            Self::Task(id) => Some(id),
            Self::Explicit(_) | Self::Thread(_) => None,
        }
    }
}

impl From<&Owner> for OwnerId {
    fn from(owner: &Owner) -> Self {
        Self::Explicit(owner.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_blocking_call_is_an_owner_of_its_own() {
        let blocks = || async { tokio::task::spawn_blocking(OwnerId::current).await.unwrap() };
        let task =
            tokio::spawn(async move { (OwnerId::current(), blocks().await, blocks().await) });
        let (outer, first, second) = task.await.unwrap();
        assert!(first.task().is_some() && first != outer && first != second, "{outer:?} {first:?}");
    }
}
