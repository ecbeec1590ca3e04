//! A request to Redis that may not have arrived.

use tokio::sync::oneshot;

use crate::engine::core::Engine;
use crate::engine::job::{Job, Outcome};
use crate::wire::Fault;

/// If it is dropped before it is known to have arrived, the releaser repeats it in the background.
pub(crate) struct Unconfirmed<'a> {
    engine: &'a Engine,
    job: Option<Job>,
}

impl<'a> Unconfirmed<'a> {
    pub(crate) fn new(engine: &'a Engine, job: Job) -> Self {
        Self { engine, job: Some(job) }
    }

    pub(crate) fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    /// The request has arrived.
    pub(crate) fn confirmed(mut self) {
        self.job = None;
    }

    /// Leaves it to the background after this fault. Returns a receiver for the outcome.
    pub(crate) fn later(mut self, fault: &Fault) -> Option<oneshot::Receiver<Outcome>> {
        let (job, outcome) = self.job.take()?.telling(fault);
        self.engine.later(job);
        Some(outcome)
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.engine.later(job);
        }
    }
}
