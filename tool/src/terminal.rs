//! The terminal: the command's process group has it while the command runs, so that the command can read from it.

use std::io::{self, IsTerminal};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin, which the tool's own group had when the tool started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal;

impl Terminal {
    /// `None`: stdin is not a terminal, or another group has it.
    pub(crate) fn ours() -> Option<Self> {
        (io::stdin().is_terminal() && has_it()).then_some(Self)
    }

    /// Gives the terminal to this group, if our group has it.
    pub(crate) fn give(self, group: Pid) {
        if has_it() {
            let _ = tcsetpgrp(io::stdin(), group);
        }
    }

    /// Takes the terminal back from this group, if that group has it. SIGTTOU is blocked, so this does not stop the
    /// tool.
    pub(crate) fn take_from(self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(group) {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}

fn has_it() -> bool {
    tcgetpgrp(io::stdin()) == Ok(getpgrp())
}
