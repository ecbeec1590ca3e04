//! The task that writes to Redis who this client is, if [`Config::describe`](crate::Config::describe) is set.

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::wire::{Card, Commands};

/// Rewrites the card periodically until `stop`. The key then expires.
pub(crate) async fn describe(mut card: Card, commands: Commands, stop: CancellationToken) {
    let mut period = interval(Card::period());
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(period.tick()).await.is_some() {
        let shown = stop.run_until_cancelled(commands.show(&mut card)).await;
        if let Some(Err(fault)) = shown {
            // Nothing depends on it.
            tracing::debug!(?fault, "could not write the description of the client");
        }
    }
}
