//! What a caller does from `lock().await` to its hold: it queues within its client, asks Redis, and waits in line. It drives
//! [`Line`] with futures, gates and links.
//!
//! 1. A caller first waits for the permit of its client's entry. Only the caller with the permit asks Redis,
//!    for all callers of the entry. So a client has one request in flight for each entry.
//! 2. A contender sleeps only after it has asked while its channel was live. If it asked earlier, it asks again.
//! 3. Work that needs the permit is done in a contest (`contest.rs`). If the lookout cancels the work because its
//!    caller was not polled, the caller queues again, ahead of later callers.
//! 4. A contender that gets no message asks again, since each park has a time limit. It believes a grant by message only
//!    if the message repeats a secret that this client made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::attempt::{Attempt, attempt};
use crate::engine::core::{Counted, Engine, PAUSE, rules};
use crate::engine::debts::Debt;
use crate::engine::entry::{Contested, Entry, EntryPermit, Tenure, Visit, Waiting};
use crate::engine::grant::{Grant, Holder, Lease};
use crate::engine::hold::Hold;
use crate::engine::job::Job;
use crate::engine::keep::until_given_back;
use crate::engine::known::Known;
use crate::engine::line::{Event, Next, PushedGrant, Rules};
use crate::engine::options::{AcquireOptions, Patience};
use crate::engine::permit::Ticket;
use crate::engine::tenure::{PickUp, Taken};
use crate::error::{Error, Result};
use crate::keys::{Keys, TenureId};
use crate::owner::OwnerId;
use crate::wire::{Acquire, Fault, Manner, Subscription};

/// How long a client that has offered its lock pauses, in a kind without a line.
const SIT_OUT: Duration = Duration::from_millis(1);

/// Gets the lock for the caller. Returns `None` if its patience ran out first.
///
/// # Cancel safety
/// Dropping the future gives up the place in the queue. If Redis grants the lock to an attempt in flight, the client
/// releases it in the background.
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    keys: &Arc<Keys>,
    options: &AcquireOptions,
) -> Result<Option<Hold>> {
    if let Some(owner) = options.owner
        && !options.returns
        && let Some(hold) = engine.held_by(owner, keys)
        && Box::pin(engine.nest(&hold, options.lease, options.patience)).await?
    {
        return Ok(Some(hold));
    }
    // A nested request does not queue behind other callers of this client: they may be waiting for its owner.
    let visit = engine.visit(keys, options.permits, options.waits_alone(keys))?;
    if visit.entry.has_seats() || visit.entry.may_keep() {
        // Do this while nothing is held: a caller that gets the lock again and again without asking the server has to
        // let other tasks run.
        tokio::task::coop::consume_budget().await;
    }
    let started = Instant::now();
    let mut caller = Caller {
        engine: Arc::clone(engine),
        options: *options,
        started,
        known: None,
        lined_up: None,
    };
    match options.patience {
        Patience::None => Box::pin(caller.once(visit)).await,
        Patience::Endless => caller.wait(&visit).await.map(Some),
        Patience::For(limit) => {
            // If the limit cuts the call off, `Known` says what the caller may believe.
            caller.known = Some(Arc::new(Known::new(options.known_taken)));
            // Boxed: callers that wait without a limit need no space for a timer.
            Box::pin(caller.wait_for(&visit, limit)).await
        }
    }
}

/// Stands in the line of a condition until it is notified. Sets `lined_up` as soon as it stands there. Returns `None`
/// if it stood there and the lookout has since cancelled it because it was not polled: it may have missed a
/// notification.
///
/// # Cancel safety
/// Dropping the future gives up the place. If the waiter has been notified, the notification goes to the next waiter.
pub(crate) async fn stand_by(
    engine: &Arc<Engine>,
    keys: &Arc<Keys>,
    lined_up: &Arc<LinedUp>,
) -> Result<Option<Hold>> {
    let options = AcquireOptions {
        owner: None,
        lease: Lease::Fixed(engine.config.life()),
        patience: Patience::Endless,
        permits: 1,
        within: None,
        known_taken: false,
        returns: false,
        is_kept: false,
        asks_twice: false,
    };
    let visit = engine.visit(keys, options.permits, true)?;
    let (engine, started) = (Arc::clone(engine), Instant::now());
    let lined_up = Some(Arc::clone(lined_up));
    let caller = Caller { engine, options, started, known: None, lined_up };
    caller.stand_by(&visit).await
}

