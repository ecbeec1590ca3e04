//! The only waiting loop: attempt, listen, attempt, park.
//!
//! 1. Nobody waits in Redis' name but the contender: one request at a time per client and lock.
//! 2. Listen first, look second, sleep last: an attempt made before the channel was live is made
//!    again when it is.
//! 3. No message is needed for progress, since a park ends with the holder's TTL; none is trusted
//!    as proof, since an attempt follows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::claim::{Attempt, attempt};
use crate::engine::entry::{Turn, Visit};
use crate::engine::tenure::{Grant, Holder, Lease, Tenure};
use crate::engine::{Engine, PAUSE};
use crate::error::{Error, Result, said};
use crate::keys::Keys;
use crate::owner::OwnerId;
use crate::wire::{Fault, Seat};

/// How often a waiter looks while nobody could tell it anything.
const DEAF: Duration = Duration::from_millis(250);

/// How long a caller is willing to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// As long as it takes.
    Endless,
    /// Not at all: one attempt.
    None,
    /// So long.
    For(Duration),
}

impl Patience {
    /// A limit of nothing is one attempt.
    pub(crate) fn limited(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::For(limit) }
    }
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// Who may re-enter with what is granted; nobody, for a plain lock.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) lease: Lease,
    pub(crate) patience: Patience,
}

/// Gets the lock for the caller; `None` if its patience ran out first.
///
/// # Cancel safety
/// Dropping the future gives up the place in the queue. What Redis may have granted to an attempt
/// on its way is given back in the background.
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    keys: &Arc<Keys>,
    wish: Wish,
) -> Result<Option<Arc<Tenure>>> {
    let mut call = Call { engine, wish, started: Instant::now(), asked: false, answered: false };
    let visit = engine.table.visit(keys).map_err(|fault| fault.into_error(&keys.lock))?;
    if let Some(owner) = wish.owner
        && let Some(tenure) = visit.entry.held().filter(|tenure| tenure.is_owned_by(owner))
        && engine.nest(&tenure, wish.lease, wish.patience).await?
    {
        return Ok(Some(tenure));
    }
    match wish.patience {
        Patience::None => call.once(visit).await,
        Patience::Endless => call.wait(visit).await.map(Some),
        Patience::For(limit) => call.wait_for(visit, limit).await,
    }
}

/// One caller on its way to the lock.
struct Call<'a> {
    engine: &'a Arc<Engine>,
    wish: Wish,
    started: Instant,
    /// Redis was asked, and whether it ever answered.
    asked: bool,
    answered: bool,
}

