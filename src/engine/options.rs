//! What a caller asks for, and for how long it is willing to wait.

use std::time::Duration;

use crate::engine::grant::Lease;
use crate::engine::hold::Hold;
use crate::keys::{Keys, TenureId};
use crate::owner::OwnerId;

/// How long a caller is willing to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// As long as it takes.
    Endless,
    /// Not at all: one attempt.
    None,
    /// So long.
    For(Duration),
}

impl Patience {
    /// A limit of nothing is one attempt.
    pub(crate) fn limited(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::For(limit) }
    }
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireOptions {
    /// The owner that may nest in what is granted; `None`: the guard is the owner.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) lease: Lease,
    pub(crate) patience: Patience,
    /// How many permits.
    pub(crate) permits: u32,
    /// The tenure within which its owner asks, if there needs to be no room for it.
    pub(crate) within: Option<TenureId>,
    /// The server has just said that the lock is held. An attempt that the limit cuts off does not change that.
    pub(crate) known_taken: bool,
}

impl AcquireOptions {
    /// The same within what its owner holds already, so that it needs no room. If that has just ended, there has to be
    /// room.
    pub(crate) fn within(self, outer: Option<&Hold>) -> Self {
        let outer = outer.filter(|outer| outer.tenure.shelters(outer.hand_over));
        Self { within: outer.map(|outer| outer.tenure.id), ..self }
    }

    /// Whether what another caller of this client has left, or still reads with, will do.
    pub(crate) fn is_like_others(&self) -> bool {
        self.lease == Lease::Watched && self.owner.is_none() && self.within.is_none()
    }

    /// Whether it waits by itself: the server puts it in line beside the others of its client.
    pub(crate) fn waits_alone(&self, keys: &Keys) -> bool {
        let is_unlike = keys.row.has_line && keys.is_held_together() && !self.is_like_others();
        self.within.is_some() || is_unlike
    }
}
