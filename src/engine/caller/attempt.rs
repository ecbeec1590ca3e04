//! A request that may take one lock or several, and what its answer is worth. `caller/ask.rs` makes one. It belongs to the
//! client until it is answered (`wire/calls/gathering.rs`): if its caller has gone by then, the client releases what the
//! request has taken (`Job::for_orphan`).

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use crate::core::lifetime::deadline;
use crate::engine::entry::Entry;
use crate::engine::ghost::Ghost;
use crate::engine::grant::Grant;
use crate::engine::releaser::Job;
use crate::engine::shared::Engine;
use crate::keys::{Keys, TenureId};
use crate::kinds::{Family, Holders};
use crate::wire::{Acquire, Acquired, Answer, Answered, Batch, Fault, Gathering};

/// The answer to an attempt.
pub(crate) enum Attempt {
    Granted(Grant),
    /// An answer that is no grant. [`Acquired::Contended`]: the offered tenure was released, and a waiter of another client may
    /// have been woken: it goes first.
    Other(Acquired),
}

/// Tries once. Callers that try at the same time share one request.
///
/// # Cancel safety
/// If the future is dropped and Redis grants the lock, the client releases it in the background.
///
/// Not an `async fn`: its future would have space for the request twice.
pub(crate) fn attempt<'a>(
    engine: &'a Engine,
    mut acquire: Acquire,
    entry: &'a Entry,
) -> impl Future<Output = Result<Attempt, Fault>> + Send + use<'a> {
    // A lock that is known to be contended is requested alone, and so is every lock in a cluster. Those that may share a script all
    // go one way, and so none of them overtakes another.
    let is_contended = acquire.old.is_some() || acquire.place > 0 || acquire.within.is_some();
    let (requests, row) = (&engine.requests, acquire.keys.row);
    let mut way = match row.family {
        _ if is_contended || engine.commands.is_scattered() => &requests.singles,
        Family::Line => &requests.in_line,
        _ if row.holders == Holders::Plain => &requests.plain,
        _ => &requests.singles,
    };
    async move {
        loop {
            let asking = [Asking::of(engine, &acquire)];
            let Answered { question, answer } = asked(way, acquire, asking).await?;
            if Arc::ptr_eq(way, &requests.singles)
                || !matches!(answer.result, Ok(Acquired::Contended))
            {
                return worth(engine, &question, answer, entry);
            }
            // The script that takes several plain locks puts nobody in line. For that, ask for this lock alone.
            (acquire, way) = (question, &requests.singles);
        }
    }
}

/// Sends a request, and waits for its answer.
///
/// Not an `async fn`: its future would have space for the request several times.
pub(super) fn asked<'a, F: Batch>(
    gathering: &'a Arc<Gathering<F>>,
    question: F::Question,
    callers: impl AsMut<[Asking<'a>]> + Send,
) -> impl Future<Output = Result<Answered<F>, Fault>> + Send {
    let answered = gathering.ask(question);
    async move {
        let mut answered = pin!(answered);
        // They are dropped before `answered`: so the release is expected before the answer can become an orphan.
        let mut callers = callers;
        let answered = answered.as_mut().await;
        callers.as_mut().iter_mut().for_each(|caller| caller.keys = None);
        answered
    }
}

/// A caller that waits for the answer to a request. If it is dropped before, its name counts as being released.
pub(super) struct Asking<'a> {
    engine: &'a Engine,
    /// `None` once it has the answer.
    keys: Option<Arc<Keys>>,
    id: TenureId,
    has_place: bool,
}

impl<'a> Asking<'a> {
    pub(super) fn of(engine: &'a Engine, acquire: &Acquire) -> Self {
        let Acquire { ref keys, id, place, .. } = *acquire;
        Self { engine, keys: Some(Arc::clone(keys)), id, has_place: place > 0 }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(keys) = &self.keys else { return };
        self.engine.outbox.releases.expect(keys, self.id);
        // What the request is granted is released when it is answered. A release right behind it frees the lock one round trip
        // earlier, and before the next caller of this client is refused. It may find nothing: a request that is sent
        // again, or for which replicas have to vouch, comes after it. A place in line stays for the next contender.
        if !self.has_place {
            let job = Job::release_early(keys, self.id, self.engine.outbox.debts.tidying());
            self.engine.outbox.put(job);
        }
    }
}

/// What an answer means for its caller, which is there.
fn worth(
    engine: &Engine,
    acquire: &Acquire,
    answer: Answer,
    entry: &Entry,
) -> Result<Attempt, Fault> {
    let Answer { sent, sent_on, result } = answer;
    let Acquire { keys, id, lease, place, debt, .. } = acquire;
    let fault = match result {
        // The grant came so late that its lease is over: the client releases it, as if it had not been answered.
        Ok(Acquired::Granted { .. }) if Instant::now() >= deadline(sent, *lease) => {
            Fault::late("the grant arrived after its lease had expired")
        }
        Ok(Acquired::Granted { number, awaited }) => {
            return Ok(Attempt::Granted(Grant::new(acquire, number, awaited, sent)));
        }
        // `close` has given up the places of all waiters that it found. This place came after that.
        Ok(Acquired::Waits { .. }) if engine.outbox.debts.is_closed() => {
            engine.outbox.put(Job::leave_line(keys, *id, debt.clone()));
            return Err(Fault::Closed);
        }
        Ok(other) => return Ok(Attempt::Other(other)),
        Err(fault) => fault,
    };
    if fault.may_hold() {
        let ghost = Ghost::new(acquire, sent_on);
        // A contender with a place in line asks again, under another owner field. The client releases the old owner field
        // after that. If it did so before, the place would be free in between, and the waiters behind it would be let in. A
        // caller that asks beside the contender has no place: what its request was granted is released at once.
        match fault.may_have_run() && *place > 0 && entry.has_place() {
            true => drop(entry.with(|lock| lock.hold_back(Instant::now(), ghost))),
            false => engine.outbox.put(Job::ghost(ghost)),
        }
    }
    Err(fault)
}
