//! What a client knows of one lock: one plain value. The engine has it behind the mutex of an entry (`engine/entry.rs`).
//!
//! No method wakes a task, or drops a waker, a tenure or work. A waker may poll its task at once, and the drop of a tenure may
//! remove the entry from the table. Both would lock this value again. So a method returns them, or puts them into an [`After`],
//! and the entry carries that out when the mutex is unlocked.

use std::collections::BTreeSet;
use std::mem::{replace, take};
use std::task::Waker;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::contest::Contest;
use crate::core::queue::Queue;
use crate::core::side_by_side::SideBySide;
use crate::core::waiting::{Event, Rules, Waiting};
use crate::keys::TenureId;

/// With more ghosts than this, a contender forgets those whose leases are over, so that they do not pile up for as long as
/// its requests get no answer. A hold of theirs has ended. A place of theirs in line gets its grant by message, which finds
/// no caller, and the listener releases the grant.
const MOST_HELD_BACK: usize = 256;

/// What the engine leaves with a lock, and the core does not look into.
pub(crate) trait Parts {
    /// One grant by Redis.
    type Tenure: Clone;
    /// What may have to be released, since a request got no answer.
    type Ghost;
    /// The work of the contender.
    type Work;
    /// The subscriptions by which the client hears that another one wants the lock. Without them it may not keep the lock idle.
    type Ears;

    /// The owner field of a tenure.
    fn id(tenure: &Self::Tenure) -> TenureId;

    /// Until when Redis may still have what was granted to a ghost.
    fn lasts_until(ghost: &Self::Ghost) -> Instant;
}

/// What a caller of a fair lock knows of the caller of the same client that stands right behind it in the server's line. Only in a
/// fair lock does each caller stand in the line, and the server says so to a caller that has lined up right behind another one of its
/// client. No newcomer comes between the two, since each of them goes to the end. So the holder may hand the lock over to that caller, and
/// the order stays exact. Only a caller of another client that had a place between them before, and lost it, may get it back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Behind {
    /// Nobody is known.
    #[default]
    Nobody,
    /// The entry of that caller, by its id.
    Caller(TenureId),
    /// This caller goes on under another owner field, perhaps at another place. Its former owner field may still stand in the
    /// line, or a late request may put it at the end of the line. So the caller that counted as right behind may stand behind
    /// the former owner field alone. Callers of other clients may stand between the two places, and a hand-over would
    /// overtake them.
    Moved,
}

impl Behind {
    pub(crate) fn get(self) -> Option<TenureId> {
        if let Self::Caller(id) = self { Some(id) } else { None }
    }

    /// This caller has lined up right behind.
    pub(crate) fn set(&mut self, id: TenureId) {
        if *self == Self::Nobody {
            *self = Self::Caller(id);
        }
    }
}

/// The alarm for a contender that sleeps: for when, and its number. `None`: it has rung, or was never set.
pub(crate) type Alarm = Option<(CompactInstant, u64)>;

/// What a client knows of one lock.
pub(crate) struct Lock<P: Parts> {
    /// The callers, and the permit.
    pub(crate) queue: Queue,
    /// The work of the caller with the permit.
    pub(crate) contest: Contest<P::Work>,
    /// What the contender knows.
    pub(crate) waiting: Option<Box<Waiting>>,
    /// The last tenure of this client; it may have ended.
    pub(crate) tenure: Option<P::Tenure>,
    /// The tenures that are inside side by side, if callers of this client can hold the lock together.
    pub(crate) side_by_side: Option<Box<SideBySide<P::Tenure>>>,
    pub(crate) behind: Behind,
    /// The owner fields under which the contender got no answer. They are released once it gets one.
    pub(crate) held_back: Vec<P::Ghost>,
    /// Since when every attempt has failed.
    pub(crate) failing: Option<CompactInstant>,
    /// When a holder was last known.
    pub(crate) taken: Option<CompactInstant>,
    /// When a message last said that somebody has lost the lock.
    pub(crate) lost: Option<CompactInstant>,
    /// The contender waits: another client has the lock, or is ahead. What it has inherited of the line says less: an earlier contender
    /// may have learnt that long ago.
    pub(crate) elsewhere: bool,
    /// Whether a caller has lined up under the owner field of the entry.
    pub(crate) has_used_name: bool,
    /// `None` in a client that keeps nothing.
    pub(crate) ears: Option<Box<P::Ears>>,
    /// Whether the client may keep its tenure idle: it would have heard if another client wanted the lock.
    pub(crate) may_keep: bool,
    /// Whether the entry is on the lookout.
    pub(crate) is_on_lookout: bool,
    pub(crate) alarm: Alarm,
}

