//! What a command prints on stdout.

use std::io::{self, ErrorKind, Write};
use std::process;

use crate::{exit, voice};

/// Prints a text. It is no failure if the reader has closed the pipe, as `| head` does. If the text cannot be written for
/// another reason, such as a full disk, the tool ends: nobody may take what there is for the whole.
pub(crate) fn put(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            voice::complain(&format!("could not write: {error}"));
            process::exit(i32::from(exit::BROKEN));
        }
        Ok(()) | Err(_) => {}
    }
}
