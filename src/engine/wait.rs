//! How a caller waits: the driver of [`Line`], with futures, gates and links.
//!
//! 1. A caller first waits for the permit of its client's entry. Whoever has it contends in the name of all of them,
//!    so that a client has one request on its way for each entry.
//! 2. Listen first, look second, sleep last: what was asked before the channel was subscribed is asked again.
//! 3. What needs the turn is done in a contest (`contest.rs`). If it was cancelled since its caller was not polled, the
//!    caller queues again, before those who came later.
//! 4. No message is needed for progress, since every park ends; none is trusted as proof, unless it repeats
//!    what only this client and the server know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::claim::{Attempt, attempt};
use crate::engine::entry::{Entry, Turn, Visit, Waiting};
use crate::engine::job::Job;
use crate::engine::line::{Event, Next, Rules};
use crate::engine::stint::Stint;
use crate::engine::tenure::{Grant, Holder, Lease, PickUp, Taken, Tenure};
use crate::engine::turn::Ticket;
use crate::engine::{Engine, PAUSE, rules};
use crate::error::{Error, Result};
use crate::keys::{Keys, Kind, TenureId};
use crate::owner::OwnerId;
use crate::wire::{Acquire, Fault, Manner, Seat};

/// Without a line, how long a client that offered its lock sits out.
const SIT_OUT: Duration = Duration::from_millis(1);

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
    /// How much of it, if it can be divided.
    pub(crate) part: u32,
    /// The tenure within which its owner asks, if there needs to be no room for it.
    pub(crate) beneath: Option<TenureId>,
    /// The server has just said that somebody has it: an attempt that the limit cuts off makes nobody unsure of that.
    pub(crate) known_taken: bool,
}

impl Wish {
    /// Whether what another caller of this client has left, or still reads with, will do.
    fn is_like_others(&self) -> bool {
        self.lease == Lease::Watched && self.owner.is_none() && self.beneath.is_none()
    }

    /// Whether it waits by itself: the server puts it in line beside the others of its client.
    fn waits_alone(&self, keys: &Keys) -> bool {
        let is_unlike = keys.has_line() && keys.is_held_together() && !self.is_like_others();
        self.beneath.is_some() || is_unlike
    }
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
) -> Result<Option<Stint>> {
    if let Some(owner) = wish.owner
        && let Some(stint) = engine.held_by(owner, keys)
        && Box::pin(engine.nest(&stint, wish.lease, wish.patience)).await?
    {
        return Ok(Some(stint));
    }
    // Nobody is in the way of who asks within what it holds.
    let visit = engine.visit(keys, wish.part, wish.waits_alone(keys))?;
    let started = Instant::now();
    let mut caller = Caller { engine: Arc::clone(engine), wish, started, known: None };
    match wish.patience {
        Patience::None => Box::pin(caller.once(visit)).await,
        Patience::Endless => caller.wait(&visit).await.map(Some),
        Patience::For(limit) => {
            // It is told what it knows when the limit cuts it off.
            caller.known = Some(Arc::new(Known::new(wish.known_taken)));
            caller.wait_for(visit, limit).await
        }
    }
}

/// One caller on its way to the lock. In a contest a clone of it asks.
#[derive(Clone)]
struct Caller {
    engine: Arc<Engine>,
    wish: Wish,
    started: Instant,
    known: Option<Arc<Known>>,
}

/// What a caller with a limit knows of its requests.
struct Known {
    /// Redis was asked, and whether it ever answered.
    asked: AtomicBool,
    answered: AtomicBool,
    /// A request of this call was not answered: it may have run.
    open: AtomicBool,
    /// The last attempt failed, for now.
    failing: AtomicBool,
}

impl Known {
    fn new(answered: bool) -> Self {
        let [asked, open, failing] = [(); 3].map(|()| AtomicBool::new(false));
        Self { asked, answered: AtomicBool::new(answered), open, failing }
    }
}

fn is(known: &AtomicBool) -> bool {
    known.load(Ordering::Relaxed)
}

/// What came with the turn.
enum Coming {
    /// The lock.
    Held(Stint),
    /// The right to contend, and perhaps a tenure to offer.
    Turn(Turn, Option<Offer>),
}

