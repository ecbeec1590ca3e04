//! What a command prints on stdout.

use std::io::{self, Write};

/// Prints a text. It is no failure if the reader has closed the pipe, as `| head` does.
pub(crate) fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
