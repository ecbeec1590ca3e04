//! Wakes callers. A waker belongs to the caller's executor, and may panic: that must not end a task of the client, nor keep
//! another caller from being woken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use tokio::sync::Notify;

/// Wakes a caller.
pub(crate) fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Wakes all callers that wait for this.
pub(crate) fn wake_all(waiting: &Notify) {
    let _ = catch_unwind(AssertUnwindSafe(|| waiting.notify_waiters()));
}
