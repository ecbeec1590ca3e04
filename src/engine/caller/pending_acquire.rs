//! A request that may take one lock or several. If its caller is dropped before the answer, the client releases what the
//! request may have taken. `caller/ask.rs` makes one. A request that shares a batch belongs to the gathering until it is
//! answered (`wire/calls/gathering.rs`).

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::core::Engine;
use crate::engine::entry::Entry;
use crate::engine::ghost::Ghost;
use crate::engine::grant::{Grant, deadline};
use crate::engine::releaser::Job;
use crate::keys::{Keys, TenureId};
use crate::kinds::Holders;
use crate::wire::{Acquire, Acquired, Answer, Answered, Batch, Fault, Gathering, SentOn};

/// The answer to an attempt.
pub(crate) enum Attempt {
    Granted(Grant),
    /// An answer that is no grant. [`Acquired::Contended`]: the offered tenure was released, and a waiter of another client may
    /// have been woken: it goes first.
    Other(Acquired),
}

/// The answer to an attempt to take several locks at once.
pub(crate) enum AttemptAll {
    /// All of them, in the order of the request.
    Granted(Vec<Grant>),
    /// None: another caller has this one, or stands in line for it.
    Busy(usize),
    /// None: the client that has this one may keep it idle. If it does, it gives the lock back.
    Kept(usize),
    /// None: the server refused this one.
    Refused(usize, Fault),
}

/// An attempt in flight. If it is dropped without an answer, it releases what Redis may have granted. The acquire
/// carries the debt from before it is sent, until the tenure or the job takes the debt over.
struct PendingAcquire<'a> {
    engine: &'a Engine,
    acquire: Acquire,
    /// The connection on which it was sent, until it is answered.
    open_on: Option<SentOn>,
    /// The entry whose contender may stand in line.
    entry: Option<&'a Entry>,
}

impl Drop for PendingAcquire<'_> {
    fn drop(&mut self) {
        if let Some(sent_on) = self.open_on.take() {
            self.engine.later(Job::ghost(Ghost::new(&self.acquire, sent_on.generation())));
        }
    }
}

/// Tries once. Callers that try at the same time share one request.
///
/// # Cancel safety
/// If the future is dropped and Redis grants the lock, the client releases it in the background.
pub(crate) async fn attempt(
    engine: &Engine,
    mut acquire: Acquire,
    entry: &Entry,
) -> Result<Attempt, Fault> {
    let mut _on_its_way = None;
    // A lock that is known to be contended is requested alone, and so is every lock in a cluster.
    let is_alone =
        acquire.keys.row.holders != Holders::Plain || acquire.old.is_some() || acquire.place > 0;
    if !is_alone && !engine.commands.is_scattered() {
        let acquires = &engine.requests.acquires;
        _on_its_way = acquires.send_alone();
        if _on_its_way.is_none() {
            let Answered { question, answer } = joined(engine, acquires, acquire).await?;
            if !matches!(answer.result, Ok(Acquired::Contended)) {
                return answered(engine, question, answer, entry);
            }
            // The script that takes several locks puts nobody in line. For that, ask for this lock alone.
            acquire = question;
        }
    }
    ask(engine, acquire, entry).await
}

async fn ask(engine: &Engine, acquire: Acquire, entry: &Entry) -> Result<Attempt, Fault> {
    let singles = &engine.requests.singles;
    let Some(_on_its_way) = singles.send_alone() else {
        let Answered { question, answer } = joined(engine, singles, acquire).await?;
        return answered(engine, question, answer, entry);
    };
    // Boxed: a caller that shares a request needs no space for one of its own. So its future is smaller than 1 KiB. glibc takes
    // a block of that size from a cache of the thread, without a lock.
    let sent = Box::pin(send(engine, acquire, entry)?);
    sent.await
}

/// Not an `async fn`: its future would have space for the request twice.
fn send<'a>(
    engine: &'a Engine,
    acquire: Acquire,
    entry: &'a Entry,
) -> Result<impl Future<Output = Result<Attempt, Fault>> + Send + use<'a>, Fault> {
    let mut connection = engine.commands.acknowledged(&acquire.keys)?;
    let open_on = Some(connection.sent_on());
    let mut pending = PendingAcquire { engine, acquire, open_on, entry: Some(entry) };
    let sent = Instant::now();
    Ok(async move {
        let answer = connection.acquire(&pending.acquire).await;
        pending.settle(answer, sent)
    })
}

/// Waits for the answer to a request that the task of a gathering sends.
///
/// Not an `async fn`: its future would have space for the request several times.
fn joined<'a, F: Batch<Question = Acquire>>(
    engine: &'a Engine,
    gathering: &'a Gathering<F>,
    acquire: Acquire,
) -> impl Future<Output = Result<Answered<F>, Fault>> + Send + use<'a, F> {
    let (keys, id) = (Some(Arc::clone(&acquire.keys)), acquire.id);
    let answered = gathering.join(acquire);
    async move {
        let mut answered = pin!(answered);
        // It is dropped before `answered`: so the release is expected before the answer can become an orphan.
        let mut caller = Joined { engine, keys, id };
        let answered = answered.as_mut().await;
        caller.keys = None;
        answered
    }
}

