//! Wakes callers, and has them wait until something is so. A waker belongs to the caller's executor, and may panic: that must not end a
//! task of the client, nor keep another caller from being woken.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio::sync::Notify;

/// Calls code of the program, such as a waker, a subscriber or a metrics recorder. Returns whether it has not panicked.
pub(crate) fn guarded(calls: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(calls)).is_ok()
}

/// Wakes a caller.
pub(crate) fn wake(waker: Waker) {
    guarded(|| waker.wake());
}

/// A waker that does not panic, although this one may.
struct Guarded(Waker);

impl Wake for Guarded {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        guarded(|| self.0.wake_by_ref());
    }
}

/// Waits for something that wakes several callers in one step. In Tokio, a waker that panics ends that step, and the others are not
/// woken.
pub(crate) fn guarding<F: Future>(mut future: Pin<&mut F>) -> impl Future<Output = F::Output> {
    let mut known: Option<Arc<Guarded>> = None;
    poll_fn(move |context| {
        let own = context.waker();
        let guarded = match known.take() {
            Some(guarded) if guarded.0.will_wake(own) => guarded,
            _ => Arc::new(Guarded(own.clone())),
        };
        let waker = Waker::from(Arc::clone(known.insert(guarded)));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
}

/// Waits until this is so. Whoever changes it notifies the waiters.
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
        guarding(change).await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::task::noop_waker;

    use super::*;

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

    #[test]
    fn a_waker_that_panics_keeps_no_other_caller_from_being_woken() {
        let (changed, is_so) = (Notify::new(), AtomicBool::new(false));
        let mut waiting =
            [(); 3].map(|()| Box::pin(until(&changed, || is_so.load(Ordering::Relaxed))));
        let (bad, good) = (panicking(), Arc::new(Woken::default()));
        let wakers = [bad.clone(), Waker::from(Arc::clone(&good)), bad];
        for (waiting, waker) in waiting.iter_mut().zip(&wakers) {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        is_so.store(true, Ordering::Relaxed);
        changed.notify_waiters();
        assert!(good.0.load(Ordering::Relaxed), "it is woken");
        for waiting in &mut waiting {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&noop_waker())).is_ready());
        }
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
