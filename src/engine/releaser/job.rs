//! A job of the releaser: a change that has to be made in Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::debts::Debt;
use crate::engine::entry::tenure::Ending;
use crate::engine::entry::{Stay, Tenure};
use crate::engine::ghost::{Ghost, PATIENCE};
use crate::engine::releaser::releases_under_way::{ReleaseUnderWay, ReleasesUnderWay};
use crate::keys::{Keys, TenureId};
use crate::pause::jittered;
use crate::wakers::guarded;
use crate::wire::{Acquire, Acquired, Answer, Fault, Release};

const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, plus or minus half, after a server has answered that another server is responsible, or that none is: a
/// cluster may be electing a primary. Nothing tells a client that the cluster works again. After three seconds, the pauses
/// grow.
const LONGEST_PAUSE_IF_ANSWERED: Duration = Duration::from_millis(100);

/// Whether the server found what the job is about, or the fault if it did not answer.
pub(crate) type Outcome = Result<bool, Fault>;

/// A change that has to be made in Redis. It counts as a debt until it is dropped.
pub(crate) struct Job {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    pub(crate) what: What,
    /// When the releaser gives up: for a place in line after some seconds, otherwise when the lease should be over.
    until: Instant,
    /// Before this time, the key of the lock cannot have expired, and nobody can have taken the lock.
    deadline: Instant,
    /// An unanswered request may have done the job already.
    may_have_run: bool,
    /// The permit or the seat. It is dropped with the first answer, or with the first failure.
    stay: Option<Stay>,
    /// The record that this name is being released. It ends with the first answer.
    under_way: Option<ReleaseUnderWay>,
    told: Option<Told>,
    pause: Duration,
    /// Since when it has been postponed.
    failing: Option<Instant>,
    /// When it is tried again; `None`: it was not tried yet.
    pub(super) due: Option<Instant>,
    /// Whether the last answer was that no server, or another one, is responsible.
    is_redirected: bool,
    debt: Option<Debt>,
    /// The callers that leave the line with the release.
    pub(super) served: Box<[TenureId]>,
}

/// The caller that waits for the outcome.
enum Told {
    /// It has heard of no attempt.
    First(oneshot::Sender<FirstAttempt>),
    /// It has heard of a failure.
    Again(oneshot::Sender<Outcome>),
}

/// What became of the first attempt.
pub(crate) enum FirstAttempt {
    Settled(Outcome),
    /// It failed. The outcome follows.
    Failed(Fault, oneshot::Receiver<Outcome>),
}

pub(crate) enum What {
    /// Release the lock.
    Release,
    /// Use up a notification.
    Taken,
    /// Release what an acquire may have been granted that was sent on this connection. The acquire may still be in
    /// flight.
    Ghost { sent_on: u64 },
    /// Write the hold count of this tenure.
    Count(Arc<Tenure>),
}

/// What an attempt came to.
pub(crate) struct Attempted {
    pub(crate) outcome: Outcome,
    /// The connection on which it was sent.
    pub(crate) sent_on: u64,
}

impl Job {
    fn new(keys: Arc<Keys>, id: TenureId, what: What, until: Instant, debt: Option<Debt>) -> Self {
        Self {
            keys,
            id,
            what,
            until,
            deadline: until,
            may_have_run: false,
            stay: None,
            under_way: None,
            told: None,
            pause: SHORTEST_PAUSE,
            failing: None,
            due: None,
            is_redirected: false,
            debt,
            served: Box::default(),
        }
    }

    /// Releases a tenure that has ended, and then its permit or its seat.
    pub(crate) fn release(ending: Ending) -> Self {
        let Ending { keys, id, stay, debt, served, deadline, until, .. } = ending;
        let job = Self::new(keys, id, What::Release, until, Some(debt));
        Self { stay, deadline, served, ..job }
    }

    /// Uses up a notification: its waiter has had the lock again.
    pub(crate) fn taken(ending: Ending) -> Self {
        Self { what: What::Taken, ..Self::release(ending) }
    }

    /// Cleans up after an unanswered acquire, which may have run or may still run.
    pub(crate) fn ghost(ghost: Ghost) -> Self {
        let Ghost { keys, id, sent_on, until, debt } = ghost;
        // The acquire may also have put its caller in line. Such a place does not end with the lease.
        let until = if keys.asks_again() { until.max(Instant::now() + PATIENCE) } else { until };
        Self::new(keys, id, What::Ghost { sent_on }, until, Some(debt))
    }

