//! What a command prints on stdout.

use std::io::{self, Write};

/// Prints a text. If nobody reads on, as after `| head`, that is no failure.
pub(crate) fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
