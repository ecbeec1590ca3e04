//! Questions about one name: the same for every family, with the scripts of that family.

use futures_util::future::join_all;
use itoa::Buffer;
use redis::Value;

use crate::keys::{Keys, TenureId};
use crate::kinds::Family;
use crate::wire::args::{Words, millis};
use crate::wire::calls::{Acquire, Each, Manner, Release, Renewal};
use crate::wire::connection::{CommonArgs, Connection};
use crate::wire::family::{existing, scripts_of};
use crate::wire::fault::{Fault, Redirect};
use crate::wire::replies::{number, numbers, released, strange};
use crate::wire::scripts::Script;

/// How much of a lock, semaphore or latch is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// How long the longest lease still lasts; -1: another program holds it without an end; less: nobody holds it.
    pub(crate) ttl: i64,
    pub(crate) used: i64,
    pub(crate) capacity: i64,
}

impl Connection<'_> {
    /// Asks one question about one name. The arguments are those that every script of a family gets, followed by those
    /// of this script.
    pub(crate) async fn ask(
        &mut self,
        script: &'static Script,
        keys: &Keys,
        fill: impl Fn(&mut Words<'_>, &str) + Sync,
    ) -> Result<Value, Fault> {
        let common = self.common();
        let fill = |words: &mut Words<'_>, floor: u64| {
            write_question(words, floor, common, keys);
            fill(words, &common.client);
        };
        self.call(script, &fill).await
    }

    /// Releases these locks in one request. The server refuses the whole request if the user may not access one of its
    /// keys. Then this sends a request for each lock.
    pub(crate) async fn release_together(&mut self, releases: &[Release]) -> Each {
        let together = self.release_batch(releases).await;
        if !refused_for_one(&together, releases.len()) {
            return together;
        }
        let alone = releases.iter().map(async |release| {
            self.again().release_batch(std::slice::from_ref(release)).await.and_then(only)
        });
        Ok(join_all(alone).await)
    }

    /// Renews a lock of Redisson whose renewal touches other keys than that of the holders.
    pub(crate) async fn renew_one(&mut self, renewal: &Renewal<'_>) -> Result<bool, Fault> {
        let Renewal { keys, id, ttl, .. } = *renewal;
        let fill =
            |words: &mut Words<'_>, client: &str| _ = words.arg(id.of(client)).arg(millis(ttl));
        let script = existing(scripts_of(keys).renew, keys)?;
        match found(self.ask(script, keys, fill).await) {
            Err(Fault::Redirected(Redirect::TryAgain, _))
                if keys.row.family == Family::RedissonFair =>
            {
                // The keys are at two nodes of a cluster, while their slot moves. Renew the holders alone, at the owner of the slot:
                // the lock may not have moved yet. The line stays unchanged.
                self.go_back(keys)?;
                self.renew_batch(std::slice::from_ref(renewal)).await.and_then(only)
            }
            is_ours => self.kept(is_ours?),
        }
    }

    /// Same as [`Self::release_together`].
    pub(crate) async fn renew_together(&mut self, renewals: &[Renewal<'_>]) -> Each {
        let together = self.renew_batch(renewals).await;
        if !refused_for_one(&together, renewals.len()) {
            return together;
        }
        let alone = renewals.iter().map(async |renewal| {
            self.again().renew_batch(std::slice::from_ref(renewal)).await.and_then(only)
        });
        Ok(join_all(alone).await)
    }

    pub(crate) async fn status(&mut self, keys: &Keys) -> Result<Status, Fault> {
        let reply = self.ask(scripts_of(keys).status, keys, |_, _| {}).await?;
        let [ttl, used, capacity] = numbers(reply)?;
        Ok(Status { ttl, used, capacity })
    }

    /// Sets the capacity; `if_unset`: only if none is set or in use. Returns whether it did.
    pub(crate) async fn resize(
        &mut self,
        keys: &Keys,
        capacity: u32,
        if_unset: bool,
    ) -> Result<bool, Fault> {
        let fill = |words: &mut Words<'_>, _: &str| {
            words.arg(capacity);
            if if_unset {
                words.arg("unset");
            }
        };
        let script = existing(scripts_of(keys).resize, keys)?;
        let set = number(self.ask(script, keys, fill).await?)?;
        self.counts(set == 1)
    }
}

