//! One client: its callers, the real [`Waiting`] of each of its contenders, and a driver that does what `caller/contend.rs`,
//! `entry.rs` and `job.rs` do with futures and links.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::lifetime::deadline;
use crate::core::waiting::model_check::behind::Behind;
use crate::core::waiting::model_check::keeping::Keeping;
use crate::core::waiting::model_check::request::{Answer, Request, tick_request};
use crate::core::waiting::model_check::server::{
    AcquireOptions, Call, Field, Ids, Reply, Terms, Word,
};
use crate::core::waiting::model_check::{Action, Mutation, PARK, TTL};
use crate::core::waiting::pace::Pace;
use crate::core::waiting::{Event, Next, PushedGrant, Rules, SIGNS, Waiting};
use crate::keys::TenureId;

/// A tick, and the rules in ticks.
const TICK: Duration = Duration::from_millis(300);

/// After so many signs of life, the pause of a contender that rests is `max_park`.
const MOST_SIGNS: u32 = SIGNS + PARK.unsigned_abs().next_power_of_two().ilog2();

/// What a [`Waiting`] knows, with times in ticks from now: so states that differ only in absolute time are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Known {
    pub(crate) id: u8,
    pub(crate) place: u8,
    pub(crate) stands: bool,
    pub(crate) near: bool,
    pub(crate) under_way: bool,
    pub(crate) signed: Option<i8>,
    pub(crate) told: Option<(u8, i8)>,
    pub(crate) ask_at: Option<i8>,
    look_at: Option<i8>,
    rests: bool,
    signs: u8,
}

/// Converts instants to ticks and back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    now: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        // Far enough from the earliest instant that earlier ones exist.
        Self { now: Instant::now() + Duration::from_secs(3600) }
    }

    fn moment(self, ticks: i8) -> Instant {
        let by = TICK * u32::from(ticks.unsigned_abs());
        if ticks < 0 { self.now - by } else { self.now + by }
    }

    /// The first tick that is not before this moment.
    fn ticks(self, moment: Instant) -> i8 {
        let ticks =
            |duration: Duration| i8::try_from(duration.as_millis() / 300).unwrap_or(i8::MAX);
        match moment.checked_duration_since(self.now) {
            Some(ahead) => ticks(ahead + TICK - Duration::from_millis(1)),
            None => -ticks(self.now - moment),
        }
    }

    /// Whether the client may still believe a grant of this length that it requested at this time.
    pub(crate) fn is_believed(self, sent: i8, lease: i8) -> bool {
        deadline(self.moment(sent), TICK * u32::from(lease.unsigned_abs())) > self.now
    }
}

impl Known {
    fn of(line: &Waiting, clock: Clock, terms: Terms) -> Self {
        // All callers of this world ask for the same lease.
        let Waiting { id, place, stands, near, under_way, signed, told, .. } = line.clone();
        let Waiting { ask_at, look_at, rests, signs, .. } = line.clone();
        // Further signs change nothing. If no contender rests, their number does not matter.
        let most_signs = if terms.rests { MOST_SIGNS } else { 0 };
        let small = |number: u64| u8::try_from(number).expect("the world is small");
        Self {
            id: small(id.0),
            place: small(place),
            stands,
            near,
            under_way,
            signed: signed.map(|at| clock.ticks(at)),
            told: told.map(|grant| (small(grant.id.0), clock.ticks(grant.signed))),
            ask_at: ask_at.map(|at| clock.ticks(at)),
            look_at: look_at.map(|at| clock.ticks(at)),
            rests,
            signs: small(u64::from(signs.min(most_signs))),
        }
    }

    fn line(&self, clock: Clock) -> Waiting {
        let told = |(id, signed)| PushedGrant {
            id: TenureId(u64::from(id)),
            number: 1,
            signed: clock.moment(signed),
        };
        Waiting {
            rests: self.rests,
            signs: u32::from(self.signs),
            id: TenureId(u64::from(self.id)),
            place: u64::from(self.place),
            stands: self.stands,
            near: self.near,
            under_way: self.under_way,
            signed: self.signed.map(|at| clock.moment(at)),
            told: self.told.map(told),
            doubted: false,
            ask_at: self.ask_at.map(|at| clock.moment(at)),
            look_at: self.look_at.map(|at| clock.moment(at)),
            pushed_lease: Duration::MAX,
            // Messages are few in these worlds.
            pace: Pace::default(),
        }
    }

