//! One client: its callers, the real [`Lock`] of each of its entries, its real tenures, and a driver that does what `caller/contend.rs`,
//! `entry.rs` and `job.rs` do with futures and links.

use std::cell::Cell;
use std::time::Duration;

use crate::core::budget::{Budget, Idle};
use crate::core::lock::{After, Begun, Lock};
use crate::core::model_check::keeping::Keeping;
use crate::core::model_check::known::{BUDGET, Clock, Ghost, Granted, InModel, Known, TICK, small};
use crate::core::model_check::request::{Answer, Request, tick_request};
use crate::core::model_check::server::{AcquireOptions, Call, Field, Ids, Reply, Terms, Word};
use crate::core::model_check::{Action, Mutation, PARK, TTL};
use crate::core::tenure::{Due, Heir, Heirs, PickUp, Remaining};
use crate::core::waiting::{Event, Next, PushedGrant, Rules};
use crate::keys::TenureId;

/// A tenure that is idle ends by an action of these worlds, and not by the watchdog's clock.
const IDLE: Idle = Idle { pickup: LONG_IDLE, keep: LONG_IDLE };
const LONG_IDLE: Duration = Duration::from_secs(3600);

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
    Holding(Granted),
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

/// One entry of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(crate) known: Known,
    /// Callers that have not arrived yet.
    pub(crate) fresh: u8,
    pub(crate) stage: Stage,
    /// The owner field of an entry of one caller alone, once it has one.
    pub(crate) own: Option<u8>,
    /// A tenure that the caller right ahead in the line has left to this one.
    pub(crate) left: Option<Granted>,
}

impl Spot {
    fn new(callers: u8) -> Self {
        Self { known: Known::default(), fresh: callers, stage: Stage::Free, own: None, left: None }
    }

    /// The tenure that its caller holds, or that was left to it.
    pub(crate) fn tenure(&mut self) -> Option<&mut Granted> {
        match &mut self.stage {
            Stage::Holding(tenure) => Some(tenure),
            _ => self.left.as_mut(),
        }
    }

    pub(crate) fn contends(&self) -> bool {
        matches!(self.stage, Stage::Parked(_) | Stage::Asking { .. } | Stage::Riding)
    }

