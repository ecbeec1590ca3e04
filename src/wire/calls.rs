//! Each script as one typed call. No call has a time limit here: `socket.rs` limits each answer, and `engine/caller.rs`
//! how long a caller waits.

mod company;
mod gathering;
mod marks;
mod orders;
mod questions;
mod requests;

use std::sync::Arc;
use std::time::Duration;
use std::{ptr, slice};

use itoa::Buffer;
use redis::Value;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::config::Layout;
use crate::error::said;
use crate::keys::{Keys, TenureId};
use crate::kinds::Family;
use crate::wire::args::{Words, millis};
use crate::wire::calls::questions::{
    gone_if_alien, only, release_script, write_acquire_in_line, write_acquire_without_line,
    write_leave,
};
use crate::wire::connection::{CommonArgs, Connection, Peer};
use crate::wire::family::{existing, scripts_of};
use crate::wire::fault::{Fault, Redirect};
use crate::wire::proof::Secret;
use crate::wire::replies::{entry, items, number, released, strange, time_left};
use crate::wire::scripts::{RENEW, RENEW_IN_SESSION, STATUS};

pub(crate) use gathering::{Answered, Batch, Gathering, Limits};
pub(crate) use marks::Claim;
pub(crate) use orders::Order;
pub(crate) use questions::Status;
pub(crate) use requests::{Answer, Requests, result_of_each};

/// What the server does if it cannot grant the lock now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing: the caller does not wait.
    Once,
    /// It puts the caller in line. If the caller stands there already, this is its sign of life.
    Wait,
    /// As `Wait`. The caller has stood near the front for a long time, and shows its next sign of life when it is
    /// notified that the line has moved.
    Rest,
}

impl Manner {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Wait => "wait",
            Self::Rest => "rest",
        }
    }
}

/// A lock to take.
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    pub(crate) lease: Duration,
    pub(crate) manner: Manner,
    /// How many permits.
    pub(crate) permits: u32,
    /// The tenure within which its owner asks: then the request needs no room.
    pub(crate) within: Option<TenureId>,
    /// The place in line that the server last reported to the caller; 0: none. The caller keeps it under a new owner
    /// field.
    pub(crate) place: u64,
    /// The secret of the sign of life, with which the server proves a grant by message.
    pub(crate) secret: Secret,
    /// A tenure that the server releases first, in the same step. The head of the line gets the lock, or the caller if
    /// nobody waits.
    pub(crate) old: Option<TenureId>,
    /// The debt: the request may be in flight, and its grant may have to be released.
    pub(crate) debt: TaskTrackerToken,
}

/// The answer to an attempt to take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Granted, with this number from the server. `awaited`: a waiter stands in line for it now. In Redisson's layout
    /// nobody knows that, and it is always false.
    Granted { number: u64, awaited: bool },
    /// Not granted yet: the caller stands in line at this place. `ttl`: by then the lease of the first holder is over;
    /// `None`: the key has no TTL. `near`: the caller has to show signs of life, three times per `waiter_ttl`.
    /// Otherwise the server notifies it when it comes near the front. `ahead`: the caller of this client that stands right ahead
    /// in the line of a fair lock, if the server has just said so.
    Waits { ttl: Option<Duration>, place: u64, near: bool, ahead: Option<TenureId> },
    /// Another holder has it for this long; `None`: the key has no TTL. Redis stores nothing of this request.
    Held(Option<Duration>),
    /// The same, and the holder's client may keep the lock idle. The script has told that client to give an idle lock
    /// back.
    Kept(Option<Duration>),
    /// Another caller holds it or waits for it, or may go first, since an older tenure was just released: ask for it alone,
    /// with [`Connection::acquire`].
    Contended,
}

/// A lock to release.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    /// It is a notification that its waiter has used up, so no other waiter gets it.
    pub(crate) is_taken: bool,
    /// The callers in line that have had the lock within this hold: they leave the line in the same step.
    pub(crate) served: Box<[TenureId]>,
}