/// A tenure that has ended and that Redis is to be asked about. Dropped before that was answered,
/// it is given back.
struct Offer {
    engine: Arc<Engine>,
    tenure: Option<Arc<Tenure>>,
}

impl Offer {
    fn id(&self) -> Option<TenureId> {
        self.tenure.as_ref().map(|tenure| tenure.id)
    }

    /// Whatever the answer was, Redis has the tenure no more.
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
    /// One attempt, and none if somebody of this client is there first.
    async fn once(&self, visit: Visit) -> Result<Option<Stint>> {
        let visit = if visit.entry.keys.is_shared() {
            if let Some(stint) = self.share_at_once(&visit) {
                return Ok(Some(stint));
            }
            // What rests is for those who wait. One reader is not in the way of another, nor of those who wait.
            self.engine.settle(&visit.entry.keys).await;
            self.engine.visit(&visit.entry.keys, self.wish.part, true)?
        } else {
            visit
        };
        loop {
            let Some(turn) = self.engine.turn_now(&visit).await else {
                return Ok(None);
            };
            let (turn, offer) = match self.pick_up(turn) {
                Coming::Held(stint) => return Ok(Some(stint)),
                Coming::Turn(turn, offer) => (turn, offer),
            };
            // One that was not polled for so long has had no attempt yet.
            if let Some(attempted) =
                visit.contest(Box::pin(self.clone().try_once(turn, offer))).await
            {
                return attempted;
            }
        }
    }

    async fn try_once(self, turn: Turn, offer: Option<Offer>) -> Result<Option<Stint>> {
        let contender = Contender { engine: Arc::clone(&self.engine), turn: Some(turn) };
        let entry = contender.entry();
        // A connection that has just broken is back in no time.
        let _ = self.engine.connected().await;
        let (id, old) = (self.engine.next_tenure(), offer.as_ref().and_then(Offer::id));
        let asked = self.request(&entry, (id, 0, 0), Manner::Once, old);
        let attempted = match asked {
            Ok(acquire) => self.attempt(&entry, acquire, offer).await,
            Err(fault) => Err(fault),
        };
        match attempted {
            Ok(Attempt::Granted(grant)) => self.begin(contender.granted(), grant).map(Some),
            Ok(_) => {
                entry.refuse();
                Ok(None)
            }
            Err(fault) => Err(self.explained(&entry, fault).await),
        }
    }