    fn tick(&mut self) {
        let earlier = |time: &mut i8, least: i8| *time = (*time - 1).max(least);
        self.signed.iter_mut().for_each(|time| earlier(time, -PARK - TTL));
        self.told.iter_mut().for_each(|(_, time)| earlier(time, -PARK - TTL));
        // An overdue time counts as now.
        self.ask_at.iter_mut().for_each(|time| earlier(time, 0));
        self.look_at.iter_mut().for_each(|time| earlier(time, 0));
    }
}

/// What the one contender or holder of an entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Free,
    /// Until then, or until an event.
    Parked(i8),
    Asking {
        old: Option<u8>,
    },
    /// Its request was not answered. It pauses before it asks again.
    Riding,
    Holding(Tenure),
    /// It asks without waiting, perhaps again after the holder with this owner field was told.
    Trying {
        id: u8,
        after: Option<Field>,
    },
    /// It was refused, and pauses before it asks once more.
    Refused {
        by: Field,
    },
    /// It releases the lock, and keeps the permit until the answer comes.
    Leaving {
        id: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tenure {
    pub(crate) id: u8,
    /// When the tenure is over, by the client's own account.
    pub(crate) ends: i8,
    pub(crate) renew_at: i8,
    pub(crate) renewing: bool,
    /// For how many ticks its holder holds it, or its client keeps it idle.
    pub(crate) rest: i8,
    /// No caller holds it.
    pub(crate) is_idle: bool,
    /// The callers that it was handed on to, and that still stand in line.
    pub(crate) served: Ids,
}

/// What a client knows of one lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(crate) line: Option<Known>,
    /// Callers that have not arrived yet, and callers that wait for the permit within the client.
    pub(crate) fresh: u8,
    pub(crate) queued: u8,
    pub(crate) stage: Stage,
    /// The owner field under which its caller lined up first.
    pub(crate) entry: u8,
    pub(crate) behind: Behind,
    /// A tenure that the caller right ahead in the line has left to this one.
    pub(crate) left: Option<Tenure>,
}

impl Spot {
    fn new(callers: u8) -> Self {
        Self {
            line: None,
            fresh: callers,
            queued: 0,
            stage: Stage::Free,
            entry: 0,
            behind: Behind::Nobody,
            left: None,
        }
    }

    /// The tenure that its caller holds, or that was left to it.
    pub(crate) fn tenure(&mut self) -> Option<&mut Tenure> {
        match &mut self.stage {
            Stage::Holding(tenure) => Some(tenure),
            _ => self.left.as_mut(),
        }
    }

    pub(crate) fn contends(&self) -> bool {
        matches!(self.stage, Stage::Parked(_) | Stage::Asking { .. } | Stage::Riding)
    }

    fn is_far(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.stands && !line.near)
    }
}

/// A background job: something to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) id: u8,
    /// The connection on which the acquire was sent that may run late.
    ghost_of: Option<u8>,
    until: i8,
    state: JobState,
    served: Ids,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JobState {
    Due,
    Sent,
    Postponed,
}

/// Whether messages reach a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ears {
    Closed,
    /// Subscribing, for the first time or again.
    Opening,
    Open,
    /// The connection is lost, and the client has not noticed.
    Cut,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) number: u8,
    pub(crate) gone: bool,
    /// It is paused for at most this many ticks.
    pub(crate) paused: i8,
    pub(crate) ears: Ears,
    /// For how many ticks it may be deaf.
    pub(crate) deaf: i8,
    pub(crate) keeping: Keeping,
    generation: u8,
    next_id: u8,
    /// Requests that have not run, and answers and messages that have not arrived; for how many ticks they may be late.
    pub(crate) up: Vec<Request>,
    pub(crate) up_is_slow: i8,
    pub(crate) down: Vec<Answer>,
    pub(crate) down_is_slow: i8,
    pub(crate) messages: Vec<Vec<Word>>,
    pub(crate) messages_are_slow: i8,
    pub(crate) spots: Vec<Spot>,
    pub(crate) jobs: Vec<Job>,
    speaker: Option<u8>,
}