/// A lock to renew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) id: TenureId,
    pub(crate) ttl: Duration,
    /// The hold count to write, for a plain lock whose count has changed.
    pub(crate) count: Option<u32>,
}

/// An answer for each of several questions.
pub(crate) type Each = Result<Vec<Result<bool, Fault>>, Fault>;

impl Acquire {
    /// Redisson's layout has no call that releases and takes in one step.
    pub(crate) fn takes_two_calls(&self) -> bool {
        self.keys.row.layout == Layout::Redisson && self.old.is_some()
    }
}

impl Connection<'_> {
    /// Asks for one lock of any kind.
    pub(crate) async fn acquire(&mut self, acquire: &Acquire) -> Result<Acquired, Fault> {
        let Acquire { keys, old, .. } = acquire;
        if let Some(id) = *old
            && acquire.takes_two_calls()
        {
            let given_back =
                [Release { keys: Arc::clone(keys), id, is_taken: false, served: Box::default() }];
            for answer in Box::pin(self.release(&given_back)).await? {
                answer?;
            }
            // The release has just woken a waiter of another client, which may go first.
            return Ok(Acquired::Contended);
        }
        let common = self.common();
        let fill = |words: &mut Words<'_>, floor: u64| write_acquire(words, floor, common, acquire);
        let reply = self.call(scripts_of(keys).acquire, &fill).await?;
        self.acquired(self.peer().acquired_alone(reply))
    }

    /// Sends this acquire at once, and leaves its outcome to `then`: no caller has to be polled for it. A redirection, or a script
    /// that the server has forgotten, is a fault here. [`acquire`](Self::acquire) knows what to do then.
    pub(crate) fn acquire_then(
        &self,
        acquire: Acquire,
        then: impl FnOnce(Acquire, Result<Acquired, Fault>, u64) + Send + 'static,
    ) {
        let (script, common) = (scripts_of(&acquire.keys).acquire, self.common());
        let fill = |acquire: &Acquire, words: &mut Words<'_>, floor: u64| {
            write_acquire(words, floor, common, acquire);
        };
        self.call_then(script, acquire, fill, |acquire, reply, peer| {
            let acquired = reply.and_then(|reply| peer.acquired_alone(reply));
            then(acquire, acquired, peer.generation());
        });
    }

    /// Takes these locks of one family, two at least: plain ones that are free and that nobody waits for, or others as
    /// [`acquire`](Self::acquire) does. Returns an answer for each lock: a refusal of one does not affect the others.
    pub(crate) async fn acquire_each(
        &mut self,
        acquires: &[Acquire],
    ) -> Result<Vec<Result<Acquired, Fault>>, Fault> {
        let (first, common) = (&acquires[0].keys, self.common());
        let script = existing(scripts_of(first).acquire_each, first)?;
        let fill = |words: &mut Words<'_>, floor: u64| match first.row.family {
            Family::Line => write_acquires_in_line(words, floor, common, acquires),
            _ => write_acquires(words, floor, common, acquires),
        };
        let mut answers = items(self.call(script, &fill).await?)?;
        if first.row.layout == Layout::Redisson {
            // Two items for each.
            answers = answers.chunks(2).map(|answer| Value::Array(answer.to_vec())).collect();
        }
        if answers.len() != acquires.len() {
            return Err(strange(&answers.len()));
        }
        let peer = self.peer();
        Ok(answers.into_iter().map(|answer| self.acquired(peer.acquired_alone(answer))).collect())
    }

    /// Takes all of these plain locks, or none. Returns the answer and the index of the lock that it is about. The
    /// grant is that of the first lock, and increases by one from lock to lock.
    pub(crate) async fn acquire_all(
        &mut self,
        acquires: &[Acquire],
    ) -> Result<(usize, Result<Acquired, Fault>), Fault> {
        let first = &acquires[0].keys;
        let has_line = first.row.line.is_ours();
        let common = self.common();
        let fill = |words: &mut Words<'_>, floor: u64| {
            let keys_of_each = if has_line { 3 } else { 1 };
            words.arg(1 + acquires.len() * keys_of_each).arg(first.tokens());
            for Acquire { keys, .. } in acquires {
                words.arg(keys.lock());
                if has_line {
                    words.arg(keys.line()).arg(keys.notes());
                }
            }
            words.arg(floor);
            if has_line {
                words.arg(common.message()).arg(millis(common.waiter_ttl));
            }
            for Acquire { keys, id, lease, .. } in acquires {
                words.arg(id.of(&common.client)).arg(millis(*lease));
                if has_line {
                    words.arg(&*keys.channel);
                }
            }
        };
        let script = existing(scripts_of(first).acquire_all, first)?;
        let reply = items(self.call(script, &fill).await?)?;
        let [code, Value::Int(which), value] = reply.as_slice() else {
            return Err(strange(&reply));
        };
        let answer = self.acquired(self.peer().acquired(&[code.clone(), value.clone()]));
        if let Ok(Acquired::Granted { number: first, .. }) = answer {
            self.peer().granted(first + acquires.len() as u64 - 1);
        }
        let which = usize::try_from(*which).ok().filter(|which| *which <= acquires.len());
        match answer {
            Err(fault) if fault.may_hold() => Err(fault),
            answer => Ok((which.ok_or_else(|| strange(&reply))?.saturating_sub(1), answer)),
        }
    }

    /// Releases each of these, locks or places in line: one, or several whose releases share a script. Returns for each whether the
    /// caller still had it.
    pub(crate) async fn release(&mut self, releases: &[Release]) -> Each {
        let [release] = releases else { return self.release_together(releases).await };
        Ok(vec![match self.release_batch(releases).await.and_then(only) {
            Err(fault @ Fault::Redirected(Redirect::TryAgain, _)) => {
                Box::pin(self.release_alone(release, fault)).await
            }
            // The script released the lock, and then could not let in the next waiter. In all of the scripts, the
            // release comes first, and a script that finds no hold does not report this.
            Err(Fault::HalfRun(_)) => released_alone(release.served.is_empty()),
            answer => answer,
        }])
    }

    /// Releases a lock whose keys are at two nodes of a cluster, while their slot moves. A field that does not hold the
    /// lock may still stand in its line, which cannot be changed now: in that case the answer remains `before`.
    async fn release_alone(&mut self, release: &Release, before: Fault) -> Result<bool, Fault> {
        let Release { keys, id, .. } = release;
        let Some(script) = scripts_of(keys).release_alone else { return Err(before) };
        let common = self.common();
        let fill = |words: &mut Words<'_>, _: u64| {
            words.arg(1).arg(keys.lock()).arg(id.of(&common.client));
            words.arg(&*keys.channel).arg(common.message());
        };
        // Ask the owner of the slot: the lock may not have moved yet.
        self.go_back(keys)?;
        match number(self.call(script, &fill).await?)? {
            1 => released_alone(release.served.is_empty()),
            _ => Err(before),
        }
    }

    pub(crate) async fn release_batch(&mut self, releases: &[Release]) -> Each {
        let common = self.common();
        let fill =
            |words: &mut Words<'_>, floor: u64| write_releases(words, floor, common, releases);
        let reply = self.call(release_script(&releases[0]), &fill).await;
        self.peer().released(reply, releases.len())
    }

    /// Sends this release at once, and leaves its outcome to `then`: no caller has to be polled for it. A redirection, or a script
    /// that the server has forgotten, is a fault here. [`release`](Self::release) knows what to do then.
    pub(crate) fn release_then(
        &self,
        release: Release,
        then: impl FnOnce(Result<bool, Fault>) + Send + 'static,
    ) {
        let common = self.common();
        let fill = |release: &Release, words: &mut Words<'_>, floor: u64| {
            write_releases(words, floor, common, slice::from_ref(release));
        };
        self.call_then(release_script(&release), release, fill, move |release, reply, peer| {
            then(match peer.released_alone(reply) {
                Err(Fault::HalfRun(_)) => released_alone(release.served.is_empty()),
                outcome => outcome,
            });
        });
    }

    /// Renews each of these: one, or several that share renewals. Returns for each whether this client still holds it.
    pub(crate) async fn renew(&mut self, renewals: &[Renewal<'_>]) -> Each {
        match renewals {
            [renewal] if !renewal.keys.row.family.shares_renewals() => {
                Ok(vec![self.renew_one(renewal).await])
            }
            renewals => self.renew_together(renewals).await,
        }
    }

    pub(crate) async fn renew_batch(&mut self, renewals: &[Renewal<'_>]) -> Each {
        let common = self.common();
        let fill = |words: &mut Words<'_>, _: u64| {
            words.arg(renewals.len() * if common.is_in_session() { 2 } else { 1 });
            for renewal in renewals {
                words.arg(renewal.keys.lock());
            }
            for renewal in renewals.iter().filter(|_| common.is_in_session()) {
                words.arg(renewal.keys.notes());
            }
            for Renewal { keys, id, ttl, count } in renewals {
                let (client, mut number) = (&common.client, Buffer::new());
                match keys.row.family {
                    Family::RedissonWrite => {
                        words.joined(&[client, ":", number.format(id.0), ":write"])
                    }
                    _ => words.arg(id.of(client)),
                };
                let is_set = matches!(keys.row.family, Family::Line | Family::Condition);
                let (mut digits, mut number) = (Buffer::new(), Buffer::new());
                let ttl = digits.format(millis(*ttl));
                match count {
                    Some(count) => words.joined(&[ttl, " ", number.format(*count)]),
                    None => words.joined(&[ttl, if is_set { " set" } else { "" }]),
                };
            }
        };
        let script = if common.is_in_session() { &RENEW_IN_SESSION } else { &RENEW };
        let reply = self.call(script, &fill).await?;
        let answers = self.peer().each(reply, renewals.len())?;
        Ok(answers.into_iter().map(|answer| self.kept(answer?)).collect())
    }

    /// Writes the hold count of a tenure. Returns whether this client still holds it. For kinds other than a plain
    /// lock, the client counts only in memory.
    pub(crate) async fn count(
        &mut self,
        keys: &Keys,
        id: TenureId,
        count: u32,
        lease: Duration,
    ) -> Result<bool, Fault> {
        let count = keys.row.family.is_plain().then_some(count);
        self.renew(&[Renewal { keys, id, ttl: lease, count }]).await.and_then(only)
    }

    /// Whether the lock is held, and for how long. The inner `None`: its key has no TTL.
    pub(crate) async fn held_for(
        &mut self,
        keys: &Keys,
    ) -> Result<Option<Option<Duration>>, Fault> {
        let fill = |words: &mut Words<'_>, _: u64| {
            words.arg(1).arg(keys.lock());
        };
        let ttl = if ptr::eq(scripts_of(keys).status, &STATUS) {
            number(self.call(&STATUS, &fill).await?)?
        } else {
            self.status(keys).await?.ttl
        };
        Ok((ttl != -2).then(|| time_left(ttl)))
    }

    /// Takes the lock away from its holders. Returns whether there were any.
    pub(crate) async fn force_unlock(&mut self, keys: &Keys) -> Result<bool, Fault> {
        let script = existing(scripts_of(keys).force_unlock, keys)?;
        let (Family::RedissonLock | Family::RedissonFenced) = keys.row.family else {
            let gone = number(self.ask(script, keys, |_, _| {}).await?)?;
            return self.counts(gone > 0);
        };
        let common = self.common();
        let fill = |words: &mut Words<'_>, _: u64| {
            words.arg(1).arg(keys.lock()).arg(&*keys.channel).arg(common.message());
        };
        let gone = number(self.call(script, &fill).await?)?;
        self.counts(gone == 1)
    }

    /// A grant counts only if enough replicas have it.
    fn acquired(&self, acquired: Result<Acquired, Fault>) -> Result<Acquired, Fault> {
        match acquired? {
            granted @ Acquired::Granted { .. } => self.counts(granted),
            acquired => Ok(acquired),
        }
    }
}

