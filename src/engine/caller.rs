//! What a caller does from `lock().await` to its hold.
//!
//! 1. A caller first waits for the permit of its client's entry. Usually only the caller with the permit asks Redis, for
//!    all callers of the entry. Callers of a semaphore may also ask beside that caller (`caller/ask.rs`). So may owners
//!    that nest.
//! 2. If another caller of the client has left a tenure, the caller takes that tenure (`caller/pick_up.rs`). Otherwise
//!    it contends (`caller/contend.rs`): it asks (`caller/ask.rs`), and waits in line.
//! 3. Work that needs the permit is done in a contest (`contest.rs`). If the lookout cancels the work because its
//!    caller was not polled, the caller queues again, ahead of later callers.

mod acquire_all;
mod ask;
mod attempt;
mod contend;
mod known;
mod lined_up_for_condition;
mod options;
mod pick_up;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::engine::entry::{Contested, Entry, EntryPermit, Hold, InQueue, Visit};
use crate::engine::grant::{Grant, Holder, Lease, Wish};
use crate::engine::keep::until_given_back;
use crate::engine::shared::Engine;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::kinds::Holders;
use crate::owner::OwnerId;
use crate::wire::Acquired;

pub(crate) use acquire_all::acquire_all;
pub(crate) use lined_up_for_condition::LinedUp;
pub(crate) use options::{AcquireOptions, Keepers, Past, Patience};

use attempt::Attempt;
use known::Known;
use pick_up::{Coming, Offer};

/// A waiter stands in the line of a condition until it is notified. Sets `lined_up` as soon as the waiter stands there.
/// Returns `None` if the waiter stood there, and the lookout has since cancelled it because it was not polled: it may
/// have missed a notification.
///
/// # Cancel safety
/// Dropping the future gives up the place. If the waiter has been notified, the notification goes to the next waiter.
pub(crate) async fn stand_by(
    engine: &Arc<Engine>,
    keys: &Arc<Keys>,
    lined_up: &Arc<LinedUp>,
) -> Result<Option<Hold>> {
    let wish = Wish { owner: None, lease: Lease::Fixed(engine.config.life()), permits: 1 };
    let options = AcquireOptions {
        wish,
        patience: Patience::Endless,
        past: Past::None,
        keepers: Keepers::None,
    };
    let visit = engine.visit(keys, wish.permits, true)?;
    let caller = Caller { lined_up: Some(Arc::clone(lined_up)), ..Caller::new(engine, options) };
    loop {
        // The entry belongs to this caller, so nobody else has the permit.
        let permit = match visit.try_permit() {
            Some(permit) => permit,
            None => caller.queue(&visit, None).await?,
        };
        let work = caller.clone().contend(permit, None, false);
        if let Some(notified) = caller.contest(&visit, work).await {
            return notified;
        }
        if lined_up.is_so() {
            return Ok(None);
        }
    }
}

/// One caller that wants the lock. In a contest, a clone of it asks.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) engine: Arc<Engine>,
    pub(crate) options: AcquireOptions,
    started: Instant,
    known: Option<Arc<Known>>,
    /// Set when the caller stands in line, if it waits for a condition.
    lined_up: Option<Arc<LinedUp>>,
}

impl Caller {
    pub(crate) fn new(engine: &Arc<Engine>, options: AcquireOptions) -> Self {
        let (engine, started) = (Arc::clone(engine), Instant::now());
        Self { engine, options, started, known: None, lined_up: None }
    }

