//! A caller: what it may do while it asks, and what its answers may say.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use parklock::{Error, Layout, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::board::{self, Call, Patience, Question, Terms};
use crate::clock::{self, MILLI, SECOND};
use crate::desk::Seat;
use crate::held::{Handle, Held};
use crate::plan::{ClientPlan, Kind, Plan, Topology, millis, nanos};

/// What all callers of one life of a process share.
pub struct Home {
    pub plan: Arc<Plan>,
    pub process: usize,
    /// Which of its lives.
    pub life: u64,
}

impl Home {
    pub fn setup(&self) -> &ClientPlan {
        &self.plan.clients[self.process]
    }
}

/// How to ask.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    Lock,
    Try,
    TryFor(Duration),
    /// The future is dropped after this.
    Cancelled(Duration),
    /// The future is dropped when it has been polled so often.
    Polled(u32),
    /// The future is polled once and then left alone for this long; then it is awaited, or dropped.
    Unpolled(Duration, bool),
}

impl Manner {
    pub fn any(rng: &mut Rng) -> Self {
        match rng.u32(..100) {
            0..52 => Self::Lock,
            52..63 => Self::Try,
            63..76 => Self::TryFor(millis(rng.u64(..2_000))),
            76..84 => Self::Cancelled(millis(rng.u64(..200))),
            84..96 => Self::Polled(rng.u32(1..8)),
            _ => {
                // Some for several times the longest `pickup_timeout`: by then others have long gone on.
                let long = rng.u64(..1_500);
                let times = if long.is_multiple_of(4) { 5 } else { 1 };
                Self::Unpolled(millis(long * times), rng.bool())
            }
        }
    }

    fn patience(self) -> Patience {
        match self {
            Self::Try => Patience::None,
            Self::TryFor(limit) if limit.is_zero() => Patience::None,
            Self::TryFor(limit) => Patience::For(limit),
            _ => Patience::Endless,
        }
    }
}

/// What a caller asks for.
#[derive(Clone)]
pub struct Wanted {
    pub handle: Handle,
    pub names: Vec<usize>,
    pub owner: String,
    pub lease: Option<Duration>,
    pub part: u64,
    pub of: u64,
    pub queued: bool,
    /// The token of the hold within which it is asked for, and when Redis first confirmed that. If that hold is lost by then, this one
    /// is a new grant.
    pub within: Option<(u64, u64)>,
}

/// A call on the board, until it has its answer or is given up.
pub struct Asking(u64);

impl Asking {
    pub fn new(call: &Call) -> Self {
        Self(board::with(|board| board.call(call.clone())))
    }

    fn answered(&self, outcome: &'static str) {
        board::with(|board| {
            if let Some(call) = board.calls.get_mut(&self.0) {
                call.outcome = outcome;
            }
        });
    }

    fn unpolled(&self) -> Parked {
        board::with(|board| board.park(self.0, true));
        Parked(self.0)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        board::with(|board| board.called(self.0));
    }
}

struct Parked(u64);

impl Drop for Parked {
    fn drop(&mut self) {
        board::with(|board| board.park(self.0, false));
    }
}

/// Names that somebody gives back, as long as it has heard no answer.
pub struct Returning(u64);

impl Returning {
    pub fn new(names: &[usize]) -> Self {
        Self(board::with(|board| board.returning(names)))
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        board::with(|board| board.returned(self.0));
    }
}

/// A writer of this seat that is becoming a reader.
struct Downgrading(u64);

impl Downgrading {
    fn new(seat: u64) -> Self {
        board::with(|board| board.downgrading.push(seat));
        Self(seat)
    }
}

impl Drop for Downgrading {
    fn drop(&mut self) {
        board::with(|board| {
            let at = board.downgrading.iter().position(|seat| *seat == self.0);
            at.map(|at| board.downgrading.swap_remove(at));
        });
    }
}

/// A guard with its claim on the board.
pub struct Holding {
    claims: Vec<u64>,
    /// When Redis first confirmed it, at the latest.
    pub confirmed: u64,
    view: Option<Arc<Held>>,
    pub call: Call,
    pub wanted: Wanted,
}

impl Home {
    /// Asks, and holds what it gets.
    pub async fn ask(&self, seat: &Arc<Seat>, wanted: &Wanted, manner: Manner) -> Option<Holding> {
        let call = self.call(seat, wanted, manner.patience());
        let asking = Asking::new(&call);
        let paused = board::with(|board| board.paused.get(&self.process).copied().unwrap_or(0));
        let started = Instant::now();
        let answer = put(&wanted.handle, manner, &asking).await;
        match &answer {
            Some(Ok(Some(_))) => asking.answered("granted"),
            Some(Ok(None)) if call.patience == Patience::None => asking.answered("none"),
            Some(Ok(None)) => asking.answered("timeout"),
            _ => {}
        }
        drop(asking);
        if !matches!(answer, Some(Ok(_))) {
            board::with(|board| board.unanswered(&call));
        }
        let paused =
            board::with(|board| board.paused.get(&self.process).copied().unwrap_or(0)) - paused;
        let took = nanos(started.elapsed()).saturating_sub(paused);
        let held = self.answered(&call, manner, answer?, took)?;
        Some(self.hold(call, wanted.clone(), held))
    }

