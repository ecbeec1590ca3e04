//! The only waiting loop: attempt, listen, attempt, park.
//!
//! 1. Nobody waits in Redis' name but the contender: one request at a time per client and lock.
//! 2. Listen first, look second, sleep last: an attempt made before the channel was live is made
//!    again when it is.
//! 3. No message is needed for progress, since a park ends with the holder's TTL; none is trusted
//!    as proof, since an attempt follows it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::claim::{Attempt, attempt, exchange};
use crate::engine::entry::{Call, Called, Entry, Turn, Visit, Waiting};
use crate::engine::job::Job;
use crate::engine::stint::Stint;
use crate::engine::tenure::{Grant, Holder, Lease, PickUp, Tenure, deadline};
use crate::engine::{Counted, Engine, PAUSE, secret};
use crate::error::{Error, Result};
use crate::keys::{Keys, Kind, TenureId};
use crate::owner::OwnerId;
use crate::wire::{Acquire, Fault, Manner, Seat};

/// How often a waiter looks while nobody could tell it anything.
const DEAF: Duration = Duration::from_millis(250);

/// How long another client is let go first. It has to hear of it and to ask, some milliseconds away.
const GRACE: Duration = Duration::from_millis(5);

/// How long others may come and go before a client in line looks whether it still stands there.
const PASSED_OVER: Duration = Duration::from_millis(50);

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
    // Nobody is in the way of who asks within what it holds, nor one reader in that of another.
    let once = matches!(wish.patience, Patience::None);
    let visit = engine.visit(keys, wish.beneath.is_some() || once && keys.is_shared())?;
    let started = Instant::now();
    let mut caller = Caller {
        engine,
        wish,
        started,
        asked: false,
        answered: false,
        open: false,
        failing: false,
        sign: None,
        place: 0,
    };
    match wish.patience {
        Patience::None => Box::pin(caller.once(visit)).await,
        Patience::Endless => caller.wait(&visit).await.map(Some),
        Patience::For(limit) => caller.wait_for(visit, limit).await,
    }
}

/// One caller on its way to the lock.
struct Caller<'a> {
    engine: &'a Arc<Engine>,
    wish: Wish,
    started: Instant,
    /// Redis was asked, and whether it ever answered.
    asked: bool,
    answered: bool,
    /// A request of this call was not answered: it may have run.
    open: bool,
    /// The last attempt failed, for now.
    failing: bool,
    /// The secret of the last sign of life that was answered, and when it was sent.
    sign: Option<(u64, Instant)>,
    /// The place in the server's queue, once it was answered.
    place: u64,
}

/// What came with the turn.
enum Coming<'a> {
    /// The lock.
    Held(Stint),
    /// The right to contend, and perhaps a tenure to offer.
    Turn(Turn, Option<Offer<'a>>),
}

/// A tenure that has ended and that Redis is to be asked about. Dropped before that was answered,
/// it is given back.
struct Offer<'a> {
    engine: &'a Engine,
    tenure: Option<Arc<Tenure>>,
}

impl Offer<'_> {
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

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        if let Some(tenure) = &self.tenure {
            self.engine.later(Job::release(tenure, None));
        }
    }
}

impl<'a> Caller<'a> {
    /// One attempt, and none if somebody of this client is there first.
    async fn once(&mut self, visit: Visit) -> Result<Option<Stint>> {
        let Some(turn) = self.engine.turn_now(&visit).await else {
            return Ok(None);
        };
        let (turn, offer) = match self.pick_up(turn) {
            Coming::Held(stint) => return Ok(Some(stint)),
            Coming::Turn(turn, offer) => (turn, offer),
        };
        let contender = Contender { engine: self.engine, turn: Some(turn) };
        let entry = contender.entry();
        // A connection that has just broken is back in no time.
        let _ = self.engine.connected().await;
        match self.attempt(&entry, Manner::Once, offer).await {
            Ok(Attempt::Granted(grant)) => self.begin(contender.granted(), grant).map(Some),
            Ok(_) => {
                entry.refuse();
                contender.left();
                Ok(None)
            }
            Err(fault) => Err(self.explained(&entry, fault).await),
        }
    }

