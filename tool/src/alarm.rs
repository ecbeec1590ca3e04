//! An alarm clock that also runs while the machine sleeps.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::moment::Moment;

#[derive(Debug)]
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    pub(crate) fn new() -> nix::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(ClockId::CLOCK_BOOTTIME, flags).map(Self)
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
