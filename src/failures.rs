//! What the log says of something that is tried again and again: a warning when it fails first, and one when it succeeds again.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::log;

/// The failures in a row of one such thing. All but the first are said at DEBUG.
pub(crate) struct Failures {
    /// What cannot be done, for example "run the job".
    what: &'static str,
    name: Option<String>,
    server: Option<String>,
    since: Option<Instant>,
    times: usize,
}

impl Failures {
    /// To do this with the lock of this name.
    pub(crate) fn of_lock(what: &'static str, name: &str) -> Self {
        Self { what, name: Some(name.to_owned()), server: None, since: None, times: 0 }
    }

    /// To do this at this server.
    pub(crate) fn of_server(what: &'static str, server: &impl fmt::Display) -> Self {
        Self { what, name: None, server: Some(server.to_string()), since: None, times: 0 }
    }

    /// Whether it failed the last time.
    pub(crate) fn is_failing(&self) -> bool {
        self.since.is_some()
    }

    /// It has failed. The caller tries again.
    pub(crate) fn fails(&mut self, error: &impl fmt::Display) {
        let (what, name, server) = (self.what, self.name.as_deref(), self.server.as_deref());
        if self.is_failing() {
            log::debug!(name, server, %error, "still could not {what}");
        } else {
            log::warn!(name, server, %error, "could not {what}: the client tries again");
        }
        self.since.get_or_insert_with(Instant::now);
        self.times += 1;
    }

    /// It has succeeded, or is sure to.
    pub(crate) fn succeeds(&mut self) {
        let Some(since) = self.since.take() else { return };
        let (what, name, server) = (self.what, self.name.as_deref(), self.server.as_deref());
        let (after, times) = (in_ms(since.elapsed()), std::mem::take(&mut self.times));
        log::warn!(name, server, ?after, times, "can {what} again");
    }
}

/// Nobody reads more digits of a time in the log.
pub(crate) fn in_ms(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
