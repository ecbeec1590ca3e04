//! Small worlds, searched exhaustively: every order of events that a few clients, their messages and some faults can
//! produce, with the real [`Lock`](crate::core::lock::Lock) in each entry, its [`Waiting`](crate::core::waiting::Waiting) included,
//! the real [`Tenure`](crate::core::tenure::Tenure) for each grant, and a model of the scripts for the server.
//!
//! 1. Time passes in ticks, three to a `waiter_ttl`. Within a tick, everything in flight arrives, in any order: a
//!    request, an answer, a message. If it takes longer, that is a fault, and so is a loss.
//! 2. A world may have only a few faults. So the search ends, and has then seen everything that these faults can cause
//!    together.
//! 3. After each step, [`World::judge`] judges the state. The test reports a wrong state with the shortest path to it.
//! 4. If a protocol lacks one of its rules, the search has to find what goes wrong: see [`Mutation`].

mod client;
mod in_line;
mod keeper;
mod keeping;
mod known;
mod request;
mod search;
mod server;
mod side_by_side;
mod trier;

use client::{Client, Driver, Ears, Stage};
use known::{BUDGET, Clock, Line};
use request::{Request, tick_request};
use server::{Call, Field, LetIn, Server, Terms};

/// A `waiter_ttl`, in ticks.
const TTL: i8 = 3;

/// `max_park`, in ticks: far longer than any wait for a message.
const PARK: i8 = 14;

/// How long a request may still run after its connection was lost, in ticks.
const STRAY: i8 = 2;

/// A rule that is left out or reversed, to prove that the search notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    // Of the scripts.
    TheSilentAreGranted,
    TheLastComesFirst,
    TheDeadStay,
    AGrantEndsEarly,
    AnotherIsTold,
    RoomIsNotGiven,
    PlaceIsForgotten,
    NobodyIsToldForTheDeaf,
    WhoComesNearIsNotTold,
    WhoSleepsCountsAsAwake,
    NobodyGuards,
    NobodyAsksInAQuickLine,
    WhoFollowsIsNotTold,
    TheFarLookSeldom,
    WhoRestsIsNotTold,
    /// A caller that counts as awake behind a silent client is answered that it is far.
    WhoCountsIsFar,
    TheDeadThatHearStay,
    /// Behind the front, each call looks at the same places.
    ASweepBeginsAgain,
    AWaiterAsksAgainAtOnce,
    // Of the driver.
    NoNewOwnerField,
    NoGhost,
    AGhostIsLookedForOnce,
    TheLineIsNotLeft,
    TheLeaseCountsFromTheAnswer,
    ARenewalCountsFromTheAnswer,
    AMessageCountsFromItsArrival,
    AnyOwnerFieldIsTaken,
    TheHeldBackAreForgotten,
    NearIsNotHeeded,
    NobodyIsRoused,
    TheDeafDoNotAsk,
    // Of the scripts, for a kept lock.
    TheKeeperIsToldLater,
    TheKeeperIsToldOnce,
    TellingProlongs,
    ATryTellsNobody,
    // Of a client that keeps it.
    TheDeafKeep,
    TheCheckComesFirst,
    TheAnswerAllows,
    WhoWaitsIsNotHeeded,
    TheTryIsForgotten,
    TheHolderIsNotTold,
    TheIdleIsSoughtFirst,
    TheLiveChannelIsNotHeeded,
    PickingUpProlongs,
    // Of a lock that is handed over in line.
    AnyOneAheadIsSaid,
    TheServedStay,
    TheMovedAreHandedOnTo,
    NobodyLooksAfterTheLeft,
    // Of a caller that does not wait.
    ATryAsksOnce,
    // Of the line.
    AGrantWithoutAnAnswerIsTaken,
}

/// How many of each fault may occur, and how many in total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Faults {
    most: u8,
    /// Messages lost, and doubled.
    lost: u8,
    doubled: u8,
    /// Requests, answers or messages of a client are slow: others come before them, and ticks pass.
    slow_requests: u8,
    slow_answers: u8,
    slow_messages: u8,
    /// Two callers of one client make their signs in one order and send them in the other.
    swapped: u8,
    /// A client is paused for more than a tick.
    pauses: u8,
    /// The connection of a client for requests is lost, or the one for messages.
    cut: u8,
    deafened: u8,
    /// A caller leaves.
    cancelled: u8,
    /// A client dies.
    crashes: u8,
    /// A client is cut off for good, and the server still has its connections: it seems to hear.
    vanished: u8,
}

/// The faults until now. Some rules hold only without some of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Spent {
    any: bool,
    /// A message is lost, and nobody will notice.
    lost: bool,
    /// All near contenders may have died together.
    blind: bool,
    /// A client may have learnt so late what was cleaned up that it no longer looks for a request that runs even later.
    /// The lease ends such a hold.
    paused: bool,
    /// So many places may belong to clients that are gone and seem to hear.
    unheard: u8,
    /// More than messages was lost: a client may have been silent for too long.
    rough: bool,
}

/// One step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Comes(usize, usize),
    Runs(usize),
    RunsLate(usize),
    IsAnswered(usize),
    IsTold(usize),
    Subscribes(usize),
    Notices(usize),
    Checks(usize),
    LooksForIdle(usize),
    AsksAgain(usize, usize),
    Tidies(usize),
    GivesBack(usize, usize),
    HandsOn(usize, usize),
    HandsOnInLine(usize, usize),
    PicksUp(usize, usize),
    Retires(usize, usize),
    Exchanges(usize, usize),
    Tick,
    Lose(usize),
    Double(usize),
    SlowRequests(usize),
    SlowAnswers(usize),
    SlowMessages(usize),
    Swap(usize),
    Pause(usize),
    GoOn(usize),
    Cut(usize),
    Deafen(usize),
    Cancel(usize, usize),
    Crash(usize),
    Vanish(usize),
}

/// The longest time of a slow delivery or of a pause, in ticks: longer than a client counts as alive.
const SLOW: i8 = 4;