/// Whether a waiter stands in the line of its condition.
#[derive(Default)]
pub(crate) struct LinedUp {
    stands: AtomicBool,
    told: Notify,
}

impl LinedUp {
    fn tell(&self) {
        self.stands.store(true, Ordering::Release);
        self.told.notify_one();
    }

    fn is_so(&self) -> bool {
        self.stands.load(Ordering::Acquire)
    }

    /// Waits until the waiter stands in line. Only one caller waits for that.
    pub(crate) async fn wait(&self) {
        while !self.is_so() {
            self.told.notified().await;
        }
    }
}

/// One caller that wants the lock. In a contest, a clone of it asks.
#[derive(Clone)]
struct Caller {
    engine: Arc<Engine>,
    options: AcquireOptions,
    started: Instant,
    known: Option<Arc<Known>>,
    /// Set when the caller stands in line, if it waits for a condition.
    lined_up: Option<Arc<LinedUp>>,
}

/// What a caller gets with the permit.
enum Coming {
    /// The lock.
    Held(Hold),
    /// The right to contend, and perhaps a tenure to offer.
    Permit(EntryPermit, Option<Offer>),
}

/// An ended tenure that the next acquire releases in the same step. If that acquire gets no answer, the drop releases
/// the tenure.
struct Offer {
    engine: Arc<Engine>,
    tenure: Option<Arc<Tenure>>,
}

impl Offer {
    fn id(&self) -> Option<TenureId> {
        self.tenure.as_ref().map(|tenure| tenure.id)
    }

    /// Redis has answered, so it no longer has the tenure.
    fn answered(mut self) {
        if let Some(tenure) = self.tenure.take() {
            drop(tenure.take_debt());
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some(tenure) = &self.tenure {
            self.engine.later(Job::release(tenure, None));
        }
    }
}

impl Caller {
    /// One attempt, or none if another caller of this client came first.
    async fn once(&self, visit: Visit) -> Result<Option<Hold>> {
        let visit = if visit.entry.keys.row.is_shared {
            if let Some(hold) = self.share_at_once(&visit) {
                return Ok(Some(hold));
            }
            // Resting tenures are for callers that wait. So release them, and ask in a separate entry: then this caller
            // delays no reader and no waiting caller.
            self.engine.settle(&visit.entry.keys).await;
            self.engine.visit(&visit.entry.keys, self.options.permits, true)?
        } else {
            visit
        };
        loop {
            let Some(permit) = self.engine.permit_now(&visit).await else {
                return Ok(None);
            };
            let (permit, offer) = match self.pick_up(permit) {
                Coming::Held(hold) => return Ok(Some(hold)),
                Coming::Permit(permit, offer) => (permit, offer),
            };
            // `None`: the lookout has cancelled it because it was not polled. It has not made an attempt yet.
            if let Some(attempted) = contest(&visit, self.clone().try_once(permit, offer)).await {
                return attempted;
            }
        }
    }

