//! The command, and all processes of its process group.

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

/// The program that runs now, even if a newer one has been installed in its place.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// A command in its own process group. Only [`reap`](Self::reap) reaps it: until then no other process gets its process
/// id.
#[derive(Debug)]
pub(crate) struct Job {
    leader: Pid,
    terminal: Option<Terminal>,
}

/// Whether the command runs.
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

    /// The id of the command's process group, which is also the id of its first process.
    pub(crate) fn group(&self) -> Pid {
        self.leader
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.leader, signal); // fails only if the group has no process
    }

    /// Whether the command runs. This does not reap it.
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

    /// The user has stopped the command at the terminal. So the tool stops too, and continues together with the
    /// command. The keeper does not stop, so the lock stays held.
    pub(crate) fn stop_with(&self) {
        // This consumes the report of the stop, so that the kernel reports it only once.
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
