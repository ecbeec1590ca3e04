//! The state that the handles of one client share, and the tools that every part of the engine uses.

use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::core::budget::Budget;
use crate::core::rhythm::Rhythm;
use crate::engine::calls::Calls;
use crate::engine::entry::{Entry, EntryPermit, Hold, Holds, Table, Tenure, Timetable, Visit};
use crate::engine::grant::{Beginning, Grant, Holder, Lease};
use crate::engine::keep::Tried;
use crate::engine::outages::Outages;
use crate::engine::owned::Owned;
use crate::engine::releaser::{Job, JobRequests, Outbox};
use crate::error::{Error, Result};
use crate::keys::{Keys, Space};
use crate::kinds::{Holders, Kind};
use crate::meters::Waits;
use crate::owner::OwnerId;
use crate::pause::within;
use crate::wakers::guarding;
use crate::wire::{
    Commands, Connection, Fault, Requests, Secret, Secrets, Session, Subscriber, Subscription,
};

/// The pause before a retry after a failure, plus or minus half.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A reference to the state of a client. A handle has one, and shares it with its guards and with the work of its callers.
/// So threads that lock with different handles do not contend for a count.
#[derive(Clone)]
pub(crate) struct Engine(Arc<Shared>);

impl Deref for Engine {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// The state that the handles of one client share.
pub(crate) struct Shared {
    pub(crate) memory: Arc<Memory>,
    pub(crate) commands: Commands,
    pub(crate) requests: Requests,
    pub(crate) job_requests: JobRequests,
    pub(crate) subscriber: Subscriber,
    /// See [`Config::session`].
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) owned: Owned,
    pub(crate) budget: Budget,
    pub(crate) orders: AtomicU64,
    pub(crate) waiters: Arc<AtomicUsize>,
    pub(crate) calls: Calls,
    pub(crate) outages: Arc<Outages>,
    /// Each caller that waits for a connection has a clone.
    pub(crate) cut_off: Arc<()>,
    pub(crate) closing: CancellationToken,
    /// The runtime on which the client was made.
    pub(crate) runtime: Handle,
}

impl Deref for Shared {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

/// The part of that state that needs no connection. The client's tasks share it, and keep no client alive with it.
pub(crate) struct Memory {
    pub(crate) config: Config,
    pub(crate) space: Space,
    pub(crate) client: String,
    pub(crate) rhythm: Rhythm,
    pub(crate) table: Arc<Table>,
    pub(crate) outbox: Outbox,
    pub(crate) secrets: Secrets,
    pub(crate) tried: Tried,
    pub(crate) tasks: TaskTracker,
}

impl Memory {
    pub(crate) fn new(
        client: String,
        (config, space): (Config, Space),
        releaser: UnboundedSender<Job>,
    ) -> Self {
        let started = Instant::now();
        let timetable = Arc::new(Timetable::new(started));
        let outbox = Outbox::new(releaser, timetable);
        let gives_back = outbox.clone();
        Self {
            space,
            client,
            rhythm: Rhythm::new(&config, started),
            outbox,
            table: Arc::new(Table::new(&config, move |remains| gives_back.give_back(remains))),
            secrets: Secrets::new(started, config.life()),
            tried: Tried::default(),
            tasks: TaskTracker::new(),
            config,
        }
    }
}

impl Engine {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// A reference for another handle.
    pub(crate) fn another(&self) -> Arc<Self> {
        Arc::new(self.clone())
    }