    /// Gives up the place of a contender in the line, and whatever it may have been granted.
    pub(crate) fn leave_line(keys: &Arc<Keys>, id: TenureId, debt: Debt) -> Self {
        let until = Instant::now() + PATIENCE;
        Self::new(Arc::clone(keys), id, What::Release, until, Some(debt))
    }

    /// Releases what a request may be granted whose caller has just gone, once: the job of its answer does the rest.
    pub(crate) fn release_early(keys: &Arc<Keys>, id: TenureId, debt: Debt) -> Self {
        Self::new(Arc::clone(keys), id, What::Release, Instant::now(), Some(debt))
    }

    /// Undoes a request whose caller has gone: releases the lock, or gives up the place in line. No answer: the request is
    /// never sent. The release was recorded when the caller went.
    pub(crate) fn for_orphan(
        question: &Acquire,
        answer: Option<Answer>,
        under_way: Option<ReleaseUnderWay>,
    ) -> Option<Self> {
        let leave_line = || Self::leave_line(&question.keys, question.id, question.debt.clone());
        let ghost = |sent_on| Self::ghost(Ghost::new(question, sent_on));
        let answer = answer.map(|Answer { sent_on, result, .. }| (sent_on, result));
        let job = match answer {
            Some((_, Ok(Acquired::Waits { .. }))) => Some(leave_line()),
            // It was answered, so nothing can come any more: the first answer to the release settles it, on any connection.
            Some((sent_on, Ok(Acquired::Granted { .. }))) => {
                Some(Self { what: What::Release, ..ghost(sent_on) })
            }
            Some((_, Ok(_))) => None,
            Some((sent_on, Err(fault))) if fault.may_hold() => Some(ghost(sent_on)),
            // A sign of life that did not run, or was never sent, changed nothing: the caller still stands where it stood.
            Some((_, Err(_))) | None => (question.place > 0).then(leave_line),
        };
        job.map(|job| Self { under_way, ..job })
    }

    /// Writes the hold count to Redis.
    pub(crate) fn count(tenure: &Arc<Tenure>) -> Self {
        let (what, debt) = (What::Count(Arc::clone(tenure)), tenure.debt());
        Self::new(Arc::clone(&tenure.keys), tenure.id, what, tenure.deadline(), debt)
    }

    /// Reports to a caller what comes of it.
    pub(crate) fn telling(mut self) -> (Self, oneshot::Receiver<FirstAttempt>) {
        let (told, first) = oneshot::channel();
        self.told = Some(Told::First(told));
        (self, first)
    }

    /// What an attempt comes to. Returns the job if it has to be tried again. A client that closes takes any answer.
    pub(super) fn came_to(
        mut self,
        attempted: Attempted,
        now: Instant,
        is_closing: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let Attempted { outcome, sent_on } = attempted;
        if self.is_settled_by(&outcome, sent_on, now) || outcome.is_ok() && is_closing() {
            self.settle(outcome, now);
            return None;
        }
        self.postpone(&outcome, now);
        Some(self)
    }

    /// An attempt failed.
    fn has_failed(&mut self, fault: &Fault) {
        match fault {
            Fault::HalfRun(_) => self.is_half_done(true),
            Fault::Unfinished { found } => self.is_half_done(*found),
            fault => self.may_have_run |= fault.may_have_run(),
        }
        let first = self.told.take_if(|told| matches!(told, Told::First(_)));
        if let Some(Told::First(told)) = first {
            let (again, outcome) = oneshot::channel();
            self.told = Some(Told::Again(again));
            guarded(|| _ = told.send(FirstAttempt::Failed(fault.clone(), outcome)));
        }
    }

    /// A request for the job was sent, or was about to be sent, and was not answered.
    pub(crate) fn may_have_run(&mut self) {
        self.may_have_run = true;
    }

    /// The lock is released, and only its line is left to do. The caller need not wait for that.
    fn is_half_done(&mut self, found: bool) {
        (self.stay, self.under_way) = (None, None);
        self.tell(Ok(found), Instant::now());
        self.may_have_run();
    }