/// How a small world begins.
#[derive(Debug, Clone, Copy)]
struct Setting {
    name: &'static str,
    clients: u8,
    /// Entries of each client: 1, or one for each caller as a fair lock has them.
    spots: usize,
    /// Callers of each entry.
    callers: u8,
    /// All callers arrive before the first tick is over.
    prompt: bool,
    faults: Faults,
    terms: Terms,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    server: Server,
    clients: Vec<Client>,
    /// Requests of lost connections, and for how long they may still run.
    strays: Vec<(Request, i8)>,
    faults: Faults,
    spent: Spent,
    /// For how many ticks the lock has been free while somebody waits for it.
    idle: i8,
    /// For how many ticks somebody has waited for a lock that no caller holds.
    kept: i8,
}

/// What is wrong with a state.
type Verdict = Result<(), String>;

impl World {
    fn new(setting: &Setting) -> Self {
        let client = |number| {
            let mut client = Client::new(number, setting.spots, setting.callers);
            if setting.terms.keeps(number) {
                // It has listened since an earlier request.
                client.ears = Ears::Open;
            }
            client
        };
        Self {
            server: Server::new(usize::from(setting.clients)),
            clients: (0..setting.clients).map(client).collect(),
            strays: Vec::new(),
            faults: setting.faults,
            spent: Spent::default(),
            idle: 0,
            kept: 0,
        }
    }

    /// Everything that can happen next. First comes what happens before this tick is over: so many actions.
    fn actions(&self, setting: &Setting, clock: Clock) -> (Vec<Action>, usize) {
        let mut actions = Vec::new();
        self.forced_actions(setting, clock, &mut actions);
        let forced = actions.len();
        for (c, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.gone) {
            self.actions_of(c, client, (setting, clock), &mut actions);
        }
        actions.extend((0..self.strays.len()).map(Action::RunsLate));
        if self.faults.most > 0 {
            for (c, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.gone) {
                self.faults_of(c, client, &mut actions);
            }
        }
        (actions, forced)
    }

    /// What may happen now or later.
    fn actions_of(
        &self,
        c: usize,
        client: &Client,
        (setting, clock): (&Setting, Clock),
        all: &mut Vec<Action>,
    ) {
        if client.paused > 1 {
            all.push(Action::GoOn(c));
        }
        if client.up_is_slow > 0 && !client.up.is_empty() {
            all.push(Action::Runs(c));
        }
        if client.paused > 0 {
            return;
        }
        if client.messages_are_slow > 0 && !client.messages.is_empty() {
            all.push(Action::IsTold(c));
        }
        if client.down_is_slow > 0 && !client.down.is_empty() {
            all.push(Action::IsAnswered(c));
        }
        if client.deaf > 0 {
            all.extend(client.hears_next());
        }
        for (s, spot) in client.spots.iter().enumerate() {
            if spot.fresh > 0 && !setting.prompt && self.may_come(c, s, setting) {
                all.push(Action::Comes(c, s));
            }
            if let Stage::Holding(tenure) = spot.stage
                && tenure.rest > 0
                && tenure.ends > 0
                && !tenure.is_idle
            {
                self.ends_of(c, s, (setting.terms, clock), all);
            }
            // If a client stood still, its watchdog may come before the caller.
            if spot.left.is_some_and(|left| left.rest == 0) {
                all.push(Action::Retires(c, s));
            }
        }
    }

    /// Clients that have done nothing yet are interchangeable, if both keep locks, or both do not, and both wait. So are a
    /// client's entries. They start in one order.
    fn may_come(&self, c: usize, s: usize, setting: &Setting) -> bool {
        let has_come = |c: usize, s: usize| {
            self.clients[c].gone || self.clients[c].spots[s].fresh < setting.callers
        };
        let is_first = c == 0
            || c == usize::from(setting.terms.keepers)
            || setting.terms.trier == Some(own_number(c));
        let is_next = is_first || has_come(c - 1, 0);
        is_next && (s == 0 || has_come(c, s - 1))
    }

    /// How a hold may end.
    fn ends_of(&self, c: usize, s: usize, (terms, clock): (Terms, Clock), all: &mut Vec<Action>) {
        let spot = &self.clients[c].spots[s];
        if spot.known.queued == 0 {
            all.push(Action::GivesBack(c, s));
            if terms.hands_on_in_line && self.clients[c].one_behind(s, terms, clock).is_some() {
                all.push(Action::HandsOnInLine(c, s));
            }
            return;
        }
        all.extend([Action::Exchanges(c, s), Action::HandsOn(c, s)]);
    }

    /// What happens before this tick is over. If there is nothing, the next tick begins.
    fn forced_actions(&self, setting: &Setting, clock: Clock, all: &mut Vec<Action>) {
        for (c, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.gone) {
            if client.up_is_slow == 0 && !client.up.is_empty() {
                all.push(Action::Runs(c));
            }
            if client.paused > 0 {
                if client.paused == 1 {
                    all.push(Action::GoOn(c));
                }
                continue;
            }
            if client.down_is_slow == 0 && !client.down.is_empty() {
                all.push(Action::IsAnswered(c));
            }
            if client.messages_are_slow == 0 && !client.messages.is_empty() {
                all.push(Action::IsTold(c));
            }
            if client.deaf == 0 {
                all.extend(client.hears_next());
            }
            if client.keeping.unsent.is_some() {
                all.push(Action::Checks(c));
            }
            if client.keeping.looks {
                all.push(Action::LooksForIdle(c));
            }
            if client.has_job_to_send() {
                all.push(Action::Tidies(c));
            }
            for (s, spot) in client.spots.iter().enumerate() {
                if spot.fresh > 0 && setting.prompt && self.may_come(c, s, setting) {
                    all.push(Action::Comes(c, s));
                }
                all.extend(self.may_take_up(c, s, setting));
                match spot.stage {
                    Stage::Riding => all.push(Action::AsksAgain(c, s)),
                    Stage::Holding(tenure) if tenure.ends > 0 => {
                        let is_picked_up = tenure.is_idle && spot.known.queued > 0;
                        if tenure.rest <= 0 || is_picked_up {
                            self.ends_of(c, s, (setting.terms, clock), all);
                        }
                    }
                    _ => {}
                }
            }
        }
        if all.is_empty() {
            all.push(Action::Tick);
        }
    }

