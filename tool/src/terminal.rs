//! The terminal: the command's process group has it while the tool is in the foreground, so that the command can read from it.

use std::io::{self, IsTerminal};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin. A shell gives it to the tool's own group, and takes it away, while the tool runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal;

impl Terminal {
    /// `None`: stdin is not a terminal.
    pub(crate) fn on_stdin() -> Option<Self> {
        io::stdin().is_terminal().then_some(Self)
    }

    /// Gives the terminal to this group, if our group has it. Returns whether it did.
    pub(crate) fn give(self, group: Pid) -> bool {
        self.pass_on(getpgrp(), group)
    }

    /// Takes the terminal back from this group, if that group has it. Returns whether it did.
    pub(crate) fn take_from(self, group: Pid) -> bool {
        self.pass_on(group, getpgrp())
    }

    /// SIGTTOU is blocked, so this does not stop the tool.
    fn pass_on(self, from: Pid, to: Pid) -> bool {
        tcgetpgrp(io::stdin()) == Ok(from) && tcsetpgrp(io::stdin(), to).is_ok()
    }
}
