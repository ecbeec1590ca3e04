//! Pauses: of random length, so that clients that failed together do not ask again together; and until a time that may not be
//! set.

use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// This pause, shorter or longer by up to half.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}

/// The output, if it comes within this time. Reads no clock if it is there already. The caller pins the work: if this
/// future owned it, it would have space for it twice.
pub(crate) async fn within<T>(
    limit: Duration,
    mut work: impl Future<Output = T> + Unpin,
) -> Option<T> {
    match (&mut work).now_or_never() {
        Some(done) => Some(done),
        None => timeout(limit, work).await.ok(),
    }
}

/// Sleeps until this time; `None`: for ever.
pub(crate) async fn sleep_until_if(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The output of the work, if it is done in time.
pub(crate) async fn in_time<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        None => Some(work.await),
        Some(until) => timeout_at(until, work).await.ok(),
    }
}