impl Peer {
    /// The answers about so many locks that a request released.
    fn released(&self, reply: Result<Value, Fault>, asked: usize) -> Each {
        match reply {
            Ok(reply) => self.each(reply, asked),
            Err(fault) if asked == 1 => gone_if_alien(Err(fault)).map(|found| vec![Ok(found)]),
            Err(fault) => Err(fault),
        }
    }

    /// The answer about the only lock that a request released. It seldom is a list.
    fn released_alone(&self, reply: Result<Value, Fault>) -> Result<bool, Fault> {
        match reply {
            Ok(Value::Int(code)) => released(code),
            reply => self.released(reply, 1).and_then(only),
        }
    }

    /// The answers about so many locks that a request released or renewed.
    fn each(&self, reply: Value, asked: usize) -> Each {
        let items = match reply {
            Value::Int(_) => vec![reply],
            reply => items(reply)?,
        };
        if items.len() != asked {
            return Err(strange(&items.len()));
        }
        let still_ours = |item| still_ours(item).inspect_err(|fault| self.heed(fault));
        Ok(items.iter().map(still_ours).collect())
    }

    /// The answer to a request for one lock. If the lock was free, the reply is a single number.
    fn acquired_alone(&self, reply: Value) -> Result<Acquired, Fault> {
        match reply {
            Value::Int(_) => self.acquired(&[Value::Int(1), reply]),
            reply => self.acquired(&items(reply)?),
        }
    }

