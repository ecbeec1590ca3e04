//! The signals that the tool reads like messages, so that none of them interrupts it.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that the tool passes on to the command.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// The signals that have arrived and that the tool has not read yet.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// From now on, signals wait until the tool reads them. Call this while the process has one thread, before it
    /// starts another process.
    ///
    /// A signal that was ignored when the tool started stays ignored, by the command too: HUP under nohup(1), for
    /// example.
    pub(crate) fn take() -> nix::Result<Self> {
        let ignored = Ignored::now();
        let mut taken = SigSet::empty();
        taken.add(Signal::SIGCHLD);
        PASSED_ON
            .into_iter()
            .filter(|signal| !ignored.has(*signal as i32))
            .for_each(|signal| taken.add(signal));
        let mut blocked = taken;
        // So that the tool can take the terminal back from the background.
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block()?;
        SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// The next signal that has arrived.
    pub(crate) fn next(&mut self) -> Option<Signal> {
        let info = self.0.read_signal().ok().flatten()?;
        i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a signal asks the tool to end.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Whether the kernel discards the exit codes of this process's children.
pub(crate) fn forgets_children() -> bool {
    Ignored::now().has(Signal::SIGCHLD as i32)
}

/// The signals that this process ignores, one bit each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ignored(u64);

impl Ignored {
    pub(crate) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether this process ignores the signal with this number.
    pub(crate) fn has(self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }
}
