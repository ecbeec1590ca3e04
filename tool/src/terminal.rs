//! The terminal: the group of the command has it while the command runs, so that it can read from it.

use std::io::{self, IsTerminal};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin. It was ours when the tool began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal;

impl Terminal {
    /// `None`: stdin is none, or another group has it, as that of a pipeline in the foreground of a script.
    pub(crate) fn ours() -> Option<Self> {
        (io::stdin().is_terminal() && has_it()).then_some(Self)
    }

    /// Gives it to this group, if we have it.
    pub(crate) fn give(self, group: Pid) {
        if has_it() {
            let _ = tcsetpgrp(io::stdin(), group);
        }
    }

    /// Takes it back from this group, if that has it. SIGTTOU is blocked: so this does not stop us.
    pub(crate) fn take_from(self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(group) {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}

fn has_it() -> bool {
    tcgetpgrp(io::stdin()) == Ok(getpgrp())
}
