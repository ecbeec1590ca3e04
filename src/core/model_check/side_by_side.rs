//! What the callers of one client hold side by side, in every order of events: permits of a semaphore, or reads. The lock, its queue,
//! its idle tenures and the tenures are the real ones. A driver does with them what `caller.rs`, `caller/pick_up.rs`,
//! `entry/visit.rs`, `entry/permit.rs` and `tenure/hand_over.rs` do. The server is a number of permits and a line with
//! one place.
//!
//! In the end, a caller is polled only if it was woken, and the watchdog does not help. So a permit that is left idle for nobody, and a
//! caller that nobody wakes, are found.

use std::array::from_fn;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::core::budget::Budget;
use crate::core::lifetime::Lifetime;
use crate::core::lock::{After, Begun, Lock, Parts};
use crate::core::side_by_side::SideBySide;
use crate::core::tenure::{PickUp, Remaining, Tenure};
use crate::core::waiting::{Event, Next, PushedGrant, Rules};
use crate::keys::TenureId;

const CALLERS: usize = 3;

/// So often does each of them come.
const MOST_CALLS: u8 = 2;

/// So many events come in every order, and then all come to an end.
const MOST: usize = if cfg!(debug_assertions) { 8 } else { 9 };

/// No time runs out.
const LONG: Duration = Duration::from_secs(3600);
const RULES: Rules = Rules { waiter_ttl: LONG, pushed_lease: LONG, max_park: LONG, rests: true };
const BUDGET: Budget =
    Budget { hand_overs: 2, time: LONG, reserve: Duration::ZERO, lease: Duration::MAX };

/// What the client leaves with its lock.
struct Ids;

impl Parts for Ids {
    type Tenure = TenureId;
    type Ghost = ();
    type Work = ();
    type Ears = ();

    fn id(tenure: &TenureId) -> TenureId {
        *tenure
    }

    fn lasts_until((): &()) -> Instant {
        unreachable!("each request is answered")
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Come(usize),
    Poll(usize),
    /// The server runs the request of this caller, and the answer arrives.
    Answer(usize),
    /// The holder leaves.
    Leave(usize),
    /// The future is dropped. A request that it has sent does not run.
    Drop(usize),
    /// The server runs the first release in flight, and the answer arrives.
    Released,
    /// Another client gives a permit back.
    OtherLeaves,
}

/// A rule that is left out, to prove that the search notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    AReleaseChecksNothing,
    WhoParksIsNotTold,
    WhoLeavesLooksAfterNothing,
}

/// What is tried: permits or reads, how many of them there are, and how many another client has.
#[derive(Debug, Clone, Copy)]
struct Setting {
    reads: bool,
    capacity: usize,
    others: usize,
    mutation: Option<Mutation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Away,
    Queued(u64),
    /// It has the permit of the queue with this ticket, and asks under this owner field.
    Asks(u64, TenureId),
    /// It asks beside the contender.
    AsksBeside(TenureId),
    Parked(u64),
    Holds(TenureId, u16),
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Client {
    setting: Setting,
    now: Instant,
    lock: Lock<Ids>,
    tenures: BTreeMap<TenureId, Tenure>,
    callers: [At; CALLERS],
    calls: [u8; CALLERS],
    came: [Instant; CALLERS],
    woken: [Arc<Woken>; CALLERS],
    gate: bool,
    last_id: u64,
    /// Releases in flight.
    releasing: Vec<TenureId>,
    /// What the server has: holders, permits of others, and the head of the line.
    held: BTreeSet<TenureId>,
    others: usize,
    line: Option<TenureId>,
}

impl Client {
    fn new(setting: Setting, now: Instant) -> Self {
        let lock = Lock { side_by_side: Some(Box::default()), ..Lock::default() };
        Self {
            setting,
            now,
            lock,
            tenures: BTreeMap::new(),
            callers: [At::Away; CALLERS],
            calls: [0; CALLERS],
            came: [now; CALLERS],
            woken: from_fn(|_| Arc::new(Woken(AtomicBool::new(false)))),
            gate: false,
            last_id: 0,
            releasing: Vec::new(),
            held: BTreeSet::new(),
            others: setting.others,
            line: None,
        }
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.setting.mutation == Some(mutation)
    }

    fn shared(&mut self) -> &mut SideBySide<TenureId> {
        self.lock.side_by_side.as_deref_mut().expect("it is there from the beginning")
    }

    fn tenure(&mut self, id: TenureId) -> &mut Tenure {
        self.tenures.get_mut(&id).expect("it was granted")
    }

    fn new_id(&mut self) -> TenureId {
        self.last_id += 1;
        TenureId(self.last_id)
    }