/// A client with what it needs to move.
pub(crate) struct Driver<'a> {
    pub(crate) client: &'a mut Client,
    pub(crate) terms: Terms,
    pub(crate) clock: Clock,
}

impl Client {
    pub(crate) fn new(number: u8, spots: usize, callers: u8) -> Self {
        let spot = Spot::new(callers);
        Self {
            number,
            gone: false,
            paused: 0,
            ears: Ears::Closed,
            deaf: 0,
            keeping: Keeping::default(),
            generation: 0,
            next_id: 1,
            up: Vec::new(),
            up_is_slow: 0,
            down: Vec::new(),
            down_is_slow: 0,
            messages: Vec::new(),
            messages_are_slow: 0,
            spots: vec![spot; spots],
            jobs: Vec::new(),
            speaker: None,
        }
    }

    pub(crate) fn field(&self, id: u8) -> Field {
        Field { client: self.number, id }
    }

    pub(crate) fn believes(&self) -> usize {
        let held = |spot: &&Spot| matches!(spot.stage, Stage::Holding(tenure) if tenure.ends > 0);
        if self.gone { 0 } else { self.spots.iter().filter(held).count() }
    }

    pub(crate) fn contends(&self) -> bool {
        !self.gone && self.spots.iter().any(Spot::contends)
    }

    /// Whether it will not do anything more, apart from callers that may arrive.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.up.is_empty()
            && self.down.is_empty()
            && self.messages.is_empty()
            && self.jobs.is_empty()
            && self.spots.iter().all(|spot| spot.stage == Stage::Free && spot.left.is_none())
    }

    /// Whether it knows that the server may have something under this owner field.
    pub(crate) fn knows(&self, id: u8) -> bool {
        let of_tenure = |tenure: Tenure| tenure.id == id || tenure.served.contains(id);
        let in_spot = |spot: &Spot| {
            spot.line.as_ref().is_some_and(|line| line.id == id)
                || spot.left.is_some_and(of_tenure)
                || match spot.stage {
                    Stage::Holding(tenure) => of_tenure(tenure),
                    Stage::Asking { old } => old == Some(id),
                    Stage::Leaving { id: own } | Stage::Trying { id: own, .. } => own == id,
                    Stage::Refused { .. } => false,
                    Stage::Free | Stage::Parked(_) | Stage::Riding => false,
                }
        };
        self.spots.iter().any(in_spot)
            || self.jobs.iter().any(|job| job.id == id || job.served.contains(id))
    }

    pub(crate) fn has_job_to_send(&self) -> bool {
        self.jobs.iter().any(|job| job.state == JobState::Due)
    }

    /// What happens next to its connection for messages.
    pub(crate) fn hears_next(&self) -> Option<Action> {
        let c = usize::from(self.number);
        match self.ears {
            Ears::Opening => Some(Action::Subscribes(c)),
            Ears::Cut => Some(Action::Notices(c)),
            Ears::Closed | Ears::Open => None,
        }
    }

    /// The tenure that it keeps, held by no caller.
    pub(crate) fn idle(&self) -> Option<Tenure> {
        self.spots.iter().find_map(|spot| match spot.stage {
            Stage::Holding(tenure) if tenure.is_idle => Some(tenure),
            _ => None,
        })
    }

    /// Two contenders have asked, and neither request has run.
    pub(crate) fn has_two_contenders_asking(&self) -> bool {
        matches!(self.up[..], [Request::Acquire(_), Request::Acquire(_), ..])
    }

    fn requests(&mut self) -> impl Iterator<Item = &mut Request> {
        let unsent = self.keeping.unsent.iter_mut().map(|(request, _)| request);
        self.up.iter_mut().chain(unsent)
    }

    /// All places that it knows of.
    pub(crate) fn places(&mut self, mut change: impl FnMut(&mut u8)) {
        for line in self.spots.iter_mut().filter_map(|spot| spot.line.as_mut()) {
            change(&mut line.place);
        }
        for request in self.requests() {
            if let Request::Acquire(options) = request {
                change(&mut options.had);
            }
        }
        for answer in &mut self.down {
            if let Answer::Acquired { reply: Reply::Waits { place, .. }, .. } = answer {
                change(place);
            }
        }
    }

    /// One tick later, for everything that only counts down.
    pub(crate) fn tick(&mut self) {
        let earlier = |time: &mut i8| *time = (*time - 1).max(-4 * TTL);
        let slow = [&mut self.up_is_slow, &mut self.down_is_slow, &mut self.messages_are_slow];
        slow.into_iter()
            .chain([&mut self.paused, &mut self.deaf])
            .for_each(|left| *left = (*left - 1).max(0));
        self.keeping.tick();
        for spot in &mut self.spots {
            spot.line.iter_mut().for_each(Known::tick);
            if let Stage::Parked(until) = &mut spot.stage {
                *until = (*until - 1).max(0);
            }
            if let Some(tenure) = spot.tenure() {
                tenure.ends = (tenure.ends - 1).max(0);
                tenure.renew_at = (tenure.renew_at - 1).max(0);
                tenure.rest = (tenure.rest - 1).max(0);
            }
        }
        self.requests().for_each(tick_request);
        for answer in &mut self.down {
            match answer {
                Answer::Acquired { sent, .. }
                | Answer::Tried { sent, .. }
                | Answer::Renewed { sent, .. } => earlier(sent),
                Answer::Released { .. } => {}
            }
        }
        for word in self.messages.iter_mut().flatten() {
            if let Word::Granted { sign, .. } = word {
                earlier(sign);
            }
        }
        for job in &mut self.jobs {
            job.until = (job.until - 1).max(0);
            if job.state == JobState::Postponed {
                job.state = JobState::Due;
            }
        }
    }
}

