//! What the scripts of `lua/line` do to the line of one plain lock, without Redis.

use crate::core::model_check::{Mutation, PARK, TTL};

/// No line is quiet for longer: its first contender asks sooner.
const LONG_QUIET: i8 = PARK + TTL;

/// An owner field: a client, and its own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    pub(crate) client: u8,
    pub(crate) id: u8,
}

/// Some owner fields of one client, by their numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ids(u16);

impl Ids {
    pub(crate) fn insert(&mut self, id: u8) {
        self.0 |= 1_u16.checked_shl(u32::from(id)).expect("the world is small");
    }

    pub(crate) fn contains(self, id: u8) -> bool {
        self.iter().any(|own| own == id)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..16_u8).filter(move |id| self.0 >> id & 1 == 1)
    }
}

/// One place in the line. Times are ticks from now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Waiter {
    pub(crate) field: Field,
    pub(crate) place: u8,
    /// How long ago it lined up, up to `TTL`.
    age: i8,
    /// It came to a quick line behind another caller of its client, and has shown no sign of life since.
    follows: bool,
    /// It shows a sign of life only when it is told to.
    rests: bool,
    /// It had lost its place, and took it back.
    pub(crate) is_back: bool,
}

/// When a silent client was first and last told to show a sign of life, and whether anybody heard that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) first: i8,
    pub(crate) last: i8,
    heard: bool,
}

/// Until when a client counts as alive, and when it made the sign of life that proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    pub(crate) ends: i8,
    pub(crate) sign: i8,
}

/// One word of a message to one client. `Wanted`: another client wants the lock that this one may keep idle; `is_tried`: it
/// stands in no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    Granted { field: Field, sign: i8 },
    Near { field: Field, at_once: bool },
    Wanted { field: Field, is_tried: bool },
}

impl Word {
    fn client(self) -> u8 {
        let (Self::Granted { field, .. } | Self::Near { field, .. } | Self::Wanted { field, .. }) =
            self;
        field.client
    }
}

/// The answer to an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    /// `awaited`: somebody stands in line.
    Granted { awaited: bool },
    /// In `again` ticks, the holder must be gone, or a silent head may have answered.
    /// `ahead`: the caller of the same client right ahead, if this one has just lined up.
    Waits { place: u8, near: bool, again: i8, ahead: Option<u8> },
}

/// The arguments of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AcquireOptions {
    pub(crate) field: Field,
    /// The place that it had, or 0.
    pub(crate) had: u8,
    pub(crate) sign: i8,
    pub(crate) old: Option<Field>,
    pub(crate) rests: bool,
}

/// The settings of a small world: the same in all of its states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) window: usize,
    /// How many places one call looks at. If there are more, and some of them are dead, the caller calls again. `None`: all.
    pub(crate) looks: Option<usize>,
    /// If one client has all entries at the front, a waiter of another client shows signs of life too.
    pub(crate) guards: bool,
    pub(crate) lease: i8,
    /// How long a holder holds at most.
    pub(crate) hold: i8,
    /// Of the far contenders of a client, the last in line speaks for the others, not the first.
    pub(crate) last_speaks: bool,
    /// A contender near the front rests after some signs of life.
    pub(crate) rests: bool,
    /// For how many ticks a client that keeps no locks may be deaf.
    pub(crate) deaf: i8,
    /// A far contender that speaks for others asks when the lease that it knows of is over, not only after `max_park`.
    pub(crate) far_looks: bool,
    /// So many clients keep idle locks, and for so long.
    pub(crate) keepers: u8,
    pub(crate) keep: i8,
    /// A client hands the lock over to its caller right behind in the line, as for a fair lock.
    pub(crate) hands_on_in_line: bool,
    /// The callers of this client do not wait.
    pub(crate) trier: Option<u8>,
    pub(crate) mutation: Option<Mutation>,
}

