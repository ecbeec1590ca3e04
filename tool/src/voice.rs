//! The tool's own messages. They go to stderr only, since stdin and stdout belong to the command.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::args::Lock;
use crate::table::printable;

/// How much the tool prints, and in which form.
#[derive(Debug, Clone)]
pub(crate) struct Voice {
    name: String,
    manner: Manner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Silent,
    /// What a user has to know.
    Plain,
    /// Also what went well.
    Chatty,
    Json,
}

impl Voice {
    pub(crate) fn of(lock: &Lock) -> Self {
        let manner = match lock {
            Lock { quiet: true, .. } => Manner::Silent,
            Lock { json: true, .. } => Manner::Json,
            Lock { verbose: 1.., .. } => Manner::Chatty,
            _ => Manner::Plain,
        };
        Self { name: lock.name.clone(), manner }
    }

    /// Something went well.
    pub(crate) fn note(&self, event: &str, details: &Value, text: &str) {
        match self.manner {
            Manner::Json => self.event(event, details, text),
            Manner::Chatty => complain(text),
            Manner::Silent | Manner::Plain => {}
        }
    }

    /// Something a user has to know.
    pub(crate) fn warn(&self, event: &str, details: &Value, text: &str) {
        match self.manner {
            Manner::Json => self.event(event, details, text),
            Manner::Chatty | Manner::Plain => complain(text),
            Manner::Silent => {}
        }
    }

    /// The lock was not free in time. Returns the exit code for that.
    pub(crate) fn busy(&self, lock: &Lock) -> u8 {
        let (code, name) = (lock.busy_code(), printable(&lock.name));
        let text = format!("{name} is held by somebody else");
        let say = if lock.busy_ok { Self::note } else { Self::warn };
        say(self, "busy", &json!({ "code": code }), &text);
        code
    }

    fn event(&self, event: &str, details: &Value, text: &str) {
        let mut line = json!({ "event": event, "name": self.name });
        if let (Value::Object(line), Value::Object(details)) = (&mut line, details) {
            line.extend(details.clone());
        }
        line["text"] = text.into();
        print(&line.to_string());
    }
}

/// Prints this on stderr.
pub(crate) fn complain(text: &str) {
    print(&format!("parklock: {text}"));
}

/// Prints a line. If stderr is closed, the command continues all the same.
fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
