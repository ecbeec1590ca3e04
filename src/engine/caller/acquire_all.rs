//! Several plain locks in one step: all of them, or none.
//!
//! 1. This call does not wait: if one of the locks is taken, it returns which one.
//! 2. It takes the permits of all locks before it asks Redis, so that a client contends at most once for each lock.
//! 3. Redis grants a separate tenure for each lock.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::core::lifetime::deadline;
use crate::engine::caller::attempt::{Asking, asked};
use crate::engine::caller::options::Patience;
use crate::engine::entry::Hold;
use crate::engine::ghost::Ghost;
use crate::engine::grant::{Grant, Lease, Wish};
use crate::engine::keep::until_given_back;
use crate::engine::releaser::Job;
use crate::engine::shared::Engine;
use crate::error::Result;
use crate::keys::Keys;
use crate::wire::{Acquire, Acquired, Answer, Answered, Fault, Manner, Secret};

/// The answer to a request for several at once: all of them, in the order of the request. Or none, since another caller has this
/// one: that is an answer, and no failure of the request.
pub(crate) type AllOrNone = Result<Vec<Hold>, usize>;

/// Takes all of these distinct locks of one client, or none. A caller with patience leaves a lock to the waiters that
/// stand in line for it. `kept` is what the caller already has: it comes back with an answer, and is dropped with an
/// error. Returns `None` if the lookout has cancelled the request, since the caller was not polled: `kept` is dropped too,
/// so that it does not stop others, and the caller has to begin again.
///
/// # Cancel safety
/// If the future is dropped and Redis grants the locks, the client releases them in the background.
pub(crate) async fn acquire_all<K: Send + 'static>(
    engine: &Arc<Engine>,
    wanted: &[(Arc<Keys>, Lease)],
    patience: Patience,
    kept: K,
) -> Result<Option<(AllOrNone, K)>> {
    let Some((keys, _)) = wanted.first() else {
        return Ok(Some((Ok(Vec::new()), kept)));
    };
    // The contest has a separate entry, apart from the entries of the locks. So the lookout can cancel a caller that is
    // not polled: it must keep neither the permits nor the grants, nor what it had before.
    let (beside, (tell, mut told)) = (engine.visit(keys, 1, true)?, oneshot::channel());
    let work = (Arc::clone(engine), wanted.to_vec(), kept);
    let work = async move {
        let (engine, wanted, kept) = work;
        let answer = ask_for_all(&engine, &wanted, patience).await;
        // If this fails, the caller has gone.
        let _ = tell.send(answer.map(|answer| (answer, kept)));
        Ok(None)
    };
    drop(beside.contest(Box::pin(work), Instant::now()).await);
    told.try_recv().ok().transpose()
}

