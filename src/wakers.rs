//! Wakes callers, and has them wait until something is so. A waker belongs to the caller's executor, and may panic: that must not end a
//! task of the client, nor keep another caller from being woken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Waker;

use tokio::sync::Notify;

/// Calls code of the user, such as a waker or a metrics recorder. Returns whether it has not panicked.
pub(crate) fn guarded(calls: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(calls)).is_ok()
}

/// Wakes a caller.
pub(crate) fn wake(waker: Waker) {
    guarded(|| waker.wake());
}

/// Wakes all callers that wait for this.
pub(crate) fn wake_all(waiting: &Notify) {
    guarded(|| waiting.notify_waiters());
}

/// Waits until this is so. Whoever changes it calls [`wake_all`].
///
/// # Cancel safety
/// The future may be dropped at any time.
pub(crate) async fn until(changed: &Notify, is_so: impl Fn() -> bool) {
    loop {
        let mut change = pin!(changed.notified());
        // Listen first, check second: so no change in between is missed.
        change.as_mut().enable();
        if is_so() {
            return;
        }
        change.await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("this panic belongs to the test");
        }
    }

    /// The waker of an executor whose loop has ended, for example.
    pub(crate) fn panicking() -> Waker {
        Waker::from(Arc::new(Panics))
    }
}
