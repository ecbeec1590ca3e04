//! A request in flight that releases a lock, or writes how often a re-entrant lock is held. If no answer comes, or its caller
//! is dropped before that, `releaser.rs` repeats the request in the background.

use tokio::time::Instant;

use crate::engine::core::Engine;
use crate::engine::releaser::{Job, Outcome};
use crate::wire::Fault;

/// If this is dropped before the request is known to have arrived, the releaser repeats it in the background.
pub(crate) struct UnansweredRelease<'a> {
    engine: &'a Engine,
    job: Option<Job>,
}

impl<'a> UnansweredRelease<'a> {
    pub(crate) fn new(engine: &'a Engine, job: Job) -> Self {
        Self { engine, job: Some(job) }
    }

    /// The request has arrived.
    pub(crate) fn confirmed(mut self) {
        self.job = None;
    }

    /// The server has answered. If there was a failure instead, the background continues with the job.
    pub(crate) fn came_to(mut self, outcome: Outcome) {
        let Some(mut job) = self.job.take() else { return };
        match &outcome {
            Ok(_) => return job.settle(outcome, Instant::now()),
            Err(Fault::HalfRun(_)) => job.is_half_done(true),
            Err(Fault::Unfinished { found }) => job.is_half_done(*found),
            // A gathering (`gathering.rs`) may have sent it before it ended.
            Err(fault) if fault.may_have_run() || matches!(fault, Fault::Closed) => {
                job.may_have_run()
            }
            Err(_) => {}
        }
        self.engine.later(job);
    }
}

impl Drop for UnansweredRelease<'_> {
    fn drop(&mut self) {
        if let Some(mut job) = self.job.take() {
            job.may_have_run();
            self.engine.later(job);
        }
    }
}
