//! Several plain locks in one step: all of them, or none.
//!
//! 1. This call does not wait: if one of the locks is taken, it returns which one.
//! 2. It takes the permits of all locks before it asks Redis, so that a client contends at most once for each lock.
//! 3. Redis grants a separate tenure for each lock.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::engine::caller::Contender;
use crate::engine::caller::attempt::{AttemptAll, attempt_all};
use crate::engine::caller::options::Patience;
use crate::engine::entry::Hold;
use crate::engine::grant::{Grant, Lease, Wish};
use crate::engine::keep::until_given_back;
use crate::engine::shared::Engine;
use crate::error::Result;
use crate::keys::Keys;
use crate::wire::{Acquire, Fault, Manner, Secret};

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
    let mut contenders = Vec::with_capacity(wanted.len());
    // First all of them, so that their releases share requests.
    wanted.iter().for_each(|(keys, _)| engine.give_back_kept(keys));
    for (at, (keys, _)) in wanted.iter().enumerate() {
        match Contender::at_once(engine, keys).await {
            Ok(Some(contender)) => contenders.push(contender),
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
    let asked = Instant::now();
    let mut attempted = attempt_once(engine, wanted, patience).await;
    if patience.is_none() && matches!(attempted, Ok(AttemptAll::Kept(_))) {
        // Perhaps no caller holds them. The script has told the clients that keep them to give them back.
        sleep(until_given_back(asked.elapsed())).await;
        attempted = attempt_once(engine, wanted, patience).await;
    }
    if let Ok(AttemptAll::Busy(at) | AttemptAll::Kept(at)) = attempted
        && patience.is_none()
        && has_failed[at]
    {
        engine.await_repeated_releases(&wanted[at].0).await?;
        attempted = attempt_once(engine, wanted, patience).await;
    }
    let grants = match attempted {
        Ok(AttemptAll::Granted(grants)) => grants,
        Ok(AttemptAll::Busy(at) | AttemptAll::Kept(at)) => {
            contenders[at].entry().with(|lock| lock.elsewhere = true);
            return Ok(Err(at));
        }
        Ok(AttemptAll::Refused(at, fault)) => {
            return Err(engine.commands.explained(fault, &wanted[at].0).await);
        }
        Err(fault) => return Err(engine.commands.explained(fault, &wanted[0].0).await),
    };
    begin_all(engine, contenders, grants, wanted)
}

async fn attempt_once(
    engine: &Arc<Engine>,
    wanted: &[(Arc<Keys>, Lease)],
    patience: Patience,
) -> Result<AttemptAll, Fault> {
    let manner = if patience.is_none() { Manner::Once } else { Manner::Wait };
    let acquire = |(keys, lease): &(Arc<Keys>, Lease)| {
        Ok::<_, Fault>(Acquire {
            keys: Arc::clone(keys),
            id: engine.next_tenure(),
            lease: engine.lease(*lease),
            manner,
            permits: 1,
            within: None,
            place: 0,
            secret: Secret::default(),
            old: None,
            debt: engine.debts.incur()?,
        })
    };
    attempt_all(engine, wanted.iter().map(acquire).collect::<Result<_, _>>()?).await
}

fn begin_all(
    engine: &Engine,
    contenders: Vec<Contender>,
    grants: Vec<Grant>,
    wanted: &[(Arc<Keys>, Lease)],
) -> Result<AllOrNone> {
    let begun =
        contenders.into_iter().zip(grants).zip(wanted).map(|((contender, grant), (_, lease))| {
            let wish = Wish { owner: None, lease: *lease, permits: 1 };
            engine.begin(contender.granted(), grant, wish.by_caller())
        });
    // Begin each of them even if one fails: a closed client releases all of them.
    let begun: Vec<_> = begun.collect();
    Ok(Ok(begun.into_iter().collect::<Result<_>>()?))
}
