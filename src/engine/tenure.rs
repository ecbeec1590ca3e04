//! One grant by Redis to this client: until when it may be believed, and how it ends.
//!
//! 1. A tenure is held, then released or lost, once and for good.
//! 2. The deadline only moves outwards, and only for an answer: it is the time before the request
//!    was sent, plus what was asked for, minus drift.
//! 3. What ends a tenure takes its turn out under the lock and drops it after: nobody is woken
//!    while the state is locked.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::engine::entry::Turn;
use crate::engine::wheel::Place;
use crate::keys::Keys;
use crate::owner::OwnerId;
use crate::token::FencingToken;

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was given back.
    Released,
    /// Its lease ran out, or the lock was taken away.
    Lost,
}

/// How long a tenure is to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// As long as it is held: the watchdog renews it.
    Watched,
    /// So long, unless it is extended.
    Fixed(Duration),
}

/// The part of a lease that the holder must not count on: two machines' clocks may run apart by
/// one in a hundred, and Redis rounds to milliseconds. The allowance is that of the Redlock
/// algorithm (redis.io, *Distributed locks with Redis*).
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Until when an answer to a request sent at `sent` may be believed.
pub(crate) fn deadline(sent: Instant, lease: Duration) -> Instant {
    sent + lease.saturating_sub(drift(lease))
}

/// What Redis granted.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    /// The owner field in Redis, never used again.
    pub(crate) field: String,
    /// The server's number for it.
    pub(crate) number: u64,
    pub(crate) deadline: Instant,
}

/// Who holds, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    /// Who may re-enter; nobody, for a plain lock.
    pub(crate) owner: Option<OwnerId>,
    /// The task or thread that asked.
    pub(crate) asked_by: OwnerId,
    pub(crate) lease: Lease,
}

/// One grant by Redis to this client.
pub(crate) struct Tenure {
    pub(crate) keys: Arc<Keys>,
    pub(crate) field: String,
    pub(crate) token: FencingToken,
    pub(crate) granted: Instant,
    holder: Holder,
    state: Mutex<State>,
    /// The state has changed: it ended, or its deadline moved.
    changed: Notify,
    /// Held by whoever writes the hold count, so that counts reach Redis in order.
    pub(crate) counting: tokio::sync::Mutex<()>,
    span: tracing::Span,
}

struct State {
    ended: Option<Ended>,
    deadline: Instant,
    watched: bool,
    holds: u32,
    turn: Option<Turn>,
    place: Option<Place>,
    /// The server may still have a lock that we gave up for lost.
    unswept: bool,
    warned_of_max_hold: bool,
    warned_of_deadlock: bool,
}

/// What `leave` found.
pub(crate) enum Left {
    /// Other holds remain.
    Nested,
    /// It was the last one: the lock is to be given back. The turn goes with it.
    Last(Option<Turn>, Option<Place>),
    /// The lock was lost before.
    Lost,
}

/// What the watchdog finds when a tenure is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Renew,
    /// Nothing is to be done before its deadline.
    At(Instant),
    /// It is lost: what Redis may still have of it is to be swept away.
    Sweep,
    Ended,
}

impl Tenure {
    /// Begins a tenure with one hold.
    pub(crate) fn begin(turn: Turn, grant: Grant, holder: Holder, granted: Instant) -> Arc<Self> {
        let keys = Arc::clone(&turn.entry().keys);
        let token = FencingToken::new(grant.number, 0);
        let span = tracing::debug_span!("lock.hold", name = ?keys.name, %token);
        let state = State {
            ended: None,
            deadline: grant.deadline,
            watched: holder.lease == Lease::Watched,
            holds: 1,
            turn: None,
            place: None,
            unswept: false,
            warned_of_max_hold: false,
            warned_of_deadlock: false,
        };
        let tenure = Arc::new(Self {
            keys,
            field: grant.field,
            token,
            granted,
            holder,
            state: Mutex::new(state),
            changed: Notify::new(),
            counting: tokio::sync::Mutex::default(),
            span,
        });
        turn.became(&tenure);
        tenure.state().turn = Some(turn);
        tenure.span.in_scope(|| tracing::debug!("granted"));
        tenure
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.state().ended
    }

    pub(crate) fn is_owned_by(&self, owner: OwnerId) -> bool {
        self.holder.owner == Some(owner)
    }