    fn tell(&mut self, outcome: Outcome, now: Instant) {
        if let Some(told) = self.told.take() {
            // If a repetition finds nothing, the unanswered request before it has released the lock. If the key may
            // have expired, the client cannot know that: the lease was over before the release was confirmed.
            let done = self.may_have_run && now < self.deadline;
            let outcome = outcome.map(|found| found || done);
            // If this fails, no caller waits for the outcome any more.
            guarded(|| match told {
                Told::First(told) => _ = told.send(FirstAttempt::Settled(outcome)),
                Told::Again(told) => _ = told.send(outcome),
            });
        }
    }

    /// Records that the job is in progress. Returns `false` if the same job is already waiting: one request writes the
    /// latest hold count.
    pub(crate) fn is_new(&mut self, releases: &ReleasesUnderWay) -> bool {
        if let What::Count(tenure) = &self.what {
            return tenure.will_tell();
        }
        self.begins(releases);
        true
    }

    /// Records that this name is being released.
    pub(crate) fn begins(&mut self, releases: &ReleasesUnderWay) {
        self.under_way.get_or_insert_with(|| releases.begin(&self.keys));
    }

    /// The lock, in the form that the release script expects.
    pub(crate) fn request(&self) -> Release {
        let is_taken = matches!(self.what, What::Taken);
        Release { keys: Arc::clone(&self.keys), id: self.id, is_taken, served: self.served.clone() }
    }

    /// Whether this outcome, on this connection, settles the job. When the releaser gives up, any outcome
    /// does.
    fn is_settled_by(&self, outcome: &Outcome, generation: u64, now: Instant) -> bool {
        let answered = outcome.as_ref().is_ok_and(|found| match self.what {
            // A contender in line asks under one owner field again and again. So the release may have found the grant
            // of an earlier request, while the late one is yet to arrive.
            What::Ghost { sent_on } => sent_on == generation || *found && !self.keys.asks_again(),
            What::Release | What::Taken | What::Count(_) => true,
        });
        // A caller whose first attempt fails gets a second one, even after the lease: that says whether the lock was still there.
        let is_tried_again = matches!(self.told, Some(Told::First(_)));
        answered || now >= self.until && !is_tried_again
    }

    fn settle(mut self, outcome: Outcome, now: Instant) {
        // If Redis has written the latest count, `Tenure::told` has ended this already. Another job may have begun since then.
        if let What::Count(tenure) = &self.what
            && !matches!(outcome, Ok(true))
        {
            tenure.stop_telling();
        }
        // Drop them in this order: a caller that waits for the release to end then finds the permit free.
        drop(self.stay.take());
        drop(self.under_way.take());
        self.tell(outcome, now);
        drop(self.debt);
    }

    /// Whether a new connection, or another primary of a slot, is a reason to try at once. After a redirection it is not:
    /// while two nodes name each other, each answer changes the map.
    pub(crate) fn can_be_hastened(&self) -> bool {
        !self.is_redirected
    }