    fn acquired(&self, reply: &[Value]) -> Result<Acquired, Fault> {
        let acquired = acquired(reply).inspect_err(|fault| self.heed(fault));
        if let Ok(Acquired::Granted { number, .. }) = acquired {
            self.granted(number);
        }
        acquired
    }
}

/// The answer about one lock.
fn still_ours(item: &Value) -> Result<bool, Fault> {
    gone_if_alien(entry(item).and_then(released))
}

fn acquired(reply: &[Value]) -> Result<Acquired, Fault> {
    match *reply {
        [Value::Int(1), Value::Int(number)] => granted(number, false),
        [Value::Int(1), Value::Int(number), Value::Int(waiting)] => granted(number, waiting != 0),
        [Value::Int(0), Value::Int(ttl)] => Ok(Acquired::Held(time_left(ttl))),
        // Redisson's fair lock: every waiter shows signs of life.
        [Value::Int(0), Value::Int(ttl), Value::Int(at)] => waits(ttl, at, 1, None),
        [Value::Int(0), Value::Int(ttl), Value::Int(at), Value::Int(near)] => {
            waits(ttl, at, near, None)
        }
        [Value::Int(0), Value::Int(ttl), Value::Int(at), Value::Int(near), Value::Int(ahead)] => {
            waits(ttl, at, near, Some(ahead))
        }
        [Value::Int(2), Value::Int(_)] => Ok(Acquired::Contended),
        [Value::Int(3), Value::Int(ttl)] => Ok(Acquired::Kept(time_left(ttl))),
        [Value::Int(-1), ref refusal @ Value::BulkString(_)] => {
            Err(entry(refusal).map_or_else(|fault| fault, |number| strange(&number)))
        }
        _ => Err(strange(&reply)),
    }
}