    pub fn call(&self, seat: &Seat, wanted: &Wanted, patience: Patience) -> Call {
        Call {
            process: self.process,
            seat: seat.id,
            caller: wanted.owner.clone(),
            names: wanted.names.clone(),
            is_of_several: matches!(wanted.handle, Handle::Several(_)),
            patience,
            since: clock::now(),
            order: board::with(|board| board.next_id()),
            parked: false,
            polled: clock::now(),
            lapsed: false,
            part: wanted.part,
            of: wanted.of,
            outcome: "unknown",
        }
    }

    /// Goes on as a reader.
    pub async fn downgrade(&self, mut writing: Holding, reading: Wanted) -> Option<Holding> {
        let call = Call { since: clock::now(), part: 1, ..writing.call.clone() };
        let _returning = Returning::new(&reading.names);
        let _downgrading = Downgrading::new(call.seat);
        let was_valid = writing.end();
        let Some(Held::Write(guard)) = writing.view.take().and_then(Arc::into_inner) else {
            board::wrong("the simulation itself", "a writer's guard that ends is shared");
            return None;
        };
        match guard.downgrade().await {
            Ok(guard) => Some(self.hold(call, reading, Held::One(guard))),
            Err(error) => {
                writing.unlocked(&Err(error), 0, was_valid);
                None
            }
        }
    }

    /// Puts a new hold on the board.
    pub fn hold(&self, call: Call, wanted: Wanted, held: Held) -> Holding {
        let (tokens, view) = (held.tokens(), Arc::new(held));
        let (mut claims, mut confirmed) = (Vec::new(), clock::now());
        for (name, token) in wanted.names.iter().zip(tokens) {
            let terms = Terms {
                call: Call { names: vec![*name], ..call.clone() },
                lock: self.plan.names[*name].label(),
                owner: wanted.owner.clone(),
                lease: wanted.lease.unwrap_or(self.setup().watchdog),
                claim: self.setup().claim,
                fixed: wanted.lease.is_some() || self.setup().max_hold,
                rate: self.setup().rate,
                session: self.setup().session,
                // In the native layout a message may have granted a plain lock too.
                queued: wanted.queued || self.plan.layout == Layout::Native,
                confirmed: wanted.within.filter(|(of, _)| *of == token).map(|(_, first)| first),
                fair: self.plan.layout == Layout::Native
                    && self.plan.names[*name].kind == Kind::Fair,
                turns: self.plan.names[*name].kind == Kind::Lock && wanted.names.len() == 1,
                token,
            };
            let (claim, sent) = board::begin(terms, &view);
            claims.push(claim);
            confirmed = sent;
        }
        Holding { claims, confirmed, view: Some(view), call, wanted }
    }

    /// An answer must not say more than its client can know.
    fn answered(
        &self,
        call: &Call,
        manner: Manner,
        answer: Result<Option<Held>>,
        took: u64,
    ) -> Option<Held> {
        self.in_time(call, took);
        board::with(|board| {
            if board.calm_since(call.since) {
                board.judged("calls");
            }
        });
        match answer {
            Ok(Some(held)) => return Some(held),
            Ok(None) => self.refused(call, manner),
            Err(error) => self.failed(call, manner, &error),
        }
        None
    }

    fn in_time(&self, call: &Call, took: u64) {
        let setup = self.setup();
        let limit = match call.patience {
            Patience::Endless => return,
            // One answer that does not come for the connection, one for the request, one to explain a refusal.
            Patience::None => nanos(setup.response) * 3,
            Patience::For(limit) => nanos(limit) + nanos(setup.response),
        };
        board::with(|board| board.judged("limits"));
        if took > limit + 20 * MILLI {
            let (took, limit) = (took / MILLI, limit / MILLI);
            let what = format!("{} took {took} ms, its limit is {limit} ms", call.caller);
            board::wrong("a call outlived its limit", what);
        }
    }

    /// `None` says that somebody else has it, or is to have it.
    fn refused(&self, call: &Call, manner: Manner) {
        board::reached(if matches!(manner, Manner::Try) { "try: busy" } else { "limit: busy" });
        let quiet = 3 * SECOND + self.plan.longest(|client| client.watchdog);
        let alone = board::with(|board| {
            let calm = call.since > quiet && board.calm_since(call.since - quiet);
            if calm {
                board.judged("None");
            }
            calm && board.is_alone(call, quiet)
        });
        if alone {
            let what = format!(
                "{} of {:?}, called at {}",
                call.caller,
                call.names,
                call.since as f64 / 1e9
            );
            board::wrong("None though nobody else has it", what);
        }
    }

