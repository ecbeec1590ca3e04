//! How a job goes to the server: at once, or in one request with others of its kind (`wire/calls/gathering.rs`). A release belongs
//! to its job once it is sent: nobody has to poll for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::entry::Tenure;
use crate::engine::releaser::job::{Attempted, Job, Outcome, What};
use crate::engine::releaser::outbox::Outbox;
use crate::kinds::Family;
use crate::meters;
use crate::wire::{Batch, Commands, Connection, Fault, Gathering};

/// The requests for jobs.
#[derive(Clone)]
pub(crate) struct JobRequests {
    plain: Arc<Gathering<Releases<128>>>,
    /// Of fair locks, read-write locks and semaphores. If others wait for them, each takes the server up to 50 µs.
    in_line: Arc<Gathering<Releases<16>>>,
    /// Of everything else, and all that one script does for one lock alone.
    singles: Arc<Gathering<Releases<1>>>,
    /// Hold counts: a release never waits for one.
    counts: Arc<Gathering<Releases<1>>>,
    /// The jobs of one request could be for several servers, and no job waits for another job's server.
    is_scattered: bool,
}

impl JobRequests {
    pub(crate) fn new(commands: &Commands, outbox: &Outbox, closing: &CancellationToken) -> Self {
        let (is_scattered, commands) = (commands.is_scattered(), commands.clone());
        let desk = Desk { commands, outbox: outbox.clone(), closing: closing.clone() };
        Self {
            plain: Arc::new(Gathering::new(Releases(desk.clone()))),
            in_line: Arc::new(Gathering::new(Releases(desk.clone()))),
            singles: Arc::new(Gathering::new(Releases(desk.clone()))),
            counts: Arc::new(Gathering::new(Releases(desk))),
            is_scattered,
        }
    }

    /// Sends a job, and again until it is settled.
    pub(crate) fn put(&self, job: Job) {
        let family = job.keys.row.family;
        match job.what {
            What::Count(_) => self.counts.put(job),
            _ if self.is_scattered => self.singles.put(job),
            _ if family.is_plain() => self.plain.put(job),
            What::Release if family == Family::Line && job.served.is_empty() => {
                self.in_line.put(job)
            }
            _ => self.singles.put(job),
        }
    }

    /// Gathers jobs forever.
    pub(crate) async fn run(self) {
        let Self { plain, in_line, singles, counts, .. } = &self;
        tokio::join!(plain.run(), in_line.run(), singles.run(), counts.run());
    }
}

/// Sends jobs, and says what comes of them.
#[derive(Clone)]
struct Desk {
    commands: Commands,
    outbox: Outbox,
    closing: CancellationToken,
}

impl Desk {
    /// The link of the acquire that this job cleans up after, if that was sent on a separate link.
    fn connection(&self, job: &Job) -> Result<Connection<'_>, Fault> {
        match job.what {
            What::Ghost { .. } | What::Count(_) => self.commands.behind_acknowledged(&job.keys),
            _ => self.commands.connection(&job.keys),
        }
    }

    /// The releaser tries again what is not settled.
    fn answered(&self, job: Job, attempted: Option<Attempted>) {
        let job = attempted.and_then(|attempted| {
            job.came_to(attempted, self.closing.is_cancelled(), Instant::now())
        });
        job.into_iter().for_each(|job| self.outbox.put_again(job));
    }

    /// Writes the hold count, and again if it has changed meanwhile.
    async fn count(&self, job: &Job, tenure: &Arc<Tenure>) -> Outcome {
        loop {
            if tenure.is_over() {
                return Ok(true);
            }
            let (holds, ttl) = (tenure.holds_to_tell(), tenure.at_least(Duration::ZERO));
            let mut connection = self.connection(job)?;
            let found = connection.count(&tenure.keys, tenure.id, holds, ttl).await?;
            if found {
                self.outbox.timetable.watch_key_soon(tenure);
            }
            if !found || tenure.told(holds) {
                return Ok(found);
            }
        }
    }
}

/// Jobs whose releases share a script call, `N` at most; or with an `N` of one, those that are sent alone.
struct Releases<const N: usize>(Desk);

impl<const N: usize> Batch for Releases<N> {
    type Question = Job;
    type Answer = Attempted;
    const MOST: usize = N;
    const STRAIGHT: usize = if N == 1 { 64 } else { 1 };
    /// With more in flight, the last answers might come too late.
    const WINDOW: usize = if N == 1 { 384 } else { 24 };

    async fn send(&self, jobs: &[Job]) -> Vec<Attempted> {
        if let What::Count(tenure) = &jobs[0].what {
            return vec![Attempted { outcome: self.0.count(&jobs[0], tenure).await, sent_on: 0 }];
        }
        meters::batch("release", jobs.len());
        let releases: Vec<_> = jobs.iter().map(Job::request).collect();
        let (sent_on, answer) = match self.0.connection(&jobs[0]) {
            Ok(mut connection) => {
                let answer = connection.release(&releases).await;
                (connection.peer().generation(), answer)
            }
            Err(fault) => (0, Err(fault)),
        };
        let failed = |fault: Fault| jobs.iter().map(|_| Err(fault.clone())).collect();
        let outcomes = answer.unwrap_or_else(failed).into_iter();
        outcomes.map(|outcome| Attempted { outcome, sent_on }).collect()
    }

    fn send_alone(&self, job: Job, then: impl FnOnce(Job, Option<Attempted>) + Send + 'static) {
        let connection = match self.0.connection(&job) {
            Ok(connection) if job.is_release() && !connection.is_acknowledged() => connection,
            _ => return then(job, None),
        };
        let (request, sent_on) = (job.request(), connection.peer().generation());
        connection.release_then(request, move |outcome| {
            let is_tried = !outcome.as_ref().is_err_and(Fault::was_not_tried);
            then(job, is_tried.then_some(Attempted { outcome, sent_on }));
        });
    }

    fn orphan(&self, job: Job, attempted: Option<Attempted>) {
        self.0.answered(job, attempted);
    }
}
