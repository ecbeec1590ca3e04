//! The timetable: when the watchdog has to look at which tenure. It is the wheel with a clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::budget::Idle;
use crate::core::wheel::Wheel;
use crate::engine::entry::tenure::renewal::{TRACK_AGAIN, WORTH_TRACKING};
use crate::engine::entry::tenure::{Ending, State, Tenure};
use crate::keys::TenureId;
use crate::mutex::Mutex;
use crate::pause::sleep_until_if;

/// The length of a tick: the wheel cannot distinguish times that are closer.
const TICK_MS: u64 = 8;

/// Every tenure of a client, by the time at which it needs attention.
pub(crate) struct Timetable {
    started: Instant,
    plan: Mutex<Plan>,
    /// Wakes the watchdog if it would sleep for too long.
    earlier: Notify,
}

struct Plan {
    wheel: Wheel<Arc<Tenure>>,
    /// The tenures that the watchdog got last. Until it asks for more, it may not have handled all of them.
    in_hand: Vec<Arc<Tenure>>,
    /// Tenures to look at now, without waiting for the next tick. Each is there once: whoever may publish can send thousands of
    /// messages about it.
    urgent: BTreeMap<TenureId, Arc<Tenure>>,
    /// The tick at which the watchdog looks next: never after the first tenure is due. If that tenure leaves, this tick
    /// stays: otherwise a lock that is taken and released repeatedly would wake the watchdog each time.
    look_at: Option<u64>,
    closed: bool,
}

impl Timetable {
    pub(crate) fn new(now: Instant) -> Self {
        let plan = Plan {
            wheel: Wheel::new(),
            in_hand: Vec::new(),
            urgent: BTreeMap::new(),
            look_at: None,
            closed: false,
        };
        Self { started: now, plan: Mutex::new(plan), earlier: Notify::new() }
    }

    /// Has the watchdog look at a tenure at this time. Returns `false` if the client is closed.
    pub(crate) fn enter(&self, tenure: &Arc<Tenure>, due: Instant) -> bool {
        self.schedule(tenure, |_| due)
    }

    /// Has the watchdog look at a tenure when it has to, if nothing happens before. Returns `false` if the client is closed.
    pub(crate) fn plan(&self, tenure: &Arc<Tenure>, idle: Idle) -> bool {
        self.schedule(tenure, |state| state.tenure.next_look(idle))
    }

    fn schedule(&self, tenure: &Arc<Tenure>, due: impl FnOnce(&State) -> Instant) -> bool {
        let mut plan = self.plan.lock();
        if plan.closed {
            return false;
        }
        let (Plan { wheel, look_at, .. }, mut oversleeps) = (&mut *plan, false);
        // Slots change only under this mutex, so a tenure never stands in the wheel twice.
        tenure.schedule(due, |due, before| {
            let tick = self.tick(due);
            // A look that comes earlier stays: it may be for something else, and it schedules the next look itself. The watchdog
            // and a holder that leaves may both schedule a look at the same moment.
            if before.and_then(|before| wheel.due(before)).is_some_and(|due| due <= tick) {
                return None;
            }
            if let Some(before) = before {
                wheel.leave(before);
            }
            oversleeps = look_at.is_none_or(|look_at| tick < look_at);
            if oversleeps {
                *look_at = Some(tick);
            }
            Some(wheel.enter(tick, Arc::clone(tenure)))
        });
        drop(plan);
        if oversleeps {
            self.earlier.notify_one();
        }
        true
    }

    /// The watchdog need not look any more at this tenure, which has ended.
    pub(crate) fn leave(&self, ending: &Ending) {
        let left = ending.slot.and_then(|slot| self.plan.lock().wheel.leave(slot));
        drop(left);
    }

    /// Has the watchdog check as soon as it can whether Redis still has a tenure.
    pub(crate) fn hasten(&self, tenure: &Arc<Tenure>) {
        let look_at = tenure.doubt();
        if look_at > Instant::now() {
            self.enter(tenure, look_at);
            return;
        }
        let mut plan = self.plan.lock();
        if !plan.closed {
            plan.urgent.insert(tenure.id, Arc::clone(tenure));
            drop(plan);
            self.earlier.notify_one();
        }
    }

