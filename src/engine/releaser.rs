//! The releaser: the task that releases locks in the background. `unlock.rs` is the unlock of a caller; it comes here if it gets no
//! answer, or if others are on their way that it can share a request with.
//!
//! 1. Code that may have been granted a lock by Redis and cannot keep it leaves a job here.
//! 2. A job is repeated until the server answers it, or until Redis itself should have freed the lock. `job.rs` says how
//!    often, and `backlog.rs` in which order.
//! 3. An acquire that was never answered may run late. If it was sent on an older connection than its release, "not
//!    found" does not settle the job: the acquire may still arrive. For a lock with a line, "found" does not settle it
//!    either: that may have been the grant of an earlier request.
//! 4. The task ends when the client is closed, or has no handle left, and owes nothing any more. A client that closes
//!    asks once more for each job, and takes any answer: it does not wait for a lease to end because an acquire may still
//!    arrive. If one does, its lock expires.

mod backlog;
mod job;
mod outbox;
mod releases_under_way;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::engine::debts::Debts;
use crate::engine::entry::{Tenure, Timetable};
use crate::meters;
use crate::pause::sleep_until_if;
use crate::wire::{Commands, Fault};

pub(crate) use job::{FirstAttempt, Job, Outcome};
pub(crate) use outbox::Outbox;

use backlog::{Answers, Backlog};
use job::What;

/// The task that releases locks in the background.
pub(crate) struct Releaser {
    pub(crate) jobs: mpsc::UnboundedReceiver<Job>,
    pub(crate) commands: Commands,
    pub(crate) debts: Debts,
    pub(crate) timetable: Arc<Timetable>,
    /// How long it may continue after the client was closed.
    pub(crate) patience: Duration,
}

impl Releaser {
    /// Runs until the client owes nothing, and never will again. Then `stop` ends the client's other tasks.
    pub(crate) async fn run(self, closing: CancellationToken, stop: CancellationToken) {
        let _stop = stop.drop_guard();
        let (patience, debts, commands) =
            (self.patience, self.debts.clone(), self.commands.clone());
        // The server may be unreachable. Then the locks expire with their leases.
        let out_of_time = async {
            closing.cancelled().await;
            sleep(patience).await;
            // Count them here: the jobs that are left are dropped with `serve`.
            debts.len()
        };
        let served = async {
            self.serve(&closing).await;
            commands.end_session().await;
        };
        tokio::select! {
            () = served => {}
            // With none, only the end of the session is not confirmed.
            open = out_of_time => if open > 0 {
                tracing::warn!(open, "the client is closed before redis confirmed every release: those locks expire with their leases");
            }
        }
    }

    async fn serve(self, closing: &CancellationToken) {
        let Self { mut jobs, commands, debts, timetable, .. } = self;
        let mut backlog = Backlog::scattered(commands.is_scattered());
        let mut asked = FuturesUnordered::new();
        let (settled, closed) = (debts.settled(), closing.cancelled());
        tokio::pin!(settled, closed);
        let mut changes = commands.changes();
        loop {
            // A job that found no connection sleeps for up to a second and a half. By then the next connection may have
            // come and gone, while others wait for a lock that nobody holds. So make such jobs ready with each new
            // connection. Also do so when a slot has another primary: the client may be connected to that one already.
            if changes.has_changed().unwrap_or(false) {
                changes.mark_unchanged();
                backlog.hasten(Instant::now());
            }
            while let Some(jobs) = backlog.next(Instant::now()) {
                asked.push(ask(&commands, &timetable, jobs));
            }
            tokio::select! {
                Some(job) = jobs.recv() => {
                    let now = Instant::now();
                    backlog.put(job, now);
                    while let Ok(job) = jobs.try_recv() {
                        backlog.put(job, now);
                    }
                }
                Some(answered) = asked.next() => backlog.answered(answered, Instant::now()),
                () = sleep_until_if(backlog.wakes_at()) => {}
                Ok(()) = changes.changed(), if backlog.wakes_at().is_some() => backlog.hasten(Instant::now()),
                () = &mut closed, if !backlog.is_closing() => backlog.close(Instant::now()),
                () = &mut settled => return,
            }
        }
    }
}

/// Sends one request to the server.
async fn ask(commands: &Commands, timetable: &Timetable, jobs: Vec<Job>) -> Answers {
    let (generation, outcomes) = match &jobs[0].what {
        // A count goes alone.
        What::Count(tenure) => (0, vec![count(commands, timetable, tenure).await]),
        _ => release(commands, &jobs).await,
    };
    Answers { jobs: jobs.into_iter().zip(outcomes).collect(), generation }
}

/// The connection on which the request was sent, and the outcome for each job.
async fn release(commands: &Commands, jobs: &[Job]) -> (u64, Vec<Outcome>) {
    meters::batch("release", jobs.len());
    let releases: Vec<_> = jobs.iter().map(Job::request).collect();
    // The link of the acquire that this job cleans up after, if that was sent on a separate link.
    let connection = match jobs[0].what {
        What::Ghost { .. } => commands.behind_acknowledged(&jobs[0].keys),
        _ => commands.connection(&jobs[0].keys),
    };
    let (generation, answer) = match connection {
        Ok(mut connection) => {
            let answer = connection.release(&releases).await;
            (connection.peer().generation(), answer)
        }
        Err(fault) => (0, Err(fault)),
    };
    let failed = |fault: Fault| jobs.iter().map(|_| Err(fault.clone())).collect();
    (generation, answer.unwrap_or_else(failed))
}

/// Writes the hold count, and again if it has changed meanwhile.
async fn count(commands: &Commands, timetable: &Timetable, tenure: &Arc<Tenure>) -> Outcome {
    loop {
        if tenure.is_over() {
            return Ok(true);
        }
        let (holds, ttl) = (tenure.holds_to_tell(), tenure.at_least(Duration::ZERO));
        let mut connection = commands.behind_acknowledged(&tenure.keys)?;
        let found = connection.count(&tenure.keys, tenure.id, holds, ttl).await?;
        if found {
            timetable.watch_key_soon(tenure);
        }
        if !found || tenure.told(holds) {
            return Ok(found);
        }
    }
}
