//! The internals of every handle: a client, a name, a lease.

use std::borrow::Cow;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};
use tracing::Instrument;

use crate::config::checked_lease;
use crate::engine::{
    self, AcquireOptions, Caller, Engine, Hold, Keepers, Lease, Past, Patience, Wish,
};
use crate::error::{Error, Result};
use crate::guards::Guard;
use crate::keys::Keys;
use crate::kinds::{Family, Holders, Kind};
use crate::log;
use crate::owner::OwnerId;
use crate::wire::{Fault, Order, Status};

/// A lock, semaphore or latch by name. The first call reports an invalid name, and the first call that asks for the lock
/// an invalid lease. So making a handle needs no error handling.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// Boxed: each caller has a handle, and few have an error.
    keys: Result<Arc<Keys>, Box<Error>>,
    /// It may be invalid: see [`valid_lease`](Self::valid_lease).
    lease: Lease,
    pub(crate) keepers: Keepers,
}

impl Handle {
    pub(crate) fn new(engine: Arc<Engine>, kind: Kind, name: String) -> Self {
        let keys = engine.keys(kind, name).map(Arc::new).map_err(Box::new);
        Self { engine, keys, lease: Lease::Watched, keepers: Keepers::All }
    }

    /// A handle whose every call returns this error, or reports the invalid name.
    pub(crate) fn failing(self, error: Error) -> Self {
        Self { keys: self.keys.and(Err(Box::new(error))), ..self }
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        Self { lease: Lease::Fixed(lease), ..self }
    }

