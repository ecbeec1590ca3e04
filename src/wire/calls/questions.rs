//! Questions about one name: the same for every family, with the scripts of that family.

use std::borrow::Borrow;

use futures_util::future::{join, join_all};
use redis::{Cmd, Value};

use crate::keys::{Key, Keys, TenureId};
use crate::wire::args::{Joined, millis};
use crate::wire::calls::{Acquire, Acquired, Manner, Release, Renewal};
use crate::wire::connection::Connection;
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
        fill: impl Fn(&mut Cmd, &str) + Sync,
    ) -> Result<Value, Fault> {
        let all = [keys.tokens(), keys.lock(), keys.line(), keys.notes(), keys.requests()];
        let all = if keys.row.has_requests { &all[..] } else { &all[..4] };
        self.ask_of(script, keys, all, fill).await
    }

    /// Same as [`ask`](Self::ask), for the holders alone. While a slot of a cluster moves, the other keys may be
    /// elsewhere, and only a request with one key is answered. The same key four times counts as one.
    async fn ask_holders(
        &mut self,
        script: &'static Script,
        keys: &Keys,
        fill: impl Fn(&mut Cmd, &str) + Sync,
    ) -> Result<Value, Fault> {
        match keys.slot {
            Some(_) if keys.row.is_renewed_alone => {
                self.ask_of(script, keys, &[keys.lock(); 4], fill).await
            }
            _ => self.ask(script, keys, fill).await,
        }
    }

    async fn ask_of(
        &mut self,
        script: &'static Script,
        keys: &Keys,
        all: &[Key<'_>],
        fill: impl Fn(&mut Cmd, &str) + Sync,
    ) -> Result<Value, Fault> {
        let common = self.common();
        let (kind, capacity) = (keys.row.word, keys.kind.capacity());
        let asked = |cmd: &mut Cmd, floor: u64| {
            cmd.arg(all.len());
            all.iter().for_each(|key| _ = cmd.arg(key));
            cmd.arg(floor).arg(kind).arg(capacity).arg(&*keys.channel).arg(common.message());
            cmd.arg(millis(common.waiter_ttl));
            fill(cmd, &common.client);
        };
        self.call(script, &asked).await
    }

    /// Same as [`ask`](Self::ask), with a script that not every family has.
    pub(crate) async fn ask_if(
        &mut self,
        script: Option<&'static Script>,
        keys: &Keys,
        fill: impl Fn(&mut Cmd, &str) + Sync,
    ) -> Result<Value, Fault> {
        self.ask(existing(script, keys)?, keys, fill).await
    }

    pub(crate) async fn enter(&mut self, acquire: &Acquire) -> Result<Acquired, Fault> {
        let reply = if acquire.keys.row.has_line {
            self.ask_line(acquire).await?
        } else {
            self.ask_without_line(acquire).await?
        };
        self.acquired_alone(reply)
    }

    /// Asks for a lock of a kind that has a line.
    async fn ask_line(&mut self, acquire: &Acquire) -> Result<Value, Fault> {
        let Acquire { keys, id, lease, secret, .. } = acquire;
        let common = self.common();
        let fill = |cmd: &mut Cmd, floor: u64| {
            cmd.arg(4).arg(keys.tokens()).arg(keys.lock()).arg(keys.line()).arg(keys.notes());
            cmd.arg(floor);
            if !keys.row.lies_as_plain {
                cmd.arg(keys.row.word).arg(keys.kind.capacity());
            }
            cmd.arg(id.of(&common.client)).arg(millis(*lease));
            cmd.arg(Joined(format_args!("{}{secret} {}", common.line_terms, keys.channel)));
            unusual(cmd, acquire, &common.client);
        };
        self.call(scripts_of(keys).acquire, &fill).await
    }

    async fn ask_without_line(&mut self, acquire: &Acquire) -> Result<Value, Fault> {
        let Acquire { keys, id, lease, manner, permits, within, place, .. } = acquire;
        let fill = |cmd: &mut Cmd, client: &str| {
            cmd.arg(id.of(client)).arg(permits).arg(millis(*lease)).arg(manner.word());
            or_nobody(cmd, *within, client);
            // Without a line, no message grants anything, and nothing has to be proved.
            cmd.arg(place).arg(0);
        };
        self.ask(scripts_of(keys).acquire, keys, fill).await
    }

    /// Releases a lock that is not plain, or leaves its line.
    pub(crate) async fn leave(&mut self, release: &Release) -> Result<bool, Fault> {
        let Release { keys, id, is_taken, served } = release;
        let fill = |cmd: &mut Cmd, client: &str| {
            cmd.arg(id.of(client));
            served.iter().for_each(|served| _ = cmd.arg(served.of(client)));
        };
        let scripts = scripts_of(keys);
        let taken = scripts.condition.as_ref().filter(|_| *is_taken);
        let script = taken.map_or(scripts.release, |condition| condition.taken);
        found(self.ask(script, keys, fill).await)
    }

    /// Asks about all plain locks in one request, and about each other lock in a separate request, all at once.
    pub(crate) async fn leave_each(&self, releases: &[Release]) -> Vec<Result<bool, Fault>> {
        let is_plain = |release: &Release| release.keys.row.lies_as_plain;
        let plain: Vec<_> = releases.iter().filter(|release| is_plain(release)).collect();
        let others = releases.iter().filter(|release| !is_plain(release));
        let leave = others.map(async |release| self.again().leave(release).await);
        let mut together = self.again();
        let (answers, others) = join(together.release_together(&plain), join_all(leave)).await;
        in_order(releases.iter().map(is_plain), each_of(plain.len(), answers), others)
    }

    /// Releases these plain locks in one request. The server refuses the whole request if the user may not access one of its
    /// keys. Then this sends a request for each lock.
    pub(crate) async fn release_together(
        &mut self,
        releases: &[impl Borrow<Release> + Sync],
    ) -> Each {
        let together = self.release_plain(releases).await;
        if !refused_for_one(&together, releases.len()) {
            return together;
        }
        let alone = releases.iter().map(async |release| {
            only(self.again().release_plain(std::slice::from_ref(release)).await)
        });
        Ok(join_all(alone).await)
    }

    /// Same as [`Self::leave_each`].
    pub(crate) async fn renew_each(&self, renewals: &[Renewal<'_>]) -> Vec<Result<bool, Fault>> {
        let is_plain = |renewal: &Renewal<'_>| renewal.keys.row.lies_as_plain;
        let plain: Vec<_> = renewals.iter().copied().filter(is_plain).collect();
        let others = renewals.iter().filter(|renewal| !is_plain(renewal));
        let renew = others.map(async |Renewal { keys, id, ttl }| {
            let fill = |cmd: &mut Cmd, client: &str| _ = cmd.arg(id.of(client)).arg(millis(*ttl));
            let (mut connection, script) = (self.again(), existing(scripts_of(keys).renew, keys)?);
            match found(connection.ask_holders(script, keys, fill).await) {
                Err(fault @ Fault::Redirected(Redirect::TryAgain, _)) => {
                    connection.renew_alone(Renewal { keys, id: *id, ttl: *ttl }, fault).await
                }
                is_ours => connection.kept(is_ours?),
            }
        });
        let mut together = self.again();
        let (answers, others) = join(together.renew_together(&plain), join_all(renew)).await;
        in_order(renewals.iter().map(is_plain), each_of(plain.len(), answers), others)
    }

    /// Renews a Redisson lock whose keys are at two nodes of a cluster, while their slot moves. Its queue stays
    /// unchanged.
    async fn renew_alone(&mut self, renewal: Renewal<'_>, before: Fault) -> Result<bool, Fault> {
        let keys = renewal.keys;
        let Some(script) = scripts_of(keys).renew_alone else { return Err(before) };
        let common = self.common();
        let fill = |cmd: &mut Cmd, _: u64| {
            cmd.arg(1).arg(keys.lock());
            cmd.arg(renewal.id.of(&common.client)).arg(millis(renewal.ttl));
        };
        // Ask the owner of the slot: the lock may not have moved yet.
        self.go_back(keys)?;
        let is_ours = found(self.call(script, &fill).await)?;
        self.kept(is_ours)
    }

    /// Same as [`Self::release_together`].
    pub(crate) async fn renew_together(&mut self, renewals: &[Renewal<'_>]) -> Each {
        if renewals.is_empty() {
            return Ok(Vec::new());
        }
        let together = self.renew_plain(renewals).await;
        if !refused_for_one(&together, renewals.len()) {
            return together;
        }
        let alone = renewals.iter().map(async |renewal| {
            only(self.again().renew_plain(std::slice::from_ref(renewal)).await)
        });
        Ok(join_all(alone).await)
    }

    pub(crate) async fn renew_one(&mut self, renewal: Renewal<'_>) -> Result<bool, Fault> {
        self.renew_each(&[renewal]).await.pop().unwrap_or(Ok(false))
    }

    pub(crate) async fn status(&mut self, keys: &Keys) -> Result<Status, Fault> {
        let reply = self.ask(scripts_of(keys).status, keys, |_, _| {}).await?;
        let [ttl, used, capacity] = numbers(reply)?;
        Ok(Status { ttl, used, capacity })
    }

    /// Takes the lock away from all holders. Returns how many there were.
    pub(crate) async fn force_out(&mut self, keys: &Keys) -> Result<i64, Fault> {
        let gone = number(self.ask_if(scripts_of(keys).force_unlock, keys, |_, _| {}).await?)?;
        self.counts(gone)
    }

    /// Sets the capacity; `if_unset`: only if none is set or in use. Returns whether it did.
    pub(crate) async fn resize(
        &mut self,
        keys: &Keys,
        capacity: u32,
        if_unset: bool,
    ) -> Result<bool, Fault> {
        let fill = |cmd: &mut Cmd, _: &str| {
            cmd.arg(capacity);
            if if_unset {
                cmd.arg("unset");
            }
        };
        let set = number(self.ask_if(scripts_of(keys).resize, keys, fill).await?)?;
        self.counts(set == 1)
    }
}

/// Writes how a request differs from that of a newcomer that waits for one part, up to the last difference. Each argument
/// costs the server time, and most requests do not differ.
fn unusual(cmd: &mut Cmd, acquire: &Acquire, client: &str) {
    let Acquire { manner, permits, within, place, old, .. } = acquire;
    let differs =
        [*permits != 1, *manner != Manner::Wait, within.is_some(), *place > 0, old.is_some()];
    let last = differs.iter().rposition(|differs| *differs).map_or(0, |last| last + 1);
    for word in 0..last {
        match word {
            0 => _ = cmd.arg(permits),
            1 => _ = cmd.arg(manner.word()),
            2 => or_nobody(cmd, *within, client),
            3 => _ = cmd.arg(place),
            _ => or_nobody(cmd, *old, client),
        }
    }
}

fn or_nobody(cmd: &mut Cmd, tenure: Option<TenureId>, client: &str) {
    match tenure {
        Some(tenure) => _ = cmd.arg(tenure.of(client)),
        None => _ = cmd.arg(""),
    }
}

/// An answer for each of several questions.
pub(crate) type Each = Result<Vec<Result<bool, Fault>>, Fault>;

/// Whether each question has to be asked alone.
pub(crate) fn refused_for_one<A>(answers: &Result<Vec<A>, Fault>, asked: usize) -> bool {
    asked > 1 && matches!(answers, Err(Fault::Permission(_)))
}

/// A fault of a request is a fault of every question in it.
fn each_of(asked: usize, answer: Each) -> Vec<Result<bool, Fault>> {
    answer.unwrap_or_else(|fault| vec![Err(fault); asked])
}

/// The answers about plain locks and about others, in the order of the questions.
fn in_order(
    are_plain: impl Iterator<Item = bool>,
    plain: Vec<Result<bool, Fault>>,
    others: Vec<Result<bool, Fault>>,
) -> Vec<Result<bool, Fault>> {
    let (mut plain, mut others) = (plain.into_iter(), others.into_iter());
    let next = |is_plain| if is_plain { plain.next() } else { others.next() };
    are_plain.map(next).map(|answer| answer.unwrap_or_else(|| Err(strange(&"nothing")))).collect()
}

fn only(answer: Each) -> Result<bool, Fault> {
    answer?.pop().unwrap_or_else(|| Err(strange(&"nothing")))
}

fn found(answer: Result<Value, Fault>) -> Result<bool, Fault> {
    match answer.and_then(number) {
        Ok(code) => released(code),
        // Another program has replaced it with another value: the lock is gone, and we do not change the value.
        Err(Fault::WrongType | Fault::Conflict(_)) => Ok(false),
        Err(fault) => Err(fault),
    }
}
