//! The command, and all processes of its process group.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};

use crate::launch::{self, Launch};
use crate::signals::{self, Who};
use crate::terminal::Terminal;
use crate::{exit, stderr};

/// The program that runs now, even if a newer one has been installed in its place.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// A command in its own process group. Only [`reap`](Self::reap) reaps it: until then no other process gets its process
/// id.
#[derive(Debug)]
pub(crate) struct Job {
    leader: Pid,
    terminal: Option<Terminal>,
    is_stopped: bool,
}

/// What the kernel reports about the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    Nothing,
    /// This signal has stopped it.
    Stopped(Signal),
    Ended,
}

impl Job {
    /// Starts a process that becomes the command when the keeper lets it go.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, String)],
        if_orphaned: Signal,
        terminal: Option<Terminal>,
    ) -> io::Result<Self> {
        let launch =
            Launch { if_orphaned, supervisor: getpid(), fails_in_json: stderr::fails_in_json() };
        let mut process = Command::new(OURSELVES);
        process.arg0("parklock").arg(launch::STAGE).args(launch.words()).args(command);
        process.envs(variables.iter().map(|(name, value)| (name, value))).process_group(0);
        let leader = Pid::from_raw(process.spawn()?.id().cast_signed());
        let job = Self { leader, terminal, is_stopped: false };
        job.offer_terminal();
        Ok(job)
    }

    /// The id of the command's process group, which is also the id of its first process.
    pub(crate) fn group(&self) -> Pid {
        self.leader
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.leader, signal); // fails only if the group has no process
    }

    /// What has happened since the last call. This does not reap the command.
    pub(crate) fn report(&mut self) -> Report {
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if !matches!(waitid(Id::Pid(self.leader), ended), Ok(WaitStatus::StillAlive)) {
            return Report::Ended;
        }
        // Without WNOWAIT, the kernel reports each stop once.
        let changed = WaitPidFlag::WSTOPPED | WaitPidFlag::WCONTINUED | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.leader), changed) {
            Ok(WaitStatus::Stopped(_, signal)) => {
                self.is_stopped = true;
                Report::Stopped(signal)
            }
            Ok(WaitStatus::Continued(_)) => {
                self.is_stopped = false;
                Report::Nothing
            }
            _ => Report::Nothing,
        }
    }

    /// The user asks the tool to stop: the command stops first, and the tool stops when it hears of that.
    pub(crate) fn stop(&self) {
        if self.is_stopped {
            signals::stop(Who::ThisProcess);
        } else {
            self.signal(Signal::SIGTSTP);
        }
    }

    /// The command has stopped. So the tool stops too, or else its shell would wait for it. The keeper does not stop, so
    /// the lock stays held.
    pub(crate) fn stop_with(&mut self, by: Signal) {
        if matches!(by, Signal::SIGTTIN | Signal::SIGTTOU)
            && self.terminal.is_some_and(|terminal| terminal.give(self.leader))
        {
            // The tool has the terminal, after `fg` for example, and the command wants it now.
            return self.go_on();
        }
        if self.terminal.is_some_and(|terminal| terminal.take_from(self.leader)) {
            // Ctrl-Z reached the command's group alone.
            signals::stop(Who::WholeGroup);
            self.resume();
        } else {
            signals::stop(Who::ThisProcess);
        }
    }

    /// The tool continues, in the foreground or in the background, and so does the command.
    pub(crate) fn resume(&mut self) {
        self.offer_terminal();
        self.go_on();
    }

    /// The kernel reports that the command continues only when it has run. On a busy machine the next Ctrl-Z may come before that, and
    /// it has to stop the command too.
    fn go_on(&mut self) {
        self.is_stopped = false;
        self.signal(Signal::SIGCONT);
    }

    /// Gives the command the terminal, unless stdout is a pipe: then the program that reads it, less(1) for example, may want
    /// the keys, and the command gets the terminal when it reads from it.
    fn offer_terminal(&self) {
        if let Some(terminal) = self.terminal.filter(|_| io::stdout().is_terminal()) {
            terminal.give(self.leader);
        }
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
