//! What has arrived at a client's end of a connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// What has arrived for the client.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) reader: Option<Waker>,
    /// The server's side has ended.
    pub(crate) ended: bool,
}

/// The server's handle of a client's end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Near(Arc<Mutex<Inbox>>);

impl Near {
    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deliver(&self, bytes: &[u8]) {
        self.inbox().bytes.extend(bytes);
        self.wake();
    }

    pub(crate) fn end(&self) {
        self.inbox().ended = true;
        self.wake();
    }

    fn wake(&self) {
        let reader = self.inbox().reader.take();
        reader.into_iter().for_each(Waker::wake);
    }
}
