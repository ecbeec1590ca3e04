//! Moments on a clock that also runs while the machine sleeps, and that all processes of the machine share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A moment, as the time since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(read(ClockId::CLOCK_BOOTTIME))
    }

    pub(crate) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    pub(crate) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// The time from now until this moment.
    pub(crate) fn ahead(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }
}

/// The time on the clock that stands still while the machine sleeps.
pub(crate) fn awake() -> Duration {
    read(ClockId::CLOCK_MONOTONIC)
}

/// How long the machine has slept since it was started.
pub(crate) fn slept() -> Duration {
    let awake = awake();
    Moment::now().0.saturating_sub(awake)
}

/// The time of day, as the time since 1970. No lease depends on it.
pub(crate) fn on_the_wall() -> Duration {
    read(ClockId::CLOCK_REALTIME)
}

fn read(clock: ClockId) -> Duration {
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}