    fn faults_of(&self, c: usize, client: &Client, all: &mut Vec<Action>) {
        let Faults { lost, doubled, slow_requests, slow_answers, slow_messages, swapped, .. } =
            self.faults;
        let Faults { pauses, cut, deafened, cancelled, crashes, vanished, .. } = self.faults;
        let mut may = |count: u8, makes_sense: bool, action: Action| {
            if count > 0 && makes_sense {
                all.push(action);
            }
        };
        let (sends, hears) = (!client.up.is_empty(), !client.messages.is_empty());
        may(lost, hears, Action::Lose(c));
        may(doubled, hears, Action::Double(c));
        may(slow_requests, sends && client.up_is_slow == 0, Action::SlowRequests(c));
        may(slow_answers, sends && client.down_is_slow == 0, Action::SlowAnswers(c));
        may(slow_messages, hears && client.messages_are_slow == 0, Action::SlowMessages(c));
        may(swapped, client.has_two_contenders_asking(), Action::Swap(c));
        let is_busy = !client.is_at_rest();
        may(pauses, is_busy && client.paused == 0, Action::Pause(c));
        may(cut, sends || !client.down.is_empty(), Action::Cut(c));
        may(deafened, client.ears == Ears::Open && is_busy, Action::Deafen(c));
        may(crashes, is_busy, Action::Crash(c));
        may(vanished, client.ears == Ears::Open && is_busy, Action::Vanish(c));
        for (s, spot) in client.spots.iter().enumerate() {
            may(cancelled, spot.contends() && client.paused == 0, Action::Cancel(c, s));
        }
    }

    fn spend(&mut self, action: Action, setting: &Setting) {
        let fault = match action {
            Action::Lose(_) => &mut self.faults.lost,
            Action::Double(_) => &mut self.faults.doubled,
            Action::SlowRequests(_) => &mut self.faults.slow_requests,
            Action::SlowAnswers(_) => &mut self.faults.slow_answers,
            Action::SlowMessages(_) => &mut self.faults.slow_messages,
            Action::Swap(_) => &mut self.faults.swapped,
            Action::Pause(_) => &mut self.faults.pauses,
            Action::Cut(_) => &mut self.faults.cut,
            Action::Deafen(_) => &mut self.faults.deafened,
            Action::Cancel(..) => &mut self.faults.cancelled,
            Action::Crash(_) => &mut self.faults.crashes,
            Action::Vanish(_) => &mut self.faults.vanished,
            _ => return,
        };
        *fault -= 1;
        self.faults.most -= 1;
        self.idle = 0;
        self.spent.any = true;
        match action {
            Action::Lose(_) => self.spent.lost = true,
            Action::Double(_) | Action::Swap(_) => {}
            _ => self.spent.rough = true,
        }
        self.spent.paused |= matches!(action, Action::Pause(_) | Action::SlowAnswers(_));
        let (Action::Crash(c) | Action::Vanish(c)) = action else { return };
        let places = self.places_of(c);
        // If one client has a whole window and there is no guard, no client is left that shows signs of life.
        self.spent.blind |= !setting.terms.guards && places >= setting.terms.window;
        if action == Action::Vanish(c) {
            self.spent.unheard += u8::try_from(places).expect("the world is small");
        }
    }

    /// How many places this client may have in line.
    fn places_of(&self, c: usize) -> usize {
        let fields = self.server.line.iter().map(|waiter| usize::from(waiter.field.client));
        let requests = self.clients[c].up.len() + self.strays.len();
        fields.filter(|client| *client == c).count() + requests
    }

    /// Does one step, and judges the outcome.
    fn act(&mut self, action: Action, setting: &Setting, clock: Clock) -> Verdict {
        self.spend(action, setting);
        let terms = setting.terms;
        let mut verdict = Ok(());
        match action {
            Action::Comes(c, s) => self.driver(c, terms, clock).comes(s),
            Action::Runs(c) => {
                let request = self.clients[c].up.remove(0);
                if self.clients[c].up.is_empty() {
                    self.clients[c].up_is_slow = 0;
                }
                verdict = self.run(request, terms, Some(clock));
            }
            Action::RunsLate(stray) => {
                let (request, _) = self.strays.remove(stray);
                verdict = self.run(request, terms, None);
            }
            Action::IsAnswered(c) => {
                let answer = self.clients[c].down.remove(0);
                if self.clients[c].down.is_empty() {
                    self.clients[c].down_is_slow = 0;
                }
                verdict = self.is_answered(c, answer, terms, clock);
            }
            Action::IsTold(c) => {
                let words = self.clients[c].messages.remove(0);
                if self.clients[c].messages.is_empty() {
                    self.clients[c].messages_are_slow = 0;
                }
                self.driver(c, terms, clock).told(words);
            }
            Action::Subscribes(c) => self.driver(c, terms, clock).roused(Ears::Open),
            Action::Notices(c) => self.driver(c, terms, clock).roused(Ears::Opening),
            Action::Checks(c) => self.driver(c, terms, clock).checks(),
            Action::LooksForIdle(c) => self.driver(c, terms, clock).looks_for_idle(),
            Action::AsksAgain(c, s) => self.driver(c, terms, clock).rode_out(s),
            Action::Tidies(c) => self.driver(c, terms, clock).tidy(),
            Action::GivesBack(c, s) => self.driver(c, terms, clock).gives_back(s),
            Action::HandsOn(c, s) => self.driver(c, terms, clock).hands_on(s, Some(BUDGET)),
            Action::HandsOnInLine(c, s) => self.driver(c, terms, clock).hands_on_in_line(s),
            Action::PicksUp(c, s) => self.driver(c, terms, clock).look(s),
            Action::Retires(c, s) => self.driver(c, terms, clock).retires_left(s),
            Action::Exchanges(c, s) => self.driver(c, terms, clock).hands_on(s, None),
            Action::Tick => verdict = self.tick(terms, clock),
            Action::Lose(c) => drop(self.clients[c].messages.remove(0)),
            Action::Double(c) => {
                let again = self.clients[c].messages[0].clone();
                self.clients[c].messages.push(again);
            }
            Action::SlowRequests(c) => self.clients[c].up_is_slow = SLOW,
            Action::SlowAnswers(c) => self.clients[c].down_is_slow = SLOW,
            Action::SlowMessages(c) => self.clients[c].messages_are_slow = SLOW,
            Action::Swap(c) => self.clients[c].up.swap(0, 1),
            Action::Pause(c) => self.clients[c].paused = SLOW,
            Action::GoOn(c) => {
                self.clients[c].paused = 0;
                self.driver(c, terms, clock).looks_at_the_clock();
            }
            Action::Cut(c) => {
                let strays = self.driver(c, terms, clock).cut();
                self.strays.extend(strays.into_iter().map(|request| (request, STRAY)));
            }
            Action::Deafen(c) => {
                self.clients[c].messages.clear();
                self.clients[c].ears = Ears::Cut;
                self.clients[c].deaf = if terms.keeps(own_number(c)) { SLOW } else { terms.deaf };
            }
            Action::Cancel(c, s) => self.driver(c, terms, clock).cancelled(s),
            Action::Crash(c) => self.crash(c, Ears::Closed),
            Action::Vanish(c) => self.crash(c, Ears::Open),
        }
        verdict?;
        self.judge()?;
        self.shrink();
        Ok(())
    }