    /// The server says that the key of a tenure has changed, and tracks it no more.
    pub(crate) fn alarm(&self, tenure: &Arc<Tenure>) {
        if tenure.with(|tenure| tenure.takes_alarm(CompactInstant::now())) {
            self.hasten(tenure);
        } else {
            self.track_after(tenure, TRACK_AGAIN);
        }
    }

    /// This client has changed the key of a tenure, so the server tracks it no more. Has the watchdog ask for that again soon.
    pub(crate) fn track_soon(&self, tenure: &Arc<Tenure>) {
        self.track_after(tenure, WORTH_TRACKING);
    }

    /// The same, after a pause in which asking would be in vain.
    pub(crate) fn track_after(&self, tenure: &Arc<Tenure>, pause: Duration) {
        if tenure.keys.row.is_tracked() {
            let look_at = tenure.with(|tenure| tenure.track_at(CompactInstant::now() + pause));
            self.enter(tenure, look_at.instant());
        }
    }

    /// Waits for the next tenures that are due. The watchdog asks when it has handled the previous ones.
    ///
    /// # Cancel safety
    /// No tenure is taken out before the future is ready.
    pub(crate) async fn next(&self) -> Vec<Arc<Tenure>> {
        let seen_to = std::mem::take(&mut self.plan.lock().in_hand);
        drop(seen_to);
        loop {
            let (due, look_at) = self.due();
            if !due.is_empty() {
                return due;
            }
            let wake = look_at.map(|tick| self.started + Duration::from_millis(TICK_MS * tick));
            tokio::select! {
                () = sleep_until_if(wake) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// The tenures to look at now, and when to look for the next ones.
    fn due(&self) -> (Vec<Arc<Tenure>>, Option<u64>) {
        let (now, mut plan) = (self.passed(Instant::now()), self.plan.lock());
        let urgent = std::mem::take(&mut plan.urgent);
        let mut due = Vec::new();
        // Messages may make tenures urgent without a pause. The others are due all the same.
        if plan.look_at.is_some_and(|look_at| look_at <= now) {
            due = plan.wheel.advance(now);
            plan.look_at = plan.wheel.next();
            due.retain(|tenure| !urgent.contains_key(&tenure.id));
        }
        due.extend(urgent.into_values());
        // Store them in the same step: so `close` finds each of them, in the wheel or here.
        plan.in_hand.clone_from(&due);
        (due, plan.look_at)
    }

    /// Whether a caller holds a tenure.
    pub(crate) fn is_held(&self) -> bool {
        let plan = self.plan.lock();
        let mut tenures = plan.wheel.iter().chain(&plan.in_hand);
        tenures.any(|tenure| !tenure.is_over() && tenure.holds() > 0)
    }

    /// Every tenure that is not over, in the order of their grants.
    pub(crate) fn tenures(&self) -> Vec<Arc<Tenure>> {
        let mut tenures: Vec<_> = {
            let plan = self.plan.lock();
            plan.wheel.iter().chain(&plan.in_hand).map(Arc::clone).collect()
        };
        tenures.sort_by_key(|tenure| tenure.id);
        // One that was in hand may be in the wheel again.
        tenures.dedup_by_key(|tenure| tenure.id);
        tenures
    }

    /// Returns every tenure, and accepts no more.
    pub(crate) fn close(&self) -> Vec<Arc<Tenure>> {
        let mut plan = self.plan.lock();
        plan.closed = true;
        let mut all = plan.wheel.drain();
        all.append(&mut plan.in_hand);
        all.extend(std::mem::take(&mut plan.urgent).into_values());
        all
    }

    /// The first tick after this time.
    fn tick(&self, at: Instant) -> u64 {
        self.passed(at) + 1
    }

    /// The last tick that has passed at this time.
    fn passed(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX) / TICK_MS
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::core::tenure::Due;
    use crate::engine::entry::tenure::tests::begun;

    const A_WHILE: Duration = Duration::from_millis(50);

    #[tokio::test(start_paused = true)]
    async fn closing_finds_the_tenures_that_the_watchdog_has_in_hand() {
        let timetable = Timetable::new(Instant::now());
        let tenures = [(); 3].map(|()| begun().1.tenure);
        assert!(timetable.enter(&tenures[0], Instant::now() + A_WHILE));
        assert!(timetable.enter(&tenures[1], Instant::now() + A_WHILE));
        assert!(timetable.enter(&tenures[2], Instant::now() + A_WHILE * 100));

        let in_hand = timetable.next().await;
        assert_eq!(in_hand.len(), 2);

        assert_eq!(timetable.close().len(), 3);
        assert!(!timetable.enter(&in_hand[0], Instant::now()), "closed");
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_taken_and_released_again_and_again_does_not_wake_the_watchdog() {
        let timetable = Timetable::new(Instant::now());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut next = Box::pin(timetable.next());
        let mut watchdog_looks = || next.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(watchdog_looks().is_pending());
        for _ in 0..10 {
            let tenure = begun().1.tenure;
            assert!(timetable.enter(&tenure, Instant::now() + A_WHILE));
            // The watchdog is so slow that it never sees the tenure.
            timetable.leave(&tenure.close().unwrap());
            assert!(watchdog_looks().is_pending());
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_look_does_not_replace_an_earlier_one() {
        let timetable = Timetable::new(Instant::now());
        let (tenure, begun) = (begun().1.tenure, Instant::now());
        assert!(timetable.enter(&tenure, begun + A_WHILE));
        assert!(timetable.enter(&tenure, begun + A_WHILE * 10));
        assert!(Arc::ptr_eq(&timetable.next().await[0], &tenure));
        assert!(begun.elapsed() < A_WHILE * 2);
        // Now that it is not in the wheel, the next look is as late as that.
        assert!(timetable.enter(&tenure, begun + A_WHILE * 10));
        timetable.next().await;
        assert!(begun.elapsed() >= A_WHILE * 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_urgent_waits_for_no_tick_and_alarms_cause_four_at_the_most() {
        let timetable = Timetable::new(Instant::now());
        let tenure = begun().1.tenure;
        tenure.with(|tenure| tenure.lifetime.renew_at(Instant::now() + A_WHILE * 100));
        assert!(timetable.enter(&tenure, Instant::now() + A_WHILE * 100));
        for _ in 0..4 {
            let asked = Instant::now();
            timetable.alarm(&tenure);
            assert!(Arc::ptr_eq(&timetable.next().await[0], &tenure));
            assert_eq!(asked.elapsed(), Duration::ZERO);
            let idle = Idle { pickup: A_WHILE, keep: A_WHILE };
            assert!(matches!(tenure.due(Instant::now(), None, idle), Due::Renew(_)));
            tokio::time::advance(A_WHILE).await;
        }
        timetable.alarm(&tenure);
        let next = tokio::time::timeout(A_WHILE, timetable.next()).await;
        assert!(next.is_err(), "it looks no more");
    }

    /// Whoever may publish can send thousands of messages before the watchdog has its turn.
    #[tokio::test(start_paused = true)]
    async fn a_tenure_that_many_messages_doubt_is_in_the_list_once() {
        let timetable = Timetable::new(Instant::now());
        let tenure = begun().1.tenure;
        for _ in 0..1_000 {
            timetable.hasten(&tenure);
        }
        assert_eq!(timetable.next().await.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_without_a_pause_keep_no_other_tenure_from_being_due() {
        let timetable = Timetable::new(Instant::now());
        let (doubted, other) = (begun().1.tenure, begun().1.tenure);
        assert!(timetable.enter(&other, Instant::now() + A_WHILE));
        timetable.hasten(&doubted);
        assert_eq!(timetable.next().await.len(), 1);
        tokio::time::advance(A_WHILE * 2).await;
        timetable.hasten(&doubted);
        let due = timetable.next().await;
        assert!(due.iter().any(|tenure| Arc::ptr_eq(tenure, &other)), "{}", due.len());
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_wakes_in_time_after_a_look_that_found_nothing() {
        let timetable = Timetable::new(Instant::now());
        let (gone, stays) = (begun().1.tenure, begun().1.tenure);
        assert!(timetable.enter(&gone, Instant::now() + A_WHILE));
        timetable.leave(&gone.close().unwrap());
        assert!(timetable.enter(&stays, Instant::now() + A_WHILE * 3));
        let looked = Instant::now();
        assert!(Arc::ptr_eq(&timetable.next().await[0], &stays));
        let late = looked.elapsed() - A_WHILE * 3;
        assert!(late <= Duration::from_millis(2 * TICK_MS), "{late:?}");
    }
}
