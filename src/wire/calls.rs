//! Each script as one typed call.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::keys::{Keys, Kind, TenureId};
use crate::wire::commands::Connection;
use crate::wire::fault::Fault;
use crate::wire::replies::{entry, items, number, strange};
use crate::wire::scripts::{
    ACQUIRE, ACQUIRE_ALL, COUNT, EXCHANGE, FENCED_ACQUIRE, FORCE_UNLOCK, LEAVE_LINE, RELEASE,
    RENEW, STATUS,
};

/// What is asked of a lock that may not be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Is it ours?
    Look,
    /// If not, we wait in line.
    Wait,
    /// As `Wait`, but the head of the line was given its time and did not come.
    Insist,
    /// As `Insist`, by somebody who hears nothing and therefore does not stand in line.
    Overtake,
    /// Now or never. The head of the line was not given any time, and keeps its place.
    Once,
}

impl Manner {
    /// Whether our client stands in line if it does not get the lock.
    pub(crate) fn lines_up(self) -> bool {
        matches!(self, Self::Wait | Self::Insist)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Wait => "wait",
            Self::Insist => "insist",
            Self::Overtake => "overtake",
            Self::Once => "once",
        }
    }
}

/// A lock to be taken.
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    pub(crate) lease: Duration,
    pub(crate) manner: Manner,
    /// How much of it, if it can be divided.
    pub(crate) part: u32,
    /// The tenure within which its owner asks, if there needs to be no room for it.
    pub(crate) beneath: Option<TenureId>,
    /// The place in the queue that the caller was answered before; 0: none. It keeps it under another name too.
    pub(crate) place: u64,
    /// What the server says back if it grants this by message.
    pub(crate) secret: u64,
    /// Counts what may have to be given back, for as long as this may be on its way.
    pub(crate) debt: TaskTrackerToken,
}

/// The answer to an attempt to take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Ours, with this number of the server's.
    Granted(u64),
    /// Somebody else's, for so long; `None`: the key has no TTL.
    Held(Option<Duration>),
    /// As `Held`, and we wait in its queue at this place.
    Queued(Option<Duration>, u64),
    /// As `Held`, but the server does not let us stand in line: nobody will tell us.
    Unheard(Option<Duration>),
    /// Free, but another client is to have it first.
    Reserved,
}

/// A lock to be given back.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
}

/// A lock to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) id: TenureId,
    pub(crate) ttl: Duration,
}

