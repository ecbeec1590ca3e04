//! What the releaser has to do, and when. It is plain state, with no I/O and no clock.
//!
//! 1. A job waits for its time, is ready in its lane, or is part of a request to the server.
//! 2. Lanes are independent: a release never waits for a hold count.
//! 3. A job is repeated until the server answers it, or until Redis itself has freed the lock.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use crate::engine::releaser::job::{Job, Lane, Outcome};
use crate::wire::Company;

/// Releases come first, since other callers may wait for them.
const LANES: [Lane; 4] = [Lane::Plain, Lane::Line, Lane::Others, Lane::Counts];

/// The outcome of a request.
pub(crate) struct Answers {
    pub(crate) jobs: Vec<(Job, Outcome)>,
    /// The connection on which the request was sent.
    pub(crate) generation: u64,
}

/// The jobs of one lane.
#[derive(Default)]
struct LaneJobs {
    ready: VecDeque<Job>,
    /// Those that are part of requests to the server.
    company: Company,
}

/// The jobs that are not done.
#[derive(Default)]
pub(crate) struct Backlog {
    /// By lane.
    lanes: [LaneJobs; 4],
    /// Jobs by the time of their next try.
    later: BTreeMap<(Instant, u64), Job>,
    seen: u64,
    /// The jobs of one request could be for several servers, so each is sent in a separate request.
    is_scattered: bool,
    /// The client closes: any answer settles a job.
    is_closing: bool,
}

impl Backlog {
    /// For jobs of several servers.
    pub(crate) fn scattered(is_scattered: bool) -> Self {
        Self { is_scattered, ..Self::default() }
    }

    pub(crate) fn put(&mut self, job: Job, now: Instant) {
        let LaneJobs { ready, company } = self.lane(job.lane());
        if ready.is_empty() {
            company.first_comes(now);
        }
        ready.push_back(job);
    }

