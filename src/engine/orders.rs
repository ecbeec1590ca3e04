//! Orders to a latch or a condition, and requests about the marks beside a plain lock: the leader, and the claimed interval. An order
//! is repeated until the server answers; the server carries it out once.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::entry::Hold;
use crate::engine::shared::{Engine, RETRY_PAUSE};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::pause::jittered;
use crate::token::FencingToken;
use crate::wire::{Claim, Connection, Fault, Order};

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
        let _call = self.calls.begin();
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

    /// Announces the leader, in one attempt. Returns whether the lock is still held.
    pub(crate) async fn announce(&self, hold: &Hold, who: &str, keep: Duration) -> Result<bool> {
        let (keys, id) = (&hold.tenure.keys, hold.tenure.id);
        let mark = format!("{:020} {} {who}", hold.token().get(), id.of(&self.client));
        let asked = async |mut to: Connection<'_>| to.announce(keys, id, (&mark, keep)).await;
        self.asked_once(keys, asked).await
    }

    /// The leader, and the token of its term.
    pub(crate) async fn leader(&self, keys: &Keys) -> Result<Option<(FencingToken, String)>> {
        let mark = self.asked_once(keys, async |mut to: Connection<'_>| to.leader(keys).await);
        Ok(mark.await?.as_deref().and_then(read_mark))
    }

    /// How long the interval that was claimed still lasts.
    pub(crate) async fn interval_left(&self, keys: &Keys) -> Result<Duration> {
        self.asked_once(keys, async |mut to: Connection<'_>| to.interval_left(keys).await).await
    }

    /// Claims an interval for this hold. It asks until the server answers or the hold has ended: an unnoticed claim
    /// would waste the interval.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have claimed the interval.
    pub(crate) async fn claim(&self, hold: &Hold, interval: Duration) -> Result<Claim> {
        let (keys, id) = (&hold.tenure.keys, (hold.tenure.id, hold.token()));
        while !hold.rest_of_lease().is_zero() {
            let answer =
                async { self.connected_to_change(keys).await?.claim(keys, id, interval).await };
            match answer.await {
                Err(fault) if fault.is_passing() => {
                    sleep(jittered(RETRY_PAUSE)).await;
                }
                Err(fault) => return Err(self.commands.explained(fault, keys).await),
                Ok(claim) => return Ok(claim),
            }
        }
        Err(hold.lost())
    }

    async fn asked_once<T>(
        &self,
        keys: &Keys,
        ask: impl AsyncFnOnce(Connection<'_>) -> Result<T, Fault>,
    ) -> Result<T> {
        let answer = async { ask(self.connected(keys).await?).await };
        self.commands.explain(answer.await, keys).await
    }
}

/// The token and the name in the mark of a leader; `None` if another program wrote something else there.
fn read_mark(mark: &str) -> Option<(FencingToken, String)> {
    let mut parts = mark.splitn(3, ' ');
    let token = parts.next()?.parse().ok()?;
    let who = parts.nth(1)?;
    Some((FencingToken::written(token), who.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_the_token_and_who() {
        let mark = format!("{:020} client:7 host a, port 80", u64::MAX);
        let (token, who) = read_mark(&mark).unwrap();
        assert_eq!((token.get(), &*who), (u64::MAX, "host a, port 80"));
        for strange in ["", "7", "7 client:7", "x client:7 me"] {
            assert!(read_mark(strange).is_none(), "{strange:?}");
        }
    }
}
