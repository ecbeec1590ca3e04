//! Orders to a latch or a condition. They are repeated until the server answers; the server carries each out once.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::shared::{Engine, RETRY_PAUSE};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::pause::jittered;
use crate::wire::{Fault, Order};

/// How long the client repeats an order that may have been carried out, and how much longer than twice that the server
/// remembers it: an old connection may still deliver it late. The server keeps many orders for that long, so
/// [`ride_out`](crate::Config::ride_out) must not say for how long.
const LONGEST: Duration = Duration::from_secs(5 * 60);
const LONGER: Duration = Duration::from_secs(60);

impl Engine {
    /// Has an order carried out once.
    ///
    /// # Cancel safety
    /// If the future is dropped, the order may or may not be carried out.
    pub(crate) async fn order(&self, keys: &Keys, order: Order) -> Result<i64> {
        let mut until = Instant::now() + self.config.riding_out();
        let longest = self.config.riding_out().min(LONGEST);
        let (request, mut may_have_run) = ((self.next_order(), longest * 2 + LONGER), false);
        loop {
            let asked = Instant::now();
            let answer =
                async { self.connected_to_change(keys).await?.order(keys, order, request).await };
            let fault = match answer.await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            may_have_run |= fault.may_have_run();
            if fault.may_hold() {
                // The server remembers it from now on, and not for long.
                until = until.min(asked + longest);
            }
            let left = until.saturating_duration_since(Instant::now());
            if !fault.is_passing() || left.is_zero() {
                return Err(self.given_up(keys, fault, may_have_run).await);
            }
            sleep(jittered(RETRY_PAUSE).min(left)).await;
        }
    }

    /// After one lost answer, the client cannot know whether the request has run.
    async fn given_up(&self, keys: &Keys, fault: Fault, may_have_run: bool) -> Error {
        match self.commands.explained(fault, keys).await {
            Error::Unavailable { source } if may_have_run => Error::Indeterminate { source },
            error => error,
        }
    }
}