    /// An error must have a cause.
    pub fn failed(&self, call: &Call, manner: Manner, error: &Error) {
        heard(error);
        let closing = board::with(|board| board.is_closing(call.seat));
        let passing = matches!(error, Error::Unavailable { .. } | Error::Indeterminate { .. });
        let expected = match error {
            Error::Closed => closing,
            Error::TooManyWaiters { limit } => self.is_crowded(call, manner, *limit),
            Error::Upgrade { .. } | Error::TooManyHolds { .. } => true,
            // Its outer hold ended by its own lease while it asked for more within it.
            Error::Lost { .. } if board::with(|board| board.has_lost(&call.caller)) => true,
            // In Redisson's layout, what was leased when somebody deleted the leases is free for nobody, until the
            // number is set again.
            Error::InvalidPermits { .. } if self.plan.layout == Layout::Redisson => {
                !board::with(|board| board.is_kept(0))
            }
            // Another database of keys may have come back with an older state of a name.
            // A caller that leaves the server no time to answer is told that there was no answer.
            Error::Unavailable { .. } | Error::Indeterminate { .. } if self.is_hasty(call) => true,
            // Its own time ran out while it was not polled: a nested request has a limit of its own.
            Error::Unavailable { .. } if matches!(manner, Manner::Unpolled(..)) => true,
            _ => closing || !board::with(|board| board.calm_since(call.since)),
        };
        if !expected {
            let what = format!("{} of {:?}: {error:?}", call.caller, call.names);
            board::wrong("an error without a cause", what);
        }
        // What too few replicas have was granted, and is given back in the background. A call that has ridden out an outage
        // may still have a request without an answer. The client's clock may be one in a hundred faster than ours.
        let ride_out = nanos(self.setup().ride_out) / 100 * 98;
        let has_ridden_out = clock::now() - call.since >= ride_out;
        if passing
            && !has_ridden_out
            && self.plan.acks == 0
            && let Error::Unavailable { .. } = error
        {
            let (seat, caller) = (call.seat, call.caller.clone());
            let ask =
                |name: &usize| Question::Unchanged { seat, name: *name, caller: caller.clone() };
            let questions: Vec<_> = call.names.iter().map(ask).collect();
            board::with(|board| board.questions.extend(questions));
        }
    }

    /// Whether the limit of this call may have left the server no time to answer its own request.
    fn is_hasty(&self, call: &Call) -> bool {
        let answer = 8 * self.setup().way.1 + 10 * MILLI;
        // It may have to make a connection first, or to wait for the requests of others and their replicas.
        let connecting = board::with(|board| board.connects_for);
        let acks = if self.plan.acks > 0 { answer } else { 0 };
        let answer = answer + connecting + acks;
        let Patience::For(limit) = call.patience else { return false };
        nanos(limit) < answer || board::with(|board| board.is_behind_silence(call))
    }

    /// Whether so many callers wait in this client, and this one has only come. A `MultiLock` comes anew for each lock
    /// that it waits for, and a caller that was left unpolled comes when it is polled again. Where there are several servers,
    /// the first call for one of them makes the connection that it needs, and comes only then.
    fn is_crowded(&self, call: &Call, manner: Manner, limit: usize) -> bool {
        let (ways, slack) = match self.plan.topology {
            Topology::One => (4, 20 * MILLI),
            _ => (24, 300 * MILLI),
        };
        let come = call.since + ways * self.setup().way.1 + slack;
        let comes_once = !call.is_of_several && !matches!(manner, Manner::Unpolled(..));
        if comes_once && clock::now() > come && board::with(|board| board.calm_since(call.since)) {
            let waited = (clock::now() - call.since) / MILLI;
            board::wrong(
                "TooManyWaiters for a caller that already waits",
                format!("{} for {waited} ms", call.caller),
            );
        }
        let waiting = board::with(|board| {
            let calls = board.calls.values().map(|other| other.seat);
            calls.chain(board.downgrading.iter().copied()).filter(|seat| *seat == call.seat).count()
        });
        limit == self.setup().max_waiters && waiting >= limit
    }
}

