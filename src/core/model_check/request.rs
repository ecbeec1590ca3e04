//! What is in flight between a client and the server.

use crate::core::model_check::TTL;
use crate::core::model_check::server::{AcquireOptions, Field, Ids, Reply};

/// A request in flight to the server. A try puts nobody in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Acquire(AcquireOptions),
    Try { field: Field, sent: i8 },
    Release { field: Field, served: Ids },
    Renew { field: Field, sent: i8 },
}

/// An answer in flight to the client. A try learns who holds the lock now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Acquired {
        id: u8,
        reply: Reply,
        sent: i8,
    },
    Tried {
        id: u8,
        holder: Option<Field>,
        sent: i8,
    },
    /// `is_unfinished`: the server has more to do than one call may.
    Released {
        id: u8,
        is_unfinished: bool,
    },
    Renewed {
        id: u8,
        held: bool,
        sent: i8,
    },
}

/// A tick has passed since it was sent.
pub(crate) fn tick_request(request: &mut Request) {
    match request {
        Request::Acquire(AcquireOptions { sign: sent, .. })
        | Request::Try { sent, .. }
        | Request::Renew { sent, .. } => *sent = (*sent - 1).max(-4 * TTL),
        Request::Release { .. } => {}
    }
}