    fn driver(&mut self, c: usize, terms: Terms, clock: Clock) -> Driver<'_> {
        Driver { client: &mut self.clients[c], terms, clock }
    }

    fn crash(&mut self, c: usize, ears: Ears) {
        let client = &mut self.clients[c];
        let unread = std::mem::take(&mut client.up);
        *client = Client::new(client.number, client.spots.len(), 0);
        (client.gone, client.ears) = (true, ears);
        self.strays.extend(unread.into_iter().map(|request| (request, STRAY)));
    }

    /// The server runs a script.
    fn run(&mut self, request: Request, terms: Terms, answers: Option<Clock>) -> Verdict {
        let ears: Vec<_> = self.clients.iter().map(|client| client.ears == Ears::Open).collect();
        let mut call = Call::new(&mut self.server, terms, &ears);
        let (client, answer) = client::run(request, &mut call);
        let granted = std::mem::take(&mut call.granted);
        for (to, words) in call.messages() {
            let to = &mut self.clients[usize::from(to)];
            if to.ears == Ears::Open && !to.gone {
                to.messages.push(words);
            }
        }
        self.server.settle();
        if self.server.lock.is_some() {
            self.idle = 0;
        }
        granted.into_iter().try_for_each(|let_in| self.judge_order(let_in, terms))?;
        match answers {
            Some(clock) => self.reply(usize::from(client), answer, terms, clock),
            None => Ok(()),
        }
    }

    /// An answer arrives at once. If another event comes before it, that is a fault and costs one: so there are few
    /// states.
    fn reply(&mut self, c: usize, answer: request::Answer, terms: Terms, clock: Clock) -> Verdict {
        let client = &mut self.clients[c];
        if client.paused > 0 || client.down_is_slow > 0 {
            client.down.push(answer);
            return Ok(());
        }
        self.is_answered(c, answer, terms, clock)
    }

    fn is_answered(
        &mut self,
        c: usize,
        answer: request::Answer,
        terms: Terms,
        clock: Clock,
    ) -> Verdict {
        let verdict = self.judge_answer(c, answer).and_then(|()| self.judge_try(c, answer, terms));
        self.driver(c, terms, clock).answered(answer);
        verdict
    }

    fn tick(&mut self, terms: Terms, clock: Clock) -> Verdict {
        let calm = self.clients.iter().all(|client| {
            // A client that cannot know that it is deaf promises nothing.
            let hears = client.ears != Ears::Cut || !client.contends();
            let slow = client.up_is_slow + client.down_is_slow + client.messages_are_slow;
            hears && client.paused + slow == 0
        });
        let waits = self.clients.iter().any(Client::contends);
        let idle = self.server.lock.is_none() && waits && calm && self.strays.is_empty();
        self.idle = if idle { self.idle + 1 } else { 0 };
        self.judge_idle(terms)?;
        self.judge_kept(waits && calm && self.strays.is_empty(), terms)?;
        self.judge_remains()?;
        self.server.tick();
        self.clients.iter_mut().filter(|client| !client.gone).for_each(Client::tick);
        for (request, left) in &mut self.strays {
            tick_request(request);
            *left -= 1;
        }
        self.strays.retain(|(_, left)| *left > 0);
        for c in 0..self.clients.len() {
            if !self.clients[c].gone && self.clients[c].paused == 0 {
                self.driver(c, terms, clock).looks_at_the_clock();
            }
        }
        Ok(())
    }

    /// No two clients ever believe at the same time that they hold the lock.
    fn judge(&self) -> Verdict {
        let holders: usize = self.clients.iter().map(Client::believes).sum();
        if holders > 1 {
            return Err(format!("{holders} hold the lock"));
        }
        self.judge_served()
    }

    /// While nothing worse happens than lost or doubled messages, each waiter is let in at its place. One that rests may learn
    /// too late of a grant whose message was lost.
    fn judge_order(&self, LetIn { field, place, lives }: LetIn, terms: Terms) -> Verdict {
        if !lives {
            return Err(format!("{} is let in, and is silent", told(field)));
        }
        if self.spent.rough || self.spent.lost && terms.rests {
            return Ok(());
        }
        for client in &self.clients {
            for spot in client.spots.iter().filter(|spot| spot.contends()) {
                let Some(line) = &spot.known.line else { continue };
                if line.place > 0 && line.place < place && client.field(line.id) != field {
                    let passed = client.field(line.id);
                    return Err(format!("{} passes {}", told(field), told(passed)));
                }
            }
        }
        Ok(())
    }

    /// A waiter that had a place keeps it, whatever happened to its request.
    fn judge_answer(&self, c: usize, answer: request::Answer) -> Verdict {
        let request::Answer::Acquired { id, reply: server::Reply::Waits { place, .. }, .. } =
            answer
        else {
            return Ok(());
        };
        let lines = || {
            let spots = self.clients.iter().flat_map(|client| {
                client.spots.iter().filter(|spot| spot.contends()).map(move |spot| (client, spot))
            });
            spots.filter_map(|(client, spot)| Some((client.number, spot.known.line.as_ref()?)))
        };
        let me = |(number, line): &(u8, &Line)| usize::from(*number) == c && line.id == id;
        let Some((_, own)) = lines().find(me) else { return Ok(()) };
        let others = lines().filter(|line| !me(line) && line.1.place > 0);
        for (number, other) in others {
            if own.place > 0 && (own.place < other.place) != (place < other.place) {
                let mine = Field { client: own_number(c), id };
                let theirs = Field { client: number, id: other.id };
                return Err(format!("{} and {} change places", told(mine), told(theirs)));
            }
        }
        Ok(())
    }

    /// No waiter is left asleep while the lock is free.
    fn judge_idle(&self, terms: Terms) -> Verdict {
        let bound = match self.spent {
            Spent { any: false, .. } => 0,
            // Dead waiters cost one waiter_ttl, counted from the next call of a client near the front.
            Spent { lost: false, blind: false, .. } => TTL + 2,
            // Then only a far contender is left, which asks when the lease that it knows of is over.
            Spent { .. } if terms.far_looks => terms.lease + TTL + 2,
            Spent { .. } => PARK + TTL + 2,
        };
        // Those that seem to hear are told in turns, a window at a time.
        let turns = usize::from(self.spent.unheard).div_ceil(terms.window);
        let further = i8::try_from(turns.saturating_sub(1)).expect("the world is small");
        if self.idle > bound + further * (TTL + 1) {
            return Err(format!("for {} ticks the lock is free, and somebody waits", self.idle));
        }
        Ok(())
    }

    /// Everything on the server belongs to some client, and nothing is left in the end but what a lease or a `waiter_ttl`
    /// ends.
    fn judge_remains(&self) -> Verdict {
        let holder = self.server.lock.iter().map(|(field, _)| *field);
        let fields = holder.chain(self.server.line.iter().map(|waiter| waiter.field));
        for field in fields {
            let client = &self.clients[usize::from(field.client)];
            if !client.gone && !client.knows(field.id) && !self.spent.paused {
                return Err(format!("{} is on the server, and nobody knows it", told(field)));
            }
        }
        let alive = || self.clients.iter().filter(|client| !client.gone);
        let is_over = alive().all(Client::is_at_rest) && alive().count() == self.clients.len();
        let is_clean = self.server.is_clean() || self.spent.paused;
        if is_over && self.strays.is_empty() && !is_clean {
            return Err("all have gone, and something is left on the server".to_owned());
        }
        Ok(())
    }

    /// Gives places the lowest numbers in the same order: so histories that are otherwise equal become one.
    fn shrink(&mut self) {
        let mut known = 0_u128;
        self.places(|place| known |= 1 << *place);
        known &= !1;
        let mut ranks = [0_u8; 128];
        let (mut rank, mut before) = (0, 0);
        while known != 0 {
            let place = known.trailing_zeros() as usize;
            known &= known - 1;
            // Neighbours stay neighbours, with nothing in between.
            rank += if place - before == 1 { 1 } else { 2 };
            (ranks[place], before) = (rank, place);
        }
        self.places(|place| *place = ranks[usize::from(*place)]);
        self.server.top = rank;
    }

    fn places(&mut self, mut change: impl FnMut(&mut u8)) {
        change(&mut self.server.near);
        change(&mut self.server.guard);
        change(&mut self.server.sleepers);
        change(&mut self.server.swept);
        self.server.line.iter_mut().for_each(|waiter| change(&mut waiter.place));
        self.clients.iter_mut().for_each(|client| client.places(&mut change));
        for (stray, _) in &mut self.strays {
            if let Request::Acquire(options) = stray {
                change(&mut options.had);
            }
        }
    }
}