    /// Returns `false` if this cannot happen now.
    fn play(&mut self, step: Step) -> bool {
        self.now += Duration::from_millis(1);
        match step {
            Step::Come(who) => {
                // The callers are alike, so they come for the first time in one order.
                if self.callers[who] != At::Away
                    || self.calls[who] == MOST_CALLS
                    || who > 0 && self.calls[who - 1] == 0
                {
                    return false;
                }
                self.calls[who] += 1;
                self.came[who] = self.now;
                self.comes(who);
            }
            Step::Poll(who) => match self.callers[who] {
                At::Queued(ticket) => self.polls(who, ticket),
                At::Parked(ticket) if std::mem::take(&mut self.gate) => self.goes_on(who, ticket),
                _ => return false,
            },
            Step::Answer(who) => match self.callers[who] {
                At::Asks(ticket, id) => self.answers(who, ticket, id),
                At::AsksBeside(id) => self.answers_beside(who, id),
                _ => return false,
            },
            Step::Leave(who) => {
                let At::Holds(id, hold) = self.callers[who] else { return false };
                self.callers[who] = At::Away;
                self.leaves(id, hold);
            }
            Step::Drop(who) => match std::mem::replace(&mut self.callers[who], At::Away) {
                At::Queued(ticket) => self.leaves_queue(ticket),
                At::Asks(..) | At::Parked(_) => self.gives_up(),
                At::AsksBeside(_) => {}
                at @ (At::Away | At::Holds(..)) => {
                    self.callers[who] = at;
                    return false;
                }
            },
            Step::Released => {
                if self.releasing.is_empty() {
                    return false;
                }
                let id = self.releasing.remove(0);
                self.is_released(id);
            }
            Step::OtherLeaves => {
                if self.others == 0 {
                    return false;
                }
                self.others -= 1;
                self.lets_in();
            }
        }
        true
    }

    fn comes(&mut self, who: usize) {
        let reserved = match self.setting.reads {
            true if self.lock.was_told_to_wait() => None,
            true => Some(self.shared().expected()),
            false => Some(self.lock.ahead()),
        };
        if reserved.is_some_and(|reserved| self.shares(who, reserved, None)) {
            return;
        }
        if let Some(ticket) = self.lock.queue.try_take() {
            return self.goes_on(who, ticket);
        }
        if !self.setting.reads && self.lock.ahead() == 0 {
            self.callers[who] = At::AsksBeside(self.new_id());
            return;
        }
        self.queues(who);
    }

    fn queues(&mut self, who: usize) {
        let ticket = self.lock.queue.join(None, self.came[who]);
        self.polls(who, ticket);
    }

    fn polls(&mut self, who: usize, ticket: u64) {
        self.woken[who].0.store(false, Relaxed);
        let waker = Waker::from(Arc::clone(&self.woken[who]));
        match self.lock.queue.poll(ticket, &waker, true, &mut None) {
            Poll::Pending => self.callers[who] = At::Queued(ticket),
            Poll::Ready(taken) => {
                taken.expect("the client is open");
                self.goes_on(who, ticket);
            }
        }
    }

    /// Takes up what is idle, or joins a read.
    fn shares(&mut self, who: usize, reserved: usize, ticket: Option<u64>) -> bool {
        let (now, came, reads) = (self.now, self.came[who], self.setting.reads);
        loop {
            let shared = self.shared();
            let is_fresh = shared.is_fresh(now, BUDGET.time);
            let has_waited = shared.has_waited(came);
            let expected_by = shared.expects(ticket);
            let taken = shared.take(1, reserved);
            let open = reads.then(|| shared.open(came)).flatten();
            let budget = if has_waited { BUDGET.unwanted() } else { BUDGET };
            let (id, hold) = match (taken, open) {
                (None, None) => return false,
                (None, Some(read)) => match self.tenure(read).join(now.into(), budget, true) {
                    Some(hold) => (read, hold),
                    None => return false,
                },
                (Some(id), _) => {
                    match self.tenure(id).pick_up(now.into(), Some(budget), is_fresh, true) {
                        PickUp::Held(hold) => (id, hold),
                        PickUp::Nothing => continue,
                        PickUp::Ended(()) => {
                            self.releases(id);
                            continue;
                        }
                    }
                }
            };
            if let Some(read) = expected_by {
                self.shared().has_come(read);
            }
            self.callers[who] = At::Holds(id, hold);
            return true;
        }
    }

