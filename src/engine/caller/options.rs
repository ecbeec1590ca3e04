//! The options of a caller: what it asks for, for how long it waits, and what it has had before.

use std::time::Duration;

use crate::engine::entry::Hold;
use crate::engine::entry::tenure::Inner;
use crate::engine::grant::{Lease, Wish};
use crate::keys::{Keys, TenureId};

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

/// What a caller has had of the lock when it asks.
#[derive(Debug, Clone)]
pub(crate) enum Past {
    None,
    /// The server has just reported that the lock is held. This stays true even if the limit cuts an attempt off.
    Refused,
    /// The owner has this tenure: then the request needs no room.
    Within(Within),
    /// The caller held the lock before, and has waited for a condition. It does not nest, and no limit of waiters
    /// rejects it.
    Waited,
}

/// Which clients may keep the lock idle: see `keep.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keepers {
    All,
    /// This client may not. A caller without patience still asks a second time, since another client may keep it.
    Others,
    None,
}

/// How a caller asks.
#[derive(Debug, Clone)]
pub(crate) struct AcquireOptions {
    pub(crate) wish: Wish,
    pub(crate) patience: Patience,
    pub(crate) past: Past,
    pub(crate) keepers: Keepers,
}

impl AcquireOptions {
    /// The same options within a hold that its owner already has, so that the request needs no room. If that hold has
    /// just ended, the request needs room.
    pub(crate) fn within(self, outer: Option<&Hold>) -> Self {
        let within = |outer: &Hold| {
            let inner = outer.tenure.shelter(outer.hand_over)?;
            Some(Past::Within(Within { id: outer.tenure.id, inner }))
        };
        Self { past: outer.and_then(within).unwrap_or(Past::None), ..self }
    }

    /// The tenure within which its owner asks.
    pub(super) fn outer(&self) -> Option<&Within> {
        match &self.past {
            Past::Within(within) => Some(within),
            _ => None,
        }
    }

    /// Whether the caller was counted as a waiter before, and held the lock then.
    pub(super) fn comes_back(&self) -> bool {
        matches!(self.past, Past::Waited)
    }

    /// Whether this caller may take over or join a tenure of another caller of this client.
    pub(super) fn is_like_others(&self) -> bool {
        let Wish { owner, lease, .. } = self.wish;
        lease == Lease::Watched && owner.is_none() && self.outer().is_none()
    }

    /// Whether it waits separately: the server puts it in line beside the other callers of its client.
    pub(super) fn waits_alone(&self, keys: &Keys) -> bool {
        let has_several = keys.row.line.is_ours() && keys.row.holders.are_several();
        self.outer().is_some() || has_several && !self.is_like_others()
    }
}