impl Call<'_> {
    /// One attempt, and none if somebody of this client is there first.
    async fn once(&mut self, visit: Visit) -> Result<Option<Arc<Tenure>>> {
        let Ok(turn) = visit.try_turn() else {
            return Ok(None);
        };
        if self.engine.commands.line().is_err() {
            // A connection that has just broken is back in no time.
            let patience = self.engine.config.response();
            let _ = tokio::time::timeout(patience, self.engine.commands.up()).await;
        }
        match self.attempt(&turn).await {
            Ok(Attempt::Granted(grant)) => self.granted(turn, grant).await.map(Some),
            Ok(Attempt::Held(_)) => Ok(None),
            Err(fault) => {
                let key = turn.entry().keys.lock.clone();
                Err(self.engine.commands.explained(fault, &key).await)
            }
        }
    }

    async fn wait_for(&mut self, visit: Visit, limit: Duration) -> Result<Option<Arc<Tenure>>> {
        let entry = Arc::clone(&visit.entry);
        match tokio::time::timeout(limit, self.wait(visit)).await {
            Ok(tenure) => tenure.map(Some),
            // To say "held by somebody else" would be a guess.
            Err(_) if entry.is_failing() || self.asked && !self.answered => {
                let source = said(format!("no answer within the caller's limit of {limit:?}"));
                Err(Error::Unavailable { source })
            }
            Err(_) => Ok(None),
        }
    }

    async fn wait(&mut self, visit: Visit) -> Result<Arc<Tenure>> {
        let turn = match visit.try_turn() {
            Ok(turn) => turn,
            Err(visit) => self.queue(visit).await?,
        };
        let (turn, grant) = self.contend(turn).await?;
        self.granted(turn, grant).await
    }

    /// Waits for the turn, within this client.
    async fn queue(&self, visit: Visit) -> Result<Turn> {
        let _counted = self.engine.count_waiter()?;
        if let Some(tenure) = visit.entry.held() {
            tenure.warn_of_deadlock(OwnerId::current());
        }
        let key = visit.entry.keys.lock.clone();
        visit.turn().await.map_err(|fault| fault.into_error(&key))
    }

    /// Contends for the lock with the other clients.
    async fn contend(&mut self, turn: Turn) -> Result<(Turn, Grant)> {
        let mut seat: Option<Seat> = None;
        loop {
            turn.entry().gate.shut();
            let channel = &turn.entry().keys.channel;
            let listening = seat.is_some() && self.engine.subscriber.is_live(channel);
            match self.attempt(&turn).await {
                Ok(Attempt::Granted(grant)) => return Ok((turn, grant)),
                Ok(Attempt::Held(ttl)) => {
                    seat.get_or_insert_with(|| self.engine.subscriber.join(channel));
                    self.park(&turn, ttl, listening).await?;
                }
                Err(fault) => self.ride_out(&turn, fault).await?,
            }
        }
    }

    /// Parks until a release is told or the holder's TTL is over; as long as nothing could be
    /// told, until the channel is live.
    async fn park(&self, turn: &Turn, ttl: Option<Duration>, listening: bool) -> Result<()> {
        let limit = if listening { self.longest(turn, ttl) } else { DEAF };
        let passed = turn.entry().gate.pass(limit).await;
        passed.map_err(|fault| fault.into_error(&turn.entry().keys.lock))
    }

    fn longest(&self, turn: &Turn, ttl: Option<Duration>) -> Duration {
        let most = self.engine.config.max_park;
        if ttl.is_none() {
            let name = &turn.entry().keys.name;
            tracing::warn!(?name, "held by a key without a TTL, which may never be freed");
        }
        // A little later than the expiry, and not all clients in the same moment.
        let grace = Duration::from_micros(fastrand::u64(1_000..=5_000));
        ttl.map_or(most, |ttl| most.min(ttl + grace))
    }

    async fn attempt(&mut self, turn: &Turn) -> Result<Attempt, Fault> {
        self.asked = true;
        let attempted = attempt(self.engine, turn, self.engine.lease(self.wish.lease)).await;
        match &attempted {
            Ok(_) => turn.entry().answered(),
            Err(fault) if fault.is_passing() => {
                turn.entry().failed(Instant::now());
            }
            Err(_) => {}
        }
        self.answered |= attempted.is_ok();
        attempted
    }

    /// Waits until another attempt makes sense, unless that has been tried for too long. What
    /// another caller has gone through before with this lock counts too: a queue does not ride out
    /// an outage one after the other.
    async fn ride_out(&self, turn: &Turn, fault: Fault) -> Result<()> {
        let now = Instant::now();
        let key = &turn.entry().keys.lock;
        if !fault.is_passing() {
            return Err(self.engine.commands.explained(fault, key).await);
        }
        let since = turn.entry().failed(now).max(self.started);
        let left = self.engine.config.riding_out().saturating_sub(now - since);
        if left.is_zero() {
            return Err(fault.into_outage(key));
        }
        if let Fault::NotSent(_) = fault {
            let _ = tokio::time::timeout(left, self.engine.commands.up()).await;
            tokio::time::sleep(self.engine.spread()).await;
        } else {
            tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64()).min(left)).await;
        }
        Ok(())
    }

    async fn granted(&self, turn: Turn, grant: Grant) -> Result<Arc<Tenure>> {
        let Wish { owner, lease, .. } = self.wish;
        let holder = Holder { owner, asked_by: OwnerId::current(), lease };
        self.engine.begin(turn, grant, holder)
    }
}