    /// Sets the time for the next try.
    fn postpone(&mut self, outcome: &Outcome, now: Instant) {
        if let Err(fault) = outcome {
            self.has_failed(fault);
        }
        self.stay = None;
        match (&self.under_way, outcome) {
            (Some(release), Err(fault)) if fault.is_passing() => release.failed(),
            _ => self.under_way = None,
        }
        if matches!(outcome, Err(Fault::Unfinished { .. })) {
            self.due = Some(now);
            return;
        }
        self.is_redirected = matches!(outcome, Err(Fault::Redirected(..)));
        let since = *self.failing.get_or_insert(now);
        let longest = match outcome {
            Err(Fault::Redirected(..) | Fault::Distrusted(_)) => {
                LONGEST_PAUSE_IF_ANSWERED.max((now - since) / 32)
            }
            // For a ghost with a long lease, the pauses grow over time.
            _ => LONGEST_PAUSE.max(self.until.saturating_duration_since(now) / 32),
        };
        let pause = self.pause.min(longest);
        self.due = Some(now + jittered(pause));
        self.pause = (pause * 2).min(longest);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Layout;
    use crate::engine::debts::Debts;
    use crate::engine::entry::tenure::Left;
    use crate::engine::entry::tenure::tests::{IDLE, NO_BUDGET, begun};
    use crate::error::said;
    use crate::kinds::Kind;
    use crate::wire::{Manner, Secret};

    const A_WHILE: Duration = Duration::from_secs(2);

    fn unanswered() -> Fault {
        Fault::Unanswered(said("the connection broke"))
    }

    pub(crate) fn unsent() -> Fault {
        Fault::NotSent(said("there is no connection"))
    }

    /// An attempt on the first connection. Returns the job if it has to be tried again.
    pub(crate) fn attempt(job: Job, outcome: Outcome, now: Instant) -> Option<Job> {
        job.came_to(Attempted { outcome, sent_on: 1 }, now, || false)
    }

    fn release() -> Job {
        match begun().1.tenure.leave(0, NO_BUDGET, IDLE) {
            Left::Last(ending) => Job::release(ending),
            _ => panic!("nobody else waits for it"),
        }
    }

    /// A release whose first attempt failed with this fault.
    fn unlock(fault: &Fault, now: Instant) -> (Job, oneshot::Receiver<Outcome>) {
        let (job, mut first) = release().telling();
        let job = attempt(job, Err(fault.clone()), now).expect("it goes on");
        match first.try_recv() {
            Ok(FirstAttempt::Failed(_, told)) => (job, told),
            _ => panic!("its caller hears of the failure"),
        }
    }

    fn place_in_line() -> (Debts, Job) {
        let (debts, tenure) = (Debts::default(), begun().1.tenure);
        let job = Job::leave_line(&tenure.keys, tenure.id, debts.tidying());
        (debts, job)
    }

    /// A request of a caller at this place in a line.
    fn question(place: u64) -> Acquire {
        Acquire {
            keys: Arc::new(Keys::new(Layout::Native, Kind::Fair, "a".to_owned()).unwrap()),
            id: TenureId(1),
            lease: Duration::from_secs(10),
            manner: Manner::Wait,
            permits: 1,
            within: None,
            place,
            secret: Secret::default(),
            old: None,
            debt: Debts::default().tidying(),
        }
    }

    fn orphan(place: u64, result: Result<Acquired, Fault>) -> Option<Job> {
        let answer = Answer { sent: Instant::now(), sent_on: 1, result };
        Job::for_orphan(&question(place), Some(answer), None)
    }

    /// The request may have put its caller in line, and that place lasts longer than the lease.
    #[test]
    fn a_ghost_with_a_short_lease_is_released_although_the_connection_comes_back_later() {
        let acquire = Acquire { lease: Duration::from_millis(10), ..question(1) };
        let job = Job::ghost(Ghost::new(&acquire, 1));
        let refused = Err(Fault::NotSent(said("the connection is gone")));
        let later = Instant::now() + Duration::from_millis(50);
        assert!(!job.is_settled_by(&refused, 2, later));
        assert!(job.is_settled_by(&refused, 2, later + PATIENCE), "it gives up at some time");
    }

    #[test]
    fn a_caller_that_goes_before_its_sign_of_life_is_refused_gives_up_its_place() {
        let refused = || Err(Fault::NotSent(said("there is no connection")));
        assert!(matches!(orphan(3, refused()), Some(Job { what: What::Release, .. })));
        assert!(orphan(0, refused()).is_none(), "it stands in no line");
    }

    #[test]
    fn a_grant_to_a_caller_that_has_gone_is_settled_on_any_connection() {
        let granted = Ok(Acquired::Granted { number: 1, awaited: false });
        let job = orphan(3, granted).unwrap();
        assert!(job.is_settled_by(&Ok(true), 2, Instant::now()), "nothing can come any more");
        let unanswered = Err(Fault::Unanswered(said("the connection broke")));
        let job = orphan(3, unanswered).unwrap();
        assert!(!job.is_settled_by(&Ok(true), 2, Instant::now()), "its request may still run");
    }

    #[tokio::test]
    async fn a_job_without_an_answer_is_tried_again_until_redis_has_freed_the_lock() {
        let mut now = Instant::now();
        let (debts, job) = place_in_line();
        let (began, mut asked, mut job) = (now, 0, Some(job));
        while let Some(tried) = job {
            job = attempt(tried, Err(unsent()), now);
            now = job.as_ref().map_or(now, |job| job.due.unwrap());
            asked += 1;
        }
        assert!(asked > 5, "asked {asked} times");
        assert!(now >= began + A_WHILE, "given up after {:?}", now - began);
        assert_eq!(debts.len(), 0);
    }

    #[tokio::test]
    async fn nothing_found_is_a_release_only_if_one_may_have_run_and_the_lease_was_not_over() {
        let now = Instant::now();
        let over = now + Duration::from_secs(60);
        for (fault, answered, found) in [
            (unanswered(), now, true),
            (unanswered(), over, false),
            (unsent(), now, false),
            (unsent(), over, false),
        ] {
            let (job, mut told) = unlock(&fault, now);
            assert!(attempt(job, Ok(false), answered).is_none());
            assert_eq!(told.try_recv().unwrap().unwrap(), found, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_repetition_without_an_answer_may_have_run_too() {
        let now = Instant::now();
        let (job, mut told) = unlock(&unsent(), now);
        let job = attempt(job, Err(unanswered()), now).expect("it goes on");
        assert!(told.try_recv().is_err(), "nothing is known");
        assert!(job.due.unwrap() > now, "not at once");
        assert!(attempt(job, Ok(false), now).is_none());
        assert!(told.try_recv().unwrap().unwrap());
    }

    #[tokio::test]
    async fn after_an_outage_a_cluster_that_is_down_is_asked_again_soon() {
        let mut now = Instant::now();
        let (_debts, mut job) = place_in_line();
        // By then its pauses are as long as they get, and the job still has some seconds.
        for _ in 0..7 {
            job = attempt(job, Err(unsent()), now).expect("it goes on");
            now = job.due.unwrap();
        }
        let down = Fault::from_text("CLUSTERDOWN The cluster is down");
        let job = attempt(job, Err(down), now).expect("it goes on");
        let pause = job.due.unwrap() - now;
        assert!(pause <= Duration::from_millis(150), "it waits for {pause:?}");
        assert!(!job.can_be_hastened(), "a new connection changes nothing for it");
    }

    #[tokio::test]
    async fn a_client_that_closes_takes_any_answer() {
        let (acquire, now) = (question(1), Instant::now());
        for (is_closing, is_settled) in [(false, false), (true, true)] {
            let job = Job::ghost(Ghost::new(&acquire, 2));
            let attempted = Attempted { outcome: Ok(false), sent_on: 1 };
            assert_eq!(job.came_to(attempted, now, || is_closing).is_none(), is_settled);
        }
        let job = Job::ghost(Ghost::new(&acquire, 2));
        let attempted = Attempted { outcome: Err(unsent()), sent_on: 1 };
        assert!(job.came_to(attempted, now, || true).is_some(), "it is no answer");
    }

    #[tokio::test]
    async fn a_job_is_a_debt_until_it_is_answered() {
        let (debts, job) = place_in_line();
        assert_eq!(debts.len(), 1);
        assert!(attempt(job, Ok(false), Instant::now()).is_none());
        assert_eq!(debts.len(), 0);
    }

    #[tokio::test]
    async fn an_unlock_that_fails_after_its_lease_is_tried_once_more() {
        let now = Instant::now() + Duration::from_secs(60);
        let (job, mut told) = unlock(&unanswered(), now);
        assert!(attempt(job, Err(unanswered()), now).is_none(), "nobody has the lock any more");
        assert!(told.try_recv().unwrap().is_err());
    }

    #[tokio::test]
    async fn a_release_that_is_repeated_counts_as_failed_unless_the_server_refuses_it_for_good() {
        let releases = ReleasesUnderWay::default();
        for (fault, has_failed) in [
            (unanswered(), true),
            (Fault::from_text("READONLY You can't write against a read only replica."), true),
            (Fault::from_text("CLUSTERDOWN The cluster is down"), true),
            (Fault::from_text("NOPERM this user has no permissions"), false),
        ] {
            let mut job = release();
            job.begins(&releases);
            let keys = Arc::clone(&job.keys);
            let job = attempt(job, Err(fault.clone()), Instant::now());
            assert_eq!(releases.has_failed(&keys), has_failed, "{fault:?}");
            drop(job);
            assert!(!releases.has_failed(&keys));
        }
    }
}
