//! What all processes have said and what the world has done to them: the judge reads it, and nobody under test does.
//!
//! The whole world runs on one thread, so that the board is that thread's.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::clock;
use crate::held::Held;
use crate::judge::{Break, Claim};
use crate::plan::nanos;
use crate::process::in_world;
use crate::steps;
use crate::trace;

/// A nested hold that asks for the rest of a lease brings its deadline nearer to the expiry. By this much, a deadline
/// may be later than its last confirmation plus the lease.
const SLACK: u64 = 30 * clock::MILLI;

/// Who has called so much earlier stands before others in the queue, however far away it is.
const EARLIER: u64 = 60 * clock::MILLI;

/// A rule that was broken.
#[derive(Debug, Clone)]
pub struct Wrong {
    pub rule: &'static str,
    pub what: String,
    pub at: u64,
}

/// How somebody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    None,
    For(Duration),
    Endless,
}

/// A caller that asks for something and has no answer yet.
#[derive(Debug, Clone)]
pub struct Call {
    pub process: usize,
    pub seat: u64,
    pub caller: String,
    /// Which names of the plan: one, or those of a lock on several.
    pub names: Vec<usize>,
    /// Whether it is that of a `MultiLock`, perhaps of one name.
    pub is_of_several: bool,
    pub patience: Patience,
    pub since: u64,
    /// What came before it, and what after, also at the same moment.
    pub order: u64,
    /// Its future is not being polled.
    pub parked: bool,
    /// Since when it is polled, if it is.
    pub polled: u64,
    /// It was not polled for some time: its place may be over.
    pub lapsed: bool,
    /// How much it asks for, of how much there is.
    pub part: u64,
    pub of: u64,
    /// What it was told, as far as is known.
    pub outcome: &'static str,
}

/// What the judge is told of a hold when it begins.
#[derive(Debug, Clone)]
pub struct Terms {
    pub call: Call,
    pub lock: String,
    pub owner: String,
    pub lease: Duration,
    /// What a message grants lasts no longer than this.
    pub claim: Duration,
    /// It is not renewed.
    pub fixed: bool,
    /// How fast its process' clock goes.
    pub rate: u64,
    /// The grace of the session with which it ends.
    pub session: Option<Duration>,
    /// A message may have granted it, longer after its request than an answer comes.
    pub queued: bool,
    /// A nested hold was confirmed when its outer one was.
    pub confirmed: Option<u64>,
    pub token: u64,
    /// First come, first served.
    pub fair: bool,
    /// Its tokens count the turns within a client.
    pub turns: bool,
}

struct Live {
    claim: Claim,
    view: Arc<Held>,
    terms: Terms,
}

/// A release that is being said, and what Redis had of it when it began.
#[derive(Debug)]
struct Unlock {
    process: usize,
    seat: u64,
    name: usize,
    began: u64,
    /// When Redis had last confirmed the hold.
    confirmed: u64,
    present: Option<bool>,
    /// What it said, and when.
    said_ok: Option<(bool, u64)>,
    token: u64,
}

/// Something that only the world can look up.
#[derive(Debug, Clone)]
pub enum Question {
    /// Whether Redis has anything of this seat, before a release is sent.
    Present { unlock: u64, seat: u64, name: usize },
    /// So often Redis counts the one hold of this seat.
    Counted { seat: u64, name: usize, holds: u64 },
    /// A call said that nothing was changed.
    Unchanged { seat: u64, name: usize, caller: String },
    /// `close` of this seat has returned.
    Closed { process: usize, seat: u64 },
}