    /// A caller has the permit of the queue.
    fn goes_on(&mut self, who: usize, ticket: u64) {
        if self.shares(who, 0, Some(ticket)) {
            return self.gives_up();
        }
        let now = self.now;
        let next = self.lock.waiting.as_ref();
        match next.map_or(Next::Ask, |waiting| waiting.next(now, None, true, RULES)) {
            Next::Ask => {
                let id = self.new_id();
                let (id, ..) = self.lock.ask(now, None, || id, RULES);
                self.callers[who] = At::Asks(ticket, id);
            }
            Next::Take(grant) => self.begins(who, grant.id, true, true),
            Next::Park(_) => self.callers[who] = At::Parked(ticket),
        }
    }

    fn has_room(&self) -> bool {
        self.held.len() + self.others < self.setting.capacity
    }

    fn answers(&mut self, who: usize, ticket: u64, id: TenureId) {
        if self.has_room() {
            self.line = None;
            self.held.insert(id);
            return self.begins(who, id, false, true);
        }
        self.line = Some(id);
        let now = self.now;
        self.lock.granted_nothing(false);
        self.lock.notes(now, Event::Waits { place: 1, near: false, sent: now, again: None }, RULES);
        self.goes_on(who, ticket);
    }

    fn answers_beside(&mut self, who: usize, id: TenureId) {
        if self.has_room() && self.line.is_none() {
            self.held.insert(id);
            self.begins(who, id, false, false);
        } else {
            self.lock.granted_nothing(false);
            self.queues(who);
        }
    }

    /// `has_permit`: of the queue.
    fn begins(&mut self, who: usize, id: TenureId, awaited: bool, has_permit: bool) {
        let now = self.now;
        let lifetime = Lifetime::new((now, LONG), None, true, now + LONG, now);
        self.tenures.insert(id, Tenure::new(now, lifetime, true, None));
        let is_joined = self.setting.reads;
        let begun = Begun { tenure: id, sent: now, awaited, is_joined, ends_wait: has_permit };
        self.lock.begin(now, begun, &mut After::default());
        self.callers[who] = At::Holds(id, 0);
        if has_permit {
            self.gives_up();
        }
    }

    fn leaves(&mut self, id: TenureId, hold: u16) {
        let now = self.now;
        let (count, remaining) = self.tenure(id).leave(hold, 1);
        assert_eq!(count, 1, "a hold ends once");
        if remaining == Remaining::Others {
            return;
        }
        let is_wanted = self.lock.is_wanted();
        let shared = self.shared();
        let is_fresh = shared.is_fresh(now, BUDGET.time);
        let budget = if shared.is_expected(id) { BUDGET.unwanted() } else { BUDGET };
        let allows = self.tenure(id).allows(now.into(), budget, is_fresh, true);
        if allows && self.shared().stay_idle(id, 1, is_wanted) {
            self.gate |= !self.is(Mutation::WhoParksIsNotTold);
            self.looks_after();
        } else {
            assert!(self.tenure(id).retire(false));
            self.releases(id);
        }
    }

    /// A tenure has ended.
    fn releases(&mut self, id: TenureId) {
        self.shared().leaving(id);
        self.releasing.push(id);
    }

    fn is_released(&mut self, id: TenureId) {
        self.held.remove(&id);
        self.lets_in();
        if self.tenures.remove(&id).is_none() {
            return; // a grant by message that came too late
        }
        let ahead = self.lock.ahead();
        let shared = self.shared();
        shared.gone(id, true);
        let spare = shared.spare(ahead);
        if !self.is(Mutation::AReleaseChecksNothing) {
            self.retires(spare);
        }
    }

    /// The server lets in the head of the line, and tells it.
    fn lets_in(&mut self) {
        let Some(id) = self.line.filter(|_| self.has_room()) else { return };
        self.line = None;
        self.held.insert(id);
        let grant = PushedGrant { id, number: 1, signed: self.now };
        let is_known = self.lock.waiting.as_ref().is_some_and(|waiting| waiting.id() == id);
        if is_known && self.lock.notes(self.now, Event::Told(grant), RULES) {
            self.gate = true;
        } else {
            self.releasing.push(id);
        }
    }

    fn retires(&mut self, idle: Vec<TenureId>) {
        for id in idle {
            if self.tenure(id).retire(false) {
                self.releases(id);
            }
        }
    }

    fn leaves_queue(&mut self, ticket: u64) {
        let mut after = After::default();
        self.lock.leave_queue(ticket, &mut after);
        after.called.into_iter().for_each(Waker::wake);
        if !self.lock.is_awaited() {
            self.looks_after();
        }
    }

    /// The contender leaves, and passes its place on.
    fn gives_up(&mut self) {
        let id = self.new_id();
        self.lock.give_up(self.now, || id);
        self.passes_on();
    }

    fn passes_on(&mut self) {
        let mut after = After::default();
        self.lock.pass_on(&mut after);
        after.called.into_iter().for_each(Waker::wake);
        if !self.lock.is_awaited() {
            self.looks_after();
        }
    }

