//! A lock of either kind, as one type.

use std::time::Duration;

use parklock::{Client, Guard, Hold, Lock, Owner, ReentrantLock, Result};

#[derive(Debug)]
enum Kind {
    Plain(Lock),
    Reentrant(ReentrantLock),
}

/// A handle, with what it was made of.
#[derive(Debug)]
pub struct Handle {
    pub name: &'static str,
    pub reentrant: bool,
    pub lease: Option<Duration>,
    kind: Kind,
}

macro_rules! either {
    ($handle:expr, $lock:ident => $call:expr) => {
        match &$handle.kind {
            Kind::Plain($lock) => $call,
            Kind::Reentrant($lock) => $call,
        }
    };
}

impl Handle {
    pub fn new(
        client: &Client,
        name: &'static str,
        reentrant: bool,
        lease: Option<Duration>,
    ) -> Self {
        let kind = match (reentrant, lease) {
            (false, None) => Kind::Plain(client.lock(name)),
            (false, Some(lease)) => Kind::Plain(client.lock(name).lease(lease)),
            (true, None) => Kind::Reentrant(client.reentrant_lock(name)),
            (true, Some(lease)) => Kind::Reentrant(client.reentrant_lock(name).lease(lease)),
        };
        Self { name, reentrant, lease, kind }
    }

    pub fn owned_by(self, owner: &Owner) -> Self {
        let kind = match self.kind {
            Kind::Reentrant(lock) => Kind::Reentrant(lock.owned_by(owner)),
            plain @ Kind::Plain(_) => plain,
        };
        Self { kind, ..self }
    }

    pub async fn lock(&self) -> Result<Guard> {
        either!(self, lock => lock.lock().await)
    }

    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        either!(self, lock => lock.try_lock().await)
    }

    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        either!(self, lock => lock.try_lock_for(limit).await)
    }

    pub async fn run<T, F: Future<Output = T>>(&self, work: impl FnOnce(Hold) -> F) -> Result<T> {
        either!(self, lock => lock.run(work).await)
    }
}