/// Asks in one of the ways; `None` if the caller gave up without an answer.
async fn put(handle: &Handle, manner: Manner, asking: &Asking) -> Option<Result<Option<Held>>> {
    match manner {
        Manner::Lock => Some(handle.lock().await.map(Some)),
        Manner::Try => Some(handle.try_lock().await),
        Manner::TryFor(limit) => Some(handle.try_lock_for(limit).await),
        Manner::Cancelled(limit) => {
            let answer = timeout(limit, handle.lock()).await.ok();
            if answer.is_none() {
                board::reached("cancelled in time");
            }
            answer.map(|held| held.map(Some))
        }
        Manner::Polled(times) => {
            let answer = Polls { future: Box::pin(handle.lock()), left: times }.await;
            if answer.is_none() {
                board::reached("cancelled between polls");
            }
            answer.map(|held| held.map(Some))
        }
        Manner::Unpolled(long, returns) => {
            let mut future = Box::pin(handle.lock());
            if let Some(answer) = Once(future.as_mut()).await {
                return Some(answer.map(Some));
            }
            let parked = asking.unpolled();
            sleep(long).await;
            board::reached("left unpolled");
            if !returns {
                drop(future);
                return None;
            }
            drop(parked);
            Some(future.await.map(Some))
        }
    }
}

/// A future that is dropped when it has been polled so often.
pub struct Polls<F> {
    pub future: Pin<Box<F>>,
    pub left: u32,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.left -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// A future that is polled once.
struct Once<'a, F>(Pin<&'a mut F>);

impl<F: Future> Future for Once<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        }
    }
}

/// Counts an error that a caller was given.
pub fn heard(error: &Error) {
    let words = format!("{error:?}");
    let name = words.split([' ', '{', '(']).next().unwrap_or_default();
    board::reached(&format!("error: {name}"));
}

impl Holding {
    pub fn view(&self) -> &Arc<Held> {
        self.view.as_ref().expect("it is taken at the end only")
    }

    /// So long, or until it is lost.
    pub async fn stay(&self, long: Duration) {
        let view = Arc::clone(self.view());
        tokio::select! {
            _ = view.ended() => board::reached("stopped by lost()"),
            () = sleep(long) => {}
        }
    }

    /// Asks for more time. Only a hold that is lost may be refused it in calm times.
    pub async fn extend(&self, lease: Duration) {
        let (since, seat) = (clock::now(), self.call.seat);
        let answer = self.view().extend(lease).await;
        let troubled = board::with(|board| {
            let troubled = board.is_closing(seat) || !board.calm_since(since);
            if !troubled {
                board.judged("extend");
            }
            troubled
        });
        let Err(error) = answer else { return board::reached("extended") };
        heard(&error);
        if self.view().is_valid() && (matches!(error, Error::Lost { .. }) || !troubled) {
            let what = format!("extend of {}: {error:?}", self.wanted.owner);
            board::wrong("an error without a cause", what);
        }
    }

    /// Whether it was valid to the end.
    fn end(&mut self) -> bool {
        let claims = std::mem::take(&mut self.claims);
        claims.iter().filter(|claim| board::end(**claim)).count() == claims.len()
    }

    /// Forgets the guard: it is never dropped. The board goes on looking at it.
    pub fn forget(mut self) {
        board::reached("guard forgotten");
        self.claims.clear();
        std::mem::forget(self.view.take());
    }

    /// Gives it back, and hears the answer unless it is left alone after so many polls.
    pub async fn unlock(mut self, polls: u32) {
        let _returning = Returning::new(&self.wanted.names);
        let (token, was_valid) = (self.view().token(), self.end());
        let Some(held) = self.view.take().and_then(Arc::into_inner) else {
            return board::wrong("the simulation itself", "a guard that ends is shared");
        };
        let single = self.wanted.names.len() == 1 && was_valid && self.wanted.within.is_none();
        let unlock = single.then(|| board::with(|board| board.unlock(&self.call, token)));
        let Some(answer) = Polls { future: Box::pin(held.unlock()), left: polls }.await else {
            return board::reached("unlock cancelled");
        };
        if let Some(unlock) = unlock {
            board::with(|board| board.unlocked(unlock, answer.is_ok()));
        }
        self.unlocked(&answer, token, was_valid);
    }

    fn unlocked(&self, answer: &Result<()>, token: u64, was_valid: bool) {
        let Err(error) = answer else { return };
        heard(error);
        let (seat, since) = (self.call.seat, clock::now());
        let (closing, calm) =
            board::with(|b| (b.is_closing(seat), b.calm_since(since.saturating_sub(SECOND))));
        if matches!(error, Error::Lost { .. }) && was_valid && !closing {
            board::with(|board| board.said_lost(&self.wanted.owner, token));
        }
        let known = matches!(
            error,
            Error::Lost { .. } | Error::Indeterminate { .. } | Error::Unavailable { .. }
        );
        if !known {
            board::wrong(
                "an error that unlock does not promise",
                format!("{}: {error:?}", self.wanted.owner),
            );
        } else if calm && was_valid && !closing {
            board::wrong(
                "an error without a cause",
                format!("unlock of {}: {error:?}", self.wanted.owner),
            );
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.end();
        self.view = None;
    }
}