/// Writes the arguments that every script of a family gets.
fn write_question(words: &mut Words<'_>, floor: u64, common: &CommonArgs, keys: &Keys) {
    let all = [keys.tokens(), keys.lock(), keys.line(), keys.notes(), keys.requests()];
    let all = match keys.row.family {
        Family::Latch | Family::Condition => &all[..],
        _ => &all[..4],
    };
    words.arg(all.len());
    all.iter().for_each(|key| _ = words.arg(*key));
    words.arg(floor).arg(keys.row.word).arg(keys.kind.capacity());
    words.arg(&*keys.channel).arg(common.message()).arg(millis(common.waiter_ttl));
}

/// Writes what asks for a lock of a kind that has a line.
pub(crate) fn write_acquire_in_line(
    words: &mut Words<'_>,
    floor: u64,
    common: &CommonArgs,
    acquire: &Acquire,
) {
    let Acquire { keys, id, lease, secret, .. } = acquire;
    words.arg(4).arg(keys.tokens()).arg(keys.lock()).arg(keys.line()).arg(keys.notes());
    words.arg(floor);
    if !keys.row.family.is_plain() {
        words.arg(keys.row.word).arg(keys.kind.capacity());
    }
    words.arg(id.of(&common.client)).arg(millis(*lease));
    let (mut digits, mut stamp) = (Buffer::new(), Buffer::new());
    let [digits, stamp] = secret.parts(&mut digits, &mut stamp);
    words.joined(&[&common.line_terms, digits, stamp, " ", &keys.channel]);
    unusual(words, acquire, &common.client);
}

pub(crate) fn write_acquire_without_line(
    words: &mut Words<'_>,
    floor: u64,
    common: &CommonArgs,
    acquire: &Acquire,
) {
    let Acquire { keys, id, lease, manner, permits, within, place, .. } = acquire;
    write_question(words, floor, common, keys);
    words.arg(id.of(&common.client)).arg(*permits).arg(millis(*lease)).arg(manner.word());
    or_nobody(words, *within, &common.client);
    // Without a line, no message grants anything, and nothing has to be proved.
    words.arg(*place).arg(0);
}

/// Writes what releases a lock whose line is not ours, or uses up a notification.
pub(crate) fn write_leave(
    words: &mut Words<'_>,
    floor: u64,
    common: &CommonArgs,
    release: &Release,
) {
    let Release { keys, id, served, .. } = release;
    write_question(words, floor, common, keys);
    words.arg(id.of(&common.client));
    served.iter().for_each(|served| _ = words.arg(served.of(&common.client)));
}

pub(crate) fn release_script(release: &Release) -> &'static Script {
    let scripts = scripts_of(&release.keys);
    scripts.taken.filter(|_| release.is_taken).unwrap_or(scripts.release)
}

/// Writes how a request differs from that of a newcomer that waits for one part, up to the last difference. Each argument
/// costs the server time, and most requests do not differ.
fn unusual(words: &mut Words<'_>, acquire: &Acquire, client: &str) {
    let Acquire { manner, permits, within, place, old, .. } = acquire;
    let differs =
        [*permits != 1, *manner != Manner::Wait, within.is_some(), *place > 0, old.is_some()];
    let last = differs.iter().rposition(|differs| *differs).map_or(0, |last| last + 1);
    for word in 0..last {
        match word {
            0 => _ = words.arg(*permits),
            1 => _ = words.arg(manner.word()),
            2 => or_nobody(words, *within, client),
            3 => _ = words.arg(*place),
            _ => or_nobody(words, *old, client),
        }
    }
}

fn or_nobody(words: &mut Words<'_>, tenure: Option<TenureId>, client: &str) {
    match tenure {
        Some(tenure) => _ = words.arg(tenure.of(client)),
        None => _ = words.arg(""),
    }
}

/// Whether each question has to be asked alone.
pub(crate) fn refused_for_one<A>(answers: &Result<Vec<A>, Fault>, asked: usize) -> bool {
    asked > 1 && matches!(answers, Err(Fault::Permission(_)))
}

/// The answer to the only question.
pub(crate) fn only(mut answers: Vec<Result<bool, Fault>>) -> Result<bool, Fault> {
    answers.pop().unwrap_or_else(|| Err(strange(&"nothing")))
}

fn found(answer: Result<Value, Fault>) -> Result<bool, Fault> {
    gone_if_alien(answer.and_then(number).and_then(released))
}

/// If another program has replaced a lock with another value, or others use its name for another kind, the lock is gone, and the
/// value stays unchanged.
pub(crate) fn gone_if_alien(found: Result<bool, Fault>) -> Result<bool, Fault> {
    match found {
        Err(Fault::WrongType | Fault::Conflict(_)) => Ok(false),
        found => found,
    }
}
