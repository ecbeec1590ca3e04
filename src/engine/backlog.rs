//! What the releaser has to do, and when: plain state, which asks nobody and has no clock of its own.
//!
//! 1. A job waits for its time, is ready in its lane, or is with whoever asks the server.
//! 2. Each lane goes on by itself: a release never waits for a hold count.
//! 3. A job is asked for until the server answers it, or Redis itself has freed the lock.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use crate::engine::job::{Job, Outcome};

/// Jobs that are done by the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Releases,
    Counts,
    Lines,
}

impl Lane {
    /// Jobs in one request.
    fn batch(self) -> usize {
        match self {
            Self::Releases | Self::Lines => 128,
            Self::Counts => 1,
        }
    }

    /// Requests on their way at once. With one, client and server would take turns to idle; with
    /// many, little would travel together.
    fn several(self) -> usize {
        match self {
            Self::Releases => 3,
            Self::Counts => 64,
            Self::Lines => 1,
        }
    }
}

/// One request: what is asked, until [`Backlog::answered`].
pub(crate) struct Ask {
    pub(crate) lane: Lane,
    pub(crate) jobs: Vec<Job>,
}

/// What came of a request.
pub(crate) struct Answered {
    pub(crate) lane: Lane,
    pub(crate) jobs: Vec<(Job, Outcome)>,
    /// The connection on which it was sent.
    pub(crate) generation: u64,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Job>,
    /// Requests on their way.
    asked: usize,
}

/// The jobs that are not done.
#[derive(Default)]
pub(crate) struct Backlog {
    releases: Queue,
    counts: Queue,
    lines: Queue,
    /// By the time at which they are to be asked for again.
    later: BTreeMap<(Instant, u64), Job>,
    seen: u64,
}

impl Backlog {
    pub(crate) fn put(&mut self, job: Job) {
        self.queue(job.lane()).ready.push_back(job);
    }

    /// When a job comes ready, if any waits for its time.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((due, _), _)| *due)
    }

    /// What is to be asked for now: first what others may wait for.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Ask> {
        let later = self.later.split_off(&(now, u64::MAX));
        for job in std::mem::replace(&mut self.later, later).into_values() {
            self.put(job);
        }
        [Lane::Releases, Lane::Counts, Lane::Lines].into_iter().find_map(|lane| self.ask(lane))
    }

    fn ask(&mut self, lane: Lane) -> Option<Ask> {
        let queue = self.queue(lane);
        if queue.ready.is_empty() || queue.asked >= lane.several() {
            return None;
        }
        queue.asked += 1;
        let most = queue.ready.len().min(lane.batch());
        Some(Ask { lane, jobs: queue.ready.drain(..most).collect() })
    }

    pub(crate) fn answered(&mut self, answered: Answered, now: Instant) {
        let Answered { lane, jobs, generation } = answered;
        self.queue(lane).asked -= 1;
        for (mut job, outcome) in jobs {
            if job.is_settled_by(&outcome, generation, now) {
                job.settle(outcome, now);
                continue;
            }
            self.seen += 1;
            let due = job.postpone(&outcome, now);
            self.later.insert((due, self.seen), job);
        }
    }

    fn queue(&mut self, lane: Lane) -> &mut Queue {
        match lane {
            Lane::Releases => &mut self.releases,
            Lane::Counts => &mut self.counts,
            Lane::Lines => &mut self.lines,
        }
    }
}