    /// Compares clocks: right even if no task of ours has run for a while.
    pub(crate) fn is_valid(&self) -> bool {
        let state = self.state();
        state.ended.is_none() && Instant::now() < state.deadline
    }

    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state();
        match state.ended {
            None => state.deadline.saturating_duration_since(Instant::now()),
            Some(_) => Duration::ZERO,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state().deadline
    }

    pub(crate) fn holds(&self) -> u32 {
        self.state().holds
    }

    /// Takes note of where the tenure stands in the wheel; `false` if it has ended.
    pub(crate) fn placed(&self, place: Place) -> bool {
        let mut state = self.state();
        state.place = Some(place);
        state.ended.is_none()
    }

    pub(crate) fn place(&self) -> Option<Place> {
        self.state().place
    }

    /// From now on the watchdog renews it; whether that is new.
    pub(crate) fn watch(&self) -> bool {
        !std::mem::replace(&mut self.state().watched, true)
    }

    /// Redis has answered: the tenure may be believed until then, and was never told less.
    pub(crate) fn prolong(&self, deadline: Instant) {
        let mut state = self.state();
        state.deadline = state.deadline.max(deadline);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Counts one more hold; `false` if the tenure has ended.
    pub(crate) fn enter(&self) -> bool {
        let mut state = self.state();
        if state.ended.is_some() {
            return false;
        }
        state.holds += 1;
        true
    }

    /// Counts one hold less. With the last one the tenure is released, if it was not lost before.
    pub(crate) fn leave(&self) -> Left {
        if self.deadline() <= Instant::now() {
            self.lose("its lease ran out");
        }
        let mut state = self.state();
        state.holds -= 1;
        match (state.ended, state.holds) {
            (Some(_), _) => return Left::Lost,
            (None, 0) => {}
            (None, _) => return Left::Nested,
        }
        state.ended = Some(Ended::Released);
        let left = Left::Last(state.turn.take(), state.place.take());
        drop(state);
        self.span.in_scope(|| tracing::debug!("released"));
        self.changed.notify_waiters();
        left
    }

    /// The lock is not ours any more, or must not be believed to be.
    pub(crate) fn lose(&self, why: &str) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(Ended::Lost);
        state.unswept = true;
        let turn = state.turn.take();
        drop(state);
        tracing::error!(parent: &self.span, name = ?self.keys.name, token = %self.token, why, "lock lost");
        self.changed.notify_waiters();
        drop(turn);
    }

    /// The client is closed: the guards are told, and the turn comes along to be given back with
    /// the lock. `None` if the tenure had ended.
    pub(crate) fn close(&self) -> Option<Option<Turn>> {
        let mut state = self.state();
        if state.ended.is_some() {
            return None;
        }
        state.ended = Some(Ended::Lost);
        let turn = state.turn.take();
        drop(state);
        self.changed.notify_waiters();
        Some(turn)
    }

    /// What is to be done about the tenure now that the wheel has come to it.
    pub(crate) fn due(&self, now: Instant, max_hold: Option<Duration>) -> Due {
        let state = self.state();
        if state.ended.is_none() && now >= state.deadline {
            drop(state);
            self.lose("its lease ran out");
            return self.due(now, max_hold);
        }
        self.judged(state, now, max_hold)
    }

    fn judged(
        &self,
        mut state: MutexGuard<'_, State>,
        now: Instant,
        max_hold: Option<Duration>,
    ) -> Due {
        let (ended, watched) = (state.ended, state.watched);
        match ended {
            Some(Ended::Lost) if std::mem::take(&mut state.unswept) => Due::Sweep,
            Some(_) => Due::Ended,
            None if !watched => Due::At(state.deadline),
            None if max_hold.is_some_and(|most| now - self.granted >= most) => {
                if !std::mem::replace(&mut state.warned_of_max_hold, true) {
                    let name = &self.keys.name;
                    tracing::warn!(?name, "held for max_hold: no longer renewed");
                }
                Due::At(state.deadline)
            }
            None => Due::Renew,
        }
    }

    /// Warns once if the task that waits now is the one that asked for this tenure.
    pub(crate) fn warn_of_deadlock(&self, waiting: OwnerId) {
        if self.holder.asked_by != waiting {
            return;
        }
        if std::mem::replace(&mut self.state().warned_of_deadlock, true) {
            return;
        }
        let name = &self.keys.name;
        tracing::warn!(?name, "a task waits for a lock whose guard it took itself: a deadlock?");
    }

