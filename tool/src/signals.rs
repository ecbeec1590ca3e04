//! The signals that the tool reads like messages, so that none of them interrupts it, and those that stop it.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpgrp, getpid};
use tokio::signal::unix::{self, SignalKind};

/// The keeper sends this to the process that becomes the command, to let the command begin. A process that does not wait for
/// it ignores it.
const GO: Signal = Signal::SIGURG;

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
        // So that the tool can take the terminal back from the background, and the keeper can write there.
        blocked.add(Signal::SIGTTOU);
        // So that the process that becomes the command has it blocked from its first moment.
        blocked.add(GO);
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

/// Unblocks all signals but these. A process inherits the signals that its parent has blocked, and would never receive TERM.
pub(crate) fn hear_all_but(kept: &[Signal]) -> nix::Result<()> {
    let mut heard = SigSet::all();
    kept.iter().for_each(|signal| heard.remove(*signal));
    heard.thread_unblock()
}

/// Waits for the keeper's word that the command may begin.
pub(crate) fn await_go() -> nix::Result<()> {
    hear_all_but(&[GO])?;
    let mut go = SigSet::empty();
    go.add(GO);
    go.wait().map(drop)
}

/// Lets the command begin in this process.
pub(crate) fn go(process: Pid) {
    let _ = kill(process, GO); // fails only if the process has ended
}

/// Who stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    ThisProcess,
    /// Also the programs beside the tool: a script that has called it, or the rest of a pipeline.
    WholeGroup,
}

/// Stops as TSTP stops a process that does not handle it, until CONT arrives. The kernel stops no process that no shell could
/// continue; then this returns at once.
pub(crate) fn stop(who: Who) {
    let _ = match who {
        Who::ThisProcess => kill(getpid(), Signal::SIGTSTP),
        Who::WholeGroup => killpg(getpgrp(), Signal::SIGTSTP),
    };
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTSTP);
    // It is blocked, so that the tool can read it. It takes effect here.
    let _ = stop.thread_unblock().and_then(|()| stop.thread_block());
}

/// Whether a signal asks the tool to end.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// The signals that end a tool of one process, with their numbers.
#[derive(Debug)]
pub(crate) struct Ends(Vec<(i32, unix::Signal)>);

impl Ends {
    /// A signal that was ignored when the tool started stays ignored, such as HUP under nohup(1).
    pub(crate) fn new() -> Self {
        let ignored = Ignored::now();
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ];
        let heard = kinds.into_iter().filter(|kind| !ignored.has(kind.as_raw_value()));
        let signals =
            heard.filter_map(|kind| Some((kind.as_raw_value(), unix::signal(kind).ok()?)));
        Self(signals.collect())
    }

    pub(crate) async fn next(&mut self) -> i32 {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let any = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        futures_util::future::select_all(any).await.0
    }
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