#[derive(Default)]
pub struct Board {
    next: u64,
    pub calls: BTreeMap<u64, Call>,
    /// Those that have come to their end and were not granted, and when: for a history.
    pub ungranted: Vec<(Call, u64)>,
    claims: BTreeMap<u64, Live>,
    /// How much was left of each grant when its first holder had it.
    began_with: BTreeMap<(String, u64), Duration>,
    /// Names that are being given back: until that is answered, somebody has them.
    returning: BTreeMap<u64, Vec<usize>>,
    /// The seats of writers that are becoming readers. If the write is lost meanwhile, such a caller waits like any other.
    pub downgrading: Vec<u64>,
    pub over: Vec<Claim>,
    pub wrongs: Vec<Wrong>,
    pub paths: BTreeMap<String, u64>,
    unlocks: BTreeMap<u64, Unlock>,
    pub questions: Vec<Question>,
    pub breaks: Vec<Break>,
    /// Until when a server that has been replaced may have taken writes that its successor does not have.
    pub forgotten_until: Option<u64>,
    pub restarts: Vec<u64>,
    /// When the counter of the tokens and the server's clock were both behind: it may come back lower.
    pub counters_lost: Vec<u64>,
    /// Until when a fault, anywhere or of one client, may still have effects.
    disturbed: u64,
    disturbed_clients: BTreeMap<usize, u64>,
    /// As `disturbed`, by what breaks the order of a queue for everybody.
    disordered: u64,
    /// When the server gave no answers, and until when a first one may have been late for that.
    silences: Vec<(u64, u64)>,
    /// By how much more than [`EARLIER`] a call has to come before others, to stand before them: in a cluster, it may first
    /// have to make the connection that it needs.
    pub connects_for: u64,
    /// When a name was last asked for, held, or given back by each process.
    active: BTreeMap<(usize, usize), u64>,
    progress: BTreeMap<usize, u64>,
    /// As `progress`, in the order of what happens at one moment.
    moved: BTreeMap<usize, u64>,
    /// When a hold of this name was last lost: the server's lease ends somewhat later than its holder believes.
    lost: BTreeMap<usize, u64>,
    /// Until when a caller of this seat was left unpolled at this name.
    silent: BTreeMap<(u64, usize), u64>,
    /// The clients that are open, and whose each is.
    pub seats: BTreeMap<u64, usize>,
    /// Those that were suspended when their holders gave them back.
    left_suspended: Vec<(Claim, Terms)>,
    /// When nobody was last seen to listen to each seat with a session.
    pub unheard: BTreeMap<u64, u64>,
    /// Seats that are being closed, and those that have been.
    closing: BTreeMap<u64, u64>,
    closed: BTreeSet<u64>,
    /// Seats and names of which somebody went without knowing whether its request has run, and when.
    unsure: Vec<(u64, usize, u64)>,
    /// For how long each process has been paused.
    pub paused: BTreeMap<usize, u64>,
    pub done: BTreeSet<(usize, u64)>,
    pub buffer: Buffer,
}

thread_local! {
    static BOARD: RefCell<Board> = RefCell::default();
}

pub fn with<T>(act: impl FnOnce(&mut Board) -> T) -> T {
    BOARD.with_borrow_mut(act)
}

/// A path was taken.
pub fn reached(path: &str) {
    trace::line(|| format!("          {path}"));
    with(|board| board.count(path, 1));
}

/// A rule was broken.
pub fn wrong(rule: &'static str, what: impl Into<String>) {
    with(|board| board.wrong(rule, what.into()));
}

/// A hold begins. Its number, and when Redis first confirmed it, at the latest.
pub fn begin(terms: Terms, view: &Arc<Held>) -> (u64, u64) {
    let is_suspended = terms.session.is_some() && view.is_suspended();
    with(|board| board.begin(terms, view, is_suspended))
}

/// Looks at every hold of a process, at that process' own time.
pub fn look(process: usize) {
    let in_session = with(|board| board.in_session(|_, terms| terms.call.process == process));
    let suspended = in_session.into_iter().filter(|(_, view)| view.is_suspended());
    let suspended = suspended.map(|(id, _)| id).collect();
    with(|board| board.look(process, &suspended));
}

/// The holder is about to give it back; whether it was valid to the end.
pub fn end(id: u64) -> bool {
    let in_session = with(|board| board.in_session(|one, _| one == id));
    let is_suspended = in_session.iter().any(|(_, view)| view.is_suspended());
    with(|board| board.end(id, is_suspended))
}

impl Board {
    pub fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn count(&mut self, path: &str, times: u64) {
        match self.paths.get_mut(path) {
            Some(count) => *count += times,
            None => drop(self.paths.insert(path.to_owned(), times)),
        }
    }

    /// A rule has been held against something, past all that excuses it: see `campaign::JUDGED`.
    pub fn judged(&mut self, what: &str) {
        self.count(&format!("judged: {what}"), 1);
    }

    pub fn wrong(&mut self, rule: &'static str, what: String) {
        trace::line(|| format!("WRONG     {rule}: {what}"));
        self.wrongs.push(Wrong { rule, what, at: clock::now() });
    }

    // --- Faults ---

