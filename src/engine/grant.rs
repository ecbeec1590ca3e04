//! What Redis grants, to whom, and until when it may be believed.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::debts::Debt;
use crate::keys::TenureId;
use crate::owner::OwnerId;

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was given back.
    Released,
    /// Its lease ran out, or the lock was taken away.
    Lost,
}

/// How long a tenure is to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// As long as it is held: the watchdog renews it.
    Watched,
    /// So long, unless it is extended.
    Fixed(Duration),
}

/// The part of a lease that the holder must not count on: two machines' clocks may run apart by
/// one in a hundred, and Redis rounds to milliseconds. The allowance is that of the Redlock
/// algorithm (redis.io, *Distributed locks with Redis*).
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Until when an answer to a request sent at `sent` may be believed.
pub(crate) fn deadline(sent: Instant, lease: Duration) -> Instant {
    sent + lease.saturating_sub(drift(lease))
}

/// What Redis granted.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) id: TenureId,
    /// The server's number for it.
    pub(crate) number: u64,
    /// A waiter stands in line for it, or the client does not know.
    pub(crate) awaited: bool,
    pub(crate) lease: Duration,
    /// Before the request was sent.
    pub(crate) sent: Instant,
    pub(crate) debt: Debt,
}

/// The caller that is granted a lock, and the lease that it asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    /// The owner that may nest; `None`: the guard is the owner.
    pub(crate) owner: Option<OwnerId>,
    /// The task or thread that asked.
    pub(crate) asked_by: OwnerId,
    pub(crate) lease: Lease,
    /// How many permits it takes.
    pub(crate) permits: u32,
}

/// How far a tenure may be handed on before Redis is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) hand_overs: u32,
    pub(crate) time: Duration,
    /// A tenure with less than this before its deadline is not handed on.
    pub(crate) reserve: Duration,
    /// Nor is one with more: a holder extended it, and its next holder may die.
    pub(crate) lease: Duration,
}