fn own_number(c: usize) -> u8 {
    u8::try_from(c).expect("the world is small")
}

/// A client in words.
fn called(client: usize) -> char {
    char::from(b'A' + own_number(client))
}

/// An owner field in words.
fn told(field: Field) -> String {
    format!("{}{}", called(usize::from(field.client)), field.id)
}

mod tests {
    use crate::core::model_check::search::search;
    use crate::core::model_check::*;

    const TERMS: Terms = Terms {
        window: 2,
        looks: None,
        guards: true,
        lease: 4,
        hold: 1,
        last_speaks: false,
        rests: false,
        deaf: 0,
        far_looks: true,
        keepers: 0,
        keep: 0,
        hands_on_in_line: false,
        trier: None,
        mutation: None,
    };
    const NONE: Faults = Faults {
        most: 0,
        lost: 0,
        doubled: 0,
        slow_requests: 0,
        slow_answers: 0,
        slow_messages: 0,
        swapped: 0,
        pauses: 0,
        cut: 0,
        deafened: 0,
        cancelled: 0,
        crashes: 0,
        vanished: 0,
    };
    /// One of any.
    const ANY: Faults = Faults {
        most: 1,
        lost: 1,
        doubled: 1,
        slow_requests: 1,
        slow_answers: 1,
        slow_messages: 1,
        swapped: 1,
        pauses: 1,
        cut: 1,
        deafened: 1,
        cancelled: 1,
        crashes: 1,
        vanished: 1,
    };
    /// How long a client keeps an idle lock, in ticks: longer than a waiter may wait for it.
    const KEEP: i8 = 5;
    const DEATH: Faults = Faults { most: 1, crashes: 1, vanished: 1, ..NONE };
    /// Faults of messages alone.
    const HEARING: Faults = Faults { lost: 1, doubled: 1, slow_messages: 1, swapped: 1, ..NONE };

