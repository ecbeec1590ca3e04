//! The jobs that were tried in vain, by the time of their next try. It is plain state, with no clock.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::engine::releaser::job::Job;

/// The jobs that wait for their time.
#[derive(Default)]
pub(super) struct Postponed {
    /// Jobs of the same time in the order in which they came.
    jobs: BTreeMap<(Instant, u64), Job>,
    seen: u64,
}

impl Postponed {
    pub(super) fn put(&mut self, job: Job, until: Instant) {
        self.seen += 1;
        self.jobs.insert((until, self.seen), job);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.jobs.first_key_value().map(|((due, _), _)| *due)
    }

    pub(super) fn take_due(&mut self, now: Instant) -> impl Iterator<Item = Job> + use<> {
        let later = self.jobs.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.jobs, later).into_values()
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Job> + use<> {
        std::mem::take(&mut self.jobs).into_values()
    }

    /// Takes those that may succeed now.
    pub(super) fn take_hastened(&mut self) -> impl Iterator<Item = Job> + use<> {
        let all = std::mem::take(&mut self.jobs).into_iter();
        let (hastened, later): (Vec<_>, _) = all.partition(|(_, job)| job.can_be_hastened());
        self.jobs = later.into_iter().collect();
        hastened.into_iter().map(|(_, job)| job)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::debts::Debts;
    use crate::engine::entry::tenure::tests::begun;
    use crate::engine::releaser::job::tests::{attempt, unsent};
    use crate::wire::Fault;

    fn job() -> Job {
        let tenure = begun().1.tenure;
        Job::leave_line(&tenure.keys, tenure.id, Debts::default().tidying())
    }

    #[tokio::test]
    async fn jobs_come_at_their_time_and_in_their_order() {
        let (mut postponed, now) = (Postponed::default(), Instant::now());
        let due = now + Duration::from_millis(20);
        let (first, second, later) = (job(), job(), job());
        let ids = [first.id, second.id, later.id];
        for (job, until) in [(later, due), (first, now), (second, now)] {
            postponed.put(job, until);
        }
        assert_eq!(postponed.next(), Some(now));
        let taken: Vec<_> = postponed.take_due(now).map(|job| job.id).collect();
        assert_eq!(taken, ids[..2]);
        assert_eq!(postponed.next(), Some(due));
        assert_eq!(postponed.take_due(now).count(), 0);
        assert_eq!(postponed.take_due(due).map(|job| job.id).collect::<Vec<_>>(), ids[2..]);
        assert_eq!(postponed.next(), None);
    }

    #[tokio::test]
    async fn a_new_connection_makes_a_job_ready_unless_another_server_is_responsible() {
        let (mut postponed, now) = (Postponed::default(), Instant::now());
        let down = Fault::from_text("CLUSTERDOWN The cluster is down");
        let (failed, redirected) = (job(), job());
        let ids = (failed.id, redirected.id);
        for (job, fault) in [(failed, unsent()), (redirected, down)] {
            let job = attempt(job, Err(fault), now).unwrap();
            let due = job.due.unwrap();
            postponed.put(job, due);
        }
        assert_eq!(postponed.take_hastened().map(|job| job.id).collect::<Vec<_>>(), [ids.0]);
        assert!(
            postponed.next().is_some_and(|due| due > now),
            "a new connection changes nothing for the other"
        );
        assert_eq!(postponed.take_all().map(|job| job.id).collect::<Vec<_>>(), [ids.1]);
        assert_eq!(postponed.next(), None);
    }
}
