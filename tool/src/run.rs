//! `parklock run` and `parklock elect`: a command while the lock is held, once, or again after each loss.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use crate::args::Run;
use crate::phase::Outcome;
use crate::supervisor::Supervisor;
use crate::{exit, stderr};

/// The pause before another campaign while Redis is away.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run(asked: &Run, arguments: &[OsString]) -> u8 {
    code(once(asked, arguments))
}

pub(crate) fn elect(asked: &Run, arguments: &[OsString]) -> u8 {
    code(lead(asked, arguments))
}

/// The exit code, after an error was printed.
fn code(ended: io::Result<u8>) -> u8 {
    ended.unwrap_or_else(|error| {
        stderr::fail(exit::BROKEN, &error.to_string());
        exit::BROKEN
    })
}

fn once(asked: &Run, arguments: &[OsString]) -> io::Result<u8> {
    match Supervisor::new(&asked.lock, &asked.work, arguments)?.hold_once()? {
        Outcome::Code(code) | Outcome::Failed(code) => Ok(code),
        Outcome::Lost => Ok(exit::LOST),
    }
}

fn lead(asked: &Run, arguments: &[OsString]) -> io::Result<u8> {
    let mut supervisor = Supervisor::new(&asked.lock, &asked.work, arguments)?;
    loop {
        match supervisor.hold_once()? {
            Outcome::Lost if supervisor.is_ending() => return Ok(exit::LOST),
            Outcome::Lost => {}
            // If Redis has never answered, the URL may be wrong, and the user has to know. If it has answered before,
            // it comes back.
            Outcome::Failed(exit::UNAVAILABLE) if supervisor.has_connected() => {
                if let Some(signal) = supervisor.rest(PAUSE.mul_f64(0.5 + fastrand::f64()))? {
                    return Ok(exit::of_signal(signal as i32));
                }
            }
            Outcome::Code(code) | Outcome::Failed(code) => return Ok(code),
        }
    }
}
