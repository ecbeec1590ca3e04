//! What a command prints on stdout.

use std::io::{self, ErrorKind, Write};
use std::process;

use crate::{exit, stderr};

/// Prints a text. If it cannot be written, the tool ends: nobody may take what there is for the whole.
pub(crate) fn put(text: &str) {
    if let Err(error) = write(text) {
        stderr::fail(exit::BROKEN, &unwritten(&error));
        process::exit(i32::from(exit::BROKEN));
    }
}

/// Writes a text. It is no failure if the reader has closed the pipe, as `| head` does.
///
/// # Errors
/// If the text cannot be written for another reason, such as a full disk.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// What the tool says of a text that cannot be written.
pub(crate) fn unwritten(error: &io::Error) -> String {
    format!("could not write: {error}")
}