    async fn try_once(self, permit: EntryPermit, offer: Option<Offer>) -> Result<Option<Hold>> {
        let contender = Contender { engine: Arc::clone(&self.engine), permit: Some(permit) };
        let entry = contender.entry();
        // A connection that has just broken returns within milliseconds.
        let _ = self.engine.connected(&entry.keys).await;
        let asked = Instant::now();
        let mut attempted = self.ask_once(&entry, offer).await;
        if self.options.asks_twice && matches!(attempted, Ok(Attempt::Kept(_))) {
            // Perhaps no caller holds it. The script has told the holder's client to give it back if it is idle.
            tokio::time::sleep(until_given_back(asked.elapsed())).await;
            attempted = self.ask_once(&entry, None).await;
        }
        match attempted {
            Ok(Attempt::Granted(grant)) => self.begin(contender.granted(), grant).map(Some),
            Ok(_) => {
                entry.went_elsewhere();
                Ok(None)
            }
            Err(fault) => Err(self.explained(&entry, fault).await),
        }
    }

    async fn wait_for(&self, visit: &Visit, limit: Duration) -> Result<Option<Hold>> {
        match tokio::time::timeout(limit, self.wait(visit)).await {
            Ok(hold) => hold.map(Some),
            // `None` would say "held by another caller", and that would be a guess.
            Err(_) if self.is_failing(&visit.entry) => {
                // A query of a latch changes nothing, so it may run.
                let is_open = self.known.as_ref().is_some_and(|known| known.is_open());
                let may_have_run = is_open && !visit.entry.keys.row.is_passed;
                Err(if may_have_run { Error::cut_off(limit) } else { Error::unanswered(limit) })
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether this caller cannot know if the lock is held. A caller knows it if Redis has answered it. A caller that
    /// waits behind others of this client knows what they have learnt since it came, even while its own first request
    /// is in flight. What they knew before may have changed.
    fn is_failing(&self, entry: &Entry) -> bool {
        let Some(known) = &self.known else { return false };
        if let Some(is_failing) = known.is_failing() {
            return is_failing;
        }
        if entry.is_failing() || known.has_asked() {
            return entry.is_failing() || !entry.was_taken_since(self.started);
        }
        // While this client releases the lock, nobody else holds it, unless another caller has had it since this caller
        // came.
        let was_anothers = entry.is_taken() || entry.was_taken_since(self.started);
        !was_anothers && self.engine.returns.is_under_way(&entry.keys)
    }

    async fn wait(&self, visit: &Visit) -> Result<Hold> {
        if visit.entry.has_seats()
            && let Some(hold) = self.share_at_once(visit)
        {
            return Ok(hold);
        }
        let (mut permit, mut counted) = match visit.try_permit() {
            Some(permit) => (permit, None),
            None => {
                if self.asks_beside(&visit.entry)
                    && let Some(hold) = Box::pin(self.ask_beside(visit)).await?
                {
                    return Ok(hold);
                }
                let counted = self.engine.count(&visit.entry.keys, self.options.returns)?;
                (self.queue(visit, Ticket::default()).await?, Some(counted))
            }
        };
        loop {
            let (permit_taken, offer) = match self.pick_up(permit) {
                Coming::Held(hold) => return Ok(hold),
                Coming::Permit(permit, offer) => (permit, offer),
            };
            let ticket = permit_taken.ticket();
            let contending =
                contest(visit, self.clone().contend(permit_taken, offer, counted.is_some()));
            if let Some(contended) = contending.await {
                return contended?.ok_or_else(|| Fault::Closed.into_error(""));
            }
            // The lookout has cancelled the work, and other callers have gone ahead. This caller has waited before, so
            // no limit rejects it.
            counted.get_or_insert_with(|| self.engine.count_again(&visit.entry.keys));
            permit = self.queue(visit, ticket).await?;
        }
    }

    async fn stand_by(self, visit: &Visit) -> Result<Option<Hold>> {
        loop {
            // The entry belongs to this caller, so nobody else has the permit.
            let permit = match visit.try_permit() {
                Some(permit) => permit,
                None => self.queue(visit, Ticket::default()).await?,
            };
            if let Some(notified) = contest(visit, self.clone().contend(permit, None, false)).await
            {
                return notified;
            }
            if self.lined_up.as_ref().is_some_and(|lined_up| lined_up.is_so()) {
                return Ok(None);
            }
        }
    }

    /// Waits for the permit within this client. The caller stays counted as a waiter. If it were counted again, a
    /// newcomer could take its slot in between, and the limit would reject a caller that has waited all along.
    async fn queue(&self, visit: &Visit, ticket: Ticket) -> Result<EntryPermit> {
        let mut queued = Queued { engine: &self.engine, waiting: Some(visit.wait_as(ticket)) };
        if let Some(tenure) = visit.entry.tenure().filter(|tenure| !tenure.is_over()) {
            visit.entry.take();
            tenure.warn_of_deadlock(OwnerId::current());
        }
        visit.have_contender_watched();
        let permit = queued.permit().await.map_err(|fault| fault.into_error(""))?;
        queued.arrived();
        Ok(permit)
    }

    /// Takes a tenure that another caller of this client has left, or joins that caller's read. Returns `None` if there
    /// is no such tenure, or if it is reserved for waiting callers.
    fn share_at_once(&self, visit: &Visit) -> Option<Hold> {
        let entry = &visit.entry;
        if entry.keys.row.is_joined {
            // A joining reader takes nothing from waiting callers, unless they wait for a writer.
            return if entry.was_told_to_wait() { None } else { self.share(visit, 0) };
        }
        self.share(visit, entry.ahead())
    }

    /// Same as [`share_at_once`](Self::share_at_once), if more tenures rest than are reserved for others.
    fn share(&self, visit: &Visit, reserved: usize) -> Option<Hold> {
        if !visit.entry.has_seats() || !self.options.is_like_others() {
            return None;
        }
        let (permits, budget) = (self.options.permits, self.engine.budget);
        loop {
            let mut shared = visit.entry.shared()?;
            let is_fresh = shared.is_fresh(Instant::now(), budget.time);
            let Some(tenure) = shared.take(permits, reserved) else {
                let open = shared.open().filter(|_| visit.entry.keys.row.is_joined);
                drop(shared);
                let open = open?;
                let hand_over = open.join(budget)?;
                return Some(Hold::new(open, hand_over));
            };
            drop(shared);
            match tenure.take_up(self.holder(), budget, is_fresh) {
                Taken::Held(hand_over) => {
                    visit.entry.take();
                    return Some(Hold::new(tenure, hand_over));
                }
                Taken::Nothing => {}
                Taken::Ended(stay, slot) => {
                    self.engine.timetable.leave(slot);
                    self.engine.later(Job::release(&tenure, stay));
                }
            }
        }
    }

    /// Whether to ask while another caller of this client asks: yes, until the server has said that there is no room
    /// for all.
    fn asks_beside(&self, entry: &Entry) -> bool {
        // Readers wait for the answer to one of them: then all of them can join that read.
        let will_join = entry.keys.row.is_joined && self.options.is_like_others();
        entry.has_seats() && !will_join && entry.ahead() == 0
    }

    /// Asks once, beside the contender.
    async fn ask_beside(&self, visit: &Visit) -> Result<Option<Hold>> {
        // This caller has no permit. It asks in a separate entry, where the lookout can cancel it if it is not polled.
        let beside = self.engine.visit(&visit.entry.keys, self.options.permits, true)?;
        contest(&beside, self.clone().try_beside(visit.clone())).await.unwrap_or(Ok(None))
    }

    async fn try_beside(self, visit: Visit) -> Result<Option<Hold>> {
        let entry = &visit.entry;
        match self.ask_once(entry, None).await {
            Ok(Attempt::Granted(grant)) => {
                self.engine.begin_beside(&visit, grant, self.holder()).map(Some)
            }
            // The contender rides out this fault.
            Err(fault) if !fault.is_passing() => Err(self.explained(entry, fault).await),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Takes up the tenure that the last holder of this client has left, if there is one.
    fn pick_up(&self, permit: EntryPermit) -> Coming {
        let entry = permit.entry();
        if entry.has_seats() {
            return match self.share(permit.visit(), 0) {
                Some(hold) => {
                    // The place in line stays for the next contender. If there is none, only this call gives the place
                    // up.
                    self.engine.look_after(&permit.pass_on());
                    Coming::Held(hold)
                }
                None => Coming::Permit(permit, None),
            };
        }
        let Some(tenure) = entry.tenure() else {
            return Coming::Permit(permit, None);
        };
        let passed =
            |entry: &Entry| entry.shared().is_some_and(|s| s.has_passed_since(self.started));
        if entry.keys.row.is_passed && passed(entry) {
            return Coming::Held(Hold::new(tenure, 0));
        }
        if !self.keeps(entry) {
            entry.forbid_keeping();
        }
        let budget = self.engine.budget;
        let budget = if entry.may_keep() { budget.unwanted() } else { budget };
        match tenure.pick_up(permit, self.holder(), budget) {
            PickUp::Held(hand_over) => {
                if let (Some(owner), false) = (self.options.owner, tenure.keys.row.is_plain) {
                    self.engine.owned.enter(owner, &tenure);
                }
                Coming::Held(Hold::new(tenure, hand_over))
            }
            PickUp::Nothing(permit) => Coming::Permit(permit, None),
            PickUp::Ended(permit, slot) => {
                self.engine.timetable.leave(slot);
                let offer = Offer { engine: Arc::clone(&self.engine), tenure: Some(tenure) };
                Coming::Permit(permit, Some(offer))
            }
        }
    }

    /// Contends for the lock with other clients.
    async fn contend(
        self,
        permit: EntryPermit,
        mut offer: Option<Offer>,
        is_counted: bool,
    ) -> Result<Option<Hold>> {
        let contender = Contender { engine: Arc::clone(&self.engine), permit: Some(permit) };
        let (entry, rules) = (contender.entry(), self.rules());
        let mut stand = Stand {
            engine: &self.engine,
            returns: self.options.returns,
            is_counted,
            _counted: None,
            ears: None,
        };
        let mut short = Short::default();
        if entry.shared().is_some_and(|mut shared| shared.asks_for(self.options.permits)) {
            entry.step(Event::Roused, rules);
        }
        loop {
            if let Some(hold) = self.share(contender.visit(), 0) {
                return Ok(Some(hold));
            }
            self.make_room(&entry);
            match contender.visit().next(stand.hears(), rules) {
                Next::Take(grant) => return self.take(contender, grant).map(Some),
                Next::Park(until) => {
                    // It may have taken over the place of a caller that has left, without having asked itself.
                    if entry.has_place() {
                        entry.went_elsewhere();
                    }
                    stand.begin(&entry)?;
                    entry.gate.pass(until).await.map_err(|fault| fault.into_error(""))?;
                }
                // Boxed: most contenders are parked, and need no space for a request.
                Next::Ask => match Box::pin(self.ask(&entry, offer.take())).await {
                    Ok(Attempt::Granted(grant)) => {
                        return self.begin(contender.granted(), grant).map(Some);
                    }
                    Ok(answer) => {
                        entry.went_elsewhere();
                        // From now on the caller counts as waiting. Messages may make it ask again and again before it
                        // ever parks.
                        stand.begin(&entry)?;
                        if let (Some(lined_up), Attempt::Waits { .. }) = (&self.lined_up, &answer) {
                            lined_up.tell();
                        }
                        contender.visit().have_contender_watched();
                        if matches!(answer, Attempt::GaveWay) {
                            // Sleep instead of parking: our own message would wake us at the same time as everybody
                            // else.
                            tokio::time::sleep(SIT_OUT).await;
                        }
                    }
                    Err(fault) => Box::pin(self.ride_out(&entry, fault, &mut short)).await?,
                },
            }
        }
    }

    /// Releases resting tenures that block this contender, which goes first.
    fn make_room(&self, entry: &Entry) {
        let unlike =
            entry.shared().map_or_else(Vec::new, |shared| shared.unlike(self.options.permits));
        unlike.iter().for_each(|tenure| self.engine.retire(tenure, None));
    }

    /// Takes the lock that a message has granted. The server has granted it only for as long as our sign of life lasts.
    /// So the watchdog has to confirm it after a third of that time.
    fn take(&self, contender: Contender, grant: PushedGrant) -> Result<Hold> {
        let debt = self.engine.debts.incur().map_err(|fault| fault.into_error(""))?;
        self.engine.commands.granted(&contender.entry().keys, grant.number);
        let rules = contender.entry().rules_of_line(self.rules());
        let grant = grant.until_confirmed(rules, debt);
        let confirm_at = grant.sent + grant.lease / 3;
        let hold = self.begin(contender.granted(), grant)?;
        hold.tenure.is_to_last(self.engine.lease(self.options.lease), confirm_at);
        self.engine.timetable.enter(&hold.tenure, confirm_at);
        Ok(hold)
    }

    /// Whether the client may keep the lock when this caller has given it back.
    fn keeps(&self, entry: &Entry) -> bool {
        let is_asked_so = self.options.is_kept && self.options.lease == Lease::Watched;
        is_asked_so && entry.keys.row.is_kept && !self.engine.config.keep.is_zero()
    }

    fn rules(&self) -> Rules {
        rules(&self.engine.config, self.engine.lease(self.options.lease))
    }

    /// Asks once, without a place in line.
    async fn ask_once(&self, entry: &Entry, offer: Option<Offer>) -> Result<Attempt, Fault> {
        let debt = self.engine.debts.incur()?;
        let (id, old) = (self.engine.next_tenure(), offer.as_ref().and_then(Offer::id));
        let acquire = self.request(entry, (id, 0, 0), Manner::Once, old, debt);
        self.attempt(entry, acquire, offer).await
    }

    /// Asks for the contender, and records the answer.
    async fn ask(&self, entry: &Entry, offer: Option<Offer>) -> Result<Attempt, Fault> {
        // Before the entry notes a request: a closed client sends none, and has to find the place that it gives up.
        let debt = self.engine.debts.incur()?;
        let (id, place, manner) = entry.ask(|| self.engine.next_tenure(), self.rules());
        let (secret, sent) = self.engine.sign(&entry.keys);
        let old = offer.as_ref().and_then(Offer::id);
        let acquire = self.request(entry, (id, place, secret), manner, old, debt);
        let answer = self.attempt(entry, acquire, offer).await;
        let event = match &answer {
            Ok(Attempt::Granted(_)) => return answer,
            Ok(Attempt::Waits { place, near, ttl }) => {
                let again = ttl.is_some().then(|| self.longest(entry, *ttl));
                warn_of_eternity(entry, *ttl);
                Event::Waits { place: *place, near: *near, sent, again }
            }
            Ok(Attempt::Held(ttl) | Attempt::Kept(ttl)) => {
                Event::Held { again: self.longest(entry, *ttl), sent }
            }
            Ok(Attempt::GaveWay) => Event::Held { again: Duration::ZERO, sent },
            Err(fault) if fault.may_hold() => Event::Unanswered,
            Err(_) => Event::Refused,
        };
        entry.step(event, self.rules());
        answer
    }

    fn longest(&self, entry: &Entry, ttl: Option<Duration>) -> Duration {
        warn_of_eternity(entry, ttl);
        let most = self.engine.config.max_park;
        // Ask a little later than the expiry, and not all clients at the same moment.
        let grace = Duration::from_micros(fastrand::u64(1_000..=5_000));
        ttl.map_or(most, |ttl| most.min(ttl + grace))
    }

    fn request(
        &self,
        entry: &Entry,
        (id, place, secret): (TenureId, u64, u64),
        manner: Manner,
        old: Option<TenureId>,
        debt: Debt,
    ) -> Acquire {
        Acquire {
            keys: Arc::clone(&entry.keys),
            id,
            lease: self.engine.lease(self.options.lease),
            manner,
            permits: self.options.permits,
            within: self.options.within,
            place,
            secret,
            old,
            debt,
        }
    }

    async fn attempt(
        &self,
        entry: &Entry,
        acquire: Acquire,
        offer: Option<Offer>,
    ) -> Result<Attempt, Fault> {
        let known = self.known.as_deref();
        // Record it now, in case the future is dropped in between.
        let was_open = known.is_some_and(Known::asks);
        if self.keeps(entry) {
            entry.allow_keeping(|| self.engine.listen(entry));
        } else {
            entry.forbid_keeping();
        }
        let attempted = attempt(&self.engine, acquire, entry).await;
        if let (Some(mut shared), false) =
            (entry.shared(), matches!(attempted, Ok(Attempt::Granted(_))))
        {
            shared.others_come_first();
        }
        match &attempted {
            Ok(_) => {
                known.into_iter().for_each(Known::answered);
                entry.answered();
                self.engine.give_back_former(entry);
                if let Some(offer) = offer {
                    offer.answered();
                }
            }
            Err(fault) => {
                known.into_iter().for_each(|known| known.failed(fault, was_open));
                if fault.is_passing() {
                    entry.failed(Instant::now());
                }
            }
        }
        attempted
    }

    /// Waits until another attempt makes sense, or returns the error if failures have lasted too long. The time starts
    /// with the first failure of any caller of this entry since this caller came: so the callers in a queue do not ride
    /// out an outage one after the other.
    async fn ride_out(&self, entry: &Entry, fault: Fault, short: &mut Short) -> Result<()> {
        let now = Instant::now();
        if !fault.is_passing() {
            return Err(self.explained(entry, fault).await);
        }
        let longest = self.engine.config.riding_out();
        let since = match fault {
            Fault::Unacknowledged(_) => {
                short.again(now, longest + self.engine.config.response() * 2)
            }
            _ => entry.failed(now).max(self.started),
        };
        let left = longest.saturating_sub(now - since);
        if left.is_zero() {
            return Err(fault.into_outage(&entry.keys.lock().to_string()));
        }
        if let Fault::NotSent(_) = fault {
            let _ = tokio::time::timeout(left, self.engine.commands.up(&entry.keys)).await;
            tokio::time::sleep(self.engine.spread()).await;
        } else {
            tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64()).min(left)).await;
        }
        Ok(())
    }

    async fn explained(&self, entry: &Entry, fault: Fault) -> Error {
        self.engine.commands.explained(fault, &entry.keys).await
    }

    fn begin(&self, permit: EntryPermit, grant: Grant) -> Result<Hold> {
        self.engine.begin(permit, grant, self.holder())
    }

    fn holder(&self) -> Holder {
        let AcquireOptions { owner, lease, permits, .. } = self.options;
        Holder { owner, asked_by: OwnerId::current(), lease, permits }
    }
}

/// Since when replicas have not acknowledged what a caller was granted. The server keeps answering, so nothing else
/// counts this as an outage.
#[derive(Default)]
struct Short {
    /// The times of the first failure and of the last.
    times: Option<(Instant, Instant)>,
}

impl Short {
    /// Records a failure at `now`. Returns when failures began. After `long` without a failure the time starts again,
    /// since the caller waited for others.
    fn again(&mut self, now: Instant, long: Duration) -> Instant {
        let goes_on = self.times.filter(|(_, last)| now.saturating_duration_since(*last) < long);
        let first = goes_on.map_or(now, |(first, _)| first);
        self.times = Some((first, now));
        first
    }
}

/// Does work that the lookout can cancel. Returns `None` if it did so because the caller was not polled.
///
/// The work is boxed before the future is made. Otherwise the future of every caller in the queue would have space for
/// it.
fn contest(
    visit: &Visit,
    work: impl Future<Output = Result<Option<Hold>>> + Send + 'static,
) -> impl Future<Output = Option<Result<Option<Hold>>>> + Send {
    // An entry does not know the type `Hold`.
    let work = work.map_ok(|held| held.map(|hold| (hold.tenure, hold.hand_over)));
    visit.contest(Box::pin(work)).map(|contested| contested.map(held))
}

fn held(contested: Contested) -> Result<Option<Hold>> {
    Ok(contested?.map(|(tenure, hand_over)| Hold::new(tenure, hand_over)))
}

fn warn_of_eternity(entry: &Entry, ttl: Option<Duration>) {
    if ttl.is_none() {
        let name = entry.keys.name();
        tracing::warn!(?name, "held by a key without a TTL, which may never be freed");
    }
}

/// What a contender has while it waits: it counts as a waiter, and listens.
struct Stand<'a> {
    engine: &'a Engine,
    /// It has waited before, so no limit rejects it.
    returns: bool,
    is_counted: bool,
    _counted: Option<Counted<'a>>,
    ears: Option<Vec<Subscription>>,
}

impl Stand<'_> {
    /// Counts the contender, and subscribes, unless that was already done. If a channel becomes live after this, the
    /// subscription wakes the contender, and it asks again.
    fn begin(&mut self, entry: &Entry) -> Result<()> {
        if !std::mem::replace(&mut self.is_counted, true) {
            self._counted = Some(self.engine.count(&entry.keys, self.returns)?);
        }
        if self.ears.is_none() {
            self.ears = Some(self.engine.listen(entry));
        }
        Ok(())
    }

    /// Whether messages reach the contender. Before it waits, it needs none.
    fn hears(&self) -> bool {
        self.ears.iter().flatten().all(Subscription::is_live)
    }
}

/// A caller in the queue. Its drop checks for a tenure that may have been left for it.
struct Queued<'a> {
    engine: &'a Arc<Engine>,
    waiting: Option<Waiting>,
}

impl Queued<'_> {
    async fn permit(&mut self) -> Result<EntryPermit, Fault> {
        self.waiting.as_mut().expect("it has not arrived yet").permit().await
    }