    fn setting(
        name: &'static str,
        size: (u8, usize, u8),
        window: usize,
        faults: Faults,
    ) -> Setting {
        let (clients, spots, callers) = size;
        let terms = Terms { window, ..TERMS };
        Setting { name, clients, spots, callers, prompt: true, faults, terms }
    }

    /// No state of the world is wrong.
    fn holds(setting: &Setting) {
        let found = search(setting);
        let Setting { name, clients, spots, callers, .. } = *setting;
        let (window, states, steps) = (setting.terms.window, found.states, found.steps);
        let world = format!(
            "{clients} clients, {spots} entries each, {callers} callers each, window {window}"
        );
        println!("{name}: {world}: {states} states, {steps} steps");
        if let Some(violation) = found.violation {
            panic!("{violation}");
        }
    }

    /// Holders hold for longer than a waiter_ttl, and leases last long after the death of a holder.
    fn long_lease(setting: Setting) -> Setting {
        Setting { terms: Terms { lease: 9, hold: 4, ..setting.terms }, ..setting }
    }

    /// The same, and the last caller of a client asks for those that are far.
    fn last_speaks(setting: Setting) -> Setting {
        let setting = long_lease(setting);
        Setting { terms: Terms { last_speaks: true, ..setting.terms }, ..setting }
    }

    /// Holders hold for so long that contenders near the front rest.
    fn resting(setting: Setting) -> Setting {
        Setting { terms: Terms { rests: true, lease: 12, hold: 8, ..setting.terms }, ..setting }
    }

    /// A call looks at so many places.
    fn looking_at(looks: usize, setting: Setting) -> Setting {
        Setting { terms: Terms { looks: Some(looks), ..setting.terms }, ..setting }
    }

    /// Clients may be deaf for so many ticks.
    fn deaf(ticks: i8, setting: Setting) -> Setting {
        Setting { terms: Terms { deaf: ticks, ..setting.terms }, ..setting }
    }

    /// Without this rule, the search finds a wrong state. With it there is none: a release build looks for one.
    fn fails(mutation: Mutation, setting: &Setting) {
        if !cfg!(debug_assertions) {
            holds(setting);
        }
        finds(mutation, setting);
    }

    fn finds(mutation: Mutation, setting: &Setting) {
        let terms = Terms { mutation: Some(mutation), ..setting.terms };
        let found = search(&Setting { terms, ..*setting });
        let violation = found.violation;
        let violation = violation.unwrap_or_else(|| panic!("{mutation:?} is not noticed"));
        let states = found.states;
        println!(
            "{mutation:?}, after {states} states: {}",
            violation.lines().next().unwrap_or_default()
        );
    }

    #[test]
    fn without_faults_callers_that_come_at_any_time_are_let_in_at_once_and_in_order() {
        for (size, window) in
            [((3, 1, 1), 1), ((3, 1, 1), 2), ((2, 2, 1), 1), ((2, 2, 1), 2), ((2, 1, 2), 1)]
        {
            holds(&Setting { prompt: false, ..setting("no fault", size, window, NONE) });
        }
    }

    #[test]
    fn two_clients_survive_any_fault() {
        for window in [1, 2] {
            holds(&setting("any fault", (2, 1, 1), window, ANY));
        }
    }

    #[test]
    fn two_callers_that_share_an_entry_survive_the_cancellation_of_one() {
        holds(&setting("cancelled", (2, 1, 2), 1, Faults { most: 1, cancelled: 1, ..NONE }));
    }

    #[test]
    fn callers_with_an_entry_each_survive_what_happens_to_messages() {
        holds(&setting("messages", (2, 2, 1), 2, Faults { most: 1, ..HEARING }));
    }

    #[test]
    fn three_clients_survive_lost_messages_a_death_and_a_cancelled_caller() {
        let faults = Faults { deafened: 1, cancelled: 1, crashes: 1, vanished: 1, ..HEARING };
        holds(&setting("messages or a death", (3, 1, 1), 1, Faults { most: 1, ..faults }));
    }

    #[test]
    fn three_clients_survive_a_pause() {
        holds(&setting("a pause", (3, 1, 1), 1, Faults { most: 1, pauses: 1, ..NONE }));
    }

    const DEATHS: Faults = Faults { most: 2, crashes: 2, ..NONE };

    /// The dead have more places than one call looks at.
    #[test]
    fn a_crowd_that_dies_costs_its_grant_and_one_waiter_ttl() {
        holds(&looking_at(1, setting("a crowd dies", (2, 2, 1), 1, DEATH)));
        holds(&looking_at(1, setting("two die", (3, 1, 1), 1, DEATHS)));
    }

    /// Takes some minutes in a debug build.
    #[test]
    #[ignore = "takes minutes"]
    fn larger_crowds_that_die_cost_no_more() {
        holds(&looking_at(1, setting("two die", (4, 1, 1), 1, DEATHS)));
        for looks in [1, 2] {
            holds(&looking_at(looks, setting("a crowd dies", (2, 3, 1), 1, DEATH)));
        }
    }

    /// The dead have more places than one call looks at, and the next call does not go on where it ended. So the client calls again and
    /// again, and comes to no end. The first world of
    /// `a_crowd_that_dies_costs_its_grant_and_one_waiter_ttl` is the same, with the rule.
    #[test]
    fn a_sweep_of_a_crowd_that_begins_again_is_found_out() {
        let setting = setting("a rule is missing", (2, 2, 1), 1, DEATH);
        finds(Mutation::ASweepBeginsAgain, &looking_at(1, setting));
    }

    /// The callers of one client count as awake in a quick line, since one of them asks for all.
    #[test]
    fn callers_with_an_entry_each_survive_the_death_of_a_client_that_was_granted_the_lock() {
        for window in [1, 2] {
            holds(&long_lease(setting("a death", (2, 2, 1), window, DEATH)));
        }
    }

    #[test]
    fn contenders_that_rest_are_told_when_the_line_moves() {
        holds(&resting(setting("resting", (2, 1, 1), 2, ANY)));
        holds(&resting(setting("resting", (3, 1, 1), 1, NONE)));
    }