    pub(crate) fn is_of_same_client(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A reference that does not keep the client alive.
    pub(crate) fn weak(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    /// See [`weak`](Self::weak).
    pub(crate) fn of(weak: &Weak<Shared>) -> Option<Self> {
        weak.upgrade().map(Self)
    }

    /// Ends a tenure of a closed client.
    pub(crate) fn give_up(&self, tenure: &Tenure) {
        if let Some(ending) = tenure.close() {
            self.outbox.release(ending);
        }
    }

    /// The keys of this name, for this kind.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub(crate) fn keys(&self, kind: Kind, name: String) -> Result<Keys> {
        let Config { layout, prefix, .. } = &self.config;
        let keys = Keys::in_space(self.space, prefix, *layout, kind, name)?;
        Ok(keys.counted(&self.config.labels))
    }

    /// How long this lease is.
    pub(crate) fn lease(&self, lease: Lease) -> Duration {
        match lease {
            Lease::Watched => self.config.watchdog_timeout,
            Lease::Fixed(lease) => lease,
        }
    }

    /// The hold that this owner has in this client.
    pub(crate) fn held_by(&self, owner: OwnerId, keys: &Keys) -> Option<Hold> {
        let tenure = match keys.row.holders {
            Holders::Plain => self.table.find(keys.id())?.tenure()?,
            _ => self.owned.find(owner, keys)?,
        };
        let hand_over = tenure.hold_of(owner)?;
        Some(Hold::new(tenure, hand_over, Some(owner)))
    }

    /// What this client holds and waits for. Each lock is looked at by itself, so the whole is not of one instant.
    pub(crate) fn holds(&self) -> Holds {
        let tenures = self.outbox.timetable.tenures();
        let mut held: Vec<_> = tenures.iter().filter_map(|tenure| tenure.held()).collect();
        held.sort_by(|a, b| a.name.cmp(&b.name));
        Holds { held, awaited: self.table.awaited() }
    }

    /// The entry in which a caller waits: one that all callers of the same lock share, or its own. In its own entry a
    /// caller does not queue behind other callers, which may be waiting for it.
    pub(crate) fn visit(&self, keys: &Arc<Keys>, permits: u32, alone: bool) -> Result<Visit> {
        if alone || keys.row.line.is_of_callers() {
            let id = self.table.next_tenure();
            self.table.enter_alone(keys, keys.channel_of(id.of(&self.client)), id)
        } else {
            self.table.visit(keys, permits)
        }
    }

    /// The number of a request that counts once. Numbers are consecutive, so that the server can store many of them in
    /// one member.
    pub(crate) fn next_order(&self) -> u64 {
        self.orders.fetch_add(1, Ordering::Relaxed)
    }

    /// Listens to the messages for the contender of this entry: to all clients, and to this client alone.
    pub(crate) fn listen(&self, entry: &Entry) -> Vec<Subscription> {
        // Room for two and no more: every contender keeps such a list.
        let mut subscriptions = Vec::with_capacity(2);
        subscriptions.push(self.subscriber.join(entry.channel()));
        if entry.keys.row.line.is_ours() {
            subscriptions.push(self.subscriber.join(&entry.keys.client_channel(&self.client)));
        }
        subscriptions
    }

    /// Begins a tenure that the watchdog looks after. `permit`: see [`Visit::begin`].
    pub(crate) fn begin(
        &self,
        visit: &Visit,
        permit: Option<EntryPermit>,
        grant: Grant,
        holder: Holder,
    ) -> Result<Hold> {
        let keys = &visit.entry.keys;
        let renew_at = self.rhythm.of(keys, grant.lease).first(grant.sent);
        let beginning = Beginning { grant, holder, renew_at, session: self.session.clone() };
        let tenure = visit.begin(beginning, permit);
        if keys.row.holders == Holders::Nobody {
            // A caller that has passed a latch holds nothing.
            return Ok(Hold::new(tenure, 0, holder.wish.owner));
        }
        self.owned.enter(holder.wish.owner, &tenure);
        if self.outbox.timetable.plan(&tenure, self.rhythm.idle) {
            // The client may have connected anew since it asked, and the watchdog has not found this tenure.
            if self.session.is_some() && tenure.is_of_former_connection() {
                self.outbox.timetable.hasten(&tenure);
            }
            return Ok(Hold::new(tenure, 0, holder.wish.owner));
        }
        // The client was closed meanwhile.
        self.give_up(&tenure);
        Err(Error::Closed)
    }

    /// Waits until the client hears itself, if its locks end with its session, but no longer than for one answer. Otherwise a caller might
    /// be granted a lock that is suspended from the beginning.
    pub(crate) async fn is_heard(&self) {
        if let Some(session) = &self.session {
            let _ = within(self.config.response(), pin!(session.is_heard())).await;
        }
    }

    /// The connection to send a question on. If it has just broken, waits until the client has tried to connect again, which takes
    /// milliseconds if the server is there, and also if it refuses.
    pub(crate) async fn connected(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connects(keys).await;
        self.commands.connection(keys)
    }

    /// Same as [`connected`](Self::connected), for a change that counts only when replicas have it, if they have to
    /// acknowledge.
    pub(crate) async fn connected_to_change(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connects(keys).await;
        self.commands.changing(keys)
    }

    async fn connects(&self, keys: &Keys) {
        // If no node has the slot, a connection would not help.
        if let Err(fault) = self.commands.changing(keys).map(drop)
            && !matches!(fault, Fault::Redirected(..))
        {
            let tried = pin!(self.commands.tried_now(keys));
            let _ = timeout(self.config.response(), guarding(tried)).await;
        }
    }

    /// The permit, if no other caller of this client has it or waits for it. If this client is releasing the lock,
    /// first waits for the server's answer.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if that answer does not come: then it is not known whether anybody has the lock.
    /// [`Error::Closed`].
    pub(crate) async fn permit_now(&self, visit: &Visit) -> Result<Option<EntryPermit>> {
        let keys = &visit.entry.keys;
        let is_held = || visit.entry.tenure().is_some_and(|tenure| tenure.lasts());
        let is_wanted = || is_held() || visit.entry.with(|lock| lock.is_awaited());
        let until = Instant::now() + self.config.response();
        loop {
            if !is_wanted() {
                self.await_releases(keys).await;
            }
            if let Some(permit) = visit.try_permit() {
                return Ok(Some(permit));
            }
            if visit.entry.with(|lock| lock.queue.is_closed()) {
                return Err(Error::Closed);
            }
            if is_wanted() {
                return Ok(None);
            }
            // A caller that is not polled may keep its place only as long as it refuses nobody. What it had is released then.
            let is_cancelled = visit.cancel_silent();
            if !is_cancelled && !self.outbox.releases.is_under_way(keys) {
                return Ok(None);
            }
            // Another release has begun meanwhile, or the one that this call has waited for is not answered.
            if Instant::now() >= until {
                return Err(Error::unanswered(self.config.response()));
            }
        }
    }

    /// Gives back this lock if the client keeps it idle.
    pub(crate) fn give_back_kept(&self, keys: &Keys) {
        if let Some(entry) = self.table.find(keys.id()).filter(|_| keys.row.may_be_kept()) {
            self.outbox.give_back_kept(&entry);
        }
    }

    /// Releases what is idle at this name, and waits until Redis has answered the releases in flight.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub(crate) async fn finish_releases(&self, keys: &Keys) {
        for entry in self.table.shared_of(&keys.channel) {
            entry.spare().iter().for_each(|tenure| self.table.retire(tenure, None));
        }
        self.await_releases(keys).await;
    }