impl<P: Parts> Default for Lock<P> {
    fn default() -> Self {
        Self {
            queue: Queue::default(),
            contest: Contest::default(),
            waiting: None,
            tenure: None,
            side_by_side: None,
            behind: Behind::default(),
            held_back: Vec::new(),
            failing: None,
            taken: None,
            lost: None,
            elsewhere: false,
            has_used_name: false,
            ears: None,
            may_keep: false,
            is_on_lookout: false,
            alarm: None,
        }
    }
}

/// What a change leaves to be done when the lock's mutex is unlocked.
pub(crate) struct After<P: Parts> {
    /// The callers to wake.
    pub(crate) called: Option<Waker>,
    pub(crate) all: Vec<Waker>,
    /// Whether the entry has to be on the lookout from now on.
    pub(crate) look_out: bool,
    /// To be dropped.
    pub(crate) tenure: Option<P::Tenure>,
}

impl<P: Parts> Default for After<P> {
    fn default() -> Self {
        Self { called: None, all: Vec::new(), look_out: false, tenure: None }
    }
}

/// A tenure that has just begun.
pub(crate) struct Begun<T> {
    pub(crate) tenure: T,
    /// When it was asked for.
    pub(crate) sent: Instant,
    /// A waiter stands in line for the lock, or the client does not know, or the tenure is not for others.
    pub(crate) awaited: bool,
    /// Other callers of this client may join it.
    pub(crate) is_joined: bool,
    /// Its caller has contended, so this ends the wait of the contender.
    pub(crate) ends_wait: bool,
}

/// What follows from the beginning of a tenure.
pub(crate) struct Shown<P: Parts> {
    /// Those that were held back.
    pub(crate) ghosts: Vec<P::Ghost>,
    /// Its caller has left the line with it.
    pub(crate) has_left_line: bool,
    /// A message has said meanwhile that somebody has lost the lock.
    pub(crate) was_lost: bool,
}

/// What a client has of a lock that none of its callers needs.
pub(crate) struct Forsaken<P: Parts> {
    /// The place in line, by its owner field.
    pub(crate) place: Option<TenureId>,
    pub(crate) ghosts: Vec<P::Ghost>,
    /// It may still be held, or over.
    pub(crate) tenure: Option<P::Tenure>,
    /// The permit that was taken with it, so that nobody asks before the release of this tenure is answered.
    pub(crate) permit: Option<u64>,
    pub(crate) idle: Vec<P::Tenure>,
}

impl<P: Parts> Lock<P> {
    /// Has the entry put on the lookout, if it is not there yet.
    pub(crate) fn look_out(&mut self, after: &mut After<P>) {
        after.look_out |= !replace(&mut self.is_on_lookout, true);
    }

    /// Gives the permit up, and calls the next caller.
    pub(crate) fn pass_on(&mut self, after: &mut After<P>) {
        let (next, is_late) = self.queue.pass_on();
        after.called = next;
        if is_late {
            self.look_out(after);
        }
    }

    /// A caller leaves the queue. Returns its own waker, to be dropped.
    pub(crate) fn leave_queue(&mut self, ticket: u64, after: &mut After<P>) -> Option<Waker> {
        let (next, own) = self.queue.leave(ticket);
        // The entry is on the lookout as long as a caller is called and has not come: `pass_on` puts it there, and each look does so again.
        after.called = next;
        own
    }