    pub fn disturb(&mut self, until: u64, client: Option<usize>, disorders: bool) {
        self.disturbed = self.disturbed.max(until);
        let disordered = &mut self.disordered;
        match client {
            Some(client) => {
                let disturbed = self.disturbed_clients.entry(client).or_default();
                *disturbed = until.max(*disturbed);
            }
            None if disorders => *disordered = until.max(*disordered),
            None => {}
        }
    }

    /// The server gives no answers for some time.
    pub fn silence(&mut self, until: u64) {
        self.silences.push((clock::now(), until));
    }

    /// Whether a call has been told its place. Only then does it keep it: see `Client::fair_lock`. One that comes while
    /// the server is silent may give its first request up, and its next one comes behind those of others.
    fn has_place(&self, call: &Call) -> bool {
        let silent = |(from, to): &(u64, u64)| {
            call.since + EARLIER + self.connects_for > *from && call.since < *to
        };
        !self.silences.iter().any(silent)
    }

    /// Whether nothing was broken at any time since then.
    pub fn calm_since(&self, since: u64) -> bool {
        self.disturbed <= since
    }

    /// Whether nothing was broken since then that makes this client lose its place in a queue.
    pub fn ordered_since(&self, client: usize, since: u64) -> bool {
        self.disordered <= since
            && self.disturbed_clients.get(&client).is_none_or(|at| *at <= since)
    }

    pub fn disturbed_until(&self) -> u64 {
        self.disturbed
    }

    // --- Calls ---

    pub fn call(&mut self, call: Call) -> u64 {
        let id = self.next_id();
        self.touch(&call);
        self.calls.insert(id, call);
        id
    }

    pub fn called(&mut self, id: u64) {
        if let Some(call) = self.calls.remove(&id) {
            self.touch(&call);
            self.over_with(call);
        }
    }

    /// It was answered, or nobody waits for its answer any more.
    fn over_with(&mut self, call: Call) {
        if call.outcome != "granted" {
            self.ungranted.push((call, clock::now()));
        }
    }