/// The script of Redisson's plain lock takes one lock or several.
fn asks_in_a_batch(keys: &Keys) -> bool {
    keys.row.layout == Layout::Redisson && keys.row.family.is_plain()
}

/// Writes what asks for one lock of any kind.
fn write_acquire(words: &mut Words<'_>, floor: u64, common: &CommonArgs, acquire: &Acquire) {
    if asks_in_a_batch(&acquire.keys) {
        write_acquires(words, floor, common, slice::from_ref(acquire));
    } else if acquire.keys.row.line.is_ours() {
        write_acquire_in_line(words, floor, common, acquire);
    } else {
        write_acquire_without_line(words, floor, common, acquire);
    }
}

/// Writes what asks for these plain locks.
fn write_acquires(words: &mut Words<'_>, floor: u64, common: &CommonArgs, acquires: &[Acquire]) {
    let first = &acquires[0].keys;
    let has_line = first.row.line.is_ours();
    let keys_of_each = if has_line { 2 } else { 1 };
    words.arg(1 + acquires.len() * keys_of_each).arg(first.tokens());
    for Acquire { keys, .. } in acquires {
        words.arg(keys.lock());
        if has_line {
            words.arg(keys.line());
        }
    }
    words.arg(floor);
    for Acquire { id, lease, .. } in acquires {
        words.arg(id.of(&common.client)).arg(millis(*lease));
    }
}