impl Connection<'_> {
    pub(crate) async fn acquire(&mut self, acquire: &Acquire) -> Result<Acquired, Fault> {
        if !acquire.keys.lies_as_plain() {
            return self.enter(acquire).await;
        }
        let reply = self.call_acquire(std::slice::from_ref(acquire)).await?;
        self.acquired(&items(reply)?)
    }

    /// One answer for each: one that is refused leaves the others alone.
    pub(crate) async fn acquire_all(
        &mut self,
        acquires: &[Acquire],
    ) -> Result<Vec<Result<Acquired, Fault>>, Fault> {
        let items = items(self.call_acquire(acquires).await?)?;
        if items.len() != acquires.len() * 2 {
            return Err(strange(&items.len()));
        }
        Ok(items.chunks(2).map(|answer| self.acquired(answer)).collect())
    }

    async fn call_acquire(&mut self, acquires: &[Acquire]) -> Result<Value, Fault> {
        let (floor, terms) = (self.floor(Instant::now()), self.terms());
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1 + acquires.len() * 2).arg(acquires[0].keys.tokens());
            for Acquire { keys, .. } in acquires {
                cmd.arg(keys.lock()).arg(keys.line());
            }
            cmd.arg(floor).arg(millis(terms.line_ttl)).arg(terms.in_line());
            for Acquire { id, lease, manner, .. } in acquires {
                cmd.arg(id.of(&terms.client)).arg(millis(*lease)).arg(manner.word());
            }
        };
        let fenced = acquires[0].keys.kind == Kind::Fenced;
        self.call(if fenced { &FENCED_ACQUIRE } else { &ACQUIRE }, fill).await
    }

    /// Takes all of these plain locks, or none. The answer, and which of them it is about: a grant is that
    /// of the first, and each of the others has one more.
    pub(crate) async fn acquire_together(
        &mut self,
        acquires: &[&Acquire],
    ) -> Result<(usize, Result<Acquired, Fault>), Fault> {
        let (floor, terms) = (self.floor(Instant::now()), self.terms());
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1 + acquires.len() * 2).arg(acquires[0].keys.tokens());
            for Acquire { keys, .. } in acquires {
                cmd.arg(keys.lock()).arg(keys.line());
            }
            cmd.arg(floor).arg(millis(terms.line_ttl)).arg(terms.in_line());
            cmd.arg(acquires[0].manner.word());
            for Acquire { id, lease, .. } in acquires {
                cmd.arg(id.of(&terms.client)).arg(millis(*lease));
            }
        };
        let reply = items(self.call(&ACQUIRE_ALL, fill).await?)?;
        let [code, Value::Int(which), value] = reply.as_slice() else {
            return Err(strange(&reply));
        };
        let answer = self.acquired(&[code.clone(), value.clone()]);
        if let Ok(Acquired::Granted(first)) = answer {
            self.granted(first + acquires.len() as u64 - 1);
        }
        let which = usize::try_from(*which).ok().filter(|which| *which <= acquires.len());
        match answer {
            Err(fault) if fault.is_open() => Err(fault),
            answer => Ok((which.ok_or_else(|| strange(&reply))?.saturating_sub(1), answer)),
        }
    }

    /// Offers a lock that we hold: to those who wait for it, and if there are none, to ourselves.
    pub(crate) async fn exchange(
        &mut self,
        old: TenureId,
        acquire: &Acquire,
    ) -> Result<Acquired, Fault> {
        let Acquire { keys, id, lease, manner, .. } = acquire;
        let (floor, terms) = (self.floor(Instant::now()), self.terms());
        let fill = |cmd: &mut Cmd| {
            cmd.arg(3).arg(keys.tokens()).arg(keys.lock()).arg(keys.line());
            cmd.arg(floor).arg(millis(terms.line_ttl)).arg(terms.in_line());
            cmd.arg(old.of(&terms.client)).arg(id.of(&terms.client)).arg(millis(*lease));
            cmd.arg(manner.word()).arg(&*keys.channel).arg(terms.message());
        };
        let reply = self.call(&EXCHANGE, fill).await?;
        self.acquired(&items(reply)?)
    }

    /// Whether each lock was still ours.
    pub(crate) async fn release(
        &mut self,
        releases: &[Release],
    ) -> Result<Vec<Result<bool, Fault>>, Fault> {
        if releases.iter().all(|release| release.keys.lies_as_plain()) {
            self.release_plain(releases).await
        } else {
            Ok(self.leave_each(releases).await)
        }
    }

    pub(crate) async fn release_plain(
        &mut self,
        releases: &[Release],
    ) -> Result<Vec<Result<bool, Fault>>, Fault> {
        let terms = self.terms();
        let fill = |cmd: &mut Cmd| {
            cmd.arg(releases.len() * 2);
            for Release { keys, .. } in releases {
                cmd.arg(keys.lock());
            }
            for Release { keys, .. } in releases {
                cmd.arg(keys.line());
            }
            cmd.arg(terms.message()).arg(if terms.layout.has_lines() { "line" } else { "all" });
            for Release { keys, id } in releases {
                cmd.arg(id.of(&terms.client)).arg(&*keys.channel);
            }
        };
        let reply = self.call(&RELEASE, fill).await?;
        self.each(reply, releases.len())
    }

    /// Whether each lock is still ours.
    pub(crate) async fn renew(
        &mut self,
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<Result<bool, Fault>>, Fault> {
        if renewals.iter().all(|renewal| renewal.keys.lies_as_plain()) {
            self.renew_plain(renewals).await
        } else {
            Ok(self.renew_each(renewals).await)
        }
    }

    pub(crate) async fn renew_plain(
        &mut self,
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<Result<bool, Fault>>, Fault> {
        let terms = self.terms();
        let fill = |cmd: &mut Cmd| {
            cmd.arg(renewals.len());
            for renewal in renewals {
                cmd.arg(renewal.keys.lock());
            }
            for renewal in renewals {
                cmd.arg(renewal.id.of(&terms.client)).arg(millis(renewal.ttl));
            }
        };
        let reply = self.call(&RENEW, fill).await?;
        self.each(reply, renewals.len())
    }

    /// Writes the hold count of a tenure; whether it is still ours. Other kinds than a plain lock
    /// count in memory only.
    pub(crate) async fn count(
        &mut self,
        keys: &Keys,
        id: TenureId,
        count: u32,
        lease: Duration,
    ) -> Result<bool, Fault> {
        if !keys.lies_as_plain() {
            return self.renew_one(Renewal { keys, id, ttl: lease }).await;
        }
        let terms = self.terms();
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(keys.lock()).arg(id.of(&terms.client)).arg(count).arg(millis(lease));
        };
        Ok(number(self.call(&COUNT, fill).await?)? == 1)
    }

    /// Leaves the lines of these locks.
    pub(crate) async fn leave_lines(&mut self, locks: &[&Keys]) -> Result<(), Fault> {
        let terms = self.terms();
        let fill = |cmd: &mut Cmd| {
            cmd.arg(locks.len());
            for keys in locks {
                cmd.arg(keys.line());
            }
            cmd.arg(&terms.client);
        };
        items(self.call(&LEAVE_LINE, fill).await?).map(drop)
    }

    /// How long the lock is still held, by whomever; a key without a TTL: for ever.
    pub(crate) async fn ttl(&mut self, keys: &Keys) -> Result<Option<Duration>, Fault> {
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(keys.lock());
        };
        let ttl = if keys.lies_as_plain() {
            number(self.call(&STATUS, fill).await?)?
        } else {
            self.status(keys).await?.ttl
        };
        Ok(match ttl {
            -2 => None,
            ttl => Some(held_for(ttl).unwrap_or(Duration::MAX)),
        })
    }

    /// Whether there was anything to take away.
    pub(crate) async fn force_unlock(&mut self, keys: &Keys) -> Result<bool, Fault> {
        if !keys.lies_as_plain() {
            return Ok(self.force_out(keys).await? > 0);
        }
        // Not in our name: if we are the holder, we have to look as everybody else.
        let message = self.terms().layout.message("force_unlock");
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(keys.lock()).arg(&*keys.channel).arg(message);
        };
        Ok(number(self.call(&FORCE_UNLOCK, fill).await?)? == 1)
    }

    pub(crate) fn acquired(&self, reply: &[Value]) -> Result<Acquired, Fault> {
        let acquired = acquired(reply).inspect_err(|fault| self.heed(fault));
        if let Ok(Acquired::Granted(number)) = acquired {
            self.granted(number);
        }
        acquired
    }

    fn each(&self, reply: Value, asked: usize) -> Result<Vec<Result<bool, Fault>>, Fault> {
        let items = items(reply)?;
        if items.len() != asked {
            return Err(strange(&items.len()));
        }
        Ok(items.iter().map(|item| self.still_ours(item)).collect())
    }

    fn still_ours(&self, item: &Value) -> Result<bool, Fault> {
        match entry(item) {
            Ok(code) => Ok(code == 1),
            // Somebody put another value in the place of our lock: it is gone, and not ours to judge.
            Err(Fault::WrongType) => Ok(false),
            Err(fault) => {
                self.heed(&fault);
                Err(fault)
            }
        }
    }
}