impl Terms {
    pub(crate) fn is(self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// As the client's id says.
    pub(crate) fn keeps(self, client: u8) -> bool {
        client < self.keepers
    }
}

/// Everything that Redis stores for one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) lock: Option<(Field, i8)>,
    pub(crate) line: Vec<Waiter>,
    pub(crate) lives: Vec<Option<Life>>,
    /// Of each client: it is dead with all its places.
    pub(crate) asked: Vec<Option<Asked>>,
    /// The place up to which all waiters were told to show signs of life.
    pub(crate) near: u8,
    /// The place of a waiter that was told so too, since one client has all entries before it; or 0.
    pub(crate) guard: u8,
    /// No waiter behind this place was told by a reply that it may sleep.
    pub(crate) sleepers: u8,
    /// How far a call that looked for the dead behind the front has come, or 0; and when it last found some.
    pub(crate) swept: u8,
    swept_at: i8,
    /// The highest place that anybody knows of: the server's clock is beyond all of them.
    pub(crate) top: u8,
    /// How long ago the last script ran, and for how long the line's clock had run then since the last stall.
    quiet: i8,
    ran: i8,
}

/// An entry that was let in: from which place, and whether its client counted as alive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LetIn {
    pub(crate) field: Field,
    pub(crate) place: u8,
    pub(crate) lives: bool,
}

/// One call of a script: the server, and its messages.
pub(crate) struct Call<'a> {
    server: &'a mut Server,
    terms: Terms,
    /// Which clients listen.
    ears: &'a [bool],
    asker: Option<Field>,
    /// The reply has to say whether the asker is near the front.
    asks_again: bool,
    /// The asker counts as awake behind a silent client that fills the front.
    relies_on_asker: bool,
    /// A script ran in this tick.
    is_recent: bool,
    /// A waiter has left the line.
    moved: bool,
    /// How many places it may still look at.
    work: usize,
    /// It has told a silent client that nobody hears, or has removed one.
    has_lost: bool,
    /// It has let in a client that nobody hears.
    is_unheard: bool,
    /// More is to be done than it may do.
    is_unfinished: bool,
    said: Vec<Word>,
    pub(crate) granted: Vec<LetIn>,
}

