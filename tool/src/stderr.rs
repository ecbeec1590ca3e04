//! What the tool prints on stderr.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;

/// Whether a failure is JSON, as the answer was to be. Any part of the tool may fail, so this is one for the process.
static FAILS_IN_JSON: AtomicBool = AtomicBool::new(false);

/// Whether this process guards a command. Then it must not wait until somebody reads its lines.
static GUARDS: AtomicBool = AtomicBool::new(false);

/// How long a process that guards a command waits for space in a full pipe, in ms.
const PATIENCE: u8 = 20;

/// A pipe that says that it has space has space for this many bytes (`PIPE_BUF` on Linux).
const PIECE: usize = 4_096;

/// From now on, a line that nobody reads is left out: a full pipe, or a terminal that was stopped with Ctrl-S, would keep this process from
/// ending its command in time.
pub(crate) fn guard() {
    GUARDS.store(true, Ordering::Relaxed);
}

/// From now on, failures are JSON.
pub(crate) fn fail_in_json() {
    FAILS_IN_JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn fails_in_json() -> bool {
    FAILS_IN_JSON.load(Ordering::Relaxed)
}

/// Prints on stderr what has failed, and the exit code for it.
pub(crate) fn fail(code: u8, text: &str) {
    if fails_in_json() {
        print(&json!({ "event": "failed", "code": code, "text": text }).to_string());
    } else {
        complain(text);
    }
}

/// Prints this on stderr.
pub(crate) fn complain(text: &str) {
    print(&format!("parklock: {text}"));
}

/// Prints a line. If stderr is closed, the command continues all the same.
pub(crate) fn print(line: &str) {
    let _ = Stderr.write_all(format!("{line}\n").as_bytes());
}

/// Stderr, as this tool writes to it.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        if !GUARDS.load(Ordering::Relaxed) {
            return stderr.write(bytes);
        }
        let mut space = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut space, PollTimeout::from(PATIENCE)) {
            Ok(1..) => stderr.write(&bytes[..bytes.len().min(PIECE)]),
            _ => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
