//! A grant by Redis: to whom, and until when the client may believe it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::waiting::PushedGrant;
use crate::engine::debts::Debt;
use crate::keys::TenureId;
use crate::owner::OwnerId;
use crate::wire::{Acquire, Session};

/// Why a tenure is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    Deadline,
    /// The server reported it.
    Gone,
    /// The client was closed, or its runtime has ended.
    Closed,
}

impl Loss {
    /// Its name in the metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Gone => "gone",
            Self::Closed => "closed",
        }
    }

    /// Its description in the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Deadline => "its lease ran out",
            Self::Gone => "the server no longer has it",
            Self::Closed => "the client has ended",
        }
    }
}

/// How long a tenure lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// As long as a caller holds it: the watchdog renews it.
    Watched,
    /// This long, unless it is extended.
    Fixed(Duration),
}

/// A grant by Redis.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) id: TenureId,
    /// The number that the server gave it.
    pub(crate) number: u64,
    /// A waiter stands in line for the lock, or the client does not know whether one does.
    pub(crate) awaited: bool,
    pub(crate) lease: Duration,
    /// The time before the request was sent.
    pub(crate) sent: Instant,
    /// The lease that the watchdog has to ask for soon: a message granted it, only for as long as a sign of life lasts.
    pub(crate) unconfirmed: Option<Duration>,
    pub(crate) debt: Debt,
}

impl Grant {
    /// What the answer grants to this request, which was sent then.
    pub(crate) fn new(acquire: &Acquire, number: u64, awaited: bool, sent: Instant) -> Self {
        let Acquire { id, lease, ref debt, .. } = *acquire;
        Self { id, number, awaited, lease, sent, unconfirmed: None, debt: debt.clone() }
    }

    /// What a message grants. It has `pushed_lease`, only as long as the sign of life, until the whole `lease` is confirmed.
    pub(crate) fn by_message(
        pushed: PushedGrant,
        (pushed_lease, lease): (Duration, Duration),
        debt: Debt,
    ) -> Self {
        let PushedGrant { id, number, signed } = pushed;
        Self {
            id,
            number,
            // The message does not say whether others stand in line.
            awaited: true,
            lease: pushed_lease,
            sent: signed,
            unconfirmed: Some(lease),
            debt,
        }
    }
}

/// A tenure that is about to begin.
pub(crate) struct Beginning {
    pub(crate) grant: Grant,
    pub(crate) holder: Holder,
    /// When the watchdog renews it, if it is watched.
    pub(crate) renew_at: Instant,
    /// The session with which it ends: see `tenure/renewal.rs`.
    pub(crate) session: Option<Arc<Session>>,
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// The owner, which may nest; `None`: the guard is the owner.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) lease: Lease,
    /// How many permits.
    pub(crate) permits: u32,
}

impl Wish {
    /// The holder that asks for it in this task or thread.
    pub(crate) fn by_caller(self) -> Holder {
        Holder { wish: self, asked_by: OwnerId::current() }
    }
}

/// The caller that is granted a lock, and what it asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) wish: Wish,
    /// The task or thread that asked.
    pub(crate) asked_by: OwnerId,
}