    fn looks_after(&mut self) {
        if self.is(Mutation::WhoLeavesLooksAfterNothing) {
            return;
        }
        let Some(left) = self.lock.forsake() else { return };
        if let Some(id) = left.place {
            self.line = self.line.filter(|waiter| *waiter != id);
            if self.held.contains(&id) {
                self.releasing.push(id);
            }
        }
        self.retires(left.idle);
    }

    /// Everything that is under way comes to its end.
    fn end(&mut self) {
        for _ in 0..4 * CALLERS {
            self.play(Step::OtherLeaves);
            for who in 0..CALLERS {
                match self.callers[who] {
                    At::Asks(..) | At::AsksBeside(_) => _ = self.play(Step::Answer(who)),
                    At::Queued(_) if self.woken[who].0.load(Relaxed) => {
                        _ = self.play(Step::Poll(who));
                    }
                    At::Parked(_) => _ = self.play(Step::Poll(who)),
                    At::Holds(..) => _ = self.play(Step::Leave(who)),
                    At::Away | At::Queued(_) => {}
                }
            }
            self.play(Step::Released);
        }
    }

    /// What is wrong, if something is.
    fn judge(&self) -> Result<(), String> {
        let holders = self.callers.iter().filter_map(|at| match at {
            At::Holds(id, hold) => Some((id, hold)),
            _ => None,
        });
        for (id, hold) in holders {
            if self.tenures.get(id).is_none_or(|tenure| tenure.ended(*hold).is_some()) {
                return Err(format!("{id:?} ends under its holder"));
            }
            if !self.held.contains(id) {
                return Err(format!("the server does not have {id:?}, which is held"));
            }
        }
        Ok(())
    }

    fn judge_end(&self) -> Result<(), String> {
        let waits = self.callers.iter().position(|at| *at != At::Away);
        match waits {
            Some(who) => Err(format!("caller {who} waits forever: {:?}", self.callers[who])),
            None if !self.held.is_empty() => Err(format!("{:?} stays taken for nobody", self.held)),
            None if self.line.is_some() => Err("a place stays in line".to_owned()),
            None if !self.lock.queue.is_permit_free() => Err("nobody has the permit".to_owned()),
            None => Ok(()),
        }
    }
}

/// Plays every order of events that begins with these. Returns how many there are.
fn play_all(steps: &mut Vec<Step>, setting: Setting, now: Instant) -> Result<usize, String> {
    let wrong = |steps: &dyn Debug, why| format!("{why} after {steps:?} in {setting:?}");
    let mut client = Client::new(setting, now);
    for step in &*steps {
        if !client.play(*step) {
            return Ok(0);
        }
        client.judge().map_err(|why| wrong(steps, why))?;
    }
    client.end();
    client.judge_end().map_err(|why| wrong(steps, why))?;
    let mut played = 1;
    if steps.len() < MOST {
        let of_one = |who| {
            [Step::Come(who), Step::Poll(who), Step::Answer(who), Step::Leave(who), Step::Drop(who)]
        };
        let of_all = [Step::Released, Step::OtherLeaves];
        for step in (0..CALLERS).flat_map(of_one).chain(of_all) {
            steps.push(step);
            played += play_all(steps, setting, now)?;
            steps.pop();
        }
    }
    Ok(played)
}

fn searched(setting: Setting) -> Result<usize, String> {
    play_all(&mut Vec::new(), setting, Instant::now())
}

fn settings() -> impl Iterator<Item = Setting> {
    [(false, 1, 0), (false, 2, 0), (false, 2, 1), (true, CALLERS, 0), (true, CALLERS, CALLERS)]
        .into_iter()
        .map(|(reads, capacity, others)| Setting { reads, capacity, others, mutation: None })
}

#[test]
fn in_every_order_of_events_no_permit_is_left_for_nobody_and_nobody_waits_forever() {
    for setting in settings() {
        let played = searched(setting).unwrap_or_else(|why| panic!("{why}"));
        println!("{setting:?}: {CALLERS} callers, at most {MOST} events: {played} orders");
    }
}

#[test]
fn permits_and_reads_that_lack_a_rule_are_found_out() {
    use Mutation::*;
    for mutation in [AReleaseChecksNothing, WhoParksIsNotTold, WhoLeavesLooksAfterNothing] {
        let with = |setting| searched(Setting { mutation: Some(mutation), ..setting }).err();
        let found = settings().find_map(with);
        println!(
            "{mutation:?}: {}",
            found.unwrap_or_else(|| panic!("{mutation:?} is not noticed"))
        );
    }
}