impl Driver<'_> {
    fn rules(&self) -> Rules {
        let ticks = |ticks: i8| TICK * u32::from(ticks.unsigned_abs());
        Rules {
            waiter_ttl: ticks(TTL),
            pushed_lease: ticks(TTL.min(self.terms.lease)),
            rests: self.terms.rests,
            max_park: ticks(PARK),
        }
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.terms.is(mutation)
    }

    pub(crate) fn new_id(&mut self) -> u8 {
        self.client.next_id += 1;
        self.client.next_id
    }

    /// A caller arrives.
    pub(crate) fn comes(&mut self, spot: usize) {
        self.client.spots[spot].fresh -= 1;
        self.client.spots[spot].queued += 1;
        if self.client.spots[spot].stage == Stage::Free {
            self.next_caller(spot, None);
        } else if self.tries() {
            // Another caller of this client came first.
            self.client.spots[spot].queued -= 1;
        }
    }

    /// The permit is free: the next caller of this client contends. If there is none, the client gives up what was left
    /// for it.
    pub(crate) fn next_caller(&mut self, spot: usize, old: Option<u8>) {
        self.client.spots[spot].stage = Stage::Free;
        if self.client.spots[spot].queued > 0 {
            self.client.spots[spot].queued -= 1;
            self.go_on(spot, old);
            return;
        }
        let left = self.client.spots[spot].line.take();
        let stands = left.filter(|line| line.stands && !line.under_way);
        if let Some(line) = stands.filter(|_| !self.is(Mutation::TheLineIsNotLeft)) {
            self.job(line.id, None, LONG, true);
        }
        self.stop_speaking(spot);
    }

    /// The contender does what its line says, until it has to wait for something.
    fn go_on(&mut self, spot: usize, old: Option<u8>) {
        if self.picks_up_in_line(spot) {
            return;
        }
        let next = match &self.client.spots[spot].line {
            None => Next::Ask,
            Some(known) => {
                let mut line = known.line(self.clock);
                line.under_way &= !self.is(Mutation::AGrantWithoutAnAnswerIsTaken);
                let speaks = self.is_speaker(spot);
                let hears = self.client.ears != Ears::Opening || self.is(Mutation::TheDeafDoNotAsk);
                let deaf = (!hears).then_some(0);
                line.next(self.clock.now, deaf, speaks, self.rules())
            }
        };
        match next {
            Next::Ask => self.ask(spot, old),
            Next::Park(until) => {
                self.open_ears();
                self.client.spots[spot].stage = Stage::Parked(self.clock.ticks(until));
            }
            Next::Take(grant) => {
                let id = u8::try_from(grant.id.0).expect("the world is small");
                let signed = self.clock.ticks(grant.signed);
                let lease = TTL.min(self.terms.lease);
                // The message does not say whether somebody else waits.
                self.forbid();
                // The watchdog confirms it when a third of it is over.
                self.begin(spot, id, signed + lease, signed + lease / 3);
            }
        }
    }

    /// One contender that is far from the front asks from time to time for all of its client.
    fn is_speaker(&mut self, spot: usize) -> bool {
        if self.client.spots.len() == 1 {
            return true;
        }
        if !self.client.spots[spot].is_far() {
            self.stop_speaking(spot);
            return true;
        }
        let speaker = self.client.speaker.get_or_insert(number(spot));
        if self.terms.last_speaks {
            *speaker = (*speaker).max(number(spot));
        }
        *speaker == number(spot)
    }

    /// The next far contender speaks for the others, if this one did.
    pub(crate) fn stop_speaking(&mut self, spot: usize) {
        if self.client.speaker != Some(number(spot)) {
            return;
        }
        let spots = self.client.spots.len();
        let mut in_turn = (1..spots).map(|by| (spot + by) % spots);
        let next = in_turn.find(|&next| self.client.spots[next].is_far());
        self.client.speaker = next.map(number);
        if let Some(next) = next {
            self.look(next);
        }
    }

    /// A parked contender looks again.
    pub(crate) fn look(&mut self, spot: usize) {
        if matches!(self.client.spots[spot].stage, Stage::Parked(_)) {
            self.go_on(spot, None);
        }
    }

    fn open_ears(&mut self) {
        if self.client.ears == Ears::Closed {
            self.client.ears = Ears::Opening;
        }
    }

    fn ask(&mut self, spot: usize, old: Option<u8>) {
        if self.tries() {
            return self.tries_once(spot, None);
        }
        let now = self.clock.now;
        let known = self.client.spots[spot].line.take();
        let mut line = match known {
            Some(known) => known.line(self.clock),
            None => {
                let id = self.new_id();
                self.client.spots[spot].entry = id;
                Waiting::new(TenureId(u64::from(id)), now)
            }
        };
        if line.may_still_run() && !self.is(Mutation::NoNewOwnerField) {
            line.rename(TenureId(u64::from(self.new_id())), now);
            self.client.spots[spot].behind = Behind::Moved;
        }
        line.step(now, Event::Asked, self.rules());
        let known = Known::of(&line, self.clock, self.terms);
        let field = self.client.field(known.id);
        let old_field = old.map(|old| self.client.field(old));
        let Known { place, rests, .. } = known;
        let options = AcquireOptions { field, had: place, sign: 0, old: old_field, rests };
        self.client.spots[spot].line = Some(known);
        self.client.spots[spot].stage = Stage::Asking { old };
        self.send(Request::Acquire(options));
    }

    pub(crate) fn begin(&mut self, spot: usize, id: u8, ends: i8, renew_at: i8) {
        let rest = self.terms.hold;
        let served = Ids::default();
        let tenure = Tenure { id, ends, renew_at, renewing: false, rest, is_idle: false, served };
        self.client.spots[spot].line = None;
        self.client.spots[spot].stage = Stage::Holding(tenure);
        self.stop_speaking(spot);
        self.renew_if_due(spot);
    }

    pub(crate) fn renew_if_due(&mut self, spot: usize) {
        let field = |id| self.client.field(id);
        if let Stage::Holding(tenure) = self.client.spots[spot].stage
            && tenure.renew_at <= 0
            && !tenure.renewing
        {
            let request = Request::Renew { field: field(tenure.id), sent: 0 };
            self.client.up.push(request);
            self.client.spots[spot].stage = Stage::Holding(Tenure { renewing: true, ..tenure });
        }
    }

    /// Releases something. `now`: in the foreground.
    pub(crate) fn job(&mut self, id: u8, ghost_of: Option<u8>, until: i8, now: bool) {
        let served = Ids::default();
        self.client.jobs.push(Job { id, ghost_of, until, state: JobState::Due, served });
        if now {
            self.tidy();
        }
    }

    /// Releases a tenure.
    pub(crate) fn release(&mut self, tenure: Tenure, now: bool) {
        let Tenure { id, served, .. } = tenure;
        let (until, state) = (self.terms.lease, JobState::Due);
        self.client.jobs.push(Job { id, ghost_of: None, until, state, served });
        if now {
            self.tidy();
        }
    }

    /// Sends a release.
    pub(crate) fn tidy(&mut self) {
        for job in &mut self.client.jobs {
            if job.state == JobState::Due {
                job.state = JobState::Sent;
                let field = Field { client: self.client.number, id: job.id };
                self.client.up.push(Request::Release { field, served: job.served });
            }
        }
    }

    fn step(&mut self, spot: usize, event: Event) {
        let rules = self.rules();
        if let Some(known) = &mut self.client.spots[spot].line {
            let mut line = known.line(self.clock);
            line.step(self.clock.now, event, rules);
            *known = Known::of(&line, self.clock, self.terms);
        }
    }

    /// An answer arrives.
    pub(crate) fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Acquired { id, reply, sent } => self.acquired(id, reply, sent),
            Answer::Tried { id, holder, sent } => self.tried(id, holder, sent),
            Answer::Released { id, is_unfinished: true } => self.releases_on(id),
            Answer::Released { id, .. } => self.released(id),
            Answer::Renewed { id, held, sent } => self.renewed(id, held, sent),
        }
    }

    fn asking(&self, id: u8) -> Option<usize> {
        let asks = |spot: &Spot| {
            matches!(spot.stage, Stage::Asking { .. })
                && spot.line.as_ref().is_some_and(|line| line.id == id)
        };
        self.client.spots.iter().position(asks)
    }

    fn acquired(&mut self, id: u8, reply: Reply, sent: i8) {
        // A cancelled contender has left its request to the ghost.
        let Some(spot) = self.asking(id) else { return };
        let counts_from = if self.is(Mutation::TheLeaseCountsFromTheAnswer) { 0 } else { sent };
        match reply {
            Reply::Granted { .. } if !self.clock.is_believed(counts_from, self.terms.lease) => {
                self.unanswered(spot);
            }
            Reply::Granted { awaited } => {
                self.heard_who_waits(awaited);
                let lease = self.terms.lease;
                self.begin(spot, id, counts_from + lease, counts_from + lease / 3);
            }
            Reply::Waits { place, near, again, ahead } => {
                let sent = self.clock.moment(sent);
                let near = near && !self.is(Mutation::NearIsNotHeeded);
                let far_looks = self.terms.far_looks && !self.is(Mutation::TheFarLookSeldom);
                let again = (near || far_looks).then(|| TICK * u32::from(again.unsigned_abs()));
                self.step(spot, Event::Waits { place: u64::from(place), near, sent, again });
                self.stands_behind(spot, ahead);
                self.open_ears();
                self.go_on(spot, None);
            }
        }
    }

    /// The client cannot know whether the request ran. It cleans up after the request.
    fn unanswered(&mut self, spot: usize) {
        let Stage::Asking { old } = self.client.spots[spot].stage else { return };
        let id = self.client.spots[spot].line.as_ref().expect("it asks").id;
        self.ghost(id, old);
        self.step(spot, Event::Unanswered);
        self.client.spots[spot].stage = Stage::Riding;
    }

    pub(crate) fn ghost(&mut self, id: u8, old: Option<u8>) {
        if !self.is(Mutation::NoGhost) {
            let sent_on = self.client.generation;
            self.job(id, Some(sent_on), self.terms.lease, false);
        }
        if let Some(old) = old {
            self.job(old, None, self.terms.lease, false);
        }
    }

    /// The pause after an unanswered request is over.
    pub(crate) fn rode_out(&mut self, spot: usize) {
        self.go_on(spot, None);
    }

    /// The same release goes on with what the server has left undone.
    fn releases_on(&mut self, id: u8) {
        for job in self.client.jobs.iter_mut().filter(|job| job.id == id) {
            job.state = JobState::Due;
        }
        self.tidy();
    }

    fn released(&mut self, id: u8) {
        let generation = self.client.generation;
        let once = self.is(Mutation::AGhostIsLookedForOnce);
        for job in
            self.client.jobs.iter_mut().filter(|job| job.id == id && job.state == JobState::Sent)
        {
            let settled =
                job.ghost_of.is_none_or(|sent_on| sent_on == generation) || job.until <= 0;
            // Nobody repeats a job that is done.
            job.state = if settled || once { JobState::Sent } else { JobState::Postponed };
        }
        self.client.jobs.retain(|job| job.id != id || job.state != JobState::Sent);
        self.stop_leaving(id);
    }

    /// The permit is passed on with the first answer, or the first failure.
    fn stop_leaving(&mut self, id: u8) {
        let leaves = |spot: &Spot| spot.stage == Stage::Leaving { id };
        if let Some(spot) = self.client.spots.iter().position(leaves) {
            self.next_caller(spot, None);
        }
    }

    fn renewed(&mut self, id: u8, held: bool, sent: i8) {
        let from = if self.is(Mutation::ARenewalCountsFromTheAnswer) { 0 } else { sent };
        let lease = self.terms.lease;
        let mut all = self.client.spots.iter_mut().map(Spot::tenure).enumerate();
        let found = all.find_map(|(spot, tenure)| Some((spot, tenure.filter(|t| t.id == id)?)));
        let Some((spot, tenure)) = found else { return };
        if !held || tenure.ends <= 0 {
            let tenure = *tenure;
            self.lose(spot, tenure);
            return;
        }
        (tenure.ends, tenure.renew_at) = (tenure.ends.max(from + lease), lease / 3);
        tenure.renewing = false;
    }

    fn lose(&mut self, spot: usize, tenure: Tenure) {
        self.job(tenure.id, None, self.terms.lease, false);
        tenure.served.iter().for_each(|id| self.job(id, None, LONG, false));
        if self.client.spots[spot].left.take_if(|left| left.id == tenure.id).is_none() {
            self.next_caller(spot, None);
        }
    }

    /// The holder is done: it releases the lock, or leaves it to its client.
    pub(crate) fn gives_back(&mut self, spot: usize) {
        if self.keeps_or_retires(spot) {
            return;
        }
        if let Stage::Holding(tenure) = self.client.spots[spot].stage {
            self.client.spots[spot].stage = Stage::Leaving { id: tenure.id };
            self.release(tenure, true);
        }
    }

    /// The holder is done, and hands the lock on to the next caller of this client. Or that caller takes up the idle
    /// tenure.
    pub(crate) fn hands_on(&mut self, spot: usize) {
        let (rest, lease) = (self.terms.hold, self.terms.lease);
        let prolongs = self.is(Mutation::PickingUpProlongs);
        self.client.spots[spot].queued -= 1;
        if let Stage::Holding(tenure) = &mut self.client.spots[spot].stage {
            tenure.ends = if prolongs && tenure.is_idle { lease } else { tenure.ends };
            (tenure.is_idle, tenure.rest) = (false, rest);
        }
    }

    /// The holder is done. The next caller of this client offers the lock to other clients, and asks for it again.
    pub(crate) fn exchanges(&mut self, spot: usize) {
        if let Stage::Holding(Tenure { id, .. }) = self.client.spots[spot].stage {
            self.next_caller(spot, Some(id));
        }
    }

    /// The future of the contender is dropped.
    pub(crate) fn cancelled(&mut self, spot: usize) {
        if let Stage::Asking { old } = self.client.spots[spot].stage {
            let id = self.client.spots[spot].line.as_ref().expect("it asks").id;
            self.client.keeping.unsent = None;
            self.ghost(id, old);
        }
        if self.client.spots[spot].line.as_ref().is_some_and(|line| line.under_way)
            && !self.is(Mutation::NoNewOwnerField)
        {
            let id = TenureId(u64::from(self.new_id()));
            let known = self.client.spots[spot].line.as_mut().expect("it was there");
            let mut line = known.line(self.clock);
            line.rename(id, self.clock.now);
            *known = Known::of(&line, self.clock, self.terms);
            self.client.spots[spot].behind = Behind::Moved;
        }
        self.next_caller(spot, None);
        self.retires_left(spot);
    }

    /// The connection for requests is lost, and there is a new one. Requests that have not run may still run.
    pub(crate) fn cut(&mut self) -> Vec<Request> {
        let stray = std::mem::take(&mut self.client.up);
        self.client.keeping.unsent = None;
        self.client.down.clear();
        (self.client.up_is_slow, self.client.down_is_slow) = (0, 0);
        for spot in 0..self.client.spots.len() {
            self.unanswered(spot);
            self.tried_in_vain(spot);
            if let Some(tenure) = self.client.spots[spot].tenure() {
                tenure.renewing = false;
            }
        }
        self.client.generation += 1;
        let mut leaving = Vec::new();
        for job in self.client.jobs.iter_mut().filter(|job| job.state == JobState::Sent) {
            job.state = JobState::Due;
            leaving.push(job.id);
        }
        leaving.into_iter().for_each(|id| self.stop_leaving(id));
        for spot in 0..self.client.spots.len() {
            self.renew_if_due(spot);
        }
        stray
    }

    /// A message arrives.
    pub(crate) fn told(&mut self, words: Vec<Word>) {
        for word in words {
            let (Word::Granted { field, .. } | Word::Near { field, .. }) = word else {
                match word {
                    Word::Wanted { is_tried: true, .. } => self.was_tried(),
                    _ => self.wanted(),
                }
                continue;
            };
            let has = |spot: &Spot| spot.line.as_ref().is_some_and(|line| line.id == field.id);
            let found = self.client.spots.iter().position(has);
            let any = || self.client.spots.iter().position(|spot| spot.line.is_some());
            let found = found.or_else(|| any().filter(|_| self.is(Mutation::AnyOwnerFieldIsTaken)));
            let Some(spot) = found else { continue };
            let event = match word {
                Word::Wanted { .. } => continue,
                Word::Near { at_once, .. } => Event::Near { at_once },
                Word::Granted { sign, field } => {
                    let any = self.is(Mutation::AnyOwnerFieldIsTaken);
                    let own = self.client.spots[spot].line.as_ref().map_or(0, |line| line.id);
                    let id = TenureId(u64::from(if any { own } else { field.id }));
                    let from_now = self.is(Mutation::AMessageCountsFromItsArrival);
                    let signed = self.clock.moment(if from_now { 0 } else { sign });
                    Event::Told(PushedGrant { id, number: 1, signed })
                }
            };
            self.step(spot, event);
            self.look(spot);
        }
    }

    /// The subscription begins, or its loss is noticed: a message may have been missed.
    pub(crate) fn roused(&mut self, ears: Ears) {
        self.client.ears = ears;
        self.channel_changed();
        for spot in 0..self.client.spots.len() {
            if !self.is(Mutation::NobodyIsRoused) {
                self.step(spot, Event::Roused);
            }
            self.look(spot);
        }
    }

    /// Time has passed.
    pub(crate) fn looks_at_the_clock(&mut self) {
        self.tidy();
        for spot in 0..self.client.spots.len() {
            if let Some(left) = self.client.spots[spot].left.filter(|left| left.ends <= 0) {
                self.lose(spot, left);
            }
            match self.client.spots[spot].stage {
                Stage::Holding(tenure) if tenure.ends <= 0 => self.lose(spot, tenure),
                Stage::Holding(_) => self.renew_if_due(spot),
                Stage::Parked(until) if until <= 0 => self.go_on(spot, None),
                Stage::Refused { by } => self.tries_once(spot, Some(by)),
                _ => {}
            }
        }
    }
}

/// For how long the client keeps trying to give up a place in the line.
const LONG: i8 = 20;

pub(crate) fn number(spot: usize) -> u8 {
    u8::try_from(spot).expect("the world is small")
}

/// The server runs a request of this client.
pub(crate) fn run(request: Request, call: &mut Call<'_>) -> (u8, Answer) {
    match request {
        Request::Acquire(options) => {
            let reply = call.acquire(options);
            (
                options.field.client,
                Answer::Acquired { id: options.field.id, reply, sent: options.sign },
            )
        }
        Request::Try { field, sent } => {
            let holder = call.try_once(field);
            (field.client, Answer::Tried { id: field.id, holder, sent })
        }
        Request::Release { field, served } => {
            let is_unfinished = call.release(field, served);
            (field.client, Answer::Released { id: field.id, is_unfinished })
        }
        Request::Renew { field, sent } => {
            let held = call.renew(field);
            (field.client, Answer::Renewed { id: field.id, held, sent })
        }
    }
}