/// Writes the keys of these locks, which have lines: the counter, and three for each.
fn write_keys<'a>(
    words: &mut Words<'_>,
    first: &Keys,
    all: impl ExactSizeIterator<Item = &'a Arc<Keys>>,
) {
    words.arg(1 + all.len() * 3).arg(first.tokens());
    for keys in all {
        words.arg(keys.lock()).arg(keys.line()).arg(keys.notes());
    }
}

/// Writes what asks for these locks of kinds that have a line, but for plain ones.
fn write_acquires_in_line(
    words: &mut Words<'_>,
    floor: u64,
    common: &CommonArgs,
    acquires: &[Acquire],
) {
    let first = &acquires[0].keys;
    write_keys(words, first, acquires.iter().map(|acquire| &acquire.keys));
    words.arg(floor).joined(&[&common.line_terms, first.channel_prefix()]);
    for Acquire { keys, id, lease, permits, manner, secret, .. } in acquires {
        words.arg(id.of(&common.client));
        let (mut ms, mut part, mut capacity) = (Buffer::new(), Buffer::new(), Buffer::new());
        let (ms, part) = (ms.format(millis(*lease)), part.format(*permits));
        let capacity = capacity.format(keys.kind.capacity());
        let how = if *manner == Manner::Once { " once" } else { "" };
        words.joined(&[ms, " ", part, " ", keys.row.word, " ", capacity, how]);
        let (mut digits, mut stamp) = (Buffer::new(), Buffer::new());
        words.joined(&secret.parts(&mut digits, &mut stamp));
    }
}

/// Writes what releases these.
fn write_releases(words: &mut Words<'_>, floor: u64, common: &CommonArgs, releases: &[Release]) {
    let Release { keys: first, is_taken, .. } = &releases[0];
    if first.row.line.is_ours() && !is_taken {
        write_releases_in_line(words, floor, common, releases);
    } else if first.row.family.is_plain() {
        words.arg(releases.len());
        releases.iter().for_each(|release| _ = words.arg(release.keys.lock()));
        words.arg(common.message());
        for Release { keys, id, .. } in releases {
            words.arg(id.of(&common.client)).arg(&*keys.channel);
        }
    } else {
        write_leave(words, floor, common, &releases[0]);
    }
}

fn write_releases_in_line(
    words: &mut Words<'_>,
    floor: u64,
    common: &CommonArgs,
    releases: &[Release],
) {
    let first = &releases[0].keys;
    write_keys(words, first, releases.iter().map(|release| &release.keys));
    let (mut least, mut ttl) = (Buffer::new(), Buffer::new());
    let (least, ttl) = (least.format(floor), ttl.format(millis(common.waiter_ttl)));
    let (message, channels) = (common.message(), first.channel_prefix());
    words.joined(&[least, " ", ttl, " ", message, " ", channels]);
    for Release { keys, id, served, .. } in releases {
        if !keys.row.family.is_plain() {
            words.joined(&[keys.row.word, " ", Buffer::new().format(keys.kind.capacity())]);
        }
        words.arg(id.of(&common.client));
        served.iter().for_each(|served| _ = words.arg(served.of(&common.client)));
    }
}