    async fn wait_for(&mut self, visit: Visit, limit: Duration) -> Result<Option<Stint>> {
        match tokio::time::timeout(limit, self.wait(&visit)).await {
            Ok(stint) => stint.map(Some),
            // To say "held by somebody else" would be a guess.
            Err(_) if self.is_failing(&visit.entry) => {
                // To ask about a latch changes nothing.
                let may_have_run = self.open && visit.entry.keys.kind != Kind::Latch;
                Err(if may_have_run { Error::cut_off(limit) } else { Error::unanswered(limit) })
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether nobody knows how it stands. A caller that Redis has answered knows it by itself. One that has waited
    /// behind others of this client knows what they know, also if its own first request is still on its way. What they
    /// knew before it came may have changed since.
    fn is_failing(&self, entry: &Entry) -> bool {
        if self.answered || self.failing {
            return self.failing;
        }
        if entry.is_failing() || self.asked {
            return entry.is_failing() || !entry.was_taken_since(self.started);
        }
        // What we ourselves are giving back is not somebody else's.
        !entry.is_taken() && self.engine.returns.is_under_way(&entry.keys)
    }

    async fn wait(&mut self, visit: &Visit) -> Result<Stint> {
        let (turn, counted) = match visit.try_turn() {
            Some(turn) => (turn, None),
            None => {
                let (turn, counted) = self.queue(visit).await?;
                (turn, Some(counted))
            }
        };
        match self.pick_up(turn) {
            Coming::Held(stint) => Ok(stint),
            // Boxed, since all the others in the queue have room for it too.
            Coming::Turn(turn, offer) => Box::pin(self.contend(turn, offer, counted)).await,
        }
    }

    /// Waits for the turn, within this client. It stays counted among those who wait: given up and taken again, its
    /// place could go to a newcomer in between, and it would be one too many although it has waited all the time.
    async fn queue(&self, visit: &Visit) -> Result<(Turn, Counted<'a>)> {
        let counted = self.engine.count_waiter()?;
        let queued = Queued { engine: self.engine, waiting: Some(visit.wait()) };
        if let Some(tenure) = visit.entry.tenure().filter(|tenure| !tenure.is_over()) {
            visit.entry.take();
            tenure.warn_of_deadlock(OwnerId::current());
        }
        let turn = visit.turn().await.map_err(|fault| fault.into_error(""))?;
        queued.arrived();
        Ok((turn, counted))
    }

    /// Takes up what the last holder of this client has left, if it has left anything.
    fn pick_up(&self, turn: Turn) -> Coming<'a> {
        let Some(tenure) = turn.entry().tenure() else {
            return Coming::Turn(turn, None);
        };
        match tenure.pick_up(turn, self.holder(), self.engine.budget) {
            PickUp::Held(stint) => Coming::Held(stint),
            PickUp::Nothing(turn) => Coming::Turn(turn, None),
            PickUp::Ended(turn, place) => {
                self.engine.timetable.leave(place);
                let offer = Offer { engine: self.engine, tenure: Some(tenure) };
                Coming::Turn(turn, Some(offer))
            }
        }
    }

    /// Contends for the lock with the other clients.
    async fn contend(
        &mut self,
        turn: Turn,
        mut offer: Option<Offer<'_>>,
        mut counted: Option<Counted<'a>>,
    ) -> Result<Stint> {
        let mut contender = Contender { engine: self.engine, turn: Some(turn) };
        let mut entry = contender.entry();
        let mut seat: Option<Seat> = None;
        let mut insisting = false;
        loop {
            entry.gate.shut();
            // An attempt finds what was granted before it; what is told after it may be older.
            entry.take_call();
            let listening = self.engine.subscriber.is_live(entry.channel());
            if listening {
                seat.get_or_insert_with(|| self.engine.subscriber.join(entry.channel()));
            }
            let manner = manner(&entry, listening, insisting);
            if manner.lines_up() && entry.keys.has_line() {
                // Taken note of before it is asked for: from then on, nobody may take us out.
                entry.line_up(true);
            }
            let attempted = self.attempt(&entry, manner, offer.take()).await;
            if !matches!(attempted, Ok(Attempt::Granted(_)) | Err(_)) {
                entry.refuse();
            }
            match attempted {
                Ok(Attempt::Granted(grant)) => return self.begin(contender.granted(), grant),
                Ok(Attempt::Held(ttl) | Attempt::Queued(ttl, _)) => {
                    count(self.engine, &mut counted)?;
                    seat.get_or_insert_with(|| self.engine.subscriber.join(entry.channel()));
                    insisting = if listening {
                        self.park(&entry, self.longest(&entry, ttl), false).await?
                    } else {
                        self.listen(&entry, DEAF.min(self.longest(&entry, ttl))).await?
                    };
                }
                Ok(Attempt::Unheard(ttl)) => {
                    count(self.engine, &mut counted)?;
                    insisting = self.listen(&entry, DEAF.min(self.longest(&entry, ttl))).await?;
                }
                Ok(Attempt::Reserved) => {
                    count(self.engine, &mut counted)?;
                    seat.get_or_insert_with(|| self.engine.subscriber.join(entry.channel()));
                    insisting = self.let_pass(&entry).await?;
                }
                Err(fault) => {
                    if fault.is_open() && entry.waits_as().is_some() {
                        // What was not answered may run later. It must not find us under its name.
                        (seat, contender) = (None, contender.again()?);
                        // It is still the same outage.
                        let since = entry.failed(Instant::now());
                        entry = contender.entry();
                        entry.failed(since);
                        if self.place == 0 {
                            // No place of before can be asked for: the old name is only in the way.
                            self.engine.give_back_former(&entry);
                        }
                    }
                    self.ride_out(&entry, fault).await?;
                }
            }
            if let Some(called) = entry.take_call()
                && let Some(stint) = self.answer(called, &mut contender)?
            {
                return Ok(stint);
            }
        }
    }

    /// Takes what a message has granted, if it has the secret of the last sign of life that was answered: for
    /// as long as that keeps a place it is ours, and a confirmation makes it longer. One that is almost over
    /// is asked for instead. A message without the secret has woken us, and does no more.
    fn answer(&self, called: Called, contender: &mut Contender<'_>) -> Result<Option<Stint>> {
        let Some((secret, sent)) = self.sign else { return Ok(None) };
        let debt = self.engine.debts.incur().map_err(|fault| fault.into_error(""))?;
        let lease = self.engine.config.claim().min(self.engine.lease(self.wish.lease));
        if called.secret != secret || deadline(sent, lease) <= Instant::now() + lease / 3 {
            return Ok(None);
        }
        let Some(turn) = contender.turn.take() else { return Ok(None) };
        self.engine.commands.granted(called.number);
        let Some(id) = turn.entry().waits_as() else { return Ok(None) };
        let stint = self.begin(turn, Grant { id, number: called.number, lease, sent, debt })?;
        stint.tenure.is_to_last(self.engine.lease(self.wish.lease));
        self.engine.timetable.hasten(&stint.tenure);
        Ok(Some(stint))
    }

    /// Waits for anything to be heard, not standing in line: no message can name us, so that every
    /// one is as good as another, and the first may be that the channel is live.
    async fn listen(&self, entry: &Entry, limit: Duration) -> Result<bool> {
        let heard = entry.gate.pass(Instant::now() + limit).await;
        heard.map(|_| false).map_err(|fault| fault.into_error(""))
    }

    /// Parks in line until a release is told or the time is over; whether to insist then. If the
    /// release was told to another client, that is given a moment.
    async fn park(&self, entry: &Entry, limit: Duration, insist: bool) -> Result<bool> {
        let mut far = Instant::now() + limit;
        let (mut until, mut insist) = (far, insist);
        loop {
            let call = entry.gate.pass(until).await;
            match call.map_err(|fault| fault.into_error(""))? {
                Call::Silence => return Ok(insist),
                Call::Ours => return Ok(false),
                Call::Anothers => {
                    let now = Instant::now();
                    // While others come and go we need not ask, but we may have been passed over.
                    if !insist {
                        far = far.min(now + PASSED_OVER);
                    }
                    insist = true;
                    until = far.min(now + grace());
                }
            }
        }
    }

    /// Lets another client have a lock that is free; whether to insist then. That client may have died, and then
    /// nobody publishes anything. So this does not wait for a message, and needs no channel.
    async fn let_pass(&self, entry: &Entry) -> Result<bool> {
        if !entry.keys.has_line() {
            // Our own message must not end this: everybody else hears it at the same time.
            tokio::time::sleep(SIT_OUT).await;
            return Ok(false);
        }
        self.park(entry, grace(), true).await
    }

    fn longest(&self, entry: &Entry, ttl: Option<Duration>) -> Duration {
        let most = if entry.keys.is_queued() {
            // Three signs of life while a place lasts, however long each is on its way.
            let pause = self.engine.config.claim() / 3;
            self.sign.map_or(pause, |(_, sent)| pause.saturating_sub(sent.elapsed()))
        } else {
            self.engine.config.max_park
        };
        if ttl.is_none() {
            let name = entry.keys.name();
            tracing::warn!(?name, "held by a key without a TTL, which may never be freed");
        }
        // A little later than the expiry, and not all clients in the same moment.
        let grace = Duration::from_micros(fastrand::u64(1_000..=5_000));
        ttl.map_or(most, |ttl| most.min(ttl + grace))
    }

    async fn attempt(
        &mut self,
        entry: &Entry,
        manner: Manner,
        offer: Option<Offer<'_>>,
    ) -> Result<Attempt, Fault> {
        self.asked = true;
        let (secret, sent) = (entry.waits_as().map_or(0, |_| secret()), Instant::now());
        let acquire = Acquire {
            keys: Arc::clone(&entry.keys),
            id: entry.waits_as().unwrap_or_else(|| self.engine.next_tenure()),
            lease: self.engine.lease(self.wish.lease),
            manner,
            part: self.wish.part,
            beneath: self.wish.beneath,
            place: self.place,
            secret,
            debt: self.engine.debts.incur()?,
        };
        // Also if the future is dropped in between.
        let open = std::mem::replace(&mut self.open, true);
        let attempted = match offer.as_ref().and_then(Offer::id) {
            None => attempt(self.engine, acquire, entry).await,
            Some(old) => exchange(self.engine, old, acquire).await,
        };
        match &attempted {
            Ok(attempt) => {
                if let Attempt::Queued(_, place) = attempt {
                    self.place = *place;
                }
                (self.answered, self.failing, self.open) = (true, false, false);
                self.sign = Some((secret, sent));
                entry.answered();
                self.engine.give_back_former(entry);
                if let Some(offer) = offer {
                    offer.answered();
                }
            }
            Err(fault) => {
                self.open = open || fault.is_open();
                if fault.is_passing() {
                    self.failing = true;
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
        let Wish { owner, lease, .. } = self.wish;
        Holder { owner, asked_by: OwnerId::current(), lease }
    }
}

/// Counts the contender among those who wait, once it does.
fn count<'a>(engine: &'a Engine, counted: &mut Option<Counted<'a>>) -> Result<()> {
    if counted.is_none() {
        *counted = Some(engine.count_waiter()?);
    }
    Ok(())
}

/// Who hears nothing does not stand in line: it could not be called. A place in the queue is taken at
/// once, since it is kept for longer than it takes to listen.
fn manner(entry: &Entry, listening: bool, insisting: bool) -> Manner {
    match (listening || entry.keys.is_queued(), insisting) {
        (true, true) => Manner::Insist,
        (true, false) => Manner::Wait,
        (false, true) => Manner::Overtake,
        (false, false) => Manner::Look,
    }
}

fn grace() -> Duration {
    GRACE + GRACE.mul_f64(fastrand::f64() / 2.0)
}

/// A caller in the queue. Dropped, it looks after what may have been handed to it.
struct Queued<'a> {
    engine: &'a Arc<Engine>,
    waiting: Option<Waiting>,
}

impl Queued<'_> {
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
pub(crate) struct Contender<'a> {
    engine: &'a Arc<Engine>,
    turn: Option<Turn>,
}

impl<'a> Contender<'a> {
    /// Contends at once, or not at all if somebody of this client is there first. What was left for others
    /// with the turn still holds the lock in Redis: for us it is somebody else's.
    pub(crate) async fn at_once(engine: &'a Arc<Engine>, keys: &Arc<Keys>) -> Result<Option<Self>> {
        let turn = engine.turn_now(&engine.visit(keys, false)?).await;
        Ok(turn.map(|turn| Self { engine, turn: Some(turn) }))
    }

    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(self.turn.as_ref().expect("it has not been granted yet").entry())
    }

    /// The script that granted it took us out of the line.
    pub(crate) fn granted(mut self) -> Turn {
        let turn = self.turn.take().expect("it is granted once");
        turn.entry().line_up(false);
        turn.entry().stop_contending();
        turn
    }

    /// One attempt that was answered leaves no place in a queue.
    fn left(mut self) {
        if self.entry().waits_as().is_some() {
            self.turn = None;
        }
    }

    /// The same caller, waiting as another. Its place under the name of before is held back with all the rest: given
    /// up first, those behind it would be let in.
    fn again(mut self) -> Result<Self> {
        let (engine, former) = (self.engine, self.entry());
        let visit = engine.visit(&former.keys, true)?;
        let turn = visit.try_turn().ok_or(Error::Closed)?;
        turn.entry().hold_back(former.take_held_back());
        if let Some(id) = former.waits_as() {
            let place = Job::leave_queue(&former.keys, id, engine.debts.tidying());
            turn.entry().hold_back([place]);
        }
        self.turn = None;
        Ok(Self { engine, turn: Some(turn) })
    }
}

impl Drop for Contender<'_> {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.entry().stop_contending();
            if let Some(id) = turn.entry().waits_as() {
                self.engine.leave_queue(turn.entry(), id);
                return;
            }
            // Only when the turn has gone on is it certain whether anybody comes for it.
            self.engine.look_after(&turn.pass_on());
        }
    }
}
