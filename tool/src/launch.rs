//! The last step before a command: this process becomes the command.
//!
//! The supervisor starts the tool again, and this process then becomes the command. Only the command's own process can
//! ask the kernel for a signal when its parent dies, and take the terminal.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, getppid, tcsetpgrp};

use crate::{exit, voice};

/// The first argument of a process that does this step.
pub(crate) const STAGE: &str = "--launch";

/// What the supervisor asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// The signal that the kernel sends if the supervisor dies.
    pub(crate) if_orphaned: Signal,
    pub(crate) supervisor: Pid,
    /// The command gets the terminal on stdin.
    pub(crate) takes_terminal: bool,
}

impl Launch {
    /// The arguments between the stage and the command.
    pub(crate) fn words(self) -> [String; 3] {
        let terminal = if self.takes_terminal { "terminal" } else { "none" };
        [(self.if_orphaned as i32).to_string(), self.supervisor.to_string(), terminal.to_owned()]
    }

    fn read(words: &[OsString]) -> Option<(Self, &[OsString])> {
        let ([signal, supervisor, terminal], command) = words.split_first_chunk()?;
        let number = |word: &OsString| word.to_str()?.parse::<i32>().ok();
        let launch = Self {
            if_orphaned: Signal::try_from(number(signal)?).ok()?,
            supervisor: Pid::from_raw(number(supervisor)?),
            takes_terminal: terminal == "terminal",
        };
        Some((launch, command))
    }

    fn prepare(self) -> nix::Result<()> {
        set_pdeathsig(self.if_orphaned)?;
        if self.takes_terminal {
            // The kernel does not stop this background group when it takes the terminal: this process has inherited the
            // supervisor's blocked SIGTTOU.
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
        hear_all()
    }
}

/// Unblocks all signals. A process inherits the signals that its parent has blocked, and would never receive TERM.
pub(crate) fn hear_all() -> nix::Result<()> {
    SigSet::all().thread_unblock()
}

/// Becomes the command. Returns the exit code if that fails.
pub(crate) fn launch(words: &[OsString]) -> u8 {
    let Some((launch, [program, arguments @ ..])) = Launch::read(words) else { return exit::USAGE };
    if let Err(error) = launch.prepare() {
        voice::complain(&format!("could not start the command: {error}"));
        return exit::BROKEN;
    }
    if getppid() != launch.supervisor {
        return exit::BROKEN; // the supervisor died before this process asked the kernel for the signal
    }
    let error = Command::new(program).args(arguments).exec();
    voice::complain(&format!("{}: {error}", program.display()));
    if error.kind() == ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE }
}