    pub fn park(&mut self, id: u64, parked: bool) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.parked = parked;
            call.polled = clock::now();
            call.lapsed = true;
            let silent = call.names.iter().map(|name| ((call.seat, *name), clock::now()));
            self.silent.extend(silent);
        }
    }

    /// Whether a caller of the same client was left unpolled at one of the same names during this call. Its client cancels
    /// it after a while, and only then asks for the next caller.
    pub fn is_behind_silence(&self, call: &Call) -> bool {
        call.names.iter().any(|name| self.was_silent(call.seat, *name, call.since))
    }

    /// Whether a caller of this seat was left unpolled since then. Its client may have cancelled its request, which may run
    /// later all the same.
    pub fn was_silent(&self, seat: u64, name: usize, since: u64) -> bool {
        let is_silent =
            |call: &Call| call.parked && call.seat == seat && call.names.contains(&name);
        self.silent.get(&(seat, name)).is_some_and(|until| *until >= since)
            || self.calls.values().any(is_silent)
    }

    /// A caller went without an answer: its request may run yet, and is then given back in the background.
    pub fn unanswered(&mut self, call: &Call) {
        let unsure = call.names.iter().map(|name| (call.seat, *name, clock::now()));
        self.unsure.extend(unsure);
    }

    /// Whether somebody went so in this time, before now.
    pub fn is_unsure(&self, seat: u64, name: usize, since: u64) -> bool {
        let of = |(s, n, at): &(u64, usize, u64)| (*s, *n) == (seat, name) && *at >= since;
        self.unsure.iter().any(|one| of(one) && one.2 < clock::now())
    }

    fn touch(&mut self, call: &Call) {
        for name in &call.names {
            self.active.insert((*name, call.process), clock::now());
        }
    }

    /// Whether nobody but this call asks for any of its names or holds it, nor has held it since it was called, and no
    /// other process has for this long.
    pub fn is_alone(&self, call: &Call, quiet: u64) -> bool {
        let meets = |names: &[usize]| names.iter().any(|name| call.names.contains(name));
        let others = self.calls.values().filter(|other| meets(&other.names)).count();
        let holds = self.claims.values().any(|live| meets(&live.terms.call.names));
        let recent = |(name, process): &(usize, usize), at: u64| {
            call.names.contains(name) && *process != call.process && at + quiet > call.since
        };
        let moved = |name: &usize| self.moved.get(name).is_some_and(|at| *at > call.order);
        let moved = call.names.iter().any(moved);
        let was_lost = |name: &usize| self.lost.get(name).is_some_and(|at| at + quiet > call.since);
        let lost = call.names.iter().any(was_lost);
        let returning = self.returning.values().any(|names| meets(names));
        others == 0
            && !holds
            && !moved
            && !lost
            && !returning
            && !self.active.iter().any(|(key, at)| recent(key, *at))
    }

    /// When a name was last given to somebody, or given back.
    pub fn progressed(&self, name: usize) -> u64 {
        self.progress.get(&name).copied().unwrap_or(0)
    }

    fn progress(&mut self, call: &Call) {
        self.touch(call);
        let order = self.next_id();
        for name in &call.names {
            self.moved.insert(*name, order);
            self.progress.insert(*name, clock::now());
        }
    }

    /// The callers that wait for a name and are polled.
    pub fn waiting(&self, name: usize) -> impl Iterator<Item = &Call> {
        let waits = move |call: &&Call| {
            call.patience != Patience::None && call.names == [name] && !call.parked
        };
        self.calls.values().filter(waits)
    }

    /// How much all callers want of a name, of how much there is. Nothing if none of them waits.
    pub fn wanted(&self, name: usize) -> Option<(u64, u64)> {
        let of = self.waiting(name).next()?.of;
        let calls = self.calls.values().filter(|call| call.names.contains(&name));
        Some((calls.map(|call| call.part).sum(), of))
    }

    /// Since when a caller of a name is not polled.
    pub fn parked_since(&self, name: usize) -> Option<u64> {
        let parked = |call: &&Call| call.parked && call.names.contains(&name);
        self.calls.values().filter(parked).map(|call| call.polled).max()
    }

    pub fn returning(&mut self, names: &[usize]) -> u64 {
        let id = self.next_id();
        self.returning.insert(id, names.to_vec());
        id
    }

    pub fn returned(&mut self, id: u64) {
        self.returning.remove(&id);
    }

    // --- Claims ---

    /// The claims that end with a session, of those that are meant.
    fn in_session(&self, is_meant: impl Fn(u64, &Terms) -> bool) -> Vec<(u64, Arc<Held>)> {
        let meant = self
            .claims
            .iter()
            .filter(|(id, live)| live.terms.session.is_some() && is_meant(**id, &live.terms));
        meant.map(|(id, live)| (*id, Arc::clone(&live.view))).collect()
    }

    fn begin(&mut self, terms: Terms, view: &Arc<Held>, is_suspended: bool) -> (u64, u64) {
        let (id, now, rate) = (self.next_id(), clock::now(), terms.rate);
        if terms.fair {
            self.overtook(&terms.call);
        }
        self.progress(&terms.call);
        let left = view.remaining();
        let in_session = terms.session.is_some();
        if left.is_zero() && !is_suspended {
            if view.is_valid() {
                self.wrong(
                    "valid beyond its deadline",
                    format!("{} of {}", terms.owner, terms.lock),
                );
            }
            self.count("over before it was looked at", 1);
            return (id, now);
        }
        self.handed_on(&terms, left);
        steps::holds(terms.call.seat, terms.token, in_world(left, rate));
        let deadline = now + in_world(left, rate);
        let sent = deadline.saturating_sub(in_world(validity(terms.lease), rate));
        let asked = if terms.queued || in_session { now } else { sent };
        let (confirmed, token) = (terms.confirmed.unwrap_or(asked), terms.token);
        // A request of its own confirms a new grant. A tenure that was handed on was confirmed before.
        let is_first = token % 1024 == 0 && terms.confirmed.is_none();
        let handed_on = confirmed.saturating_sub(if is_first { 0 } else { SLACK });
        let last_confirmed = match (in_session, terms.queued) {
            // A deadline that a session has brought nearer does not tell when.
            (true, _) if is_first => terms.call.since,
            (false, false) => handed_on,
            _ => sent,
        };
        let claim = Claim {
            worker: format!("p{}", terms.call.process),
            lock: terms.lock.clone(),
            owner: terms.owner.clone(),
            token,
            // It may have been suspended since then.
            called: if is_suspended { now } else { terms.call.since },
            acquired: now,
            confirmed,
            last_confirmed,
            deadline,
            part: terms.call.part,
            of: terms.call.of,
            seat: terms.call.seat,
            ..Claim::default()
        };
        trace::line(|| format!("          {} holds {} with {token}", claim.owner, claim.lock));
        self.claims.insert(id, Live { claim, view: Arc::clone(view), terms });
        (id, confirmed)
    }

    /// A client does not hand on a tenure near its deadline. A third of the lease that it began with is left then;
    /// the next holder may look a little later. A grant by message began with the rest of a sign of life.
    fn handed_on(&mut self, terms: &Terms, left: Duration) {
        let grant = (terms.lock.clone(), terms.token / 1024);
        let began_with = *self.began_with.entry(grant).or_insert(left);
        let is_turn = terms.turns && !terms.token.is_multiple_of(1024) && terms.confirmed.is_none();
        let least = terms.lease.min(terms.claim).min(began_with) / 4;
        if is_turn {
            self.judged("hand-overs");
        }
        if is_turn && left + Duration::from_nanos(SLACK) < least {
            let what = format!("{} has {left:?} of {:?}", terms.owner, terms.lease);
            self.wrong("handed on near its deadline", what);
        }
    }

    /// A fair lock is granted in the order of asking, except for callers that have lost their connections or their
    /// time.
    fn overtook(&mut self, call: &Call) {
        let has_kept_place = |other: &&Call| {
            other.names == call.names
                && other.patience != Patience::None
                && !other.lapsed
                && self.has_place(other)
                && self.ordered_since(other.process, other.since)
        };
        let Some(other) =
            self.calls.values().filter(has_kept_place).min_by_key(|other| other.since)
        else {
            return;
        };
        let other = other.clone();
        self.judged("order");
        if other.since + EARLIER + self.connects_for > call.since {
            return;
        }
        let (since, before) = (call.since as f64 / 1e9, other.since as f64 / 1e9);
        let what =
            format!("{}, who called at {since}, before {}, at {before}", call.caller, other.caller);
        self.wrong("a fair lock's order", what);
    }

    /// Whether the server has kept what it had since then.
    pub fn is_kept(&self, since: u64) -> bool {
        self.forgotten_until.is_none_or(|until| until < since)
            && self.breaks.iter().all(|one| one.to < since)
    }

    fn look(&mut self, process: usize, suspended: &BTreeSet<u64>) {
        let now = clock::now();
        let (mut lost, mut resumed) = (Vec::new(), 0);
        for (id, live) in self.claims.iter_mut().filter(|(_, l)| l.terms.call.process == process) {
            let (left, is_valid) = (live.view.remaining(), live.view.is_valid());
            if left.is_zero() && is_valid {
                let what = format!("{} of {}", live.claim.owner, live.claim.lock);
                self.wrongs.push(Wrong { rule: "valid beyond its deadline", what, at: now });
            }
            if left.is_zero() || !is_valid {
                if !suspended.contains(id) {
                    lost.push(*id);
                }
                continue;
            }
            let rate = live.terms.rate;
            let (deadline, claim) = (now + in_world(left, rate), &mut live.claim);
            if deadline > claim.deadline + clock::MICRO {
                steps::holds(claim.seat, claim.token, deadline - now);
                if claim.deadline < now && live.terms.session.is_some() {
                    resumed += 1;
                }
                let sent =
                    deadline.saturating_sub(in_world(validity(live.terms.lease), rate) + SLACK);
                if sent > now {
                    let what = format!("{} was confirmed after now", claim.owner);
                    self.wrongs.push(Wrong { rule: "the simulation itself", what, at: now });
                }
                claim.last_confirmed = claim.last_confirmed.max(sent);
                claim.deadline = deadline;
            }
            if self.closed.contains(&claim.seat) {
                self.wrongs.push(Wrong {
                    rule: "a guard is valid after close",
                    what: format!("{} still holds {}", claim.owner, claim.lock),
                    at: now,
                });
                lost.push(*id);
            }
        }
        if resumed > 0 {
            self.count("valid again after it was suspended", resumed);
        }
        for id in lost {
            self.lose(id);
        }
    }

    fn lose(&mut self, id: u64) {
        let Some(mut live) = self.claims.remove(&id) else { return };
        let now = clock::now();
        self.progress(&live.terms.call);
        self.lost.extend(live.terms.call.names.iter().map(|name| (*name, now)));
        let closing = self.closing.contains_key(&live.claim.seat);
        let claim = &mut live.claim;
        claim.ended = Some(now.min(claim.deadline));
        claim.lost_at = (!closing).then_some(now);
        trace::line(|| format!("          {} lost {}", claim.owner, claim.lock));
        let is_renewed = !live.terms.fixed && live.terms.session.is_none();
        if !closing && now >= claim.deadline && is_renewed {
            self.expired(&live);
        }
        // Its holder still has the guard, and one that was forgotten is kept for ever.
        self.over.push(live.claim);
    }

    /// A hold that is renewed may run out for a cause only.
    fn expired(&mut self, live: &Live) {
        let Live { claim, terms, .. } = live;
        if self.calm_since(claim.deadline.saturating_sub(2 * nanos(terms.lease))) {
            self.wrong("lost without a cause", format!("{} of {}", claim.owner, claim.lock));
        }
        self.count("a watched lease ran out", 1);
    }

    /// The server has told a client that it has this no more. A hold that ends with a session is taken from a client that nobody hears
    /// only.
    pub fn gone(&mut self, token: u64) {
        let live = self.claims.values().map(|live| (&live.claim, &live.terms));
        let left = self.left_suspended.iter().map(|(claim, terms)| (claim, terms));
        let Some((claim, terms)) = live.chain(left).find(|(claim, _)| claim.token == token) else {
            return;
        };
        let Some(grace) = terms.session.filter(|_| !terms.fixed) else { return };
        // What a message grants lasts no longer than a sign of life, until the client confirms it.
        let is_confirmed = claim.deadline > claim.acquired + nanos(terms.claim);
        let may_be_over = clock::now() + 2 * clock::SECOND > nanos(terms.lease);
        if !is_confirmed || may_be_over {
            return;
        }
        let heard = claim.deadline.saturating_sub(nanos(grace));
        let was_heard = self.unheard.get(&claim.seat).is_none_or(|at| *at < heard);
        let what = format!("{} of {}", claim.owner, claim.lock);
        self.judged("taken");
        if was_heard {
            self.wrong("taken from a client that could be heard", what);
        }
    }

    fn end(&mut self, id: u64, is_suspended: bool) -> bool {
        let Some(mut live) = self.claims.remove(&id) else { return false };
        let now = clock::now();
        self.progress(&live.terms.call);
        let valid = live.view.is_valid();
        live.claim.ended = Some(if valid { now } else { now.min(live.claim.deadline) });
        if !valid && !is_suspended && !self.closing.contains_key(&live.claim.seat) {
            live.claim.lost_at = Some(now);
        }
        self.over.push(live.claim.clone());
        if is_suspended {
            self.left_suspended.push((live.claim, live.terms));
        }
        valid
    }

    /// It was valid to the end, and then the release said that it had been lost before.
    pub fn said_lost(&mut self, owner: &str, token: u64) {
        let same = |claim: &&Claim| claim.owner == owner && claim.token == token;
        let Some(acquired) = self.over.iter().rev().find(same).map(|claim| claim.acquired) else {
            return;
        };
        // A guard of several locks is lost as a whole.
        for claim in self.over.iter_mut().filter(|c| c.owner == owner && c.acquired == acquired) {
            claim.lost_at = Some(clock::now());
        }
    }

    /// Whether this owner has lost something.
    pub fn has_lost(&self, owner: &str) -> bool {
        self.over.iter().rev().any(|claim| claim.owner == owner && claim.lost_at.is_some())
    }

    /// A process has crashed: its holds end with it. Their guards are never dropped.
    pub fn crashed(&mut self, process: usize) {
        let now = clock::now();
        let of = |live: &Live| live.terms.call.process == process;
        let ids: Vec<u64> = self.claims.iter().filter(|(_, l)| of(l)).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(mut live) = self.claims.remove(&id) else { continue };
            live.claim.ended = Some(now.min(live.claim.deadline));
            live.claim.by_kill = true;
            self.over.push(live.claim);
        }
        let (gone, kept) = mem::take(&mut self.calls)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, call)| call.process == process);
        self.calls = kept;
        gone.into_values().for_each(|call| self.over_with(call));
        self.seats.retain(|_, of| *of != process);
    }

    // --- Releases and closing ---

    pub fn unlock(&mut self, call: &Call, token: u64) -> u64 {
        let (id, name) = (self.next_id(), call.names[0]);
        let (process, seat) = (call.process, call.seat);
        let (present, said_ok) = (None, None);
        let began = clock::now();
        let of = |claim: &&Claim| claim.seat == seat && claim.token == token;
        let live = self.claims.values().map(|live| &live.claim);
        // The claim of the guard that is given back has just ended.
        let claim = live.chain(self.over.iter().rev()).find(of);
        let confirmed = claim.map_or(began, |claim| claim.last_confirmed);
        let unlock = Unlock { process, seat, name, began, confirmed, present, said_ok, token };
        self.unlocks.insert(id, unlock);
        self.questions.push(Question::Present { unlock: id, seat, name });
        id
    }

    pub fn unlocked(&mut self, id: u64, ok: bool) {
        if let Some(unlock) = self.unlocks.get_mut(&id) {
            unlock.said_ok = Some((ok, clock::now()));
        }
        self.compare(id);
    }

    pub fn present(&mut self, id: u64, present: bool) {
        if let Some(unlock) = self.unlocks.get_mut(&id) {
            unlock.present = Some(present);
        }
        self.compare(id);
    }

    /// "Ok" means that it was ours until then: Redis must have known of it when the release began.
    fn compare(&mut self, id: u64) {
        let done = |unlock: &Unlock| unlock.present.is_some() && unlock.said_ok.is_some();
        if !self.unlocks.get(&id).is_some_and(done) {
            return;
        }
        let Some(unlock) = self.unlocks.remove(&id) else { return };
        // A client that hands a lock on does not ask Redis, so that takes no time: see `Guard::unlock`.
        let told = unlock.said_ok.is_some_and(|(ok, at)| ok && at > unlock.began);
        // A release whose answer was lost is repeated. If Redis has forgotten the lock since it was last confirmed, the
        // repetition finds what it would find after the first: docs/guarantees.md, H2.
        let since = unlock.confirmed.min(unlock.began.saturating_sub(clock::SECOND));
        let forgotten = self.breaks.iter().any(|one| one.to >= since);
        if told && !forgotten {
            self.judged("unlock");
        }
        if unlock.present == Some(false) && told && !forgotten {
            let Unlock { process, seat, name, token, began, .. } = unlock;
            let began = began as f64 / 1e9;
            self.wrong(
                "unlock said Ok of a lock that Redis did not have",
                format!("p{process} seat {seat} name {name} token {token}, begun at {began}"),
            );
        }
    }

    pub fn close(&mut self, seat: u64) {
        self.seats.remove(&seat);
        self.closing.insert(seat, clock::now());
    }

    pub fn closed(&mut self, process: usize, seat: u64) {
        self.closed.insert(seat);
        self.questions.push(Question::Closed { process, seat });
    }

    pub fn is_closing(&self, seat: u64) -> bool {
        self.closing.contains_key(&seat)
    }

    /// Whether a seat has anything to do with a name, or had in this time.
    pub fn uses(&self, seat: u64, (name, lock): (usize, &str), since: u64) -> bool {
        let asks = self.calls.values().any(|c| c.seat == seat && c.names.contains(&name));
        let ended = |claim: &Claim| {
            claim.seat == seat && claim.lock == lock && claim.ended.unwrap_or(u64::MAX) > since
        };
        let holds = self
            .claims
            .values()
            .any(|l| l.claim.seat == seat && l.terms.call.names.contains(&name));
        asks || holds || self.over.iter().rev().take(200).any(ended)
    }

    /// When the last hold of a seat ended, of those that ended of late.
    pub fn last_use(&self, seat: u64, lock: &str) -> u64 {
        let of_both = |claim: &&Claim| claim.seat == seat && claim.lock == lock;
        self.over
            .iter()
            .rev()
            .take(200)
            .filter(of_both)
            .filter_map(|claim| claim.ended)
            .max()
            .unwrap_or(0)
    }

    /// Whether a seat asks for a name, holds it, or anybody gives it back.
    pub fn is_in_use(&self, seat: u64, name: usize) -> bool {
        let asks = |call: &Call| call.seat == seat && call.names.contains(&name);
        self.calls.values().any(asks)
            || self.claims.values().any(|live| asks(&live.terms.call))
            || self.returning.values().any(|names| names.contains(&name))
    }

    /// Takes the claims that nobody has ended: their world is over.
    pub fn take_open(&mut self) -> Vec<Claim> {
        let open = mem::take(&mut self.claims);
        open.into_values().map(|live| live.claim).collect()
    }
}

/// How long after a request was sent its lease may be believed: the library's own rule, said once more.
pub fn validity(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}
