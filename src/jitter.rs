//! Pauses of random length: clients that failed together do not ask again together.

use std::time::Duration;

/// This pause, shorter or longer by up to half.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}