    /// Gets the lock for the caller. Returns `None` if its patience ran out first.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue. If Redis grants the lock to an attempt in flight, the client
    /// releases it in the background.
    pub(crate) async fn acquire(&mut self, keys: &Arc<Keys>) -> Result<Option<Hold>> {
        let (Wish { owner, lease, permits }, patience) = (self.options.wish, self.options.patience);
        let mut spent = Duration::ZERO;
        if let Patience::For(_) = patience {
            let was_refused = matches!(self.options.past, Past::Refused);
            // If the limit cuts the call off, `Known` says what the caller may believe.
            self.known = Some(Arc::new(Known::new(was_refused)));
        }
        let _call = self.engine.calls.begin();
        if let Some(owner) = owner
            && !self.options.comes_back()
        {
            while let Some(hold) = self.engine.held_by(owner, keys) {
                let asked = Instant::now();
                let nesting = self.engine.nest(&hold, lease, (patience, spent));
                if let Some(nested) = Box::pin(nesting).await? {
                    return Ok(Some(nested));
                }
                // Its owner has released it meanwhile, and may have the lock anew, after a wait for a condition.
                spent += asked.elapsed();
            }
        }
        // A nested request does not queue behind other callers of this client: they may be waiting for its owner.
        let visit = self.engine.visit(keys, permits, self.options.waits_alone(keys))?;
        if visit.entry.has_seats() || self.keeps(&visit.entry) {
            // Do this while nothing is held: a caller that gets the lock again and again without asking the server has to
            // let other tasks run.
            tokio::task::coop::consume_budget().await;
        }
        match patience {
            Patience::None => Box::pin(self.once(visit)).await,
            Patience::Endless => self.wait(&visit).await.map(Some),
            // Boxed: callers that wait without a limit need no space for a timer.
            Patience::For(limit) => Box::pin(self.wait_for(&visit, (limit, spent))).await,
        }
    }

    /// One attempt, or none if another caller of this client came first. It asks twice if the holder's client may keep
    /// the lock idle.
    async fn once(&self, visit: Visit) -> Result<Option<Hold>> {
        let visit = if visit.entry.keys.row.holders.is_one() {
            visit
        } else {
            if let Some(hold) = self.share_at_once(&visit) {
                return Ok(Some(hold));
            }
            // Idle tenures are for callers that wait. So release them, and ask in a separate entry: then this caller
            // delays no reader and no waiting caller.
            self.engine.finish_releases(&visit.entry.keys).await;
            self.engine.visit(&visit.entry.keys, self.options.wish.permits, true)?
        };
        loop {
            let Some(permit) = self.engine.permit_now(&visit).await? else {
                return Ok(None);
            };
            let (permit, offer) = match self.pick_up(permit) {
                Coming::Held(hold) => return Ok(Some(hold)),
                Coming::Permit(permit, offer) => (permit, offer),
            };
            // `None`: the lookout has cancelled it because it was not polled. What an attempt of it is granted is given back.
            if let Some(attempted) =
                self.contest(&visit, self.clone().try_once(permit, offer)).await
            {
                return attempted;
            }
        }
    }

    async fn try_once(self, permit: EntryPermit, offer: Option<Offer>) -> Result<Option<Hold>> {
        let entry = Arc::clone(permit.entry());
        // A connection that has just broken returns within milliseconds.
        let _ = self.engine.connected(&entry.keys).await;
        // Then Redis may still have what this client has not been able to release.
        let has_failed = self.engine.outbox.releases.has_failed(&entry.keys);
        let asked = Instant::now();
        let mut attempted = self.ask_once(&entry, offer).await;
        if self.options.keepers != Keepers::None
            && matches!(attempted, Ok(Attempt::Other(Acquired::Kept(_))))
        {
            // Perhaps no caller holds it. The script has told the holder's client to give it back if it is idle.
            sleep(until_given_back(asked.elapsed())).await;
            attempted = self.ask_once(&entry, None).await;
        }
        let is_refused = matches!(attempted, Ok(Attempt::Other(_)));
        if is_refused && has_failed {
            self.engine.await_repeated_releases(&entry.keys).await?;
            attempted = self.ask_once(&entry, None).await;
        }
        match attempted {
            Ok(Attempt::Granted(grant)) => self.begin(permit, grant).map(Some),
            Ok(Attempt::Other(_)) => {
                entry.with(|lock| lock.elsewhere = true);
                Ok(None)
            }
            Err(fault) => Err(self.explained(&entry, fault).await),
        }
    }

