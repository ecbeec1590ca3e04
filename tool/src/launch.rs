//! The last step before a command: this process becomes the command.
//!
//! The supervisor starts the tool again, and this process then becomes the command. Only the command's own process can
//! ask the kernel for a signal when its parent dies.
//!
//! It waits until the keeper lets it go. The keeper knows whether it still has the lock; the supervisor may have been
//! stopped since it read of the grant.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

use crate::signals::{await_go, hear_all_but};
use crate::{exit, stderr};

/// The first argument of a process that does this step.
pub(crate) const STAGE: &str = "--launch";

/// What the supervisor asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// The signal that the kernel sends if the supervisor dies.
    pub(crate) if_orphaned: Signal,
    pub(crate) supervisor: Pid,
    pub(crate) fails_in_json: bool,
}

impl Launch {
    /// The arguments between the stage and the command.
    pub(crate) fn words(self) -> [String; 3] {
        let form = if self.fails_in_json { "json" } else { "text" };
        [(self.if_orphaned as i32).to_string(), self.supervisor.to_string(), form.to_owned()]
    }

    fn read(words: &[OsString]) -> Option<(Self, &[OsString])> {
        let ([signal, supervisor, form], command) = words.split_first_chunk()?;
        let number = |word: &OsString| word.to_str()?.parse::<i32>().ok();
        let launch = Self {
            if_orphaned: Signal::try_from(number(signal)?).ok()?,
            supervisor: Pid::from_raw(number(supervisor)?),
            fails_in_json: form == "json",
        };
        Some((launch, command))
    }

    fn prepare(self) -> nix::Result<()> {
        // Without the supervisor, the command does not begin at all.
        self.end_with_supervisor(Signal::SIGKILL)?;
        await_go()?;
        self.end_with_supervisor(self.if_orphaned)?;
        hear_all_but(&[])
    }

    /// Asks the kernel for this signal when the supervisor dies. Fails if it has died before.
    fn end_with_supervisor(self, signal: Signal) -> nix::Result<()> {
        set_pdeathsig(signal)?;
        if getppid() == self.supervisor { Ok(()) } else { Err(Errno::ESRCH) }
    }
}

/// Becomes the command. Returns the exit code if that fails.
pub(crate) fn launch(words: &[OsString]) -> u8 {
    let Some((launch, [program, arguments @ ..])) = Launch::read(words) else { return exit::USAGE };
    if launch.fails_in_json {
        stderr::fail_in_json();
    }
    if let Err(error) = launch.prepare() {
        stderr::fail(exit::BROKEN, &format!("could not start the command: {error}"));
        return exit::BROKEN;
    }
    let error = Command::new(program).args(arguments).exec();
    let is_missing = error.kind() == ErrorKind::NotFound;
    let code = if is_missing { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE };
    stderr::fail(code, &format!("{}: {error}", program.display()));
    code
}
