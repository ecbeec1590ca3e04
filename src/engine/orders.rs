//! Orders to a latch or a condition. They are repeated until the server answers; the server carries each out once.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::core::{Engine, RETRY_PAUSE};
use crate::error::{Error, Result};
use crate::jitter::jittered;
use crate::keys::Keys;
use crate::wire::{Fault, Order};

/// The server remembers a request for this much longer than the client repeats it: an old connection may still deliver
/// it late.
const LONGER: Duration = Duration::from_secs(60);

impl Engine {
    /// Has an order carried out once.
    ///
    /// # Cancel safety
    /// If the future is dropped, the order may or may not be carried out.
    pub(crate) async fn order(&self, keys: &Keys, order: Order) -> Result<i64> {
        let until = Instant::now() + self.config.riding_out();
        let memory = self.config.riding_out() * 2 + LONGER;
        let (request, mut may_have_run) = ((self.next_order(), memory), false);
        loop {
            let answer = match self.connected(keys).await {
                Ok(mut connection) => connection.order(keys, order, request).await,
                Err(fault) => Err(fault),
            };
            let fault = match answer {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            may_have_run |= fault.may_have_run();
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
