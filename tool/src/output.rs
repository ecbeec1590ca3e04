//! What a command prints on stdout.

use std::io::{self, ErrorKind, Write};
use std::process;

use crate::{exit, stderr};

/// Prints a text. If it cannot be written, the tool ends: nobody may take what there is for the whole. It is no failure if the
/// reader has closed the pipe, as `| head` does.
pub(crate) fn put(text: &str) {
    if let Err(error) = write(text)
        && error.kind() != ErrorKind::BrokenPipe
    {
        stderr::fail(exit::BROKEN, &unwritten(&error));
        process::exit(i32::from(exit::BROKEN));
    }
}

/// Writes a text.
///
/// # Errors
/// If the text cannot be written: the disk is full, say, or the reader has closed the pipe.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// What the tool says of a text that cannot be written.
pub(crate) fn unwritten(error: &io::Error) -> String {
    format!("could not write: {error}")
}
