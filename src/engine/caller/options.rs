//! The options of a caller: what it asks for, and for how long it waits.

use std::time::Duration;

use crate::engine::grant::Lease;
use crate::engine::hold::Hold;
use crate::engine::tenure::Inner;
use crate::keys::{Keys, TenureId};
use crate::owner::OwnerId;

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Until it has the lock.
    Endless,
    /// Not at all: one attempt.
    None,
    /// This long.
    For(Duration),
}

impl Patience {
    pub(crate) fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// A limit of zero means one attempt.
    pub(crate) fn limited(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::For(limit) }
    }
}

/// The tenure within which its owner asks for another hold.
#[derive(Debug, Clone)]
pub(crate) struct Within {
    pub(crate) id: TenureId,
    pub(crate) inner: Inner,
}

/// What a caller asks for.
#[derive(Debug, Clone)]
pub(crate) struct AcquireOptions {
    /// The owner, which may nest. `None`: the guard is the owner.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) lease: Lease,
    pub(crate) patience: Patience,
    /// How many permits.
    pub(crate) permits: u32,
    /// The tenure within which its owner asks: then the request needs no room.
    pub(crate) within: Option<Within>,
    /// The server has just reported that the lock is held. This stays true even if the limit cuts an attempt off.
    pub(crate) known_taken: bool,
    /// The caller held the lock before, and has waited for a condition. It does not nest, and no limit of waiters
    /// rejects it.
    pub(crate) comes_back: bool,
    /// The client may keep the lock afterwards: see `keep.rs`.
    pub(crate) is_kept: bool,
    /// If another client may keep the lock idle, a caller without patience asks a second time.
    pub(crate) asks_twice: bool,
}

impl AcquireOptions {
    /// The same options within a hold that its owner already has, so that the request needs no room. If that hold has
    /// just ended, the request needs room.
    pub(crate) fn within(self, outer: Option<&Hold>) -> Self {
        let within = |outer: &Hold| {
            let inner = outer.tenure.shelter(outer.hand_over)?;
            Some(Within { id: outer.tenure.id, inner })
        };
        Self { within: outer.and_then(within), ..self }
    }

    /// Whether this caller may take over or join a tenure of another caller of this client.
    pub(crate) fn is_like_others(&self) -> bool {
        self.lease == Lease::Watched && self.owner.is_none() && self.within.is_none()
    }

    /// Whether it waits separately: the server puts it in line beside the other callers of its client.
    pub(crate) fn waits_alone(&self, keys: &Keys) -> bool {
        let is_unlike = keys.row.has_line && keys.is_held_together() && !self.is_like_others();
        self.within.is_some() || is_unlike
    }
}