impl Server {
    pub(crate) fn new(clients: usize) -> Self {
        Self {
            lock: None,
            line: Vec::new(),
            lives: vec![None; clients],
            asked: vec![None; clients],
            near: 0,
            guard: 0,
            sleepers: 0,
            swept: 0,
            swept_at: -TTL,
            top: 0,
            quiet: 0,
            ran: TTL,
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.lock.is_none() && self.line.is_empty()
    }

    fn holds(&self, field: Field) -> bool {
        self.lock.is_some_and(|(holder, _)| holder == field)
    }

    fn rank(&self, field: Field) -> Option<usize> {
        self.line.iter().position(|waiter| waiter.field == field)
    }

    fn lives_on(&self, client: u8) -> bool {
        self.lives[usize::from(client)].is_some_and(|life| life.ends > 0)
    }

    /// All times of the line's own clock.
    fn times(&mut self, mut change: impl FnMut(&mut i8)) {
        for life in self.lives.iter_mut().flatten() {
            change(&mut life.ends);
        }
        for asked in self.asked.iter_mut().flatten() {
            change(&mut asked.first);
            change(&mut asked.last);
        }
        if self.swept_at > -TTL {
            change(&mut self.swept_at);
        }
    }

    /// One tick later.
    pub(crate) fn tick(&mut self) {
        // A time that is long past stays as it is: so the number of states is bounded.
        self.times(|time| *time = (*time - 1).max(-LONG_QUIET));
        for life in self.lives.iter_mut().flatten() {
            life.sign = (life.sign - 1).max(-4 * TTL);
        }
        for waiter in &mut self.line {
            waiter.age = (waiter.age + 1).min(TTL);
        }
        self.lock = self.lock.map(|(field, left)| (field, left - 1)).filter(|(_, left)| *left > 0);
        self.quiet = if self.line.is_empty() { 0 } else { (self.quiet + 1).min(LONG_QUIET) };
    }

    /// A script ends. Without waiters, it leaves no note of the line.
    pub(crate) fn settle(&mut self) {
        if self.line.is_empty() {
            let clients = self.lives.len();
            *self = Self { lock: self.lock, top: self.top, ..Self::new(clients) };
        }
    }

    /// The line's clock stops while the server stalls: it takes a gap between two scripts for a stall, if it has run for a
    /// whole `waiter_ttl` since the last one.
    fn read_clock(&mut self) {
        let gap = std::mem::take(&mut self.quiet);
        if 2 * gap > TTL && self.ran >= TTL {
            self.times(|time| *time += gap);
            self.ran = 0;
        } else {
            self.ran = (self.ran + gap).min(TTL);
        }
    }

    /// Whether the waiter at this place was told to show signs of life.
    fn is_near(&self, place: u8) -> bool {
        place <= self.near || place == self.guard
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(server: &'a mut Server, terms: Terms, ears: &'a [bool]) -> Self {
        Self {
            server,
            terms,
            ears,
            asker: None,
            asks_again: false,
            relies_on_asker: false,
            is_recent: false,
            moved: false,
            work: terms.looks.unwrap_or(usize::MAX),
            has_lost: false,
            is_unheard: false,
            is_unfinished: false,
            said: Vec::new(),
            granted: Vec::new(),
        }
    }

    /// Reads the notes of the line. A renewal does not.
    fn open(&mut self) {
        self.is_recent = self.server.quiet == 0 && !self.server.line.is_empty();
        self.server.read_clock();
    }

    pub(crate) fn acquire(&mut self, options: AcquireOptions) -> Reply {
        self.open();
        let AcquireOptions { field, had, sign, old, rests } = options;
        old.iter().for_each(|old| self.forget(*old));
        if self.server.holds(field) {
            self.server.lock = Some((field, self.terms.lease.max(self.left())));
            return self.granted();
        }
        let is_new = self.server.rank(field).is_none();
        let is_alone = self.server.line.iter().all(|waiter| waiter.field.client != field.client);
        // In a quick line its client shows one more sign before the caller counts as asleep.
        let is_quick = self.server.line.first().is_none_or(|head| head.age < TTL / 3);
        let is_relied_on = is_new && had == 0 && is_quick;
        self.sign(field.client, Life { ends: TTL, sign });
        let ahead = if is_new && had == 0 { self.ahead_of(field) } else { None };
        if is_new {
            self.line_up(field, had);
        }
        if let Some(rank) = self.server.rank(field) {
            let waiter = &mut self.server.line[rank];
            (waiter.follows, waiter.rests) = (is_relied_on && !is_alone, rests);
        }
        self.asker = Some(field);
        if !self.is_of_no_account(field, is_relied_on) {
            self.asks_again = !is_relied_on;
            self.admit();
            self.tell_keeper(is_new, false);
        }
        match self.server.rank(field) {
            None => self.granted(),
            Some(rank) if self.is_unfinished => {
                let place = self.server.line[rank].place;
                Reply::Waits { place, near: true, again: 0, ahead }
            }
            Some(rank) => {
                let place = self.server.line[rank].place;
                let is_near = self.server.is_near(place);
                let near = is_near || self.relies_on_asker || is_relied_on && is_alone;
                let sleeps = rests || !is_near && !is_relied_on;
                if sleeps && !self.terms.is(Mutation::WhoSleepsCountsAsAwake) {
                    self.server.sleepers = self.server.sleepers.max(place);
                }
                // One caller of the client asks for all of those that are far.
                let asks = is_relied_on && !self.terms.is(Mutation::NobodyAsksInAQuickLine);
                let again = if asks { self.again().min(TTL / 3) } else { self.again() };
                Reply::Waits { place, near, again, ahead }
            }
        }
    }

    /// A sign of life. What the client was told before does not count any more.
    fn sign(&mut self, client: u8, life: Life) {
        self.server.lives[usize::from(client)] = Some(life);
        self.server.asked[usize::from(client)] = None;
    }

    /// The last in line, if it is another caller of this client.
    fn ahead_of(&self, field: Field) -> Option<u8> {
        let is_own = |waiter: &&Waiter| waiter.field.client == field.client;
        let last = if self.terms.is(Mutation::AnyOneAheadIsSaid) {
            self.server.line.iter().rfind(is_own)
        } else {
            self.server.line.last().filter(is_own)
        };
        last.map(|waiter| waiter.field.id).filter(|_| self.terms.hands_on_in_line)
    }

    fn granted(&self) -> Reply {
        Reply::Granted { awaited: !self.server.line.is_empty() }
    }

    /// Tells the holder's client that the asker wants the lock, if that client may keep the lock idle.
    fn tell_keeper(&mut self, is_new: bool, is_tried: bool) {
        let Some((field, _)) = self.server.lock.filter(|(field, _)| self.asker != Some(*field))
        else {
            return;
        };
        let is_forgotten = match self.terms.mutation {
            Some(Mutation::TheKeeperIsToldLater) => is_new,
            Some(Mutation::TheKeeperIsToldOnce) => !is_new,
            _ => false,
        };
        if self.terms.keeps(field.client) && !is_forgotten {
            self.said.push(Word::Wanted { field, is_tried });
        }
        if self.terms.is(Mutation::TellingProlongs) {
            self.server.lock = Some((field, self.terms.lease));
        }
    }

    /// A caller that does not wait. Returns who holds the lock now.
    pub(crate) fn try_once(&mut self, field: Field) -> Option<Field> {
        self.open();
        self.asker = Some(field);
        self.admit();
        if self.server.lock.is_none() && !self.somebody_may_come() {
            self.server.lock = Some((field, self.terms.lease));
        } else if !self.terms.is(Mutation::ATryTellsNobody) {
            self.tell_keeper(true, true);
        }
        self.server.lock.map(|(holder, _)| holder)
    }

    fn somebody_may_come(&self) -> bool {
        let may_come = |rank: usize| {
            let has_heard = self.asked(rank).is_some_and(|asked| asked.heard);
            !self.is_silent(rank) || has_heard && !self.is_dead(rank)
        };
        (0..self.server.line.len()).any(may_come)
    }

    /// Whether a sign of life changes nothing for others: there is no room, and a script has just looked at the front.
    fn is_of_no_account(&self, field: Field, is_relied_on: bool) -> bool {
        let Some(rank) = self.server.rank(field) else { return false };
        let stands_near = self.server.is_near(self.server.line[rank].place);
        let is_settled = is_relied_on || stands_near || rank >= self.terms.window;
        is_settled && self.is_recent && self.server.lock.is_some()
    }

    /// Releases its hold, or gives up its place in the line. Callers that have had this hold too leave the line. Returns
    /// whether more is to be done.
    pub(crate) fn release(&mut self, field: Field, served: Ids) -> bool {
        self.open();
        let held = self.server.holds(field);
        self.forget(field);
        if !self.terms.is(Mutation::TheServedStay) {
            served.iter().for_each(|id| self.forget(Field { id, ..field }));
        }
        if !(held && self.terms.is(Mutation::RoomIsNotGiven)) {
            self.admit();
        }
        self.is_unfinished
    }

    /// Prolongs a hold. The renewal of a plain lock looks at nothing else.
    pub(crate) fn renew(&mut self, field: Field) -> bool {
        let held = self.server.holds(field);
        if held {
            self.server.lock = Some((field, self.terms.lease.max(self.left())));
        }
        held
    }

    /// The mail: one message for each client. A keeper is told separately.
    pub(crate) fn messages(self) -> Vec<(u8, Vec<Word>)> {
        let mut messages: Vec<(u8, Vec<Word>)> = Vec::new();
        for word in self.said {
            let mut mail = messages.iter_mut().filter(|_| !matches!(word, Word::Wanted { .. }));
            match mail.find(|(client, _)| *client == word.client()) {
                Some((_, words)) => words.push(word),
                None => messages.push((word.client(), vec![word])),
            }
        }
        messages
    }

    fn again(&self) -> i8 {
        if self.terms.is(Mutation::AWaiterAsksAgainAtOnce) {
            return 0;
        }
        match self.left() {
            0 if !self.server.line.is_empty() && self.is_silent(0) => TTL / 3,
            0 => TTL,
            left => left,
        }
    }

    fn left(&self) -> i8 {
        self.server.lock.map_or(0, |(_, left)| left)
    }

    fn forget(&mut self, field: Field) {
        if self.server.holds(field) {
            self.server.lock = None;
        }
        if let Some(rank) = self.server.rank(field) {
            self.leave(rank);
            // Its client is alive, and may have been told by this waiter.
            self.server.asked[usize::from(field.client)] = None;
        }
    }

    /// A newcomer goes to the end. A waiter that had a place gets it back, behind an entry that may be its own old one.
    fn line_up(&mut self, field: Field, had: u8) {
        // With room in between for an old entry's successor.
        let end = self.server.top + 2;
        let keeps = had > 0 && !self.terms.is(Mutation::PlaceIsForgotten);
        let mut place = if keeps { had.min(end) } else { end };
        while self.server.line.iter().any(|waiter| waiter.place == place) {
            place += 1;
        }
        self.server.top = self.server.top.max(place);
        let rank = self.server.line.iter().filter(|waiter| waiter.place < place).count();
        let (follows, rests) = (false, false);
        let waiter = Waiter { field, place, age: 0, follows, rests, is_back: keeps };
        self.server.line.insert(rank, waiter);
    }

    fn leave(&mut self, rank: usize) -> Waiter {
        self.moved = true;
        let waiter = self.server.line.remove(rank);
        let client = waiter.field.client;
        if self.server.line.iter().all(|other| other.field.client != client) {
            self.server.lives[usize::from(client)] = None;
            self.server.asked[usize::from(client)] = None;
        }
        waiter
    }

    fn hears(&self, client: u8) -> bool {
        self.ears[usize::from(client)]
    }

    fn is_silent(&self, rank: usize) -> bool {
        !self.server.lives_on(self.server.line[rank].field.client)
    }

    /// When its client was told to show a sign since it fell silent.
    fn asked(&self, rank: usize) -> Option<Asked> {
        let client = usize::from(self.server.line[rank].field.client);
        self.server.asked[client].filter(|_| self.is_silent(rank))
    }

    fn is_dead(&self, rank: usize) -> bool {
        if self.terms.is(Mutation::TheDeadStay) {
            return false;
        }
        let stays = |asked: Asked| asked.heard && self.terms.is(Mutation::TheDeadThatHearStay);
        self.asked(rank).is_some_and(|asked| asked.first + TTL <= 0 && !stays(asked))
    }

    /// Whether it is awake without a message. If so, all that came later are awake too.
    fn is_awake(&self, rank: usize) -> bool {
        let Waiter { place, age, .. } = self.server.line[rank];
        place > self.server.sleepers && age < TTL
    }

    /// Lets in the head, if there is room and its client is alive.
    fn admit(&mut self) {
        let all_are_awake = !self.server.line.is_empty() && self.is_awake(0);
        while !self.server.line.is_empty() {
            if self.is_dead(0) {
                if self.work == 0 {
                    self.is_unfinished = true;
                    break;
                }
                self.work -= 1;
                self.leave(0);
                continue;
            }
            if self.server.lock.is_some() {
                break;
            }
            if self.is_silent(0) && !self.terms.is(Mutation::TheSilentAreGranted) {
                break;
            }
            let turned_round = self.terms.is(Mutation::TheLastComesFirst);
            self.grant(if turned_round { self.server.line.len() - 1 } else { 0 });
        }
        if self.asks_again || !all_are_awake {
            let (awake, last) = self.look_at();
            let had_sentry = self.server.guard > 0;
            let goes_on = self.terms.looks.is_some() && last.is_some();
            let lacks = self.post_sentry(&awake, goes_on);
            if self.terms.looks.is_some() {
                self.sweep(last, &awake, lacks, had_sentry);
            }
        }
        if self.is_unheard && !self.server.line.is_empty() && self.terms.looks.is_some() {
            (self.server.swept, self.server.swept_at) = (1, 0);
            self.is_unfinished = true;
        }
    }

    fn grant(&mut self, rank: usize) {
        let client = self.server.line[rank].field.client;
        let life = self.server.lives[usize::from(client)].unwrap_or(Life { ends: 1, sign: 0 });
        let lives = !self.is_silent(rank);
        let Waiter { field, place, .. } = self.leave(rank);
        self.granted.push(LetIn { field, place, lives });
        if self.asker == Some(field) {
            self.server.lock = Some((field, self.terms.lease));
            return;
        }
        self.is_unheard |= !self.hears(field.client);
        let mut left = self.terms.lease.min(life.ends).max(1);
        if self.terms.is(Mutation::AGrantEndsEarly) {
            left = 1;
        }
        self.server.lock = Some((field, left));
        let mut told = Word::Granted { field, sign: life.sign };
        if self.terms.is(Mutation::AnotherIsTold)
            && let Some(next) = self.server.line.first()
        {
            let sign =
                self.server.lives[usize::from(next.field.client)].map_or(0, |life| life.sign);
            told = Word::Granted { field: next.field, sign };
        }
        self.said.push(told);
    }

    /// Whether the turn of a waiter that rests has not come nearer. Then it need not be woken.
    fn nothing_is_new(&self) -> bool {
        let is_so = !self.moved && self.server.lock.is_some();
        is_so || self.terms.is(Mutation::WhoRestsIsNotTold)
    }

    /// Notifies waiters at the front until a whole window of them is awake. Returns the clients that are, and the last place
    /// that it has looked at, unless nobody is behind that.
    fn look_at(&mut self) -> (Vec<u8>, Option<u8>) {
        let (mut awake, mut rank, mut is_front) = (Vec::new(), 0, true);
        let mut left = if self.is_sweeping() { 0 } else { self.work }.max(self.terms.window);
        let told: Vec<_> = (0..self.ears.len()).map(|client| self.is_told(client)).collect();
        let mut last = None;
        let (window, nothing_is_new) = (self.terms.window, self.nothing_is_new());
        let mut silent = vec![0; self.ears.len()];
        while awake.len() < window && rank < self.server.line.len() && left > 0 {
            last = Some(self.server.line[rank].place);
            (left, self.work) = (left - 1, self.work.saturating_sub(1));
            if rank >= window && self.terms.is(Mutation::NobodyIsToldForTheDeaf) {
                break;
            }
            if self.is_dead(rank) {
                self.leave(rank);
                continue;
            }
            let Waiter { field, place, .. } = self.server.line[rank];
            // A process that is cut off still seems to hear: a silent client counts once, and so many of its waiters
            // are told.
            let is_silent = self.is_silent(rank) && !self.is_usual(rank, nothing_is_new);
            let nth = &mut silent[usize::from(field.client)];
            *nth += usize::from(is_silent);
            let (is_first, is_one_too_many) = (*nth == 1, *nth > window);
            if is_silent && is_one_too_many && self.hears(field.client) {
                is_front = false;
            } else if self.wake(rank, nothing_is_new, told[usize::from(field.client)])
                && (is_first || !is_silent)
            {
                awake.push(field.client);
            }
            if is_front {
                self.server.near = self.server.near.max(place);
            } else if !self.terms.is(Mutation::WhoCountsIsFar) {
                self.relies_on_asker |= self.asker == Some(field);
            }
            rank += 1;
        }
        (awake, last.filter(|_| rank < self.server.line.len()))
    }

    /// Whether this client was told a short time ago to show a sign of life.
    fn is_told(&self, client: usize) -> bool {
        let lives = self.server.lives[client].is_some_and(|life| life.ends > 0);
        !lives && self.server.asked[client].is_some_and(|asked| asked.last + TTL / 3 > 0)
    }

    fn suspects(&self) -> bool {
        self.server.swept_at > -TTL
    }

    fn is_sweeping(&self) -> bool {
        self.server.swept > 0 && self.suspects()
    }

    /// Goes through the line behind the front for as long as it finds clients that nobody hears, or lacks a sentry.
    fn sweep(&mut self, front: Option<u8>, awake: &[u8], mut lacks: bool, had_sentry: bool) {
        let Some(front) = front else {
            self.server.swept = 0;
            return;
        };
        let may_begin = !self.is_sweeping() && self.server.swept_at + TTL / 3 <= 0;
        let again = self.suspects() && may_begin;
        if self.has_lost || lacks && (had_sentry || may_begin) {
            (self.server.swept, self.server.swept_at) = (0, 0);
        } else if !again && !self.is_sweeping() {
            return;
        }
        let begins_again = self.terms.is(Mutation::ASweepBeginsAgain);
        let mut last = if begins_again { front } else { front.max(self.server.swept) };
        let mut left = self.work.max(self.terms.window);
        let mut rank = self.server.line.iter().filter(|waiter| waiter.place <= last).count();
        self.has_lost = false;
        while left > 0 && rank < self.server.line.len() {
            let Waiter { field, place, .. } = self.server.line[rank];
            (last, left) = (place, left - 1);
            if self.is_dead(rank) {
                self.leave(rank);
                self.has_lost = true;
                continue;
            }
            let (asked, hears) = (self.asked(rank), self.hears(field.client));
            self.has_lost |= asked.is_some_and(|asked| !asked.heard);
            if self.is_silent(rank) && asked.is_none() && !hears {
                let asked = Asked { first: 0, last: 0, heard: false };
                self.server.asked[usize::from(field.client)] = Some(asked);
                (self.server.swept_at, self.has_lost) = (0, true);
            }
            if lacks && hears && self.may_guard(rank, awake) {
                (self.server.guard, lacks) = (place, false);
            }
            rank += 1;
        }
        let goes_on = left == 0 && (self.has_lost || lacks);
        self.is_unfinished |= goes_on;
        self.server.swept = if goes_on { last } else { 0 };
    }

    /// If one client has all waiters that are awake, or none is awake as far as this call has looked, a waiter of another client
    /// shows signs of life too: the one that did so before, the asker, or the last in line. Where a call looks at all places, it
    /// may be any other. Returns whether there is none.
    fn post_sentry(&mut self, awake: &[u8], goes_on: bool) -> bool {
        let is_of_one = !awake.is_empty() && awake.iter().all(|client| *client == awake[0]);
        let is_missing = is_of_one || awake.is_empty() && goes_on;
        let is_posted = is_missing && self.terms.guards && !self.terms.is(Mutation::NobodyGuards);
        let (guard, all) = (self.server.guard, self.server.line.len());
        let former = self.server.line.iter().position(|waiter| waiter.place == guard);
        let asker = self.asker.and_then(|asker| self.server.rank(asker));
        let any = if self.terms.looks.is_some() { all..all } else { self.terms.window..all };
        let first = former.into_iter().chain(asker.filter(|_| awake.is_empty()));
        let mut candidates = first.chain((0..all).rev().take(1)).chain(any);
        let posted = candidates.find(|rank| is_posted && self.may_guard(*rank, awake));
        self.server.guard = posted.map_or(0, |rank| self.server.line[rank].place);
        self.relies_on_asker |= awake.is_empty() && posted.is_some() && posted == asker;
        is_posted && posted.is_none()
    }

    /// Wakes this waiter, if it is not of the only client that is awake.
    fn may_guard(&mut self, rank: usize, awake: &[u8]) -> bool {
        let client = self.server.line[rank].field.client;
        let is_told = self.is_told(usize::from(client));
        awake.first() != Some(&client)
            && !self.is_dead(rank)
            && self.wake(rank, self.nothing_is_new(), is_told)
    }

    /// Whether it needs no message: a request of its own runs, or it rests and nothing is new.
    fn is_usual(&self, rank: usize, nothing_is_new: bool) -> bool {
        let Waiter { field, rests, .. } = self.server.line[rank];
        self.asker == Some(field) || rests && nothing_is_new
    }

    /// Whether it shows signs of life by itself.
    fn shows_signs(&self, rank: usize) -> bool {
        let Waiter { place, follows, rests, .. } = self.server.line[rank];
        let is_awake =
            self.is_awake(rank) && (!follows || self.terms.is(Mutation::WhoFollowsIsNotTold));
        !self.is_silent(rank) && !rests && (self.server.is_near(place) || is_awake)
    }

    /// Sends it the message that it needs, unless its client was told before. Returns whether it is awake now.
    fn wake(&mut self, rank: usize, nothing_is_new: bool, is_told: bool) -> bool {
        if self.is_usual(rank, nothing_is_new) || self.shows_signs(rank) {
            return true;
        }
        let field = self.server.line[rank].field;
        let hears = self.hears(field.client);
        if !self.is_silent(rank) {
            if !self.terms.is(Mutation::WhoComesNearIsNotTold) {
                self.said.push(Word::Near { field, at_once: false });
            }
            return hears;
        }
        let asked = self.asked(rank);
        if let Some(asked) = asked.filter(|_| is_told) {
            return asked.heard;
        }
        self.said.push(Word::Near { field, at_once: true });
        let first = asked.map_or(0, |asked| asked.first);
        self.has_lost |= !hears && first == 0;
        self.server.asked[usize::from(field.client)] = Some(Asked { first, last: 0, heard: hears });
        hears
    }
}
