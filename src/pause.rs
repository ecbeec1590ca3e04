//! Pauses: of random length, so that clients that failed together do not ask again together; and until a time that may not be
//! set.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// This pause, shorter or longer by up to half.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}

/// Sleeps until this time; `None`: for ever.
pub(crate) async fn sleep_until_if(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
