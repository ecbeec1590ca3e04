//! A lock of any kind, as one type.

use std::time::Duration;

use fastrand::Rng;
use parklock::{
    Client, Guard, Hold, Lock, Owner, ReentrantLock, Result, RwLock, Semaphore, WriteGuard,
};

use crate::settings::{self, FAMILY};

#[derive(Debug)]
enum Kind {
    Plain(Lock),
    Reentrant(ReentrantLock),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
}

/// A handle, with what it was made of.
#[derive(Debug)]
pub struct Handle {
    pub name: &'static str,
    pub reentrant: bool,
    pub lease: Option<Duration>,
    /// How much of it is asked for, of how much there is.
    pub share: (u32, u32),
    kind: Kind,
}

/// So many readers there never are.
const ALL: u32 = 1 << 20;

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
        Self { name, reentrant, lease, share: (1, 1), kind }
    }

    /// Any that is not a plain lock.
    pub fn of_family(client: &Client, lease: Option<Duration>, rng: &mut Rng) -> Self {
        let (name, kind) = FAMILY[rng.usize(..FAMILY.len())];
        let (kind, share) = match kind {
            settings::Kind::Fair => {
                let lock = client.fair_lock(name);
                (Kind::Plain(leased(lock, lease, Lock::lease)), (1, 1))
            }
            settings::Kind::Fenced => {
                let lock = client.redisson().fenced_lock(name);
                (Kind::Plain(leased(lock, lease, Lock::lease)), (1, 1))
            }
            settings::Kind::Rw => {
                let lock = leased(client.rw_lock(name), lease, RwLock::lease);
                let writes = rng.u32(..3) == 0;
                if writes { (Kind::Write(lock), (ALL, ALL)) } else { (Kind::Read(lock), (1, ALL)) }
            }
            settings::Kind::Permits(of) => {
                let (lock, part) =
                    (client.redisson().expirable_semaphore(name, of), rng.u32(1..=of));
                (Kind::Permits(leased(lock, lease, Semaphore::lease), part), (part, of))
            }
        };
        Self { name, reentrant: false, lease, share, kind }
    }

    /// As `run` takes it: of several permits, one.
    pub fn into_one(self) -> Self {
        let share = if let Kind::Permits(..) = self.kind { (1, self.share.1) } else { self.share };
        Self { share, ..self }
    }

    pub fn owned_by(self, owner: &Owner) -> Self {
        let kind = match self.kind {
            Kind::Reentrant(lock) => Kind::Reentrant(lock.owned_by(owner)),
            other => other,
        };
        Self { kind, ..self }
    }

    pub async fn lock(&self) -> Result<Guard> {
        match &self.kind {
            Kind::Plain(lock) => lock.lock().await,
            Kind::Reentrant(lock) => lock.lock().await,
            Kind::Read(lock) => lock.read().await,
            Kind::Write(lock) => lock.write().await.map(WriteGuard::into_guard),
            Kind::Permits(lock, part) => lock.acquire_many(*part).await,
        }
    }

    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        match &self.kind {
            Kind::Plain(lock) => lock.try_lock().await,
            Kind::Reentrant(lock) => lock.try_lock().await,
            Kind::Read(lock) => lock.try_read().await,
            Kind::Write(lock) => Ok(lock.try_write().await?.map(WriteGuard::into_guard)),
            Kind::Permits(lock, part) => lock.try_acquire_many(*part).await,
        }
    }

    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        match &self.kind {
            Kind::Plain(lock) => lock.try_lock_for(limit).await,
            Kind::Reentrant(lock) => lock.try_lock_for(limit).await,
            Kind::Read(lock) => lock.try_read_for(limit).await,
            Kind::Write(lock) => Ok(lock.try_write_for(limit).await?.map(WriteGuard::into_guard)),
            Kind::Permits(lock, part) => lock.try_acquire_many_for(*part, limit).await,
        }
    }

    pub async fn run<T, F: Future<Output = T>>(&self, work: impl FnOnce(Hold) -> F) -> Result<T> {
        match &self.kind {
            Kind::Plain(lock) => lock.run(work).await,
            Kind::Reentrant(lock) => lock.run(work).await,
            Kind::Read(lock) => lock.run_read(work).await,
            Kind::Write(lock) => lock.run_write(work).await,
            Kind::Permits(lock, _) => lock.run(work).await,
        }
    }
}

fn leased<L>(lock: L, lease: Option<Duration>, with: impl FnOnce(L, Duration) -> L) -> L {
    match lease {
        Some(lease) => with(lock, lease),
        None => lock,
    }
}
