//! The phases of the supervisor.

use crate::clock::Moment;
use crate::job::Job;

/// The current phase.
#[derive(Debug)]
pub(crate) enum Phase {
    Waiting,
    /// A signal has ended the wait; this is its exit code.
    Leaving(u8),
    Running(Running),
    /// The command has ended with this code. `urged`: the user does not want to wait for what comes now.
    GivingBack {
        code: u8,
        urged: bool,
    },
    Done(Outcome),
}

/// A command that runs, or is about to.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) job: Job,
    /// The keeper has let it begin.
    pub(crate) has_begun: bool,
    /// The deadline of its lock.
    pub(crate) until: Moment,
    pub(crate) next: Next,
    /// The lock is lost: the supervisor ends the command, or lets it continue (`--on-lost ignore`).
    pub(crate) is_lost: bool,
}

/// The next step against the command if the lock is not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Warn,
    Kill,
    /// The command continues. The supervisor reports the loss.
    Report,
    Nothing,
}

/// How one hold of the lock, or one wait for it, has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The exit code of the command, of a signal, or of a busy lock.
    Code(u8),
    /// The keeper could not get the lock: the exit code of the error.
    Failed(u8),
    /// The lock was lost, and the command has ended.
    Lost,
}