    /// Resolves when the tenure ends, at its deadline at the latest.
    pub(crate) async fn end(self: Arc<Self>) -> Ended {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listen first, look second: what changes in between is not missed.
            changed.as_mut().enable();
            let (ended, deadline) = {
                let state = self.state();
                (state.ended, state.deadline)
            };
            if let Some(ended) = ended {
                return ended;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(deadline.into()) => self.expire(),
            }
        }
    }

    fn expire(&self) {
        if self.deadline() <= Instant::now() {
            self.lose("its lease ran out");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layout;
    use crate::engine::entry::Table;

    const LEASE: Duration = Duration::from_secs(10);

    fn tenure(lease: Lease, deadline: Instant) -> (Arc<Table>, Arc<Tenure>) {
        let table = Arc::new(Table::default());
        let keys = Arc::new(Keys::new(Layout::Native, "a".to_owned()).unwrap());
        let turn = table.visit(&keys).unwrap().try_turn().ok().unwrap();
        let grant = Grant { field: "client:1".to_owned(), number: 1, deadline };
        let holder = Holder { owner: None, asked_by: OwnerId::current(), lease };
        (table, Tenure::begin(turn, grant, holder, Instant::now()))
    }

    #[test]
    fn the_deadline_counts_from_before_the_request_and_leaves_room_for_drift() {
        let sent = Instant::now();
        assert_eq!(deadline(sent, LEASE), sent + Duration::from_millis(9_898));
        assert_eq!(deadline(sent, Duration::from_millis(1)), sent);
    }

    #[test]
    fn the_deadline_only_moves_outwards() {
        let now = Instant::now();
        let (_table, tenure) = tenure(Lease::Watched, now + LEASE);
        tenure.prolong(now + LEASE / 2);
        assert_eq!(tenure.deadline(), now + LEASE);
        tenure.prolong(now + LEASE * 2);
        assert_eq!(tenure.deadline(), now + LEASE * 2);
    }

    #[test]
    fn a_tenure_past_its_deadline_is_invalid_before_any_task_has_said_so() {
        let (_table, tenure) = tenure(Lease::Watched, Instant::now());
        assert_eq!(tenure.ended(), None);
        assert!(!tenure.is_valid());
        assert_eq!(tenure.remaining(), Duration::ZERO);
    }

    #[test]
    fn a_lost_tenure_gives_up_its_turn_and_is_swept_once() {
        let (table, tenure) = tenure(Lease::Watched, Instant::now());
        assert_eq!(tenure.due(Instant::now(), None), Due::Sweep);
        assert_eq!(tenure.due(Instant::now(), None), Due::Ended);
        assert_eq!(table.len(), 0, "the turn keeps the entry");
        assert!(matches!(tenure.leave(), Left::Lost));
    }

    #[test]
    fn a_tenure_ends_once() {
        let (_table, tenure) = tenure(Lease::Watched, Instant::now() + LEASE);
        assert!(matches!(tenure.leave(), Left::Last(Some(_), None)));
        tenure.lose("too late");
        assert_eq!(tenure.ended(), Some(Ended::Released));
        assert_eq!(tenure.due(Instant::now(), None), Due::Ended);
    }

    #[test]
    fn only_a_watched_tenure_is_renewed_and_not_beyond_max_hold() {
        let far = Instant::now() + LEASE;
        let (_table, fixed) = tenure(Lease::Fixed(LEASE), far);
        assert_eq!(fixed.due(Instant::now(), None), Due::At(far));
        let (_table, watched) = tenure(Lease::Watched, far);
        assert_eq!(watched.due(Instant::now(), Some(LEASE)), Due::Renew);
        assert_eq!(watched.due(Instant::now(), Some(Duration::ZERO)), Due::At(far));
    }

    #[tokio::test]
    async fn the_end_is_told_to_all_who_wait_for_it() {
        let (_table, tenure) = tenure(Lease::Watched, Instant::now() + LEASE);
        let ends = [(); 3].map(|()| tokio::spawn(Arc::clone(&tenure).end()));
        tokio::task::yield_now().await;
        tenure.lose("taken away");
        for end in ends {
            assert_eq!(end.await.unwrap(), Ended::Lost);
        }
    }

    #[tokio::test]
    async fn the_end_comes_by_the_deadline_though_nobody_says_so() {
        let deadline = Instant::now() + Duration::from_millis(20);
        let (_table, tenure) = tenure(Lease::Watched, deadline);
        assert_eq!(Arc::clone(&tenure).end().await, Ended::Lost);
        assert!(!tenure.is_valid());
    }
}
