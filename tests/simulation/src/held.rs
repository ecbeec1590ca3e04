//! What a caller has been given: one of the library's guards, and how it was asked for.

use std::time::Duration;

use futures_util::FutureExt;
use parklock::{
    Ended, Error, Guard, Lock, MultiGuard, MultiLock, ReentrantLock, Result, RwLock, Semaphore,
    WriteGuard,
};

/// A guard of any kind.
pub enum Held {
    One(Guard),
    Write(WriteGuard),
    Several(MultiGuard),
    View(parklock::Hold),
}

impl Held {
    pub fn remaining(&self) -> Duration {
        match self {
            Self::One(guard) => guard.remaining(),
            Self::Write(guard) => guard.remaining(),
            Self::Several(guard) => guard.remaining(),
            Self::View(hold) => hold.remaining(),
        }
    }

    pub fn is_valid(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_valid(),
            Self::Write(guard) => guard.is_valid(),
            Self::Several(guard) => guard.is_valid(),
            Self::View(hold) => hold.is_valid(),
        }
    }

    /// Nobody may believe in it, and it may be valid again: it ends with a session. One that has ended may say so now, and the board hears
    /// that.
    pub fn is_suspended(&self) -> bool {
        !self.is_valid() && Box::pin(self.ended()).now_or_never().is_none()
    }

    pub fn token(&self) -> u64 {
        self.tokens()[0]
    }

    pub fn tokens(&self) -> Vec<u64> {
        match self {
            Self::One(guard) => vec![guard.token().get()],
            Self::Write(guard) => vec![guard.token().get()],
            Self::Several(guard) => guard.tokens().iter().map(|token| token.get()).collect(),
            Self::View(hold) => vec![hold.token().get()],
        }
    }

    pub async fn ended(&self) -> Ended {
        match self {
            Self::One(guard) => guard.ended().await,
            Self::Write(guard) => guard.ended().await,
            Self::Several(guard) => guard.ended().await,
            Self::View(hold) => hold.ended().await,
        }
    }

    pub async fn extend(&self, lease: Duration) -> Result<()> {
        match self {
            Self::One(guard) => guard.extend(lease).await,
            Self::Write(guard) => guard.extend(lease).await,
            Self::Several(_) | Self::View(_) => Ok(()),
        }
    }

    pub async fn unlock(self) -> Result<()> {
        match self {
            Self::One(guard) => guard.unlock().await,
            Self::Write(guard) => guard.unlock().await,
            Self::Several(guard) => guard.unlock().await,
            Self::View(_) => Ok(()),
        }
    }
}

/// A handle of any kind.
#[derive(Clone)]
pub enum Handle {
    Plain(Lock),
    Reentrant(ReentrantLock),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
    Several(MultiLock),
}

impl Handle {
    pub fn leased(self, lease: Duration) -> Self {
        match self {
            Self::Plain(lock) => Self::Plain(lock.lease(lease)),
            Self::Reentrant(lock) => Self::Reentrant(lock.lease(lease)),
            Self::Read(lock) => Self::Read(lock.lease(lease)),
            Self::Write(lock) => Self::Write(lock.lease(lease)),
            Self::Permits(lock, part) => Self::Permits(lock.lease(lease), part),
            Self::Several(lock) => Self::Several(lock.lease(lease)),
        }
    }

    pub async fn lock(&self) -> Result<Held> {
        match self {
            Self::Plain(lock) => lock.lock().await.map(Held::One),
            Self::Reentrant(lock) => lock.lock().await.map(Held::One),
            Self::Read(lock) => lock.read().await.map(Held::One),
            Self::Write(lock) => lock.write().await.map(Held::Write),
            Self::Permits(lock, part) => lock.acquire_many(*part).await.map(Held::One),
            Self::Several(lock) => lock.lock().await.map(Held::Several),
        }
    }

    pub async fn try_lock(&self) -> Result<Option<Held>> {
        Ok(match self {
            Self::Plain(lock) => lock.try_lock().await?.map(Held::One),
            Self::Reentrant(lock) => lock.try_lock().await?.map(Held::One),
            Self::Read(lock) => lock.try_read().await?.map(Held::One),
            Self::Write(lock) => lock.try_write().await?.map(Held::Write),
            Self::Permits(lock, part) => lock.try_acquire_many(*part).await?.map(Held::One),
            Self::Several(lock) => lock.try_lock().await?.map(Held::Several),
        })
    }

    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Held>> {
        Ok(match self {
            Self::Plain(lock) => lock.try_lock_for(limit).await?.map(Held::One),
            Self::Reentrant(lock) => lock.try_lock_for(limit).await?.map(Held::One),
            Self::Read(lock) => lock.try_read_for(limit).await?.map(Held::One),
            Self::Write(lock) => lock.try_write_for(limit).await?.map(Held::Write),
            Self::Permits(lock, part) => {
                lock.try_acquire_many_for(*part, limit).await?.map(Held::One)
            }
            Self::Several(lock) => lock.try_lock_for(limit).await?.map(Held::Several),
        })
    }

    /// Works while it holds, as `run` does.
    pub async fn run<F: Future<Output = ()>>(
        &self,
        work: impl FnOnce(parklock::Hold) -> F,
    ) -> Result<()> {
        match self {
            Self::Plain(lock) => lock.run(work).await,
            Self::Reentrant(lock) => lock.run(work).await,
            Self::Read(lock) => lock.run_read(work).await,
            Self::Write(lock) => lock.run_write(work).await,
            Self::Permits(lock, _) => lock.run(work).await,
            Self::Several(_) => Err(Error::Closed),
        }
    }
}
