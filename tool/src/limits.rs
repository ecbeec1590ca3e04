//! When a command has to end if its lock is not renewed.

use std::time::Duration;

use crate::clock::Moment;

/// How long before the deadline of a lock something happens to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// TERM.
    pub(crate) warn: Duration,
    /// KILL. A process needs a moment to die, and it has to be dead at the deadline.
    pub(crate) margin: Duration,
}

impl Limits {
    /// The client renews a lock when a third of its lease is over. When two thirds are over, renewals have failed. So
    /// no command gets TERM before that, however long `--kill-after` is.
    pub(crate) fn new(lease: Duration, kill_after: Duration) -> Self {
        let margin = (lease / 50).clamp(Duration::from_millis(5), Duration::from_millis(200));
        Self { warn: (kill_after + margin).min(lease / 3), margin }
    }

    pub(crate) fn warn_at(&self, until: Moment) -> Moment {
        until.before(self.warn)
    }

    pub(crate) fn kill_at(&self, until: Moment) -> Moment {
        until.before(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_comes_when_renewals_have_failed_and_not_before() {
        let [second, kill_after] = [1, 5].map(Duration::from_secs);
        let long = Limits::new(second * 30, kill_after);
        assert_eq!(long.warn, kill_after + long.margin);
        let short = Limits::new(second * 3, kill_after);
        assert_eq!((short.warn, short.margin), (second, Duration::from_millis(60)));
    }

    #[test]
    fn the_end_comes_before_the_deadline_and_after_the_warning() {
        for lease in [100, 3_000, 30_000, 86_400_000].map(Duration::from_millis) {
            let limits = Limits::new(lease, Duration::from_secs(5));
            let until = Moment(Duration::from_secs(100_000));
            assert!(limits.warn_at(until) < limits.kill_at(until), "{lease:?}");
            assert!(limits.kill_at(until) < until);
        }
    }
}
