//! `parklock run`: a command while the lock is held.

use std::ffi::OsString;

use crate::args::Run;
use crate::phase::Outcome;
use crate::supervisor::Supervisor;
use crate::{exit, stderr};

pub(crate) fn run(asked: &Run, arguments: &[OsString]) -> u8 {
    let held = Supervisor::new(&asked.lock, &asked.work, arguments)
        .and_then(|mut supervisor| supervisor.hold_once());
    match held {
        Ok(Outcome::Code(code) | Outcome::Failed(code)) => code,
        Ok(Outcome::Lost) => exit::LOST,
        Err(error) => {
            stderr::fail(exit::BROKEN, &error.to_string());
            exit::BROKEN
        }
    }
}
