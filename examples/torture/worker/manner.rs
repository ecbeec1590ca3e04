//! The ways to ask for a lock, and what may come of it.

use std::time::Duration;

use fastrand::Rng;
use parklock::{Error, Guard, MultiGuard, MultiLock, RedGuard, RedLock, Result};
use tokio::time::{sleep, timeout};

use crate::settings::LEASE;
use crate::worker::desk::Seat;
use crate::worker::handle::Handle;
use crate::worker::record::{self, Call};

/// How to ask for a lock.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    Lock,
    Try,
    TryFor(Duration),
    /// The future is dropped after this.
    Cancelled(Duration),
    /// The future is polled once, left alone for this long, and then awaited.
    Unpolled(Duration),
}

impl Manner {
    pub fn any(rng: &mut Rng) -> Self {
        match rng.u32(..100) {
            0..50 => Self::Lock,
            50..62 => Self::Try,
            62..70 => Self::TryFor(Duration::from_millis(rng.u64(..400))),
            // In its queue it holds up all others of its client.
            98.. if crate::worker::may_dawdle() => Self::Unpolled(LEASE / 2),
            // While the request is on its way, or while it waits. With no patience at all it is polled once.
            70..75 => Self::Cancelled(Duration::ZERO),
            75..84 => Self::Cancelled(Duration::from_micros(rng.u64(..900))),
            _ => Self::Cancelled(Duration::from_micros(rng.u64(..120_000))),
        }
    }
}

/// What can be asked for in these ways.
pub trait Asked: Sync {
    type Guard: Send;
    fn lock(&self) -> impl Future<Output = Result<Self::Guard>> + Send;
    fn try_lock(&self) -> impl Future<Output = Result<Option<Self::Guard>>> + Send;
    fn try_lock_for(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<Self::Guard>>> + Send;
}

macro_rules! asked {
    ($($lock:ty => $guard:ty,)*) => {$(
        impl Asked for $lock {
            type Guard = $guard;
            async fn lock(&self) -> Result<$guard> {
                <$lock>::lock(self).await
            }
            async fn try_lock(&self) -> Result<Option<$guard>> {
                <$lock>::try_lock(self).await
            }
            async fn try_lock_for(&self, limit: Duration) -> Result<Option<$guard>> {
                <$lock>::try_lock_for(self, limit).await
            }
        }
    )*};
}

asked! {
    Handle => Guard,
    MultiLock => MultiGuard,
    RedLock => RedGuard,
}

/// What became of asking for a lock in this manner.
pub async fn acquired<L: Asked>(
    handle: &L,
    manner: Manner,
    calls: &[Call],
    seat: &Seat,
) -> Option<L::Guard> {
    let got = match manner {
        Manner::Lock => handle.lock().await.map(Some),
        Manner::Try => handle.try_lock().await.inspect(|got| said("try_lock", "none", got, calls)),
        Manner::TryFor(limit) => handle
            .try_lock_for(limit)
            .await
            .inspect(|got| said("try_lock_for", "timeout", got, calls)),
        Manner::Cancelled(after) => match timeout(after, handle.lock()).await {
            Ok(got) => got.map(Some),
            Err(_) => {
                record::reached("cancelled while it asked or waited");
                Ok(None)
            }
        },
        Manner::Unpolled(pause) => {
            let mut asked = Box::pin(handle.lock());
            match timeout(Duration::from_millis(2), &mut asked).await {
                Ok(got) => got.map(Some),
                Err(_) => {
                    sleep(pause).await;
                    record::reached("left unpolled while it waited");
                    asked.await.map(Some)
                }
            }
        }
    };
    got.map_err(|error| heard(&error, seat)).ok().flatten()
}

fn said<G>(call: &str, busy: &str, got: &Option<G>, calls: &[Call]) {
    // One of several locks was not free; nobody says which.
    if let (None, [one]) = (got, calls) {
        one.asked.answered(busy);
    }
    record::reached(&format!("{call}: {}", if got.is_some() { "got it" } else { "busy" }));
}

/// What a call may fail with in this run.
pub fn heard(error: &Error, seat: &Seat) {
    match error {
        Error::Unavailable { .. } => record::reached("error: Unavailable"),
        Error::Indeterminate { .. } => record::reached("error: Indeterminate"),
        Error::Lost { .. } => record::reached("error: Lost"),
        Error::Closed if seat.closed().is_some() => record::reached("error: Closed"),
        other => record::violation(&format!("unexpected: {other:?}")),
    }
}

/// How an unlock ended.
pub fn unlocked(result: &Result<(), Error>, seat: &Seat) {
    match result {
        Ok(()) => {}
        Err(error) => heard(error, seat),
    }
}