/// The hold is released, and nothing else was done. Unless `is_all`, callers that have had the lock within this hold may still
/// stand in line: then the job has to send the release once more.
fn released_alone(is_all: bool) -> Result<bool, Fault> {
    match is_all {
        true => Ok(true),
        false => Err(Fault::HalfRun(said("released, but callers that have had it are in line"))),
    }
}

fn waits(ttl: i64, place: i64, near: i64, ahead: Option<i64>) -> Result<Acquired, Fault> {
    let ahead = ahead.and_then(|ahead| u64::try_from(ahead).ok()).map(TenureId);
    let place = u64::try_from(place).unwrap_or(0);
    Ok(Acquired::Waits { ttl: time_left(ttl), place, near: near != 0, ahead })
}

fn granted(number: i64, awaited: bool) -> Result<Acquired, Fault> {
    if !(0..1 << 53).contains(&number) {
        return Err(strange(&number));
    }
    Ok(Acquired::Granted { number: number.unsigned_abs(), awaited })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_granted_or_waits_or_held_or_contended_or_refused() {
        let reply = |items: &[i64]| {
            acquired(&items.iter().map(|item| Value::Int(*item)).collect::<Vec<_>>())
        };
        let ms = Duration::from_millis;
        assert_eq!(reply(&[1, 7]).unwrap(), Acquired::Granted { number: 7, awaited: false });
        assert_eq!(reply(&[1, 7, 0]).unwrap(), Acquired::Granted { number: 7, awaited: false });
        assert_eq!(reply(&[1, 7, 1]).unwrap(), Acquired::Granted { number: 7, awaited: true });
        assert_eq!(reply(&[0, 250]).unwrap(), Acquired::Held(Some(ms(250))));
        assert_eq!(reply(&[0, -1]).unwrap(), Acquired::Held(None));
        assert_eq!(reply(&[3, 250]).unwrap(), Acquired::Kept(Some(ms(250))));
        let waits = |near, ahead| Acquired::Waits { ttl: Some(ms(250)), place: 9, near, ahead };
        assert_eq!(reply(&[0, 250, 9]).unwrap(), waits(true, None));
        assert_eq!(reply(&[0, 250, 9, 1]).unwrap(), waits(true, None));
        assert_eq!(reply(&[0, 250, 9, 0]).unwrap(), waits(false, None));
        assert_eq!(reply(&[0, 250, 9, 0, 3]).unwrap(), waits(false, Some(TenureId(3))));
        assert_eq!(reply(&[2, 0]).unwrap(), Acquired::Contended);
        let full = [Value::Int(-1), Value::BulkString(b"OOM command not allowed".to_vec())];
        assert!(matches!(acquired(&full), Err(Fault::Refused(_))));
    }

    #[test]
    fn an_unexpected_reply_is_not_taken_for_a_grant() {
        for reply in [
            vec![],
            vec![Value::Int(1)],
            vec![Value::Int(1), Value::Int(-1)],
            vec![Value::Int(1), Value::Int(-1), Value::Int(0)],
            vec![Value::Int(4), Value::Int(1)],
            vec![Value::Int(1), Value::Int(1 << 53)],
            vec![Value::Int(1), Value::Int(1), Value::Nil],
            vec![Value::Int(0), Value::Int(1), Value::Int(1), Value::Nil],
            vec![Value::Nil, Value::Nil],
        ] {
            assert!(acquired(&reply).unwrap_err().may_have_run());
        }
    }
}
