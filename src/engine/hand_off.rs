//! Hand-off: how often and for how long a client may pass a lock among its own callers before other clients get it. This
//! is only the budget, and its defaults are in `config.rs`. `tenure.rs` hands the lock on, and `permit.rs` says who is next.

use std::time::Duration;

use crate::config::{Config, HandOff};

/// How long a tenure may be handed on before Redis is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) hand_overs: u32,
    pub(crate) time: Duration,
    /// A tenure with less than this left before its deadline is not handed on.
    pub(crate) reserve: Duration,
    /// A tenure with more than this left is not handed on either: a holder has extended it, and the next holder may
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

    /// Whether a tenure may be handed over once more, after so many hand-overs and so long.
    pub(crate) fn allows(&self, hand_overs: u32, held: Duration) -> bool {
        hand_overs < self.hand_overs && held < self.time
    }
}