    /// Takes some minutes in a debug build.
    #[test]
    #[ignore = "takes minutes"]
    fn larger_worlds_with_contenders_that_rest_survive_too() {
        for window in [1, 2] {
            holds(&resting(setting("resting", (3, 1, 1), window, ANY)));
        }
    }

    /// So many clients keep idle locks, and callers come at any time.
    fn keeping(size: (u8, usize, u8), keepers: u8, faults: Faults) -> Setting {
        let setting = setting("kept", size, 2, faults);
        let terms = Terms { keepers, keep: KEEP, ..setting.terms };
        Setting { prompt: false, terms, ..setting }
    }

    /// The last client does not wait.
    fn tried(setting: Setting) -> Setting {
        Setting { terms: Terms { trier: Some(setting.clients - 1), ..setting.terms }, ..setting }
    }

    #[test]
    fn a_caller_that_does_not_wait_is_not_refused_twice_by_one_keeper() {
        for (size, keepers) in [((2, 1, 2), 1), ((3, 1, 1), 1), ((3, 1, 1), 2)] {
            holds(&tried(keeping(size, keepers, NONE)));
        }
    }

    #[test]
    fn a_kept_lock_is_given_back_as_soon_as_another_client_waits() {
        for (size, keepers) in [((2, 1, 2), 1), ((2, 1, 2), 2), ((3, 1, 1), 1)] {
            holds(&keeping(size, keepers, NONE));
        }
    }

    #[test]
    fn a_kept_lock_survives_any_fault() {
        for keepers in [1, 2] {
            holds(&keeping((2, 1, 1), keepers, ANY));
        }
        holds(&tried(keeping((2, 1, 1), 1, ANY)));
    }

    /// A fair lock: a client hands it over to its caller right behind in the line. Callers come at any time.
    fn in_line(size: (u8, usize, u8), faults: Faults) -> Setting {
        let setting = setting("in line", size, 2, faults);
        let terms = Terms { hands_on_in_line: true, ..setting.terms };
        Setting { prompt: false, terms, ..setting }
    }

    fn prompt(setting: Setting) -> Setting {
        Setting { prompt: true, ..setting }
    }

    #[test]
    fn a_lock_that_is_handed_on_in_line_keeps_the_order() {
        for size in [(2, 2, 1), (1, 3, 1)] {
            holds(&in_line(size, NONE));
        }
    }

    #[test]
    fn a_lock_that_is_handed_on_in_line_survives_lost_messages_a_death_and_a_cancelled_caller() {
        let faults = Faults { deafened: 1, cancelled: 1, crashes: 1, vanished: 1, ..HEARING };
        holds(&prompt(in_line((2, 2, 1), Faults { most: 1, ..faults })));
    }

    #[test]
    fn a_lock_that_is_handed_on_in_line_and_lacks_a_rule_is_found_out() {
        use Mutation::*;
        let cancelled = Faults { most: 1, cancelled: 1, ..NONE };
        for (mutation, size, faults) in [
            (AnyOneAheadIsSaid, (2, 2, 1), NONE),
            (TheServedStay, (1, 3, 1), NONE),
            (NobodyLooksAfterTheLeft, (2, 2, 1), cancelled),
        ] {
            fails(mutation, &prompt(in_line(size, faults)));
        }
    }

    /// Takes some minutes in a debug build.
    #[test]
    #[ignore = "takes minutes"]
    fn larger_worlds_with_a_lock_that_is_handed_on_in_line_survive_too() {
        holds(&prompt(in_line((2, 3, 1), NONE)));
        holds(&prompt(in_line((2, 2, 1), Faults { cut: 0, ..ANY })));
        holds(&prompt(in_line((2, 2, 1), Faults { most: 1, cut: 1, ..NONE })));
    }

    /// Takes some seconds in a release build.
    #[test]
    #[ignore = "takes minutes"]
    fn a_hand_over_in_line_that_lacks_a_rule_is_found_out() {
        let one = |faults| prompt(in_line((2, 2, 1), Faults { most: 1, ..faults }));
        // The test above shows that this world holds with the rule.
        finds(Mutation::TheMovedAreHandedOnTo, &one(Faults { cut: 1, ..NONE }));
        let slow = one(Faults { slow_requests: 1, ..NONE });
        let terms = Terms { hold: 3, ..slow.terms };
        fails(Mutation::PickingUpProlongs, &Setting { terms, ..slow });
    }

    #[test]
    fn a_kept_lock_that_lacks_one_of_its_rules_is_found_out() {
        use Mutation::*;
        let one = |faults| Faults { most: 1, ..faults };
        let lost = one(Faults { lost: 1, ..NONE });
        let deafened = one(Faults { deafened: 1, ..NONE });
        let slow_answer = one(Faults { slow_answers: 1, ..NONE });
        let slow_request = one(Faults { slow_requests: 1, ..NONE });
        let slow_message = one(Faults { slow_messages: 1, ..NONE });
        let (once, twice) = ((2, 1, 1), (2, 1, 2));
        for (mutation, size, faults) in [
            (TheKeeperIsToldLater, twice, NONE),
            (TheKeeperIsToldOnce, once, lost),
            (TheDeafKeep, twice, deafened),
            (TheCheckComesFirst, once, deafened),
            (TheAnswerAllows, once, slow_answer),
            (WhoWaitsIsNotHeeded, twice, slow_message),
            (TheHolderIsNotTold, once, NONE),
            (TheIdleIsSoughtFirst, once, NONE),
            (TheLiveChannelIsNotHeeded, once, deafened),
            (PickingUpProlongs, twice, slow_request),
            (TellingProlongs, once, DEATH),
        ] {
            fails(mutation, &keeping(size, 1, faults));
        }
        for mutation in [ATryTellsNobody, ATryAsksOnce, TheTryIsForgotten] {
            fails(mutation, &tried(keeping((2, 1, 2), 1, NONE)));
        }
    }

