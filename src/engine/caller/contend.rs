//! The waiting loop: a contender asks, parks until it is told, and asks again. It drives `waiting.rs`, which decides, with
//! gates and subscriptions. The permit gives up the contender's place if its caller goes.
//!
//! 1. A contender sleeps only after it has asked while its channel was live. If it asked earlier, it asks again.
//! 2. A contender that gets no message asks again, since each park has a time limit. It believes a grant by message only
//!    if the message repeats a secret that this client made.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use crate::compact_instant::CompactInstant;
use crate::core::waiting::{Event, Next, PushedGrant};
use crate::engine::caller::Caller;
use crate::engine::caller::ask::Short;
use crate::engine::caller::attempt::Attempt;
use crate::engine::caller::pick_up::{Coming, Offer};
use crate::engine::entry::{Contested, Entry, EntryPermit, Hold};
use crate::engine::grant::{Grant, Lease};
use crate::engine::shared::{Counted, Engine};
use crate::error::Result;
use crate::wire::{Acquired, Subscription};

/// How long a client that has offered its lock pauses, in a kind without a line.
const SIT_OUT: Duration = Duration::from_millis(1);

impl Caller {
    /// Contends for the lock with other clients.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep its arguments twice")]
    pub(super) fn contend(
        self,
        mut permit: EntryPermit,
        mut offer: Option<Offer>,
        is_counted: bool,
    ) -> impl Future<Output = Contested> + Send {
        async move {
            let entry = Arc::clone(permit.entry());
            let mut stand = Stand::new(&self.engine, self.options.comes_back(), is_counted);
            let mut short = Short::default();
            let asks_for = self.options.wish.permits;
            if entry.side_by_side(|shared| shared.asks_for(asks_for)) == Some(true) {
                entry.step(Event::Roused);
            }
            loop {
                let limit = self.shortage_ends(&entry, &short)?;
                permit = match self.takes_over(permit) {
                    Coming::Held(hold) => return Ok(Some(hold)),
                    Coming::Permit(permit, _) => permit,
                };
                self.make_room(&entry);
                let next = permit.visit().next(stand.hears(), self.lease());
                if matches!(next, Next::Ask) && !self.engine.config.replicas.is_none() {
                    short.asked = Some(CompactInstant::now());
                }
                match next {
                    // A number that no counter can have reached comes from somebody who may write the keys. The answer to a
                    // request brings another one.
                    Next::Take(grant)
                        if !self.engine.commands.granted(&entry.keys, grant.number) =>
                    {
                        entry.step(Event::Lost(Some(grant.id)));
                    }
                    Next::Take(grant) => return self.take(permit, grant).map(Some),
                    _ if self.may_be_forgotten(&entry) => return Ok(None),
                    Next::Park(until) => {
                        // A contender that goes on for another one may park before it asks. Meanwhile nobody would renew the
                        // tenure that it has to offer, and the lock would be held for nobody. So release that tenure now.
                        offer = None;
                        // The contender may have taken over the place of a caller that has left, without having asked itself.
                        if entry.has_place() {
                            entry.with(|lock| lock.elsewhere = true);
                        }
                        stand.begin(&entry)?;
                        let until = limit.unwrap_or(until).min(until);
                        match &self.lined_up {
                            None => entry.park(until).await?,
                            // Boxed: only the waiters of conditions need the space for it.
                            Some(_) => Box::pin(self.park_for_condition(&entry, until)).await?,
                        }
                    }
                    // Boxed: most contenders are parked, and need no space for a request, nor for the pause after it.
                    Next::Ask => {
                        let pause = match Box::pin(self.ask(&entry, offer.take())).await {
                            Ok(Attempt::Granted(grant)) => {
                                return self.begin(permit, grant).map(Some);
                            }
                            Ok(Attempt::Other(answer)) => {
                                self.has_to_wait(&entry, &mut stand, answer)?;
                                // Sleep instead of parking: our own message would wake us at the same time as everybody
                                // else.
                                let pause = || sleep(SIT_OUT).map(Ok).boxed();
                                (answer == Acquired::Contended).then(pause)
                            }
                            Err(fault) => {
                                // It goes on only until the server answers, or its patience is over.
                                stand.counts(&entry, true)?;
                                Some(self.ride_out(&entry, fault, &mut short).boxed())
                            }
                        };
                        if let Some(pause) = pause {
                            pause.await?;
                        }
                    }
                }
            }
        }
    }