/// A caller that waits for such an answer. If it is dropped before, its name counts as being released.
struct Joined<'a> {
    engine: &'a Engine,
    /// `None` once it has the answer.
    keys: Option<Arc<Keys>>,
    id: TenureId,
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.keys.iter().for_each(|keys| self.engine.outbox.releases.expect(keys, self.id));
    }
}

/// The outcome of a request that the task of a gathering has sent.
fn answered(
    engine: &Engine,
    acquire: Acquire,
    answer: Answer,
    entry: &Entry,
) -> Result<Attempt, Fault> {
    let open_on = Some(SentOn::Answered(answer.sent_on));
    let mut pending = PendingAcquire { engine, acquire, open_on, entry: Some(entry) };
    pending.settle(answer.result, answer.sent)
}

/// Tries once to take plain locks in one step, one or several: all of them or none.
///
/// # Cancel safety
/// Same as [`attempt`], for each of them.
pub(crate) async fn attempt_all(
    engine: &Engine,
    acquires: Vec<Acquire>,
) -> Result<AttemptAll, Fault> {
    let mut connection = engine.commands.acknowledged(&acquires[0].keys)?;
    let open_on = connection.sent_on();
    let unanswered =
        |acquire| PendingAcquire { engine, acquire, open_on: Some(open_on.clone()), entry: None };
    let mut pending: Vec<_> = acquires.into_iter().map(unanswered).collect();
    let asked: Vec<_> = pending.iter().map(|one| &one.acquire).collect();
    let sent = Instant::now();
    let attempt = connection.acquire_all(&asked).await.and_then(|answer| match answer {
        (_, Ok(Acquired::Granted { number, .. })) => {
            granted(&asked, number, sent).map(AttemptAll::Granted)
        }
        (which, Ok(Acquired::Kept(_))) => Ok(AttemptAll::Kept(which)),
        (which, Ok(_)) => Ok(AttemptAll::Busy(which)),
        (which, Err(fault)) => Ok(AttemptAll::Refused(which, fault)),
    });
    // The drop releases what the request may have been granted.
    if !attempt.as_ref().is_err_and(Fault::may_hold) {
        pending.iter_mut().for_each(|one| one.open_on = None);
    }
    attempt
}

/// The grants of a step that granted all locks.
fn granted(acquires: &[&Acquire], first: u64, sent: Instant) -> Result<Vec<Grant>, Fault> {
    let now = Instant::now();
    if acquires.iter().any(|acquire| now >= deadline(sent, acquire.lease)) {
        return Err(Fault::late("the grants arrived after a lease had expired"));
    }
    let grant = |(acquire, number): (&&Acquire, u64)| {
        let Acquire { id, lease, ref debt, .. } = **acquire;
        Grant { id, number, awaited: true, lease, sent, debt: debt.clone() }
    };
    Ok(acquires.iter().zip(first..).map(grant).collect())
}

impl PendingAcquire<'_> {
    fn settle(&mut self, answer: Result<Acquired, Fault>, sent: Instant) -> Result<Attempt, Fault> {
        let until = deadline(sent, self.acquire.lease);
        let attempt = match answer {
            // The grant came so late that its lease is over: the client releases it, as if it had not been answered.
            Ok(Acquired::Granted { .. }) if Instant::now() >= until => {
                self.hold_back();
                Err(Fault::late("the grant arrived after its lease had expired"))
            }
            Ok(Acquired::Granted { number, awaited }) => {
                let Acquire { id, lease, ref debt, .. } = self.acquire;
                let debt = debt.clone();
                Ok(Attempt::Granted(Grant { id, number, awaited, lease, sent, debt }))
            }
            // `close` has given up the places of all waiters that it found. This place came after that.
            Ok(Acquired::Waits { .. }) if self.engine.debts.is_closed() => {
                let Acquire { keys, id, debt, .. } = &self.acquire;
                self.engine.later(Job::leave_line(keys, *id, debt.clone()));
                Err(Fault::Closed)
            }
            Ok(other) => Ok(Attempt::Other(other)),
            Err(fault) => {
                if fault.may_have_run() {
                    self.hold_back();
                }
                Err(fault)
            }
        };
        // The drop releases what the request may have been granted. If the server granted it, but too few replicas know of the
        // grant, it does not count either.
        if !attempt.as_ref().is_err_and(Fault::may_hold) {
            self.open_on = None;
        }
        attempt
    }

    /// A contender with a place in line asks again, under another owner field. The client releases the old owner field
    /// after that. If it did so before, the place would be free in between, and the waiters behind it would be let in. A
    /// caller that asks beside the contender has no place: what its request was granted is released at once.
    fn hold_back(&mut self) {
        let has_place = |entry: &&Entry| self.acquire.place > 0 && entry.has_place();
        let Some(entry) = self.entry.filter(has_place) else { return };
        if let Some(sent_on) = self.open_on.take() {
            entry.hold_back(Ghost::new(&self.acquire, sent_on.generation()));
        }
    }
}