fn acquired(reply: &[Value]) -> Result<Acquired, Fault> {
    match reply {
        [Value::Int(1), Value::Int(grant)] if (0..1 << 53).contains(grant) => {
            Ok(Acquired::Granted(grant.unsigned_abs()))
        }
        [Value::Int(0), Value::Int(ttl)] => Ok(Acquired::Held(held_for(*ttl))),
        [Value::Int(0), Value::Int(ttl), Value::Int(place)] => {
            Ok(Acquired::Queued(held_for(*ttl), u64::try_from(*place).unwrap_or(0)))
        }
        [Value::Int(2), Value::Int(_)] => Ok(Acquired::Reserved),
        [Value::Int(3), Value::Int(ttl)] => Ok(Acquired::Unheard(held_for(*ttl))),
        [Value::Int(-1), refusal @ Value::BulkString(_)] => {
            Err(entry(refusal).map_or_else(|fault| fault, |number| strange(&number)))
        }
        other => Err(strange(&other)),
    }
}

/// A PTTL; negative, the key has none.
fn held_for(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}

/// Whole milliseconds, at least one: leases are checked long before.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_granted_or_held_or_reserved_or_refused() {
        let reply = |code, value| acquired(&[Value::Int(code), Value::Int(value)]);
        assert_eq!(reply(1, 7).unwrap(), Acquired::Granted(7));
        assert_eq!(reply(0, 250).unwrap(), Acquired::Held(Some(Duration::from_millis(250))));
        assert_eq!(reply(0, -1).unwrap(), Acquired::Held(None));
        assert_eq!(reply(2, 0).unwrap(), Acquired::Reserved);
        let full = [Value::Int(-1), Value::BulkString(b"OOM command not allowed".to_vec())];
        assert!(matches!(acquired(&full), Err(Fault::Refused(_))));
    }

    #[test]
    fn nothing_strange_is_taken_for_a_grant() {
        for reply in [
            vec![],
            vec![Value::Int(1)],
            vec![Value::Int(1), Value::Int(-1)],
            vec![Value::Int(4), Value::Int(1)],
            vec![Value::Int(1), Value::Int(1 << 53)],
            vec![Value::Nil, Value::Nil],
        ] {
            assert!(acquired(&reply).unwrap_err().is_open());
        }
    }
}