    /// Gets the lock, or `None` if it was not free before the patience ran out.
    pub(crate) fn acquire(
        &self,
        owner: Option<OwnerId>,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send {
        self.acquire_as(self.asked(owner, patience))
    }

    /// Same as [`acquire`](Self::acquire), for a lock that the server has just reported as held.
    pub(crate) fn acquire_taken(
        &self,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send {
        let refused = |(keys, options)| (keys, AcquireOptions { past: Past::Refused, ..options });
        self.acquire_as(self.asked(None, patience).map(refused))
    }

    /// Same as [`acquire`](Self::acquire), for this many permits.
    pub(crate) fn acquire_many(
        &self,
        permits: u32,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send {
        let mut asked = self.asked(None, patience);
        asked.iter_mut().for_each(|(_, options)| options.wish.permits = permits);
        self.acquire_as(asked)
    }

    /// Same as [`acquire`](Self::acquire), within a hold that the owner already has. Such a call needs no room.
    pub(crate) fn acquire_within<'a>(
        &'a self,
        within: Option<&Hold>,
        owner: Option<OwnerId>,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + use<'a> {
        let inside = |(keys, options): (_, AcquireOptions)| (keys, options.within(within));
        self.acquire_as(self.asked(owner, patience).map(inside))
    }

    /// Gets the lock for these keys and options, or returns their error.
    ///
    /// Not an `async fn`: every waiter has this future, and an `async fn` would keep both its arguments and the
    /// `Caller` that it makes of them.
    fn acquire_as<'a>(
        &self,
        asked: Result<(&'a Arc<Keys>, AcquireOptions)>,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + use<'a> {
        let mut asked = asked.map(|(keys, options)| (keys, Caller::new(&self.engine, options)));
        async move {
            match &mut asked {
                Ok((keys, caller)) => Guard::acquire(caller, keys).await,
                Err(error) => Err(error.clone()),
            }
        }
    }

    /// The keys and options of a call.
    pub(crate) fn asked(
        &self,
        owner: Option<OwnerId>,
        patience: Patience,
    ) -> Result<(&Arc<Keys>, AcquireOptions)> {
        let (keys, lease) = (self.keys()?, self.valid_lease()?);
        let wish = Wish { owner, lease, permits: keys.kind.usual_permits() };
        Ok((keys, AcquireOptions { wish, patience, past: Past::None, keepers: self.keepers }))
    }

    /// Waits for a latch. Returns whether it opened before the patience ran out.
    pub(crate) async fn pass(&self, patience: Patience) -> Result<bool> {
        let (keys, mut options) = self.asked(None, patience)?;
        // The lease of a latch is how long the latch exists. No waiter holds it.
        options.wish.lease = Lease::Watched;
        let span = tracing::debug_span!(
            "latch.wait",
            "lock.name" = &*keys.name(),
            "lock.namespace" = keys.namespace(),
        );
        let asked = keys.meters.asks(patience.is_none());
        let mut caller = Caller::new(&self.engine, options);
        let acquired = caller.acquire(keys).instrument(span).await;
        let passed = acquired.map(|hold| hold.is_some());
        asked.came_to(passed.as_ref().copied());
        passed
    }

    /// Sends an order, which the server carries out once: a change of a latch, or a notification of a condition.
    pub(crate) async fn order(&self, order: Order) -> Result<i64> {
        self.engine.order(self.keys()?, order).await
    }

    /// The hold that this owner has, as far as this client knows.
    pub(crate) fn held_by(&self, owner: OwnerId) -> Result<Option<Hold>> {
        Ok(self.engine.held_by(owner, self.keys()?))
    }

    /// Takes all of these locks at once or none of them, without waiting. The inner error is the index of the lock that
    /// is held. They are plain locks of one client, and distinct. For `kept` and `None` see
    /// [`acquire_all`](engine::acquire_all).
    pub(crate) async fn acquire_all(
        handles: &[&Self],
        patience: Patience,
        kept: Option<(usize, Guard)>,
    ) -> Result<Option<(Result<Vec<Guard>, usize>, Option<(usize, Guard)>)>> {
        let Some(first) = handles.first() else { return Ok(Some((Ok(Vec::new()), kept))) };
        let wanted = |handle: &&Self| Ok((Arc::clone(handle.keys()?), handle.valid_lease()?));
        let wanted = handles.iter().map(wanted).collect::<Result<Vec<_>>>()?;
        let names = wanted.len();
        let span = tracing::debug_span!(
            "lock.acquire_all",
            "lock.count" = names,
            "lock.namespace" = wanted[0].0.namespace(),
        );
        let asked = wanted[0].0.meters.asks(true);
        // All holds have guards before the span closes: see `Guard::acquire`.
        let guard = |hold| Guard::owning(Arc::clone(&first.engine), hold);
        let guards = |holds: Vec<Hold>| holds.into_iter().map(guard).collect::<Vec<_>>();
        let asking = engine::acquire_all(&first.engine, &wanted, patience, kept);
        let guarded = asking.map_ok(|answer| answer.map(|(all, kept)| (all.map(guards), kept)));
        let answer;
        {
            answer = pin!(guarded.instrument(span)).await;
        }
        let is_held = |answer: &Option<_>| matches!(answer, Some((Ok(_), _)));
        asked.came_to(answer.as_ref().map(is_held));
        let granted = |guards: Vec<_>| guards.into_iter().map(Guard::granted).collect();
        Ok(answer?.map(|(answer, kept)| (answer.map(granted), kept)))
    }

    /// Waits for the lock without a time limit.
    pub(crate) fn lock(
        &self,
        owner: Option<OwnerId>,
    ) -> impl Future<Output = Result<Guard>> + Send {
        self.acquire(owner, Patience::Endless).map(|guard| guard?.ok_or(Error::Closed))
    }

    /// How long the lock stays held; `None` if nobody holds it, or if its key has no TTL.
    pub(crate) async fn ttl(&self) -> Result<Option<Duration>> {
        Ok(self.held_for().await?.flatten())
    }

    pub(crate) async fn is_locked(&self) -> Result<bool> {
        Ok(self.held_for().await?.is_some())
    }

    async fn held_for(&self) -> Result<Option<Option<Duration>>> {
        let keys = self.keys()?;
        self.finish_releases(keys).await;
        let asked = async { self.engine.connected(keys).await?.held_for(keys).await };
        self.engine.commands.explain(asked.await, keys).await
    }

    pub(crate) async fn status(&self) -> Result<Status> {
        let keys = self.keys()?;
        self.finish_releases(keys).await;
        let asked = async { self.engine.connected(keys).await?.status(keys).await };
        self.engine.commands.explain(asked.await, keys).await
    }

    /// Waits for this client's own pending releases, so that the answer does not count them.
    async fn finish_releases(&self, keys: &Keys) {
        if !keys.row.family.is_plain() {
            self.engine.finish_releases(keys).await;
        }
    }

    /// Sets the capacity; `if_unset`: only if none is set or in use. Returns whether it did.
    pub(crate) async fn resize(&self, capacity: u32, if_unset: bool) -> Result<bool> {
        let keys = self.keys()?;
        let asked = async {
            self.engine.connected_to_change(keys).await?.resize(keys, capacity, if_unset).await
        };
        self.engine.commands.explain(asked.await, keys).await
    }

    pub(crate) async fn force_unlock(&self) -> Result<bool> {
        let keys = self.keys()?;
        // Otherwise the next caller of this client could take up a tenure that is gone.
        self.engine.give_back_kept(keys);
        let asked = async { self.engine.connected_to_change(keys).await?.force_unlock(keys).await };
        let answer = asked.await;
        // This client may have been granted the lock again while the request was on its way.
        self.engine.give_back_kept(keys);
        if answer.as_ref().is_err_and(Fault::may_hold) {
            log::warn!(name = ?keys.name(), "force_unlock may have taken the lock away from its holder");
        }
        let was_held = self.engine.commands.explain(answer, keys).await?;
        if was_held {
            log::warn!(name = ?keys.name(), "force_unlock took the lock away from its holder");
            // A holder of this client hears no message of its own client.
            let holders = self.engine.table.tenures_of(&keys.channel);
            holders.for_each(|tenure| self.engine.outbox.timetable.hasten(&tenure));
        }
        Ok(was_held)
    }

    /// How long one attempt of a call over several servers may take: far less than the lease.
    pub(crate) fn attempt_limit(&self) -> Duration {
        let response = self.engine.config.response();
        self.checked_lease().map_or(response, |lease| response.min(lease / 10))
    }

    /// The fixed lease, if there is one: the watchdog does not renew it.
    pub(crate) fn fixed_lease(&self) -> Option<Duration> {
        match self.valid_lease() {
            Ok(Lease::Fixed(lease)) => Some(lease),
            _ => None,
        }
    }

    /// Whether the watchdog renews a hold until it is released.
    pub(crate) fn is_renewed_without_end(&self) -> bool {
        self.fixed_lease().is_none() && self.engine.config.max_hold.is_none()
    }

    /// The lease that each hold begins with.
    pub(crate) fn checked_lease(&self) -> Result<Duration> {
        self.valid_lease().map(|lease| self.engine.lease(lease))
    }

    /// The lease, unless it is invalid.
    fn valid_lease(&self) -> Result<Lease> {
        match self.lease {
            Lease::Watched => Ok(Lease::Watched),
            Lease::Fixed(lease) => checked_lease(lease).map(Lease::Fixed),
        }
    }

    /// The lease that each hold begins with, or zero if it is invalid.
    pub(crate) fn whole_lease(&self) -> Duration {
        self.checked_lease().unwrap_or_default()
    }

    /// Whether a missing latch counts as open: Redisson deletes a latch when it opens.
    pub(crate) fn is_open_if_absent(&self) -> bool {
        self.keys.as_ref().is_ok_and(|keys| keys.row.family == Family::RedissonLatch)
    }

    /// How long a call keeps trying while the server is unreachable.
    pub(crate) fn ride_out(&self) -> Duration {
        self.engine.config.riding_out()
    }

    /// Reports an invalid name or lease.
    pub(crate) fn check(&self) -> Result<()> {
        self.valid_lease().and(self.keys().map(drop))
    }

    /// The name that the user gave, and the namespace of the client. An invalid name is empty.
    pub(crate) fn full_name(&self) -> (Cow<'_, str>, Option<&str>) {
        let invalid = |_| (Cow::Borrowed(""), None);
        self.keys.as_ref().map_or_else(invalid, |keys| (keys.name(), keys.namespace()))
    }

    /// Whether one script can take this lock together with others.
    pub(crate) fn is_taken_with_others(&self) -> bool {
        self.keys
            .as_ref()
            .is_ok_and(|keys| keys.row.holders == Holders::Plain && keys.slot.is_none())
    }

    pub(crate) fn is_of_same_client(&self, other: &Self) -> bool {
        self.engine.is_of_same_client(&other.engine)
    }

    /// Whether both are the same lock, as far as one client can know.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let kind = |handle: &Self| handle.keys.as_ref().ok().map(|keys| keys.kind);
        self.is_of_same_client(other)
            && kind(self) == kind(other)
            && self.full_name() == other.full_name()
    }

    pub(crate) fn keys(&self) -> Result<&Arc<Keys>> {
        self.keys.as_ref().map_err(|error| Error::clone(error))
    }

    pub(crate) fn described(&self, mut described: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        match &self.keys {
            Ok(keys) => described.field("name", &keys.name()),
            Err(error) => described.field("error", error),
        };
        described.finish_non_exhaustive()
    }
}