    /// Takes some minutes in a debug build.
    #[test]
    #[ignore = "takes minutes"]
    fn larger_worlds_survive_too() {
        for window in [1, 2] {
            holds(&deaf(SLOW, setting("any fault", (3, 1, 1), window, ANY)));
            holds(&setting("any two faults", (2, 1, 1), window, Faults { most: 2, ..ANY }));
        }
        holds(&deaf(SLOW, setting("any fault", (2, 1, 2), 1, ANY)));
        holds(&deaf(SLOW, setting("any fault", (2, 2, 1), 2, ANY)));
        holds(&last_speaks(setting("a death", (2, 3, 1), 2, DEATH)));
    }

    /// Takes some minutes in a debug build.
    #[test]
    #[ignore = "takes minutes"]
    fn larger_worlds_with_a_kept_lock_survive_too() {
        for keepers in [1, 2] {
            holds(&keeping((2, 1, 2), keepers, ANY));
            holds(&keeping((3, 1, 1), keepers, ANY));
        }
        holds(&tried(keeping((2, 1, 2), 1, ANY)));
        holds(&tried(keeping((3, 1, 1), 1, ANY)));
        holds(&keeping((2, 1, 1), 1, Faults { most: 2, ..ANY }));
        holds(&long_lease(keeping((2, 1, 2), 1, Faults { lost: 1, deafened: 1, ..DEATH })));
    }

    /// Takes some minutes. In smaller worlds the one sign that each client shows before it sleeps is enough.
    #[test]
    #[ignore = "takes minutes"]
    fn a_window_that_may_be_all_of_one_client_is_found_out() {
        let setting = setting("a rule is missing", (2, 3, 1), 2, DEATH);
        fails(
            Mutation::NobodyGuards,
            &Setting { terms: Terms { hold: 3, ..setting.terms }, ..setting },
        );
    }

    /// Takes some minutes. The caller that asks for the others stands behind the window. `larger_worlds_survive_too` searches this
    /// world with the rule.
    #[test]
    #[ignore = "takes minutes"]
    fn a_window_of_callers_that_were_not_told_is_found_out() {
        let setting = setting("a rule is missing", (2, 3, 1), 2, DEATH);
        finds(Mutation::WhoFollowsIsNotTold, &last_speaks(setting));
    }

    /// Takes some minutes. The client that fills the front is cut off, and still seems to hear. The world is the same.
    #[test]
    #[ignore = "takes minutes"]
    fn a_caller_that_counts_as_awake_and_sleeps_is_found_out() {
        let setting = setting("a rule is missing", (2, 3, 1), 2, DEATH);
        finds(Mutation::WhoCountsIsFar, &last_speaks(setting));
    }

    #[test]
    fn a_protocol_that_lacks_one_of_its_rules_is_found_out() {
        use Mutation::*;
        let cut = Faults { most: 1, cut: 1, ..NONE };
        let cancelled = Faults { most: 1, cancelled: 1, ..NONE };
        let deafened = Faults { most: 1, deafened: 1, ..NONE };
        let slow_answer = Faults { most: 1, slow_answers: 1, ..NONE };
        let slow_answer_and_pause = Faults { most: 2, slow_answers: 1, pauses: 1, ..NONE };
        let slow = Faults { most: 2, slow_messages: 1, slow_requests: 1, ..NONE };
        let (two, three) = ((2, 1, 1), (3, 1, 1));
        for (mutation, size, window, faults, hold) in [
            (TheSilentAreGranted, two, 2, DEATH, 5),
            (TheLastComesFirst, three, 2, NONE, 1),
            (TheDeadStay, three, 2, DEATH, 5),
            (AGrantEndsEarly, three, 2, NONE, 2),
            (AnotherIsTold, three, 2, NONE, 1),
            (RoomIsNotGiven, two, 2, NONE, 1),
            (PlaceIsForgotten, three, 2, cut, 1),
            (NoNewOwnerField, two, 2, cut, 1),
            (NoGhost, two, 2, cut, 1),
            (AGhostIsLookedForOnce, two, 2, cut, 1),
            (TheHeldBackAreForgotten, two, 2, cut, 1),
            (TheLineIsNotLeft, two, 2, cancelled, 1),
            (TheLeaseCountsFromTheAnswer, two, 2, slow_answer, 4),
            (ARenewalCountsFromTheAnswer, two, 2, slow_answer_and_pause, 6),
            (AMessageCountsFromItsArrival, three, 2, slow, 1),
            (AnyOwnerFieldIsTaken, three, 2, cut, 1),
            (AGrantWithoutAnAnswerIsTaken, three, 2, cut, 1),
            (TheFarLookSeldom, (2, 2, 1), 1, DEATH, 4),
            (TheDeadThatHearStay, three, 2, DEATH, 5),
            (AWaiterAsksAgainAtOnce, two, 2, NONE, 1),
        ] {
            let setting = setting("a rule is missing", size, window, faults);
            fails(mutation, &Setting { terms: Terms { hold, ..setting.terms }, ..setting });
        }
        fails(
            NobodyAsksInAQuickLine,
            &long_lease(setting("a rule is missing", (2, 2, 1), 2, DEATH)),
        );
        fails(WhoRestsIsNotTold, &resting(setting("a rule is missing", two, 2, NONE)));
        // A far contender that asks at the end of the lease would compensate for these.
        for (mutation, size, window, faults, hold) in [
            (NobodyIsToldForTheDeaf, three, 1, DEATH, 4),
            (WhoComesNearIsNotTold, three, 1, DEATH, 1),
            (WhoSleepsCountsAsAwake, three, 1, DEATH, 4),
            (NearIsNotHeeded, two, 2, DEATH, 1),
        ] {
            let setting = setting("a rule is missing", size, window, faults);
            let terms = Terms { hold, far_looks: false, ..setting.terms };
            fails(mutation, &Setting { terms, ..setting });
        }
        // So would a guard.
        for (mutation, ticks) in [(NobodyIsRoused, 0), (TheDeafDoNotAsk, 3 * SLOW)] {
            let setting = deaf(ticks, setting("a rule is missing", three, 1, deafened));
            let terms = Terms { guards: false, far_looks: false, ..setting.terms };
            fails(mutation, &Setting { terms, ..setting });
        }
    }
}