    fn is_far(&self) -> bool {
        self.known.line.as_ref().is_some_and(|line| line.stands && !line.near)
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
        let of_tenure = |tenure: Granted| tenure.id == id || tenure.served.contains(id);
        let in_spot = |spot: &Spot| {
            spot.known.line.as_ref().is_some_and(|line| line.id == id)
                || spot.known.held_back.iter().any(|ghost| ghost.id == id)
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
    pub(crate) fn idle(&self) -> Option<Granted> {
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
        for line in self.spots.iter_mut().filter_map(|spot| spot.known.line.as_mut()) {
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
            spot.known.tick();
            if let Stage::Parked(until) = &mut spot.stage {
                *until = (*until - 1).max(0);
            }
            if let Some(tenure) = spot.tenure() {
                tenure.tick();
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

    /// Does something to the real lock of an entry. `act` gets a source of new owner fields, too.
    pub(crate) fn change<R>(
        &mut self,
        spot: usize,
        act: impl FnOnce(&mut Lock<InModel>, &dyn Fn() -> TenureId) -> R,
    ) -> R {
        let Self { client, clock, terms } = self;
        let Spot { known, stage, .. } = &mut client.spots[spot];
        let ids = Cell::new(client.next_id);
        let next_id = || {
            ids.set(ids.get() + 1);
            TenureId(u64::from(ids.get()))
        };
        let mut lock = known.lock(*stage != Stage::Free, *clock);
        let result = act(&mut lock, &next_id);
        *known = Known::of(lock, *clock, *terms);
        client.next_id = ids.get();
        result
    }

    /// A caller arrives.
    pub(crate) fn comes(&mut self, spot: usize) {
        self.client.spots[spot].fresh -= 1;
        if self.change(spot, |lock, _| lock.queue.try_take().is_some()) {
            self.contends(spot, None);
        } else if !self.tries() {
            self.client.spots[spot].known.queued += 1;
        }
    }

    /// The permit is passed on: the next caller of this client contends. If there is none, the client gives up what was left
    /// for it.
    pub(crate) fn next_caller(&mut self, spot: usize, old: Option<u8>) {
        let is_awaited = self.change(spot, |lock, _| {
            lock.pass_on(&mut After::default());
            lock.is_awaited()
        });
        self.client.spots[spot].stage = Stage::Free;
        if is_awaited {
            self.client.spots[spot].known.queued -= 1;
            self.contends(spot, old);
        } else {
            self.look_after(spot);
        }
    }

    /// A caller with the permit begins.
    fn contends(&mut self, spot: usize, old: Option<u8>) {
        self.client.spots[spot].stage = Stage::Parked(0);
        self.go_on(spot, old);
    }

    /// Gives back everything that was left for callers, if there is none any more.
    fn look_after(&mut self, spot: usize) {
        let Some(left) = self.change(spot, |lock, _| lock.forsake()) else { return };
        if let Some(id) = left.place.filter(|_| !self.is(Mutation::TheLineIsNotLeft)) {
            self.job(small(id.0), None, LONG, true);
        }
        self.give_back_former(left.ghosts);
        self.stop_speaking(spot);
    }

    /// Releases what the server may have granted to the former owner fields of a contender.
    pub(crate) fn give_back_former(&mut self, ghosts: Vec<Ghost>) {
        if !self.is(Mutation::TheHeldBackAreForgotten) {
            ghosts.into_iter().for_each(|ghost| self.give_back_ghost(ghost));
        }
    }

    /// The contender does what its line says, until it has to wait for something.
    fn go_on(&mut self, spot: usize, old: Option<u8>) {
        if self.picks_up_in_line(spot) {
            return;
        }
        let next = match &self.client.spots[spot].known.line {
            None => Next::Ask,
            Some(line) => {
                let mut line = line.waiting(self.clock);
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
                // The message does not say whether somebody else waits. The watchdog confirms it when a third of it is over.
                self.begin(spot, id, true, (signed + lease, signed + lease / 3));
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
        if self.is(Mutation::NoNewOwnerField) {
            self.client.spots[spot].known.line.iter_mut().for_each(|line| line.under_way = false);
        }
        if self.terms.hands_on_in_line && self.client.spots[spot].own.is_none() {
            self.client.spots[spot].own = Some(self.new_id());
        }
        let own = self.client.spots[spot].own.map(|own| TenureId(u64::from(own)));
        let (now, rules) = (self.clock.now, self.rules());
        let (id, had, rests) =
            self.change(spot, |lock, next_id| lock.ask(now, own, next_id, rules));
        let (field, old_field) =
            (self.client.field(small(id.0)), old.map(|old| self.client.field(old)));
        let options = AcquireOptions { field, had: small(had), sign: 0, old: old_field, rests };
        self.client.spots[spot].stage = Stage::Asking { old };
        self.send(spot, Request::Acquire(options));
    }

    pub(crate) fn begin(&mut self, spot: usize, id: u8, awaited: bool, (ends, renew_at): (i8, i8)) {
        let tenure = Granted::new(id, ends, renew_at, self.terms.hold);
        let now = self.clock.now;
        let begun = Begun {
            tenure: TenureId(u64::from(id)),
            sent: now,
            awaited,
            is_joined: false,
            ends_wait: true,
        };
        let shown = self.change(spot, |lock, _| lock.begin(now, begun, &mut After::default()));
        self.give_back_former(shown.ghosts);
        self.client.spots[spot].stage = Stage::Holding(tenure);
        self.stop_speaking(spot);
        self.renew_if_due(spot);
    }

    pub(crate) fn renew_if_due(&mut self, spot: usize) {
        let (clock, number) = (self.clock, self.client.number);
        let Stage::Holding(tenure) = &mut self.client.spots[spot].stage else { return };
        if let Due::Renew(_) = tenure.change(clock, |tenure| tenure.due(clock.now, IDLE)) {
            tenure.renewing = true;
            let field = Field { client: number, id: tenure.id };
            self.client.up.push(Request::Renew { field, sent: 0 });
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
    pub(crate) fn release(&mut self, tenure: Granted, now: bool) {
        let Granted { id, served, .. } = tenure;
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
        let (now, rules) = (self.clock.now, self.rules());
        self.change(spot, |lock, _| lock.notes(now, event, rules));
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
                && spot.known.line.as_ref().is_some_and(|line| line.id == id)
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
                let (awaited, lease) = (self.heeds_who_waits(awaited), self.terms.lease);
                self.begin(spot, id, awaited, (counts_from + lease, counts_from + lease / 3));
            }
            Reply::Waits { place, near, again, ahead } => {
                let has_place = self.asks_for(spot).1 > 0;
                let former = self.change(spot, |lock, _| lock.granted_nothing(has_place));
                self.give_back_former(former);
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

    /// The owner field under which a contender asks, and the place that it had when it asked.
    fn asks_for(&self, spot: usize) -> (u8, u8) {
        let line = self.client.spots[spot].known.line.as_ref().expect("it asks");
        (line.id, line.place)
    }

    /// The client cannot know whether the request ran. It cleans up after the request. A contender that has a place first asks
    /// again, under another owner field.
    fn unanswered(&mut self, spot: usize) {
        let Stage::Asking { old } = self.client.spots[spot].stage else { return };
        let (id, place) = self.asks_for(spot);
        let ghost = self.ghost(id);
        if place > 0 {
            let now = self.clock.now;
            self.change(spot, |lock, _| lock.hold_back(now, ghost));
        } else {
            self.give_back_ghost(ghost);
        }
        self.give_back_old(old);
        self.step(spot, Event::Unanswered);
        self.client.spots[spot].stage = Stage::Riding;
    }

    /// The request under this owner field was not answered.
    pub(crate) fn ghost(&self, id: u8) -> Ghost {
        Ghost { id, sent_on: self.client.generation, until: self.terms.lease }
    }

    pub(crate) fn give_back_ghost(&mut self, Ghost { id, sent_on, until }: Ghost) {
        if !self.is(Mutation::NoGhost) {
            self.job(id, Some(sent_on), until, false);
        }
    }

    /// What a request offered that got no answer.
    fn give_back_old(&mut self, old: Option<u8>) {
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
        let (clock, lease) = (self.clock, self.terms.lease);
        let mut all = self.client.spots.iter_mut().map(Spot::tenure).enumerate();
        let found = all.find_map(|(spot, tenure)| Some((spot, tenure.filter(|t| t.id == id)?)));
        let Some((spot, tenure)) = found else { return };
        let (sent, ttl) = (clock.moment(from), TICK * u32::from(lease.unsigned_abs()));
        let is_renewed = held
            && tenure.change(clock, |tenure| {
                let lasts = !tenure.expire(clock.now.into()) && tenure.prolong(sent, ttl);
                tenure.lifetime.renew_at(clock.moment(lease / 3));
                lasts
            });
        tenure.renewing = false;
        if !is_renewed {
            let tenure = *tenure;
            self.lose(spot, tenure);
        }
    }

    fn lose(&mut self, spot: usize, tenure: Granted) {
        self.job(tenure.id, None, self.terms.lease, false);
        tenure.served.iter().for_each(|id| self.job(id, None, LONG, false));
        if self.client.spots[spot].left.take_if(|left| left.id == tenure.id).is_none() {
            self.next_caller(spot, None);
        }
    }

    /// The holder is done: it releases the lock, or leaves it to its client. Or the client has kept it for long enough.
    pub(crate) fn gives_back(&mut self, spot: usize) {
        if self.retires_kept_in(spot) {
            return;
        }
        if self.leaves(spot, false) == Heir::Client {
            if let Stage::Holding(tenure) = &mut self.client.spots[spot].stage {
                tenure.rest = self.terms.keep;
            }
        } else {
            self.releases(spot);
        }
    }

    /// The tenure of a holder that leaves has ended.
    pub(crate) fn releases(&mut self, spot: usize) {
        if let Stage::Holding(tenure) = self.client.spots[spot].stage {
            self.client.spots[spot].stage = Stage::Leaving { id: tenure.id };
            self.release(tenure, true);
        }
    }

    /// The last holder leaves. Returns who has the tenure next. `is_awaited`: a caller of this client may have it.
    pub(crate) fn leaves(&mut self, spot: usize, is_awaited: bool) -> Heir {
        let (clock, in_line) = (self.clock, self.terms.hands_on_in_line);
        let Spot { stage: Stage::Holding(tenure), known, .. } = &mut self.client.spots[spot] else {
            unreachable!("nobody holds it");
        };
        let heirs = Heirs { is_awaited, in_line, may_keep: known.may_keep };
        tenure.change(clock, |tenure| {
            assert_eq!(tenure.leave(tenure.hand_overs, 1), (1, Remaining::Nobody));
            tenure.pass_on(clock.now.into(), heirs, BUDGET, true)
        })
    }

    /// A caller of this client would take up the idle tenure of this entry. `budget`: `None` if it is spent.
    fn picks_up(&mut self, spot: usize, budget: Option<Budget>) -> PickUp<()> {
        let clock = self.clock;
        let Stage::Holding(tenure) = &mut self.client.spots[spot].stage else {
            unreachable!("nobody has left it");
        };
        tenure.change(clock, |tenure| tenure.pick_up(clock.now.into(), budget, false, true))
    }

    /// The holder is done, or was before: its client keeps the tenure. A caller of this client waits for it.
    fn is_left(&mut self, spot: usize) {
        if !matches!(self.client.spots[spot].stage, Stage::Holding(tenure) if tenure.is_idle) {
            assert_eq!(self.leaves(spot, true), Heir::Next);
        }
    }

    /// The next caller of this client takes up what the holder has left. If it may not, it offers that to other clients, and asks for
    /// it again. `budget`: `None` if it is spent.
    pub(crate) fn hands_on(&mut self, spot: usize, budget: Option<Budget>) {
        let (prolongs, lease) = (self.is(Mutation::PickingUpProlongs), self.terms.lease);
        if let Stage::Holding(tenure) = &mut self.client.spots[spot].stage
            && prolongs
            && tenure.is_idle
        {
            tenure.ends = lease;
        }
        self.is_left(spot);
        let picked_up = self.picks_up(spot, budget);
        let hold = self.terms.hold;
        let Spot { stage: Stage::Holding(tenure), known, .. } = &mut self.client.spots[spot] else {
            unreachable!("nobody has left it");
        };
        match picked_up {
            PickUp::Held(_) => (known.queued, tenure.rest) = (known.queued - 1, hold),
            PickUp::Ended(()) => {
                let id = tenure.id;
                self.next_caller(spot, Some(id));
            }
            PickUp::Nothing => unreachable!("it has not ended"),
        }
    }

    /// The future of the contender is dropped.
    pub(crate) fn cancelled(&mut self, spot: usize) {
        if let Stage::Asking { old } = self.client.spots[spot].stage {
            self.client.keeping.unsent = None;
            self.give_back_ghost(self.ghost(self.asks_for(spot).0));
            self.give_back_old(old);
        }
        if !self.is(Mutation::NoNewOwnerField) {
            let now = self.clock.now;
            self.change(spot, |lock, next_id| lock.give_up(now, next_id));
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
            let clock = self.clock;
            if let Some(tenure) = self.client.spots[spot].tenure().filter(|tenure| tenure.renewing)
            {
                tenure.renewing = false;
                tenure.change(clock, |tenure| tenure.check_again(clock.now));
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
            let line = |spot: &Spot| spot.known.line.as_ref().map(|line| line.id);
            let has = |spot: &Spot| line(spot) == Some(field.id);
            let found = self.client.spots.iter().position(has);
            let any = || self.client.spots.iter().position(|spot| line(spot).is_some());
            let found = found.or_else(|| any().filter(|_| self.is(Mutation::AnyOwnerFieldIsTaken)));
            let Some(spot) = found else { continue };
            let event = match word {
                Word::Wanted { .. } => continue,
                Word::Near { at_once, .. } => Event::Near { at_once },
                Word::Granted { sign, field } => {
                    let any = self.is(Mutation::AnyOwnerFieldIsTaken);
                    let own = line(&self.client.spots[spot]).unwrap_or(0);
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
            let clock = self.clock;
            let expires = |mut tenure: Granted| {
                tenure.change(clock, |tenure| tenure.expire(clock.now.into()))
            };
            if let Some(left) = self.client.spots[spot].left.filter(|left| expires(*left)) {
                self.lose(spot, left);
            }
            match self.client.spots[spot].stage {
                Stage::Holding(tenure) if expires(tenure) => self.lose(spot, tenure),
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