async fn ask_for_all(
    engine: &Arc<Engine>,
    wanted: &[(Arc<Keys>, Lease)],
    patience: Patience,
) -> Result<AllOrNone> {
    // A connection that has just broken returns within milliseconds.
    let _ = engine.connected(&wanted[0].0).await;
    engine.is_heard().await;
    let mut permits = Vec::with_capacity(wanted.len());
    // First all of them, so that their releases share requests.
    wanted.iter().for_each(|(keys, _)| engine.give_back_kept(keys));
    for (at, (keys, _)) in wanted.iter().enumerate() {
        match engine.permit_now(&engine.visit(keys, 1, false)?).await {
            Ok(Some(permit)) => permits.push(permit),
            // A tenure that was left for others still holds the lock in Redis, so for this caller the lock is held.
            Ok(None) => return Ok(Err(at)),
            // A caller with patience then waits for this lock, and rides out the outage.
            Err(error) if error.is_transient() && !patience.is_none() => {
                return Ok(Err(at));
            }
            Err(error) => return Err(error),
        }
    }
    // Redis may still have what this client has not been able to release.
    let has_failed: Vec<_> =
        wanted.iter().map(|(keys, _)| engine.outbox.releases.has_failed(keys)).collect();
    let began = Instant::now();
    let mut replied = ask_once(engine, wanted, patience).await;
    if patience.is_none() && matches!(replied, Ok(Reply::Taken { is_kept: true, .. })) {
        // Perhaps no caller holds them. The script has told the clients that keep them to give them back.
        sleep(until_given_back(began.elapsed())).await;
        replied = ask_once(engine, wanted, patience).await;
    }
    if let Ok(Reply::Taken { at, .. }) = replied
        && patience.is_none()
        && has_failed[at]
    {
        engine.await_repeated_releases(&wanted[at].0).await?;
        replied = ask_once(engine, wanted, patience).await;
    }
    let grants = match replied {
        Ok(Reply::Granted(grants)) => grants,
        Ok(Reply::Taken { at, .. }) => {
            permits[at].entry().with(|lock| lock.elsewhere = true);
            return Ok(Err(at));
        }
        Err((at, fault)) => return Err(engine.commands.explained(fault, &wanted[at].0).await),
    };
    let begun = permits.into_iter().zip(grants).zip(wanted).map(|((permit, grant), (_, lease))| {
        let wish = Wish { owner: None, lease: *lease, permits: 1 };
        let visit = permit.visit().clone();
        engine.begin(&visit, Some(permit), grant, wish.by_caller())
    });
    // Begin each of them even if one fails: a closed client releases all of them.
    let begun: Vec<_> = begun.collect();
    Ok(Ok(begun.into_iter().collect::<Result<_>>()?))
}

/// The answer to a request.
enum Reply {
    /// All of them, in the order of the request.
    Granted(Vec<Grant>),
    /// None: another caller has this one, or stands in line for it. `is_kept`: the client that has it may keep it idle. If it does,
    /// it gives the lock back.
    Taken { at: usize, is_kept: bool },
}

/// Tries once to take all of them.
///
/// # Cancel safety
/// If the future is dropped and Redis grants the locks, the client releases them in the background.
///
/// # Errors
/// The fault, and which of them the server has refused; the first one, if the whole request failed.
async fn ask_once(
    engine: &Engine,
    wanted: &[(Arc<Keys>, Lease)],
    patience: Patience,
) -> Result<Reply, (usize, Fault)> {
    let manner = if patience.is_none() { Manner::Once } else { Manner::Wait };
    let acquire = |(keys, lease): &(Arc<Keys>, Lease)| {
        Ok::<_, Fault>(Acquire {
            keys: Arc::clone(keys),
            id: engine.table.next_tenure(),
            lease: engine.lease(*lease),
            manner,
            permits: 1,
            within: None,
            place: 0,
            secret: Secret::default(),
            old: None,
            debt: engine.outbox.debts.incur()?,
        })
    };
    let of_all = |fault| (0, fault);
    let acquires: Vec<_> = wanted.iter().map(acquire).collect::<Result<_, _>>().map_err(of_all)?;
    let callers: Vec<_> = acquires.iter().map(|acquire| Asking::of(engine, acquire)).collect();
    let Answered { question: acquires, answer } =
        asked(&engine.requests.together, acquires, callers).await.map_err(of_all)?;
    let Answer { sent, sent_on, result } = answer;
    let fault = match result {
        Ok((_, Ok(Acquired::Granted { number, .. }))) => {
            let now = Instant::now();
            if acquires.iter().all(|acquire| now < deadline(sent, acquire.lease)) {
                // The answer does not say whether anybody stands in line.
                let grant = |(acquire, number)| Grant::new(acquire, number, true, sent);
                return Ok(Reply::Granted(acquires.iter().zip(number..).map(grant).collect()));
            }
            Fault::late("the grants arrived after a lease had expired")
        }
        Ok((at, Ok(answer))) => {
            return Ok(Reply::Taken { at, is_kept: matches!(answer, Acquired::Kept(_)) });
        }
        Ok((at, Err(fault))) => return Err((at, fault)),
        Err(fault) => fault,
    };
    if fault.may_hold() {
        acquires.iter().for_each(|one| engine.outbox.put(Job::ghost(Ghost::new(one, sent_on))));
    }
    Err((0, fault))
}