    /// Waits until Redis has answered all releases of this name that are under way, but no longer than for one answer.
    /// In a cluster a release may ask one node after the other, and each of them may be silent.
    pub(crate) async fn await_releases(&self, keys: &Keys) {
        let _ = timeout(self.config.response(), self.outbox.releases.ended(keys)).await;
    }

    /// Same as [`await_releases`](Self::await_releases), but also waits for those that have failed and are repeated.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if an answer does not come: then it is not known whether anybody else has the lock.
    pub(crate) async fn await_repeated_releases(&self, keys: &Keys) -> Result<()> {
        let limit = self.config.response();
        timeout(limit, self.outbox.releases.answered(keys))
            .await
            .map_err(|_| Error::unanswered(limit))
    }

    /// A sign of life for a contender, and when it was made. A kind without a line needs none.
    pub(crate) fn sign(&self, keys: &Keys) -> (Secret, Instant) {
        let now = Instant::now();
        if keys.row.line.is_ours() {
            self.secrets.make(now, &keys.channel)
        } else {
            (Secret::default(), now)
        }
    }

    /// Counts a waiter. `is_exempt`: no limit rejects it, for example since it was counted before.
    pub(crate) fn count(&self, keys: &Keys, is_exempt: bool) -> Result<Counted<'_>> {
        let limit = if is_exempt { usize::MAX } else { self.config.max_waiters };
        let counted = |waiters| (waiters < limit).then_some(waiters + 1);
        match self.waiters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted) {
            Ok(_) => Ok(Counted { waiters: &self.waiters, _waits: keys.meters.waits() }),
            Err(_) => Err(Error::TooManyWaiters { limit }),
        }
    }
}

/// A caller that is counted as a waiter.
pub(crate) struct Counted<'a> {
    waiters: &'a AtomicUsize,
    _waits: Waits,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Once no handles and guards are left, the releaser finishes its releases, and the tasks end.
impl Drop for Shared {
    fn drop(&mut self) {
        if !self.config.keep.is_zero() {
            self.table.plain().iter().for_each(|entry| self.outbox.give_back_kept(entry));
        }
        self.outbox.debts.close();
    }
}
