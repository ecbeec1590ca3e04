//! The command, and all processes of its group.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};

use crate::exit;
use crate::launch::{self, Launch};
use crate::terminal::Terminal;

/// The program that runs now: also if a newer one has been installed in its place.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// A command that runs in a group of its own. It is not reaped before [`reap`](Self::reap): until then its number is
/// nobody else's.
#[derive(Debug)]
pub(crate) struct Job {
    leader: Pid,
    terminal: Option<Terminal>,
}

/// What has become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Stopped,
    Ended,
}

impl Job {
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, String)],
        if_orphaned: Signal,
        terminal: Option<Terminal>,
    ) -> io::Result<Self> {
        let takes_terminal = terminal.is_some();
        let launch = Launch { if_orphaned, supervisor: getpid(), takes_terminal };
        let mut process = Command::new(OURSELVES);
        process.arg0("parklock").arg(launch::STAGE).args(launch.words()).args(command);
        process.envs(variables.iter().map(|(name, value)| (name, value))).process_group(0);
        let child = process.spawn()?;
        Ok(Self { leader: Pid::from_raw(child.id().cast_signed()), terminal })
    }

    /// The number of its group, and of its first process.
    pub(crate) fn group(&self) -> Pid {
        self.leader
    }

    /// Sends a signal to all of its processes.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.leader, signal); // refused only if there are none
    }

    /// What has become of it. It stays as it is.
    pub(crate) fn state(&self) -> State {
        let flags = WaitPidFlag::WEXITED
            | WaitPidFlag::WSTOPPED
            | WaitPidFlag::WNOHANG
            | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.leader), flags) {
            Ok(WaitStatus::StillAlive | WaitStatus::Continued(_)) => State::Running,
            Ok(WaitStatus::Stopped(..)) => State::Stopped,
            _ => State::Ended,
        }
    }

    /// The user has stopped it at the terminal: so the tool stops too, and goes on together with it. The keeper does not
    /// stop, so the lock stays held.
    pub(crate) fn stop_with(&self) {
        // This also takes note that it has stopped: we want to hear of that once.
        let _ = waitid(Id::Pid(self.leader), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
        let Some(terminal) = self.terminal else { return };
        terminal.take_from(self.leader);
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
        terminal.give(self.leader);
        self.signal(Signal::SIGCONT);
    }

    /// The exit code of a command that has ended.
    pub(crate) fn reap(self) -> u8 {
        let status = waitpid(self.leader, None);
        if let Some(terminal) = self.terminal {
            terminal.take_from(self.leader);
        }
        match status {
            Ok(WaitStatus::Exited(_, code)) => u8::try_from(code & 0xff).unwrap_or(exit::BROKEN),
            Ok(WaitStatus::Signaled(_, signal, _)) => exit::of_signal(signal as i32),
            _ => exit::BROKEN,
        }
    }
}