    /// Waits for what is left of this limit.
    async fn wait_for(
        &self,
        visit: &Visit,
        (limit, spent): (Duration, Duration),
    ) -> Result<Option<Hold>> {
        match timeout(limit.saturating_sub(spent), self.wait(visit)).await {
            Ok(hold) => hold.map(Some),
            // `None` would say "held by another caller", and that would be a guess.
            Err(_) if self.is_failing(&visit.entry) => {
                // A query of a latch changes nothing, so it may run.
                let is_open = self.known.as_ref().is_some_and(|known| known.is_open());
                let may_take_it = is_open && visit.entry.keys.row.holders != Holders::Nobody;
                Err(if may_take_it { Error::cut_off(limit) } else { Error::unanswered(limit) })
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether this caller does not know if the lock is held, so that `None` would be a guess. A caller knows it by
    /// Redis' answer to its own request. A caller that waits behind others of this client also knows what they have
    /// learnt since it came, even while its own first request is in flight. What they knew before may have changed.
    fn is_failing(&self, entry: &Entry) -> bool {
        let Some(known) = &self.known else { return false };
        if let Some(is_failing) = known.is_failing() {
            return is_failing;
        }
        let came = self.started.into();
        let (is_failing, was_taken) =
            entry.with(|lock| (lock.failing.is_some(), lock.was_taken_since(came)));
        if is_failing || known.has_asked() {
            return is_failing || !was_taken;
        }
        // While this client releases the lock, nobody else holds it, unless another caller has had it since this caller
        // came.
        let was_anothers = entry.is_taken() || was_taken;
        let releases = &self.engine.outbox.releases;
        !was_anothers && (releases.is_under_way(&entry.keys) || releases.has_failed(&entry.keys))
    }

    async fn wait(&self, visit: &Visit) -> Result<Hold> {
        if visit.entry.has_seats()
            && let Some(hold) = self.share_at_once(visit)
        {
            return Ok(hold);
        }
        let (mut permit, mut counted) = if let Some(permit) = visit.try_permit() {
            (permit, None)
        } else {
            if self.asks_beside(&visit.entry)
                && let Some(hold) = Box::pin(self.ask_beside(visit)).await?
            {
                return Ok(hold);
            }
            let counted = self.engine.count(&visit.entry.keys, self.options.comes_back())?;
            (self.queue(visit, None).await?, Some(counted))
        };
        loop {
            let number = permit.number();
            let contending = match self.pick_up(permit) {
                Coming::Held(hold) => return Ok(hold),
                Coming::Permit(permit, offer) => {
                    self.contest(visit, self.clone().contend(permit, offer, counted.is_some()))
                }
            };
            if let Some(contended) = contending.await {
                return contended?.ok_or(Error::Closed);
            }
            // The lookout has cancelled the work, and other callers have gone ahead. This caller has waited before, so
            // no limit rejects it.
            if counted.is_none() {
                counted = Some(self.engine.count(&visit.entry.keys, true)?);
            }
            permit = self.queue(visit, Some(number)).await?;
        }
    }

    /// Waits for the permit within this client. The caller stays counted as a waiter. If it were counted again, a
    /// newcomer could take its slot in between, and the limit would reject a caller that has waited all along.
    fn queue<'a>(&'a self, visit: &'a Visit, again: Option<u64>) -> InQueue<'a> {
        let (queued, tenure) = visit.join(again, self.started);
        if let Some(tenure) = tenure
            && tenure.note_waiter(OwnerId::current())
            && self.known.is_some()
        {
            // It is held now, so it was held since this caller came, which asks for that if its limit cuts it off.
            visit.entry.with(|lock| lock.note_holder(self.started.into()));
        }
        queued
    }

    /// Does work that the lookout can cancel. Returns `None` if it did so because the caller was not polled.
    ///
    /// The work is boxed before the future is made. Otherwise the future of every caller in the queue would have space for
    /// it.
    fn contest<'a, W: Future<Output = Contested> + Send + 'static>(
        &self,
        visit: &'a Visit,
        work: W,
    ) -> impl Future<Output = Option<Contested>> + Send + use<'a, W> {
        visit.contest(Box::pin(work), self.started)
    }

    /// Whether the client may keep the lock when this caller has given it back.
    fn keeps(&self, entry: &Entry) -> bool {
        let AcquireOptions { wish, keepers, .. } = &self.options;
        let is_asked_so = *keepers == Keepers::All && wish.lease == Lease::Watched;
        is_asked_so && entry.keys.row.may_be_kept() && !self.engine.config.keep.is_zero()
    }

    fn lease(&self) -> Duration {
        self.engine.lease(self.options.wish.lease)
    }

    fn begin(&self, permit: EntryPermit, grant: Grant) -> Result<Hold> {
        let inner = self.options.outer().map(|within| Arc::clone(&within.inner));
        let visit = permit.visit().clone();
        self.engine.begin(&visit, Some(permit.within(inner)), grant, self.holder())
    }

    fn holder(&self) -> Holder {
        self.options.wish.by_caller()
    }
}