    fn arrived(mut self) {
        self.waiting = None;
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if let Some(visit) = self.waiting.take().and_then(Waiting::leave) {
            self.engine.look_after(&visit);
        }
    }
}

/// The caller of this client that contends. If it is dropped before it was granted the lock, it passes on the permit,
/// and the place in line with it. If no other caller of this client waits, it gives up the place.
pub(crate) struct Contender {
    engine: Arc<Engine>,
    permit: Option<EntryPermit>,
}

impl Contender {
    /// Contends at once, or not at all if another caller of this client came first. A tenure that was left for others
    /// still holds the lock in Redis, so for this caller the lock is held.
    pub(crate) async fn at_once(engine: &Arc<Engine>, keys: &Arc<Keys>) -> Result<Option<Self>> {
        let permit = engine.permit_now(&engine.visit(keys, 1, false)?).await;
        Ok(permit.map(|permit| Self { engine: Arc::clone(engine), permit: Some(permit) }))
    }

    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.visit().entry)
    }

    fn visit(&self) -> &Visit {
        self.permit.as_ref().expect("it has not been granted yet").visit()
    }

    /// The server has granted it the lock, and taken it out of the line. The entry knows its owner field until the
    /// tenure has begun.
    pub(crate) fn granted(mut self) -> EntryPermit {
        let permit = self.permit.take().expect("it is granted once");
        permit.entry().stop_contending();
        self.engine.give_back_former(permit.entry());
        permit
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        permit.entry().stop_asking(|| self.engine.next_tenure());
        permit.entry().stop_contending();
        // Pass the permit on first: only then is it certain whether another caller takes it.
        self.engine.look_after(&permit.pass_on());
    }
}