    async fn wait_for(&self, visit: Visit, limit: Duration) -> Result<Option<Stint>> {
        match tokio::time::timeout(limit, self.wait(&visit)).await {
            Ok(stint) => stint.map(Some),
            // To say "held by somebody else" would be a guess.
            Err(_) if self.is_failing(&visit.entry) => {
                // To ask about a latch changes nothing.
                let is_open = self.known.as_ref().is_some_and(|known| is(&known.open));
                let may_have_run = is_open && visit.entry.keys.kind != Kind::Latch;
                Err(if may_have_run { Error::cut_off(limit) } else { Error::unanswered(limit) })
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether nobody knows how it stands. A caller that Redis has answered knows it by itself. One that has waited
    /// behind others of this client knows what they know, also if its own first request is still on its way. What they
    /// knew before it came may have changed since.
    fn is_failing(&self, entry: &Entry) -> bool {
        let Some(known) = &self.known else { return false };
        if is(&known.answered) || is(&known.failing) {
            return is(&known.failing);
        }
        if entry.is_failing() || is(&known.asked) {
            return entry.is_failing() || !entry.was_taken_since(self.started);
        }
        // What we ourselves are giving back is not somebody else's, unless somebody had it while we waited.
        let was_anothers = entry.is_taken() || entry.was_taken_since(self.started);
        !was_anothers && self.engine.returns.is_under_way(&entry.keys)
    }

    async fn wait(&self, visit: &Visit) -> Result<Stint> {
        if visit.entry.has_seats() {
            // Before anything is held: who gets it again and again without a word to the server has to let others run.
            tokio::task::coop::consume_budget().await;
            if let Some(stint) = self.share_at_once(visit) {
                return Ok(stint);
            }
        }
        let (mut turn, mut counted) = match visit.try_turn() {
            Some(turn) => (turn, None),
            None => {
                if self.asks_beside(&visit.entry)
                    && let Some(stint) = Box::pin(self.ask_beside(visit)).await?
                {
                    return Ok(stint);
                }
                let counted = self.engine.count_waiter()?;
                (self.queue(visit, Ticket::default()).await?, Some(counted))
            }
        };
        loop {
            let (ticket, (turn_now, offer)) = match self.pick_up(turn) {
                Coming::Held(stint) => return Ok(stint),
                Coming::Turn(turn, offer) => (turn.ticket(), (turn, offer)),
            };
            // Boxed, since all the others in the queue have room for it too.
            let work = Box::pin(self.clone().contend(turn_now, offer, counted.is_some()));
            if let Some(contended) = visit.contest(work).await {
                return contended?.ok_or_else(|| Fault::Closed.into_error(""));
            }
            // It was not polled, and others have gone on. It has waited before, so that no limit sends it away.
            counted.get_or_insert_with(|| self.engine.count_again());
            turn = self.queue(visit, ticket).await?;
        }
    }

    /// Waits for the turn, within this client. It stays counted among those who wait: given up and taken again, its
    /// place could go to a newcomer in between, and it would be one too many although it has waited all the time.
    async fn queue(&self, visit: &Visit, ticket: Ticket) -> Result<Turn> {
        let mut queued = Queued { engine: &self.engine, waiting: Some(visit.wait_as(ticket)) };
        if let Some(tenure) = visit.entry.tenure().filter(|tenure| !tenure.is_over()) {
            visit.entry.take();
            tenure.warn_of_deadlock(OwnerId::current());
        }
        visit.have_contender_watched();
        let turn = queued.turn().await.map_err(|fault| fault.into_error(""))?;
        queued.arrived();
        Ok(turn)
    }

    /// Takes what another caller of this client has left, or reads with it; `None` if there is nothing of the kind, or
    /// if it is for those who wait.
    fn share_at_once(&self, visit: &Visit) -> Option<Stint> {
        let entry = &visit.entry;
        if entry.keys.kind == Kind::Read {
            // A reader takes nothing from those who wait, unless they wait for a writer.
            return if entry.was_refused() { None } else { self.share(visit, 0) };
        }
        self.share(visit, entry.ahead())
    }

    /// As [`share_at_once`](Self::share_at_once), if more rests than is kept for others.
    fn share(&self, visit: &Visit, kept: usize) -> Option<Stint> {
        if !visit.entry.has_seats() || !self.wish.is_like_others() {
            return None;
        }
        let (part, budget) = (self.wish.part, self.engine.budget);
        loop {
            let mut shared = visit.entry.shared()?;
            let is_fresh = shared.is_fresh(Instant::now(), budget.time);
            let Some(tenure) = shared.take(part, kept) else {
                let open = shared.open().filter(|_| visit.entry.keys.kind == Kind::Read);
                drop(shared);
                return open?.join(budget);
            };
            drop(shared);
            match tenure.take_up(self.holder(), budget, is_fresh) {
                Taken::Held(stint) => {
                    visit.entry.take();
                    return Some(stint);
                }
                Taken::Nothing => {}
                Taken::Ended(stay, place) => {
                    self.engine.timetable.leave(place);
                    self.engine.later(Job::release(&tenure, stay));
                }
            }
        }
    }

    /// Whether to ask while another caller of this client does: until it is known that there is not room for all.
    fn asks_beside(&self, entry: &Entry) -> bool {
        // Readers wait for each other's answer: it will do for all of them.
        let will_join = entry.keys.kind == Kind::Read && self.wish.is_like_others();
        entry.has_seats() && !will_join && entry.ahead() == 0
    }

    /// Asks once, beside the contender.
    async fn ask_beside(&self, visit: &Visit) -> Result<Option<Stint>> {
        // It has no turn. Its answer is not to wait for a caller that is not polled all the same.
        let beside = self.engine.visit(&visit.entry.keys, self.wish.part, true)?;
        let work = Box::pin(self.clone().try_beside(visit.clone()));
        beside.contest(work).await.unwrap_or(Ok(None))
    }

    async fn try_beside(self, visit: Visit) -> Result<Option<Stint>> {
        let entry = &visit.entry;
        let asked = (self.engine.next_tenure(), 0, 0);
        let attempted = match self.request(entry, asked, Manner::Once, None) {
            Ok(acquire) => self.attempt(entry, acquire, None).await,
            Err(fault) => Err(fault),
        };
        match attempted {
            Ok(Attempt::Granted(grant)) => {
                self.engine.begin_beside(visit.clone(), grant, self.holder()).map(Some)
            }
            // The contender rides it out.
            Err(fault) if !fault.is_passing() => Err(self.explained(entry, fault).await),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Takes up what the last holder of this client has left, if it has left anything.
    fn pick_up(&self, turn: Turn) -> Coming {
        let entry = turn.entry();
        if entry.has_seats() {
            return match self.share(turn.visit(), 0) {
                Some(stint) => {
                    // The line stays for the next one. If there is none, nobody else would give it up.
                    self.engine.look_after(&turn.pass_on());
                    Coming::Held(stint)
                }
                None => Coming::Turn(turn, None),
            };
        }
        let Some(tenure) = entry.tenure() else {
            return Coming::Turn(turn, None);
        };
        let passed =
            |entry: &Entry| entry.shared().is_some_and(|s| s.has_passed_since(self.started));
        if entry.keys.kind == Kind::Latch && passed(entry) {
            return Coming::Held(Stint::new(tenure, 0));
        }
        match tenure.pick_up(turn, self.holder(), self.engine.budget) {
            PickUp::Held(stint) => {
                if let (Some(owner), false) = (self.wish.owner, stint.tenure.keys.is_plain()) {
                    self.engine.owned.enter(owner, &stint.tenure);
                }
                Coming::Held(stint)
            }
            PickUp::Nothing(turn) => Coming::Turn(turn, None),
            PickUp::Ended(turn, place) => {
                self.engine.timetable.leave(place);
                let offer = Offer { engine: Arc::clone(&self.engine), tenure: Some(tenure) };
                Coming::Turn(turn, Some(offer))
            }
        }
    }

    /// Contends for the lock with the other clients.
    async fn contend(
        self,
        turn: Turn,
        mut offer: Option<Offer>,
        is_counted: bool,
    ) -> Result<Option<Stint>> {
        let contender = Contender { engine: Arc::clone(&self.engine), turn: Some(turn) };
        let mut counted = None;
        let entry = contender.entry();
        let rules = self.rules();
        let mut ears: Option<Ears> = None;
        if entry.shared().is_some_and(|mut shared| shared.asks_for(self.wish.part)) {
            entry.step(Event::Roused, rules);
        }
        loop {
            if let Some(stint) = self.share(contender.visit(), 0) {
                return Ok(Some(stint));
            }
            self.make_room(&entry);
            let listening = ears.as_ref().is_none_or(Ears::hear);
            match contender.visit().next(listening, rules) {
                Next::Take(grant) => {
                    let debt = self.engine.debts.incur().map_err(|fault| fault.into_error(""))?;
                    self.engine.commands.granted(grant.number);
                    let rules = entry.rules_of_line(rules);
                    let grant = grant.until_confirmed(rules, debt);
                    return self.take(contender.granted(), grant).map(Some);
                }
                Next::Park(until) => {
                    if !is_counted && counted.is_none() {
                        counted = Some(self.engine.count_waiter()?);
                    }
                    ears.get_or_insert_with(|| Ears::open(&self.engine, &entry));
                    entry.gate.pass(until).await.map_err(|fault| fault.into_error(""))?;
                }
                Next::Ask => match self.ask(&entry, offer.take()).await {
                    Ok(Attempt::Granted(grant)) => {
                        return self.begin(contender.granted(), grant).map(Some);
                    }
                    Ok(answer) => {
                        entry.refuse();
                        contender.visit().have_contender_watched();
                        // From here on messages reach us, or the subscription rouses us when they do.
                        ears.get_or_insert_with(|| Ears::open(&self.engine, &entry));
                        if matches!(answer, Attempt::GaveWay) {
                            // Our own message must not end this: everybody else hears it at the same time.
                            tokio::time::sleep(SIT_OUT).await;
                        }
                    }
                    Err(fault) => self.ride_out(&entry, fault).await?,
                },
            }
        }
    }

    /// Gives back what rests for others and stays in the way of this contender, which is first.
    fn make_room(&self, entry: &Entry) {
        let unlike = entry.shared().map_or_else(Vec::new, |shared| shared.unlike(self.wish.part));
        unlike.iter().for_each(|tenure| self.engine.retire(tenure, None));
    }

    /// Takes what a message has granted. The server has granted it for as long as our sign of life lasts, so that
    /// the watchdog has to confirm it, if it is held for longer than a third of that.
    fn take(&self, turn: Turn, grant: Grant) -> Result<Stint> {
        let confirm_at = grant.sent + grant.lease / 3;
        let stint = self.begin(turn, grant)?;
        stint.tenure.is_to_last(self.engine.lease(self.wish.lease), confirm_at);
        self.engine.timetable.enter(&stint.tenure, confirm_at);
        Ok(stint)
    }

    fn rules(&self) -> Rules {
        rules(&self.engine.config, self.engine.lease(self.wish.lease))
    }

    /// Asks once, in the contender's name, and takes note of the answer.
    async fn ask(&self, entry: &Entry, offer: Option<Offer>) -> Result<Attempt, Fault> {
        let (id, place, manner) = entry.ask(&self.engine, self.rules());
        let (secret, sent) = self.engine.sign(&entry.keys);
        let old = offer.as_ref().and_then(Offer::id);
        let acquire = self.request(entry, (id, place, secret), manner, old)?;
        let answer = self.attempt(entry, acquire, offer).await;
        let event = match &answer {
            Ok(Attempt::Granted(_)) => return answer,
            Ok(Attempt::Waits { place, near, ttl }) => {
                let again = ttl.is_some().then(|| self.longest(entry, *ttl));
                warn_of_eternity(entry, *ttl);
                Event::Waits { place: *place, near: *near, sent, again }
            }
            Ok(Attempt::Held(ttl)) => Event::Held { again: self.longest(entry, *ttl), sent },
            Ok(Attempt::GaveWay) => Event::Held { again: Duration::ZERO, sent },
            Err(fault) if fault.is_open() => Event::Unanswered,
            Err(_) => Event::Refused,
        };
        entry.step(event, self.rules());
        answer
    }

    fn longest(&self, entry: &Entry, ttl: Option<Duration>) -> Duration {
        warn_of_eternity(entry, ttl);
        let most = self.engine.config.max_park;
        // A little later than the expiry, and not all clients in the same moment.
        let grace = Duration::from_micros(fastrand::u64(1_000..=5_000));
        ttl.map_or(most, |ttl| most.min(ttl + grace))
    }

    fn request(
        &self,
        entry: &Entry,
        (id, place, secret): (TenureId, u64, u64),
        manner: Manner,
        old: Option<TenureId>,
    ) -> Result<Acquire, Fault> {
        Ok(Acquire {
            keys: Arc::clone(&entry.keys),
            id,
            lease: self.engine.lease(self.wish.lease),
            manner,
            part: self.wish.part,
            within: self.wish.beneath,
            place,
            secret,
            old,
            debt: self.engine.debts.incur()?,
        })
    }

    async fn attempt(
        &self,
        entry: &Entry,
        acquire: Acquire,
        offer: Option<Offer>,
    ) -> Result<Attempt, Fault> {
        let known = self.known.as_deref();
        // Also if the future is dropped in between.
        let was_open = known.is_some_and(|known| {
            known.asked.store(true, Ordering::Relaxed);
            known.open.swap(true, Ordering::Relaxed)
        });
        let attempted = attempt(&self.engine, acquire, entry).await;
        if let (Some(mut shared), false) =
            (entry.shared(), matches!(attempted, Ok(Attempt::Granted(_))))
        {
            shared.refused();
        }
        match &attempted {
            Ok(_) => {
                if let Some(known) = known {
                    known.answered.store(true, Ordering::Relaxed);
                    known.failing.store(false, Ordering::Relaxed);
                    known.open.store(false, Ordering::Relaxed);
                }
                entry.answered();
                self.engine.give_back_former(entry);
                if let Some(offer) = offer {
                    offer.answered();
                }
            }
            Err(fault) => {
                if let Some(known) = known {
                    known.open.store(was_open || fault.is_open(), Ordering::Relaxed);
                    known.failing.fetch_or(fault.is_passing(), Ordering::Relaxed);
                }
                if fault.is_passing() {
                    entry.failed(Instant::now());
                }
            }
        }
        attempted
    }

    /// Waits until another attempt makes sense, unless that has been tried for too long. What
    /// another caller has gone through before with this lock counts too: a queue does not ride out
    /// an outage one after the other.
    async fn ride_out(&self, entry: &Entry, fault: Fault) -> Result<()> {
        let now = Instant::now();
        if !fault.is_passing() {
            return Err(self.explained(entry, fault).await);
        }
        let since = entry.failed(now).max(self.started);
        let left = self.engine.config.riding_out().saturating_sub(now - since);
        if left.is_zero() {
            return Err(fault.into_outage(&entry.keys.lock().to_string()));
        }
        if let Fault::NotSent(_) = fault {
            let _ = tokio::time::timeout(left, self.engine.commands.up()).await;
            tokio::time::sleep(self.engine.spread()).await;
        } else {
            tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64()).min(left)).await;
        }
        Ok(())
    }

    async fn explained(&self, entry: &Entry, fault: Fault) -> Error {
        self.engine.commands.explained(fault, &entry.keys).await
    }

    fn begin(&self, turn: Turn, grant: Grant) -> Result<Stint> {
        self.engine.begin(turn, grant, self.holder())
    }

    fn holder(&self) -> Holder {
        let Wish { owner, lease, part, .. } = self.wish;
        Holder { owner, asked_by: OwnerId::current(), lease, part }
    }
}

fn warn_of_eternity(entry: &Entry, ttl: Option<Duration>) {
    if ttl.is_none() {
        let name = entry.keys.name();
        tracing::warn!(?name, "held by a key without a TTL, which may never be freed");
    }
}

/// What a contender listens to.
struct Ears {
    seats: Vec<Seat>,
}

impl Ears {
    fn open(engine: &Engine, entry: &Entry) -> Self {
        let channels = entry.channels(&engine.client);
        Self { seats: channels.iter().map(|channel| engine.subscriber.join(channel)).collect() }
    }

    fn hear(&self) -> bool {
        self.seats.iter().all(Seat::is_live)
    }
}

/// A caller in the queue. Dropped, it looks after what may have been handed to it.
struct Queued<'a> {
    engine: &'a Arc<Engine>,
    waiting: Option<Waiting>,
}

impl Queued<'_> {
    async fn turn(&mut self) -> Result<Turn, Fault> {
        self.waiting.as_mut().expect("it has not arrived yet").turn().await
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

/// The caller of this client that contends. Dropped before it was granted anything, it passes the
/// turn on, and looks after our client's place in the lock's line: that is for whoever of us
/// contends next.
pub(crate) struct Contender {
    engine: Arc<Engine>,
    turn: Option<Turn>,
}

impl Contender {
    /// Contends at once, or not at all if somebody of this client is there first. What was left for others
    /// with the turn still holds the lock in Redis: for us it is somebody else's.
    pub(crate) async fn at_once(engine: &Arc<Engine>, keys: &Arc<Keys>) -> Result<Option<Self>> {
        let turn = engine.turn_now(&engine.visit(keys, 1, false)?).await;
        Ok(turn.map(|turn| Self { engine: Arc::clone(engine), turn: Some(turn) }))
    }

    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.visit().entry)
    }

    fn visit(&self) -> &Visit {
        self.turn.as_ref().expect("it has not been granted yet").visit()
    }

    /// The server has taken it out of the line.
    pub(crate) fn granted(mut self) -> Turn {
        let turn = self.turn.take().expect("it is granted once");
        turn.entry().forget_line();
        turn.entry().stop_contending();
        turn.entry().take();
        self.engine.give_back_former(turn.entry());
        turn
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        turn.entry().stop_asking(&self.engine);
        turn.entry().stop_contending();
        // Only when the turn has gone on is it certain whether anybody comes for it.
        self.engine.look_after(&turn.pass_on());
    }
}
