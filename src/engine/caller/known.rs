//! What a caller with a time limit knows of its requests when the limit cuts it off.

use crate::mutex::Mutex;
use crate::wire::Fault;

/// What a caller with a time limit knows of its requests. The caller and its work share it.
pub(crate) struct Known(Mutex<Asked>);

/// What has become of the requests of one call.
struct Asked {
    /// Whether Redis was or is to be asked, and whether it ever answered.
    has_asked: bool,
    is_answered: bool,
    /// Whether a request of this call may still take the lock: it was not answered, or has put the caller in a line whose head the
    /// server grants the lock.
    is_open: bool,
    /// Whether the last attempt failed, for now.
    is_failing: bool,
}

impl Known {
    pub(crate) fn new(is_answered: bool) -> Self {
        let asked = Asked { has_asked: false, is_answered, is_open: false, is_failing: false };
        Self(Mutex::new(asked))
    }

    /// A request will be sent as soon as there is a connection.
    pub(crate) fn wants_to_ask(&self) {
        self.0.lock().has_asked = true;
    }

    /// A request is about to be sent. Returns whether an earlier one may still take the lock.
    pub(crate) fn asks(&self) -> bool {
        let mut asked = self.0.lock();
        asked.has_asked = true;
        std::mem::replace(&mut asked.is_open, true)
    }

    /// Redis has answered the request. `stands`: the caller stands in a line.
    pub(crate) fn answered(&self, stands: bool) {
        let asked = &mut *self.0.lock();
        (asked.is_answered, asked.is_failing, asked.is_open) = (true, false, stands);
    }

    /// The request got no answer. `was_open`: an earlier one may still take the lock.
    pub(crate) fn failed(&self, fault: &Fault, was_open: bool) {
        let asked = &mut *self.0.lock();
        asked.is_open = was_open || fault.may_have_run();
        asked.is_failing |= fault.is_passing();
    }

    pub(crate) fn has_asked(&self) -> bool {
        self.0.lock().has_asked
    }

    /// Whether a request may still take the lock.
    pub(crate) fn is_open(&self) -> bool {
        self.0.lock().is_open
    }

    /// Whether the last attempt failed. `None`: no request has an outcome yet.
    pub(crate) fn is_failing(&self) -> Option<bool> {
        let Asked { is_failing, is_answered, .. } = *self.0.lock();
        (is_failing || is_answered).then_some(is_failing)
    }
}
