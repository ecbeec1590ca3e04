//! The clock that also runs while the machine sleeps, and that all processes of the machine share.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{self, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment, as the time since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// An alarm on this clock.
#[derive(Debug)]
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    pub(crate) fn new() -> nix::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(timerfd::ClockId::CLOCK_BOOTTIME, flags).map(Self)
    }

    /// Rings at this moment, or at once if the moment has passed. Replaces the moment that was set before.
    pub(crate) fn set(&self, at: Option<Moment>) -> nix::Result<()> {
        match at {
            None => self.0.unset(),
            Some(at) => {
                let once = Expiration::OneShot(TimeSpec::from(at.0));
                self.0.set(once, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            }
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
