//! The releaser: the task that releases locks in the background. The unlock of a caller (`unlock.rs`) comes here if it cannot be sent
//! from its caller's task, or gets no answer.
//!
//! 1. Code that may have been granted a lock by Redis and cannot keep it leaves a job here.
//! 2. A job is repeated until the server answers it, or until Redis itself should have freed the lock. `job.rs` says how
//!    often, and `job_requests.rs` sends it.
//! 3. An acquire that was never answered may run late. If it was sent on an older connection than its release, "not
//!    found" does not settle the job: the acquire may still arrive. For a lock with a line, "found" does not settle it
//!    either: that may have been the grant of an earlier request.
//! 4. The task ends when the client is closed, or has no handle left, and owes nothing any more. A client that closes
//!    asks once more for each job, and takes any answer: it does not wait for a lease to end because an acquire may still
//!    arrive. If one does, its lock expires.

mod job;
mod job_requests;
mod outbox;
mod postponed;
mod releases_under_way;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::engine::debts::Debts;
use crate::log;
use crate::pause::sleep_until_if;
use crate::wire::Commands;

pub(crate) use job::{FirstAttempt, Job};
pub(crate) use job_requests::JobRequests;
pub(crate) use outbox::Outbox;

use postponed::Postponed;

/// The longest pause of a job while the client closes.
const SOON: Duration = Duration::from_millis(100);

/// The task that releases locks in the background.
pub(crate) struct Releaser {
    pub(crate) jobs: mpsc::UnboundedReceiver<Job>,
    pub(crate) job_requests: JobRequests,
    pub(crate) commands: Commands,
    pub(crate) debts: Debts,
    /// How long it may continue after the client was closed.
    pub(crate) patience: Duration,
}

impl Releaser {
    /// Runs until the client owes nothing, and never will again. Then `stop` ends the client's other tasks.
    pub(crate) async fn run(self, closing: CancellationToken, stop: CancellationToken) {
        let _stop = stop.drop_guard();
        let (patience, debts, commands) =
            (self.patience, self.debts.clone(), self.commands.clone());
        let job_requests = self.job_requests.clone();
        // The server may be unreachable. Then the locks expire with their leases.
        let out_of_time = async {
            closing.cancelled().await;
            sleep(patience).await;
            // Count them here: the jobs that are left are dropped with `serve` and the requests.
            debts.len()
        };
        let served = async {
            self.serve(&closing).await;
            commands.end_session().await;
        };
        tokio::select! {
            () = served => {}
            () = job_requests.run() => {}
            // With none, only the end of the session is not confirmed.
            open = out_of_time => if open > 0 {
                log::warn!(open, "the client is closed before redis confirmed every release: those locks expire with their leases");
            }
        }
    }

    async fn serve(self, closing: &CancellationToken) {
        let Self { mut jobs, job_requests, commands, debts, .. } = self;
        let mut postponed = Postponed::default();
        let (settled, closed) = (debts.settled(), closing.cancelled());
        tokio::pin!(settled, closed);
        let mut changes = commands.changes();
        let (mut came, mut hastens, mut is_closing) = (None, false, false);
        loop {
            while let Some(job) = came.take().or_else(|| jobs.try_recv().ok()) {
                match job.due {
                    None => job_requests.put(job),
                    // It may have failed just before the client began to close, which does not wait for a long pause.
                    Some(due) if is_closing => postponed.put(job, due.min(Instant::now() + SOON)),
                    Some(due) => postponed.put(job, due),
                }
            }
            // A job that found no connection sleeps for up to a second and a half. By then the next connection may have
            // come and gone, while others wait for a lock that nobody holds. So make such jobs ready with each new
            // connection. Also do so when a slot has another primary: the client may be connected to that one already. If nothing
            // is postponed, a change stays unread: the next job that fails may have failed before it.
            if hastens || !postponed.is_empty() && changes.has_changed().unwrap_or(false) {
                changes.mark_unchanged();
                postponed.take_hastened().for_each(|job| job_requests.put(job));
            }
            postponed.take_due(Instant::now()).for_each(|job| job_requests.put(job));
            hastens = false;
            tokio::select! {
                Some(job) = jobs.recv() => came = Some(job),
                () = sleep_until_if(postponed.next()) => {}
                Ok(()) = changes.changed(), if !postponed.is_empty() => hastens = true,
                // Each job is asked for once more, and any answer settles it.
                () = &mut closed, if !is_closing => {
                    is_closing = true;
                    postponed.take_all().for_each(|job| job_requests.put(job));
                }
                () = &mut settled => return,
            }
        }
    }
}