    /// Parks until something happens. That may also be another primary, of which no message tells.
    async fn park_for_condition(&self, entry: &Entry, until: Instant) -> Result<()> {
        let mut changes = self.engine.commands.changes();
        changes.mark_unchanged();
        while !self.may_be_forgotten(entry) {
            tokio::select! {
                passed = entry.park(until) => return passed,
                Ok(()) = changes.changed() => {}
            }
        }
        Ok(())
    }

    /// Whether a failover may have forgotten the notification that the caller waits for.
    fn may_be_forgotten(&self, entry: &Entry) -> bool {
        let primary = || self.engine.commands.primary(&entry.keys);
        self.lined_up.as_ref().is_some_and(|lined_up| lined_up.may_be_forgotten(primary()))
    }

    /// The caller has to wait. If it waits for a condition, tells the holder that it stands in line. Tells the caller
    /// right ahead in line who comes next.
    fn has_to_wait(&self, entry: &Entry, stand: &mut Stand<'_>, answer: Acquired) -> Result<()> {
        entry.with(|lock| lock.elsewhere = true);
        // From now on the caller counts as waiting. Messages may make it ask again and again before it ever parks.
        stand.begin(entry)?;
        if let (Some(lined_up), Acquired::Waits { .. }) = (&self.lined_up, answer) {
            lined_up.tell();
        }
        // A caller that asks for a lease of its own cannot have the tenure of another one.
        if let (Acquired::Waits { ahead: Some(ahead), .. }, Lease::Watched) =
            (answer, self.options.wish.lease)
        {
            self.engine.table.stands_behind(entry, ahead);
        }
        Ok(())
    }

    /// Takes what another caller of this client has left to this one, or holds together with it.
    fn takes_over(&self, permit: EntryPermit) -> Coming {
        if let Some(hold) = self.share(permit.visit(), 0, Some(permit.number())) {
            return Coming::Held(hold);
        }
        // The caller right ahead in the line may have left its tenure.
        if permit.entry().may_be_next() {
            self.pick_up(permit)
        } else {
            Coming::Permit(permit, None)
        }
    }

    /// Releases idle tenures that block this contender, which goes first.
    fn make_room(&self, entry: &Entry) {
        let unlike = entry.side_by_side(|shared| shared.unlike(self.options.wish.permits));
        unlike.iter().flatten().for_each(|tenure| self.engine.table.retire(tenure, None));
    }

    /// Takes the lock that a message has granted.
    fn take(&self, permit: EntryPermit, grant: PushedGrant) -> Result<Hold> {
        let debt = self.engine.outbox.debts.incur().map_err(|fault| fault.into_error(""))?;
        let leases = (permit.entry().pushed_lease(self.lease()), self.lease());
        self.begin(permit, Grant::by_message(grant, leases, debt))
    }
}

/// What a contender has while it waits: it counts as a waiter, and listens.
struct Stand<'a> {
    engine: &'a Engine,
    /// It has waited before, so no limit rejects it.
    comes_back: bool,
    is_counted: bool,
    _counted: Option<Counted<'a>>,
    subscriptions: Option<Vec<Subscription>>,
}

impl<'a> Stand<'a> {
    fn new(engine: &'a Engine, comes_back: bool, is_counted: bool) -> Self {
        Self { engine, comes_back, is_counted, _counted: None, subscriptions: None }
    }

    /// Counts the contender, and subscribes, unless that was already done. If a channel becomes live after this, the
    /// subscription wakes the contender, and it asks again.
    fn begin(&mut self, entry: &Entry) -> Result<()> {
        self.counts(entry, self.comes_back)?;
        if self.subscriptions.is_none() {
            self.subscriptions = Some(self.engine.listen(entry));
        }
        Ok(())
    }

    /// Counts the contender, unless that was already done. `is_exempt`: no limit rejects it.
    fn counts(&mut self, entry: &Entry, is_exempt: bool) -> Result<()> {
        if !std::mem::replace(&mut self.is_counted, true) {
            self._counted = Some(self.engine.count(&entry.keys, is_exempt)?);
        }
        Ok(())
    }

    /// Whether messages reach the contender. Before it waits, it needs none.
    fn hears(&self) -> bool {
        self.subscriptions.iter().flatten().all(Subscription::is_live)
    }
}