    /// There is an event for the contender.
    pub(crate) fn wake(&mut self, after: &mut After<P>) {
        after.called = self.contest.wake();
        self.look_out(after);
    }

    /// Rejects all callers.
    pub(crate) fn close(&mut self, after: &mut After<P>) {
        after.all = self.queue.close();
    }

    /// Whether another caller of this client is in the queue, and not known to be silent.
    pub(crate) fn is_awaited(&self) -> bool {
        self.queue.waiting() > 0
    }

    /// How many callers of this client ask or wait, and when the first of them came; `None`: nobody does.
    pub(crate) fn waiters(&self) -> Option<(usize, CompactInstant)> {
        let contender = self.contest.came();
        let first = contender.into_iter().chain(self.queue.first_came()).min()?;
        Some((self.queue.waiting() + usize::from(contender.is_some()), first))
    }

    /// The client must not keep the tenure that it has or is about to get. Returns `false` if it keeps no locks.
    pub(crate) fn forbid_keeping(&mut self) -> bool {
        self.may_keep = false;
        self.ears.is_some()
    }

    /// Whether any caller of this client asks or waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_awaited() || !self.queue.is_permit_free()
    }

    /// Whether the server has told the contender to wait.
    pub(crate) fn was_told_to_wait(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.was_told_to_wait())
    }

    /// The number of callers of this client for which idle tenures are reserved: those in the queue, and the contender,
    /// if the server has told it to wait.
    pub(crate) fn ahead(&self) -> usize {
        self.queue.waiting() + usize::from(self.was_told_to_wait())
    }

    /// Whether the caller that stood right behind another one of its client still waits at that place.
    pub(crate) fn is_still_behind(&self) -> bool {
        self.behind != Behind::Moved && self.was_told_to_wait()
    }

    pub(crate) fn is_far(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.is_far())
    }

    /// Whether a caller waits or holds under this owner field.
    pub(crate) fn is_known_as(&self, id: TenureId) -> bool {
        self.own_ids().any(|own| own == id)
            || self.side_by_side.as_ref().is_some_and(|shared| shared.has(id))
    }

    /// Which of these owner fields a caller waits or holds under.
    pub(crate) fn known_among(&self, ids: &BTreeSet<TenureId>) -> Vec<TenureId> {
        let own = self.own_ids().filter(|id| ids.contains(id));
        let together = self.side_by_side.iter().flat_map(|shared| shared.known_among(ids));
        own.chain(together).collect()
    }

    /// The owner fields of its contender and of its last tenure.
    fn own_ids(&self) -> impl Iterator<Item = TenureId> {
        let waiting = self.waiting.iter().map(|waiting| waiting.id());
        waiting.chain(self.tenure.iter().map(|tenure| P::id(tenure)))
    }

    /// Passes an event to the contender. Returns whether there is one.
    pub(crate) fn notes(&mut self, now: Instant, event: Event, rules: Rules) -> bool {
        self.waiting.as_mut().map(|waiting| waiting.step(now, event, rules)).is_some()
    }

    /// The contender is about to ask: under this owner field, for this place. The last result: whether it rests. `own`: the owner
    /// field of the entry, if it has one.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        own: Option<TenureId>,
        next_id: impl Fn() -> TenureId,
        rules: Rules,
    ) -> (TenureId, u64, bool) {
        if self.waiting.is_none() {
            let id = self.new_id(own, &next_id);
            self.waiting = Some(Box::new(Waiting::new(id, now)));
        }
        self.stop_asking(now, next_id);
        let waiting = self.waiting.as_mut().expect("it waits from now on");
        waiting.step(now, Event::Asked, rules);
        (waiting.id(), waiting.place(), waiting.rests())
    }

    /// One of its requests may still run. So the contender, or the next one, keeps the place under another owner field.
    pub(crate) fn stop_asking(&mut self, now: Instant, next_id: impl Fn() -> TenureId) {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.may_still_run()) {
            waiting.rename(next_id(), now);
            self.behind = Behind::Moved;
        }
    }

    /// A caller with its own entry first lines up under the owner field of the entry. If it is cancelled, its requests
    /// may still run late, and the client cleans up after them. That would also remove a later place under the same
    /// owner field. So the caller never lines up under that owner field again.
    fn new_id(&mut self, own: Option<TenureId>, next_id: impl Fn() -> TenureId) -> TenureId {
        if let Some(own) = own.filter(|_| !replace(&mut self.has_used_name, true)) {
            return own;
        }
        self.behind = Behind::Moved;
        next_id()
    }

    /// A request was answered, and granted nothing. Returns the ghosts of a contender that had a place: they need not be held back
    /// any more. A caller that asks beside the contender says nothing about the place of the contender.
    pub(crate) fn granted_nothing(&mut self, has_place: bool) -> Vec<P::Ghost> {
        self.failing = None;
        if let Some(shared) = &mut self.side_by_side {
            shared.others_come_first();
        }
        if has_place { self.take_held_back() } else { Vec::new() }
    }

    /// The contender has the lock, whether the server has granted it or another caller of this client has left it. Returns the
    /// ghosts that were held back.
    pub(crate) fn has_it(&mut self, now: Instant) -> Vec<P::Ghost> {
        self.stop_contending(now);
        self.take_held_back()
    }

    /// Keeps a ghost until [`take_held_back`](Self::take_held_back), which the caller that ends the wait has to call. Returns
    /// those that are forgotten, to be dropped.
    pub(crate) fn hold_back(&mut self, now: Instant, ghost: P::Ghost) -> Vec<P::Ghost> {
        let mut forgotten = Vec::new();
        if self.held_back.len() >= MOST_HELD_BACK {
            forgotten.extend(self.held_back.extract_if(.., |former| now >= P::lasts_until(former)));
        }
        self.held_back.push(ghost);
        forgotten
    }

    pub(crate) fn take_held_back(&mut self) -> Vec<P::Ghost> {
        take(&mut self.held_back)
    }

    /// Whether the contender only stands in line: its last request was answered, and it was granted nothing, neither by a
    /// message nor by an earlier request whose answer was lost.
    pub(crate) fn is_parked(&self) -> bool {
        let stands = self.waiting.as_ref().is_some_and(|waiting| waiting.only_stands());
        stands && self.held_back.is_empty()
    }

    /// Takes out everything that was left for callers of this client, unless one waits or contends.
    pub(crate) fn forsake(&mut self) -> Option<Forsaken<P>> {
        let is_closed = self.queue.is_closed();
        if self.is_awaited() || !(is_closed || self.queue.is_permit_free()) {
            return None;
        }
        let place = self.leave_line();
        let idle = self.side_by_side.as_ref().filter(|_| !self.is_wanted());
        let idle = idle.map_or_else(Vec::new, |shared| shared.forgotten());
        let tenure = self.tenure.clone();
        let permit = tenure.as_ref().and_then(|_| self.queue.try_take());
        Some(Forsaken { place, ghosts: self.take_held_back(), tenure, permit, idle })
    }

    /// No caller contends any more. Returns the owner field to take out of the line, if there is one.
    pub(crate) fn leave_line(&mut self) -> Option<TenureId> {
        let waiting = self.waiting.take()?;
        waiting.stands().then(|| waiting.id())
    }

    /// A tenure begins.
    ///
    /// It is shown before its caller is forgotten, so this client always knows the owner field. Otherwise the client
    /// would release the grant when a message about it arrives. A message that says that somebody has lost the lock finds the
    /// tenure from now on. One that came since the request was sent could not: so the tenure has to be checked.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        begun: Begun<P::Tenure>,
        after: &mut After<P>,
    ) -> Shown<P> {
        let Begun { tenure, sent, awaited, is_joined, ends_wait } = begun;
        let id = P::id(&tenure);
        // It may have been granted by a message, while requests fail.
        self.failing = None;
        if let Some(shared) = &mut self.side_by_side {
            shared.enter(id, tenure, (awaited, is_joined.then(|| self.queue.callers())), now);
            self.note_holder(now.into());
        } else {
            self.may_keep &= !awaited;
            self.show(now, tenure, after);
        }
        let was_lost = self.was_lost_since(sent.into());
        if !ends_wait {
            return Shown { ghosts: Vec::new(), has_left_line: false, was_lost };
        }
        // The server has taken it out of the line. A caller that only tried may have left another place there: that of an earlier
        // contender.
        let has_left_line = self.waiting.take_if(|waiting| waiting.id() == id).is_some();
        Shown { ghosts: self.has_it(now), has_left_line, was_lost }
    }

    /// Shows a tenure to its owner, which may nest in it, and to the next caller in the queue.
    pub(crate) fn show(&mut self, now: Instant, tenure: P::Tenure, after: &mut After<P>) {
        self.note_holder(now.into());
        after.tenure = self.tenure.replace(tenure);
    }

    /// The contender leaves without the lock. Its place is for the next one.
    pub(crate) fn give_up(&mut self, now: Instant, next_id: impl Fn() -> TenureId) {
        self.stop_asking(now, next_id);
        self.stop_contending(now);
    }

    /// The contender no longer waits.
    fn stop_contending(&mut self, now: Instant) {
        if take(&mut self.elsewhere) {
            self.note_holder(now.into());
        }
    }

    /// Records that the lock had a holder at this time or later.
    pub(crate) fn note_holder(&mut self, then: CompactInstant) {
        self.taken = self.taken.max(Some(then));
    }

    /// Whether a holder was known at this time or later.
    pub(crate) fn was_taken_since(&self, then: CompactInstant) -> bool {
        self.taken.is_some_and(|taken| taken >= then)
    }

    /// An attempt failed. Returns since when all attempts have failed.
    pub(crate) fn failed(&mut self, now: CompactInstant) -> CompactInstant {
        *self.failing.get_or_insert(now)
    }

    /// A message says that somebody has lost the lock, perhaps a caller that was granted it and does not hold it yet.
    pub(crate) fn note_loss(&mut self, now: CompactInstant) {
        self.lost = self.lost.max(Some(now));
    }

    /// Whether a message has said at this time or later that somebody has lost the lock.
    pub(crate) fn was_lost_since(&self, then: CompactInstant) -> bool {
        self.lost.is_some_and(|lost| lost >= then)
    }
}
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::{Poll, Wake};
    use std::time::Duration;

    use super::*;
    use crate::core::contest::Progress;
    use crate::core::queue::{LOOKS, Look};

    /// Numbers in place of what the engine has.
    struct Numbers;

    impl Parts for Numbers {
        type Tenure = u64;
        type Ghost = (u64, Instant);
        /// Whose work it is.
        type Work = usize;
        type Ears = ();

        fn id(tenure: &u64) -> TenureId {
            TenureId(*tenure)
        }

        fn lasts_until(ghost: &(u64, Instant)) -> Instant {
            ghost.1
        }
    }

    #[test]
    fn of_many_ghosts_those_are_kept_that_may_still_hold_the_lock() {
        let (mut lock, now) = (Lock::<Numbers>::default(), Instant::now());
        let mut forgotten = lock.hold_back(now, (0, now + Duration::from_secs(3600))).len();
        for id in 1..=MOST_HELD_BACK as u64 {
            forgotten += lock.hold_back(now, (id, now)).len();
        }
        assert_eq!(forgotten, MOST_HELD_BACK - 1);
        let kept: Vec<_> = lock.take_held_back().into_iter().map(|(id, _)| id).collect();
        assert_eq!(kept, [0, MOST_HELD_BACK as u64]);
    }

    #[test]
    fn the_first_caller_that_lines_up_behind_is_known_until_the_one_ahead_moves() {
        let mut behind = Behind::default();
        assert_eq!(behind.get(), None);
        behind.set(TenureId(0));
        behind.set(TenureId(7));
        assert_eq!(behind, Behind::Caller(TenureId(0)));
        behind = Behind::Moved;
        behind.set(TenureId(7));
        assert_eq!((behind.get(), behind), (None, Behind::Moved));
    }

    /// The server has fallen silent. What an earlier contender knew may have changed.
    #[test]
    fn a_contender_that_has_inherited_a_place_and_was_not_answered_knows_of_no_holder() {
        const SECOND: Duration = Duration::from_secs(1);
        let rules =
            Rules { waiter_ttl: SECOND, pushed_lease: SECOND, max_park: SECOND, rests: true };
        let (mut lock, mut now) = (Lock::<Numbers>::default(), Instant::now());
        let ask = |lock: &mut Lock<Numbers>, now| lock.ask(now, None, || TenureId(1), rules);
        ask(&mut lock, now);
        let waits = Event::Waits { place: 7, near: true, sent: now, again: None };
        assert!(lock.notes(now, waits, rules));
        lock.elsewhere = true;
        ask(&mut lock, now);
        lock.give_up(now, || TenureId(2));
        let known = Some(now.into());
        assert_eq!(lock.taken, known);
        now += SECOND;
        ask(&mut lock, now);
        assert!(lock.was_told_to_wait(), "it has the place");
        lock.give_up(now, || TenureId(3));
        assert_eq!(lock.taken, known);
    }

    const CALLERS: usize = 3;

    /// The most events that are played in every order, before all callers that run come to their ends.
    const MOST: usize = 7;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A caller wants the lock.
        Come(usize),
        /// Its future is polled.
        Poll(usize),
        /// Its work is polled, and done: it holds the lock.
        Finish(usize),
        /// Its future is dropped, or its guard.
        Drop(usize),
        /// There is an event for the contender.
        Wake,
        /// The lookout begins a look, or goes on with it.
        Look,
        /// It looks until somebody who is late is silent.
        Looks,
        Close,
    }

    enum At {
        Away,
        Queued(u64),
        /// It had the permit under this number. The lookout may have cancelled its work since.
        Contends(u64, Progress<usize>),
        Holds,
    }

    /// How far the lookout has come: see `engine/unpolled.rs`. Anything may happen in between.
    enum Looking {
        No,
        Begun,
        /// It has looked at the queue.
        Half(Look),
    }

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    /// Some callers of one client that want one lock.
    struct Client {
        lock: Lock<Numbers>,
        callers: [At; CALLERS],
        woken: [Arc<Woken>; CALLERS],
        came: [bool; CALLERS],
        /// Whether the lookout has the entry in its list.
        listed: bool,
        looking: Looking,
        /// Whether work sleeps until some time. Otherwise it waits for an answer.
        sleeps: bool,
        /// How many have the permit.
        permits: usize,
        now: Instant,
    }

    impl Client {
        fn new(now: Instant, sleeps: bool) -> Self {
            Self {
                lock: Lock::default(),
                callers: [const { At::Away }; CALLERS],
                woken: std::array::from_fn(|_| Arc::new(Woken(AtomicBool::new(false)))),
                came: [false; CALLERS],
                listed: false,
                looking: Looking::No,
                sleeps,
                permits: 0,
                now,
            }
        }

        fn change<R>(
            &mut self,
            change: impl FnOnce(&mut Lock<Numbers>, &mut After<Numbers>) -> R,
        ) -> R {
            let mut after = After::default();
            let result = change(&mut self.lock, &mut after);
            self.listed |= after.look_out;
            after.called.into_iter().chain(after.all).for_each(Waker::wake);
            result
        }

        /// A caller has the permit, and its work is polled in the same poll.
        fn contends(&mut self, who: usize, number: u64) -> At {
            self.permits += 1;
            assert_eq!(self.permits, 1, "two callers have the permit");
            let at = At::Contends(number, Progress::New(who, self.now.into()));
            self.polled(who, at, false)
        }

        fn pass_on(&mut self) {
            self.permits -= 1;
            self.change(Lock::pass_on);
        }

        fn queues(&mut self, again: Option<u64>) -> At {
            At::Queued(self.lock.queue.join(again, self.now))
        }

        /// Plays a step. Returns whether it can be.
        fn play(&mut self, step: Step) -> bool {
            match step {
                Step::Come(who) => {
                    // Callers are alike, so they come in their order.
                    let has_come = |who: usize| self.came[who];
                    if !matches!(self.callers[who], At::Away) || !(0..who).all(has_come) {
                        return false;
                    }
                    self.came[who] = true;
                    self.callers[who] = match self.lock.queue.try_take() {
                        Some(number) => self.contends(who, number),
                        None => {
                            let at = self.queues(None);
                            self.polled(who, at, false)
                        }
                    };
                }
                Step::Poll(who) | Step::Finish(who) => {
                    let finishes = matches!(step, Step::Finish(_));
                    if !finishes && !self.is_woken(who) {
                        return false;
                    }
                    let at = replace(&mut self.callers[who], At::Away);
                    if matches!(&at, At::Away | At::Holds)
                        || finishes && matches!(&at, At::Queued(_))
                    {
                        self.callers[who] = at;
                        return false;
                    }
                    self.woken[who].0.store(false, Relaxed);
                    self.callers[who] = self.polled(who, at, finishes);
                }
                Step::Drop(who) => match replace(&mut self.callers[who], At::Away) {
                    At::Away => return false,
                    At::Queued(ticket) => {
                        _ = self.change(|lock, after| lock.leave_queue(ticket, after))
                    }
                    At::Contends(_, mut progress) => {
                        if self.lock.contest.end(&mut progress).0.is_some() {
                            self.pass_on();
                        }
                    }
                    At::Holds => self.pass_on(),
                },
                Step::Wake => {
                    if self.lock.contest.came().is_none() {
                        return false;
                    }
                    self.change(Lock::wake);
                }
                Step::Look => return self.look(),
                Step::Looks => {
                    let looks = (0..3 * LOOKS).map(|_| self.look());
                    return looks.filter(|looks| *looks).count() > 3;
                }
                Step::Close => {
                    if self.lock.queue.is_closed() {
                        return false;
                    }
                    self.change(Lock::close);
                }
            }
            true
        }

        fn polled(&mut self, who: usize, at: At, finishes: bool) -> At {
            let waker = Waker::from(Arc::clone(&self.woken[who]));
            match at {
                At::Away | At::Holds => at,
                At::Queued(ticket) => match self.lock.queue.poll(ticket, &waker, true, &mut None) {
                    Poll::Pending => At::Queued(ticket),
                    Poll::Ready(Ok(())) => self.contends(who, ticket),
                    Poll::Ready(Err(_)) => {
                        self.change(|lock, after| lock.leave_queue(ticket, after));
                        At::Away
                    }
                },
                At::Contends(number, mut progress) => {
                    match self.lock.contest.take_out(&mut progress, &mut Some(waker)) {
                        None => {
                            let at = self.queues(Some(number));
                            self.polled(who, at, false)
                        }
                        Some((_, work)) if finishes => {
                            assert_eq!(work, who, "a caller polls the work of another one");
                            let _caller = self.lock.contest.end_poll();
                            At::Holds
                        }
                        Some((its_number, work)) => {
                            let (sleeps, later) =
                                (self.sleeps, self.now + Duration::from_secs(3600));
                            let begun = self.change(|lock, after| {
                                lock.contest.sleeps_until(sleeps.then_some(later));
                                lock.look_out(after);
                                lock.contest.put_back(its_number, work)
                            });
                            At::Contends(number, Progress::Begun(begun))
                        }
                    }
                }
            }
        }

        fn look(&mut self) -> bool {
            match replace(&mut self.looking, Looking::No) {
                Looking::No if !self.listed => return false,
                Looking::No => {
                    (self.listed, self.lock.is_on_lookout) = (false, false);
                    self.looking = Looking::Begun;
                }
                Looking::Begun => {
                    let called = self.change(|lock, after| {
                        let (look, silent) = lock.queue.look();
                        after.all = silent;
                        look
                    });
                    self.looking = Looking::Half(called);
                }
                Looking::Half(called) => {
                    let now = self.now;
                    let contender = self.change(|lock, after| {
                        let (look, late) = lock.contest.look(now);
                        after.called = late;
                        look
                    });
                    if contender == Look::Silent && self.lock.contest.take_silent().is_some() {
                        self.pass_on();
                    }
                    if called != Look::Well || contender != Look::Well {
                        self.change(Lock::look_out);
                    }
                }
            }
            true
        }

        /// Every caller that still runs, which is every one but `frozen`, comes to its end. There is an event for each contender
        /// in turn, and after that a caller is polled only if it is woken.
        fn end(&mut self, frozen: Option<usize>) {
            for _ in 0..4 * CALLERS {
                let contends = |who: &Option<usize>| {
                    who.is_some_and(|who| matches!(self.callers[who], At::Contends(..)))
                };
                // A frozen contender that waits for an answer may wait forever.
                if self.sleeps || !contends(&frozen) {
                    self.play(Step::Wake);
                }
                for who in (0..CALLERS).filter(|who| Some(*who) != frozen) {
                    match self.callers[who] {
                        At::Queued(_) if self.is_woken(who) => _ = self.play(Step::Poll(who)),
                        At::Contends(..) if self.is_woken(who) => _ = self.play(Step::Finish(who)),
                        At::Holds => _ = self.play(Step::Drop(who)),
                        _ => {}
                    }
                }
                if frozen.is_some() {
                    self.play(Step::Looks);
                }
            }
        }

        fn is_woken(&self, who: usize) -> bool {
            self.woken[who].0.load(Relaxed)
        }
    }

    fn play(steps: &[Step], now: Instant, sleeps: bool) -> Option<Client> {
        let mut client = Client::new(now, sleeps);
        steps.iter().all(|step| client.play(*step)).then_some(client)
    }

    /// Plays every order of events that begins with these. Returns how many orders there are.
    fn play_all(steps: &mut Vec<Step>, now: Instant, sleeps: bool) -> usize {
        if play(steps, now, sleeps).is_none() {
            return 0;
        }
        for frozen in (0..CALLERS).map(Some).chain([None]) {
            let mut client = play(steps, now, sleeps).expect("it was just played");
            if frozen.is_some_and(|who| matches!(client.callers[who], At::Holds)) {
                continue;
            }
            client.end(frozen);
            for (who, at) in client.callers.iter().enumerate() {
                let is_over = matches!(at, At::Away) || frozen == Some(who);
                assert!(is_over, "caller {who} waits forever after {steps:?}; frozen: {frozen:?}");
            }
        }
        let mut played = 1;
        if steps.len() < MOST {
            let of_one =
                |who| [Step::Come(who), Step::Poll(who), Step::Finish(who), Step::Drop(who)];
            let of_all = [Step::Wake, Step::Look, Step::Looks, Step::Close];
            for step in (0..CALLERS).flat_map(of_one).chain(of_all) {
                steps.push(step);
                played += play_all(steps, now, sleeps);
                steps.pop();
            }
        }
        played
    }

    /// Callers may be dropped, cancelled, called and not polled, in any order.
    #[test]
    fn in_every_order_of_events_one_caller_has_the_permit_and_nobody_waits_forever() {
        for sleeps in [false, true] {
            let played = play_all(&mut Vec::new(), Instant::now(), sleeps);
            println!("{CALLERS} callers, at most {MOST} events: {played} orders");
        }
    }
}
