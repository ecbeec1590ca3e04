//! What a caller with a time limit knows of its requests when the limit cuts it off.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::wire::Fault;

/// What a caller with a time limit knows of its requests.
pub(crate) struct Known {
    /// Whether Redis was or is to be asked, and whether it ever answered.
    asked: AtomicBool,
    answered: AtomicBool,
    /// Whether a request of this call may still take the lock: it was not answered, or has put the caller in a line whose head the
    /// server grants the lock.
    open: AtomicBool,
    /// Whether the last attempt failed, for now.
    failing: AtomicBool,
}

impl Known {
    pub(crate) fn new(answered: bool) -> Self {
        let [asked, open, failing] = [(); 3].map(|()| AtomicBool::new(false));
        Self { asked, answered: AtomicBool::new(answered), open, failing }
    }

    /// A request will be sent as soon as there is a connection.
    pub(crate) fn wants_to_ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// A request is about to be sent. Returns whether an earlier one may still take the lock.
    pub(crate) fn asks(&self) -> bool {
        self.wants_to_ask();
        self.open.swap(true, Ordering::Relaxed)
    }

    /// Redis has answered the request. `stands`: the caller stands in a line.
    pub(crate) fn answered(&self, stands: bool) {
        self.answered.store(true, Ordering::Relaxed);
        self.failing.store(false, Ordering::Relaxed);
        self.open.store(stands, Ordering::Relaxed);
    }

    /// The request got no answer. `was_open`: an earlier one may still take the lock.
    pub(crate) fn failed(&self, fault: &Fault, was_open: bool) {
        self.open.store(was_open || fault.may_have_run(), Ordering::Relaxed);
        self.failing.fetch_or(fault.is_passing(), Ordering::Relaxed);
    }

    pub(crate) fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether a request may still take the lock.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether the last attempt failed. `None`: no request has an outcome yet.
    pub(crate) fn is_failing(&self) -> Option<bool> {
        let failing = self.failing.load(Ordering::Relaxed);
        (failing || self.answered.load(Ordering::Relaxed)).then_some(failing)
    }
}
