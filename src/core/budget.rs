//! How often and for how long a client may hand a lock over among its own callers before other clients get it. The defaults
//! are in `config.rs`. `tenure.rs` hands the lock over, and `queue.rs` says which caller gets it.

use std::time::Duration;

use crate::config::{Config, HandOff};
use crate::token::MOST_HAND_OVERS;

/// The most hand-overs of a lock whose callers wait separately. The release takes each of these callers out of the line,
/// and a script does no more than this in one call.
const MOST_IN_LINE: u32 = 64;

/// How long a tenure may be handed over before Redis is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) hand_overs: u32,
    pub(crate) time: Duration,
    /// A tenure with less than this left before its deadline is not handed over.
    pub(crate) reserve: Duration,
    /// A tenure with more than this left is not handed over either: a holder has extended it, and the next holder may
    /// die.
    pub(crate) lease: Duration,
}

impl Budget {
    pub(crate) fn new(config: &Config) -> Self {
        let HandOff { max_consecutive: hand_overs, max_time: time } = config.hand_off;
        let lease = config.watchdog_timeout;
        // With less than a third of the lease left, its renewal is late.
        Self { hand_overs, time, reserve: lease / 3, lease }
    }

    /// The budget as long as no other client wants the lock: only the token limits it.
    pub(crate) fn unwanted(self) -> Self {
        Self { hand_overs: MOST_HAND_OVERS, time: Duration::MAX, ..self }
    }

    /// The budget of a lock whose callers wait separately.
    pub(crate) fn in_line(self) -> Self {
        Self { hand_overs: self.hand_overs.min(MOST_IN_LINE), ..self }
    }

    /// Whether a tenure may be handed over once more, after so many hand-overs and so long.
    pub(crate) fn allows(&self, hand_overs: u32, held: Duration) -> bool {
        hand_overs < self.hand_overs && held < self.time
    }
}

/// How long a tenure may be idle between two holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idle {
    /// How long the next caller has to take it up.
    pub(crate) pickup: Duration,
    /// For how long the client keeps it for callers that may come.
    pub(crate) keep: Duration,
}
