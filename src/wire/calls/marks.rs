//! Marks beside a plain lock: who leads under it, and the interval that was claimed under it.

use std::time::Duration;

use redis::Value;

use crate::keys::{Keys, TenureId};
use crate::token::FencingToken;
use crate::wire::args::{Words, millis, millis_at_least};
use crate::wire::connection::Connection;
use crate::wire::fault::Fault;
use crate::wire::replies::{items, number, strange, time_left, word};
use crate::wire::scripts;

/// The answer to a caller that claims an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Ours,
    /// Another hold has claimed the interval, which lasts this much longer.
    Taken(Duration),
    /// The lock is not ours any more.
    Gone,
}

impl Connection<'_> {
    /// Announces the leader. Returns whether the lock is still held.
    pub(crate) async fn announce(
        &mut self,
        keys: &Keys,
        id: TenureId,
        (mark, keep): (&str, Duration),
    ) -> Result<bool, Fault> {
        let common = self.common();
        let asked = |words: &mut Words<'_>, _| {
            words.arg(2).arg(keys.lock()).arg(keys.leader());
            words.arg(id.of(&common.client)).arg(mark).arg(millis(keep));
        };
        Ok(number(self.call(&scripts::ANNOUNCE, &asked).await?)? == 1)
    }

    /// The mark of the leader, if there is one and it still holds the lock.
    pub(crate) async fn leader(&mut self, keys: &Keys) -> Result<Option<String>, Fault> {
        let asked = |words: &mut Words<'_>, _| _ = words.arg(2).arg(keys.lock()).arg(keys.leader());
        let items = items(self.call(&scripts::LEADER, &asked).await?)?;
        let text = |item: &Value| word(item).map(str::to_owned).ok_or_else(|| strange(item));
        items.first().map(text).transpose()
    }

    /// Claims an interval for the hold with this token. The claim may be repeated: then the interval
    /// begins again.
    pub(crate) async fn claim(
        &mut self,
        keys: &Keys,
        (id, token): (TenureId, FencingToken),
        interval: Duration,
    ) -> Result<Claim, Fault> {
        let common = self.common();
        let asked = |words: &mut Words<'_>, _| {
            words.arg(2).arg(keys.lock()).arg(keys.interval());
            words.arg(id.of(&common.client)).arg(token.get()).arg(millis_at_least(interval));
        };
        match number(self.call(&scripts::CLAIM, &asked).await?)? {
            0 => self.counts(Claim::Ours),
            left => Ok(time_left(left).map_or(Claim::Gone, Claim::Taken)),
        }
    }

    /// How long the interval that was claimed still lasts.
    pub(crate) async fn interval_left(&mut self, keys: &Keys) -> Result<Duration, Fault> {
        let asked = |words: &mut Words<'_>, _| _ = words.arg(1).arg(keys.interval());
        let left = number(self.call(&scripts::LEFT, &asked).await?)?;
        Ok(time_left(left).unwrap_or_default())
    }
}