    /// When the next job becomes ready, if any waits for its time, or has waited for company for long enough.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|((due, _), _)| *due);
        LANES.into_iter().filter_map(|lane| self.goes_at(lane)).chain(later).min()
    }

    /// Makes the waiting jobs ready that may succeed now.
    pub(crate) fn hasten(&mut self, now: Instant) {
        let later = std::mem::take(&mut self.later).into_iter();
        let (ready, later): (BTreeMap<_, _>, _) = later.partition(|(_, job)| job.can_be_hastened());
        self.later = later;
        ready.into_values().for_each(|job| self.put(job, now));
    }

    /// The client closes: asks for each job once more, and takes any answer.
    pub(crate) fn close(&mut self, now: Instant) {
        self.is_closing = true;
        self.hasten(now);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// The jobs of the next request, until [`answered`](Self::answered).
    pub(crate) fn next(&mut self, now: Instant) -> Option<Vec<Job>> {
        let later = self.later.split_off(&(now, u64::MAX));
        for job in std::mem::replace(&mut self.later, later).into_values() {
            self.put(job, now);
        }
        LANES.into_iter().find_map(|lane| self.ask(lane, now))
    }

    fn ask(&mut self, lane: Lane, now: Instant) -> Option<Vec<Job>> {
        self.goes_at(lane).filter(|at| *at <= now)?;
        let most = self.batch(lane);
        let LaneJobs { ready, company } = self.lane(lane);
        let many = ready.len().min(most).min(lane.most() - company.in_flight());
        company.goes(many);
        Some(ready.drain(..many).collect())
    }

    /// When the next request of a lane goes, if nothing happens before.
    fn goes_at(&self, lane: Lane) -> Option<Instant> {
        let LaneJobs { ready, company } = &self.lanes[lane as usize];
        let has_room = company.in_flight() < lane.most();
        company.goes_at(ready.len(), self.batch(lane)).filter(|_| has_room)
    }

    /// The most jobs in one request.
    fn batch(&self, lane: Lane) -> usize {
        // No job waits for another job's server.
        if self.is_scattered { 1 } else { lane.batch() }
    }

    pub(crate) fn answered(&mut self, answered: Answers, now: Instant) {
        let Answers { jobs, generation } = answered;
        // The jobs of one request are of one lane.
        let lane = jobs[0].0.lane();
        self.lane(lane).company.lands(jobs.len());
        for (mut job, outcome) in jobs {
            let is_enough = self.is_closing && outcome.is_ok();
            if is_enough || job.is_settled_by(&outcome, generation, now) {
                job.settle(outcome, now);
                continue;
            }
            self.seen += 1;
            let due = job.postpone(&outcome, now);
            self.later.insert((due, self.seen), job);
        }
    }

    fn lane(&mut self, lane: Lane) -> &mut LaneJobs {
        &mut self.lanes[lane as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::oneshot::Receiver;

    use super::*;
    use crate::engine::debts::Debts;
    use crate::engine::entry::Tenure;
    use crate::engine::entry::tenure::Left;
    use crate::engine::entry::tenure::tests::{NO_BUDGET, begun};
    use crate::engine::releaser::job::FirstAttempt;
    use crate::error::said;
    use crate::wire::Fault;

    const A_WHILE: Duration = Duration::from_secs(2);

    fn unanswered() -> Fault {
        Fault::Unanswered(said("the connection broke"))
    }

    fn unsent() -> Fault {
        Fault::NotSent(said("there is no connection"))
    }

    fn tenure() -> Arc<Tenure> {
        begun().1.tenure
    }

    fn release() -> Job {
        match tenure().leave(0, NO_BUDGET) {
            Left::Last(ending) => Job::release(ending),
            _ => panic!("nobody else waits for it"),
        }
    }

    /// A release whose first try, in the foreground, failed with this fault.
    fn unlock(fault: &Fault) -> (Job, Receiver<Outcome>) {
        let (job, mut first) = release().telling();
        let job = job.came_to(Err(fault.clone())).expect("it goes on");
        match first.try_recv() {
            Ok(FirstAttempt::Failed(_, told)) => (job, told),
            _ => panic!("its caller hears of the failure"),
        }
    }

    fn answer(backlog: &mut Backlog, asked: Vec<Job>, outcome: &Outcome, now: Instant) {
        let jobs = asked.into_iter().map(|job| (job, outcome.clone())).collect();
        backlog.answered(Answers { jobs, generation: 1 }, now);
    }

    #[tokio::test]
    async fn releases_travel_together_and_wait_for_no_count() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        for _ in 0..Lane::Counts.most() + 1 {
            backlog.put(Job::count(&tenure()), now);
        }
        let mut asked = Vec::new();
        while let Some(ask) = backlog.next(now) {
            assert_eq!((ask[0].lane(), ask.len()), (Lane::Counts, 1));
            asked.push(ask);
        }
        assert_eq!(asked.len(), Lane::Counts.most());
        for _ in 0..130 {
            backlog.put(release(), now);
        }
        let full = backlog.next(now).unwrap();
        assert_eq!(full.len(), 128);
        assert!(
            backlog.next(now).is_none(),
            "two releases wait for company, and the last count for an answer"
        );
        let later = backlog.wakes_at().expect("they do not wait for long");
        assert!(later > now);
        assert_eq!(backlog.next(later).unwrap().len(), 2);
        answer(&mut backlog, asked.pop().unwrap(), &Ok(true), now);
        assert_eq!(backlog.next(now).unwrap()[0].lane(), Lane::Counts);
    }

    #[tokio::test]
    async fn releases_of_several_servers_do_not_wait_for_each_other() {
        let (mut backlog, now) = (Backlog::scattered(true), Instant::now());
        (0..400).for_each(|_| backlog.put(release(), now));
        let asked: Vec<_> = std::iter::from_fn(|| backlog.next(now)).collect();
        assert_eq!(asked.len(), 3 * 128);
        assert!(asked.iter().all(|ask| ask.len() == 1));
    }

    #[tokio::test]
    async fn a_job_without_an_answer_is_asked_for_again_until_redis_has_freed_the_lock() {
        let (mut backlog, mut now) = (Backlog::default(), Instant::now());
        let (debts, tenure) = (Debts::default(), tenure());
        backlog.put(Job::leave_line(&tenure.keys, tenure.id, debts.tidying()), now);
        let (began, mut asked) = (now, 0);
        while debts.len() > 0 {
            let ask = backlog.next(now).expect("it is due");
            answer(&mut backlog, ask, &Err(unsent()), now);
            now = backlog.wakes_at().unwrap_or(now);
            asked += 1;
        }
        assert!(asked > 5, "asked {asked} times");
        assert!(now >= began + A_WHILE, "given up after {:?}", now - began);
        assert!(backlog.next(now + A_WHILE).is_none());
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
            let (mut backlog, (job, mut told)) = (Backlog::default(), unlock(&fault));
            backlog.put(job, now);
            let ask = backlog.next(now).unwrap();
            answer(&mut backlog, ask, &Ok(false), answered);
            assert_eq!(told.try_recv().unwrap().unwrap(), found, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_repetition_without_an_answer_may_have_run_too() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let (job, mut told) = unlock(&unsent());
        backlog.put(job, now);
        let ask = backlog.next(now).unwrap();
        answer(&mut backlog, ask, &Err(unanswered()), now);
        assert!(told.try_recv().is_err(), "nothing is known");
        assert!(backlog.next(now).is_none(), "not at once");
        let due = backlog.wakes_at().unwrap();
        let ask = backlog.next(due).unwrap();
        answer(&mut backlog, ask, &Ok(false), due);
        assert!(told.try_recv().unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_new_connection_makes_a_postponed_job_ready_at_once() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        backlog.put(release(), now);
        let ask = backlog.next(now).unwrap();
        answer(&mut backlog, ask, &Err(unsent()), now);
        assert!(backlog.next(now).is_none(), "it waits for its time");
        backlog.hasten(now);
        assert!(backlog.next(now).is_some());
        assert!(backlog.wakes_at().is_none());
    }

    #[tokio::test]
    async fn after_an_outage_a_cluster_that_is_down_is_asked_again_soon() {
        let (mut backlog, mut now) = (Backlog::default(), Instant::now());
        let (debts, tenure) = (Debts::default(), tenure());
        backlog.put(Job::leave_line(&tenure.keys, tenure.id, debts.tidying()), now);
        // By then its pauses are as long as they get, and the job still has some seconds.
        for _ in 0..7 {
            let ask = backlog.next(now).unwrap();
            answer(&mut backlog, ask, &Err(unsent()), now);
            now = backlog.wakes_at().unwrap();
        }
        let ask = backlog.next(now).unwrap();
        let down = Fault::from_text("CLUSTERDOWN The cluster is down");
        answer(&mut backlog, ask, &Err(down), now);
        let pause = backlog.wakes_at().unwrap() - now;
        assert!(pause <= Duration::from_millis(150), "it waits for {pause:?}");
        backlog.hasten(now);
        assert!(backlog.next(now).is_none(), "a new connection changes nothing for it");
    }

    #[tokio::test]
    async fn a_job_is_a_debt_until_it_is_answered() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let (debts, tenure) = (Debts::default(), tenure());
        backlog.put(Job::leave_line(&tenure.keys, tenure.id, debts.tidying()), now);
        assert_eq!(debts.len(), 1);
        let ask = backlog.next(now).unwrap();
        assert_eq!(debts.len(), 1);
        answer(&mut backlog, ask, &Ok(false), now);
        assert_eq!(debts.len(), 0);
    }
}
