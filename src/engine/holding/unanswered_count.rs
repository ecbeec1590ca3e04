//! A request in flight that writes how often a re-entrant lock is held. If no answer comes, or its caller is dropped before that,
//! `releaser.rs` repeats the request in the background.

use crate::engine::core::Engine;
use crate::engine::releaser::Job;

/// If this is dropped before the request is known to have arrived, the releaser repeats it in the background.
pub(crate) struct UnansweredCount<'a> {
    engine: &'a Engine,
    job: Option<Job>,
}

impl<'a> UnansweredCount<'a> {
    pub(crate) fn new(engine: &'a Engine, job: Job) -> Self {
        Self { engine, job: Some(job) }
    }

    /// The request has arrived.
    pub(crate) fn confirmed(mut self) {
        self.job = None;
    }
}

impl Drop for UnansweredCount<'_> {
    fn drop(&mut self) {
        if let Some(mut job) = self.job.take() {
            job.may_have_run();
            self.engine.outbox.put(job);
        }
    }
}
