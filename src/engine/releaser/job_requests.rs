//! How a job goes to the server: at once, or in one request with others of its kind (`wire/calls/gathering.rs`). Once it is sent, a
//! release belongs to the client: nobody has to poll for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::entry::Tenure;
use crate::engine::releaser::job::{Attempted, Job, Outcome, What};
use crate::engine::releaser::outbox::Outbox;
use crate::kinds::Family;
use crate::meters;
use crate::wire::{Batch, Commands, Connection, Fault, Gathering, Limits, result_of_each};

/// The requests for jobs.
#[derive(Clone)]
pub(crate) struct JobRequests {
    plain: Arc<Gathering<Releases>>,
    /// Of fair locks, read-write locks and semaphores. If others wait for them, each takes the server up to 50 µs.
    in_line: Arc<Gathering<Releases>>,
    /// Of everything else, and all that one script does for one lock alone. If `is_scattered`, of all kinds.
    singles: Arc<Gathering<Releases>>,
    /// A release never waits for a hold count.
    counts: Arc<Gathering<Counts>>,
    /// The jobs of one request could be for several servers, or take two links.
    is_scattered: bool,
}

impl JobRequests {
    pub(crate) fn new(commands: &Commands, outbox: &Outbox, closing: &CancellationToken) -> Self {
        let (is_scattered, commands) = (commands.is_scattered(), commands.clone());
        let delivery = Delivery { commands, outbox: outbox.clone(), closing: closing.clone() };
        let releases = |limits| Arc::new(Gathering::new(Releases(delivery.clone()), limits));
        // With more in flight, the last answers might come too late.
        let shared = |most| releases(Limits { most, straight: 1, window: 24 });
        // In a cluster, a release does not wait for those that another node does not answer.
        let singles = releases(Limits { most: 1, straight: 4_096, window: 384 });
        let alone = Limits { most: 1, straight: 0, window: 64 };
        let counts = Arc::new(Gathering::new(Counts(delivery.clone()), alone));
        Self { plain: shared(128), in_line: shared(16), singles, counts, is_scattered }
    }

    /// Sends a job. If that does not settle it, it comes back to the releaser.
    pub(crate) fn put(&self, job: Job) {
        let family = job.keys.row.family;
        match &job.what {
            What::Count(tenure) => self.counts.put((Arc::clone(tenure), job)),
            _ if self.is_scattered => self.singles.put(job),
            _ if family.is_plain() => self.plain.put(job),
            What::Release if family == Family::Line && job.served.is_empty() => {
                self.in_line.put(job);
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
struct Delivery {
    commands: Commands,
    outbox: Outbox,
    closing: CancellationToken,
}

impl Delivery {
    /// The link of the acquire that this job cleans up after, if that was sent on a separate link.
    fn connection(&self, job: &Job) -> Result<Connection<'_>, Fault> {
        match job.what {
            What::Ghost { .. } => self.commands.behind_acknowledged(&job.keys),
            _ => self.commands.connection(&job.keys),
        }
    }

    /// Settles a job, or leaves it to the releaser. `None`: it was not sent, since the releaser has ended. The outbox says so in the log.
    fn answered(&self, job: Job, attempted: Option<Attempted>) {
        let job = match attempted {
            Some(attempted) => {
                job.came_to(attempted, Instant::now(), || self.closing.is_cancelled())
            }
            None => Some(job),
        };
        job.into_iter().for_each(|job| self.outbox.put_again(job));
    }

    /// Writes the hold count, and again if it has changed meanwhile.
    async fn count(&self, tenure: &Arc<Tenure>) -> Outcome {
        loop {
            if tenure.is_over() {
                return Ok(true);
            }
            let (holds, ttl) = (tenure.holds_to_tell(), tenure.at_least(Duration::ZERO));
            let mut connection = self.commands.behind_acknowledged(&tenure.keys)?;
            let found = connection.count(&tenure.keys, tenure.id, holds, ttl).await?;
            if !found {
                self.outbox.gone(tenure);
                return Ok(false);
            }
            self.outbox.timetable.track_soon(tenure);
            if tenure.told(holds) {
                return Ok(true);
            }
        }
    }
}

/// Jobs whose releases share a script call, or are sent alone.
struct Releases(Delivery);

impl Batch for Releases {
    type Question = Job;
    type Answer = Attempted;

    async fn send(&self, jobs: &[Job]) -> Vec<Attempted> {
        meters::batch("release", jobs.len());
        let releases: Vec<_> = jobs.iter().map(Job::request).collect();
        let (sent_on, answer) = match self.0.connection(&jobs[0]) {
            Ok(mut connection) => {
                let answer = connection.release(&releases).await;
                (connection.peer().generation(), answer)
            }
            Err(fault) => (0, Err(fault)),
        };
        let outcomes = result_of_each(answer, jobs.len()).into_iter();
        outcomes.map(|outcome| Attempted { outcome, sent_on }).collect()
    }

    fn send_alone(&self, job: Job, then: impl FnOnce(Job, Option<Attempted>) + Send + 'static) {
        let connection = match self.0.connection(&job) {
            Ok(connection) if !connection.is_acknowledged() => connection,
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

/// Jobs that write the hold count of a tenure.
struct Counts(Delivery);

impl Batch for Counts {
    type Question = (Arc<Tenure>, Job);
    type Answer = Attempted;

    async fn send(&self, jobs: &[(Arc<Tenure>, Job)]) -> Vec<Attempted> {
        vec![Attempted { outcome: self.0.count(&jobs[0].0).await, sent_on: 0 }]
    }

    fn orphan(&self, (_, job): (Arc<Tenure>, Job), attempted: Option<Attempted>) {
        self.0.answered(job, attempted);
    }
}
