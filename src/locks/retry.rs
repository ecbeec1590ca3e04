//! How a call over several locks retries, and what it returns when its time runs out.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{Error, Result};
use crate::pause::jittered;

/// The pause before a call asks servers again that did not answer, plus or minus half.
const ROUND_PAUSE: Duration = Duration::from_millis(200);

/// The outcome of the requests so far.
#[derive(Default)]
pub(crate) struct Retry {
    /// Another caller holds a lock, by the last outcome.
    held: bool,
    /// The error of the last outcome, if it was one.
    error: Option<Error>,
    /// Since when no server has answered.
    failing_since: Option<Instant>,
}

impl Retry {
    /// Another caller has a lock. That may be a caller of the same client that is only asking for it: so this is no
    /// sign of life of a server.
    pub(crate) fn is_held(&mut self) {
        (self.held, self.error) = (true, None);
    }

    /// A server has answered.
    pub(crate) fn answered(&mut self) {
        self.failing_since = None;
    }

    /// Sleeps before a retry. Returns a permanent error at once, and any other after `ride_out`.
    pub(crate) async fn failed(&mut self, error: Error, ride_out: Duration) -> Result<()> {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        if !error.is_transient() || since.elapsed() >= ride_out {
            return Err(error);
        }
        self.error = Some(error);
        sleep(jittered(ROUND_PAUSE)).await;
        Ok(())
    }

    /// What to return at the time limit. `None` means that another caller does hold a lock: it must not be a guess.
    pub(crate) fn out_of_time<T>(self, limit: Duration) -> Result<Option<T>> {
        match self {
            Self { error: Some(error), .. } => Err(error),
            // The limit cut off the first request, which may have run.
            Self { held: false, .. } => Err(Error::cut_off(limit)),
            Self { held: true, .. } => Ok(None),
        }
    }
}
