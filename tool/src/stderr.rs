//! What the tool prints on stderr.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

/// Whether a failure is JSON, as the answer was to be. Any part of the tool may fail, so this is one for the process.
static FAILS_IN_JSON: AtomicBool = AtomicBool::new(false);

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
    let _ = writeln!(io::stderr(), "{line}");
}
