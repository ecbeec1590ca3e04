//! The tool's own messages. They go to stderr only, since stdin and stdout belong to the command.

use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::args::Lock;
use crate::holders::{self, Holders};
use crate::stderr::{complain, print};
use crate::text::printable;

/// How long the tool waits for a lock before it says for whom.
const A_WHILE: Duration = Duration::from_secs(2);

/// Why a lock is lost whose lease is not over.
pub(crate) const NOT_THERE: &str =
    "the server no longer has it (it was taken away or deleted, or the server has lost data)";

/// Why a lock is lost that the tool gives back: the release does not say which of the two it is.
pub(crate) const NOT_THERE_OR_OVER: &str = "the server no longer has it, or its lease is over";

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

    /// The tool fails, with this exit code.
    pub(crate) fn fail(&self, code: u8, why: &str) {
        self.warn("failed", &json!({ "code": code }), why);
    }

    /// What to say when the lock is lost. One log often has the messages of many tools.
    pub(crate) fn lost(&self, why: &str) -> String {
        format!("the lock {} is lost: {why}", printable(&self.name))
    }

    /// Waits for the lock. If that takes a while, says who holds it: at a terminal, a user sees nothing happen.
    pub(crate) async fn waits<T>(&self, lock: &Lock, wait: impl Future<Output = T>) -> T {
        let say = if io::stderr().is_terminal() { Self::warn } else { Self::note };
        let named = async {
            sleep(A_WHILE).await;
            let holders = holders::of(lock).await;
            let text = format!("waiting for {}, held by {}", printable(&lock.name), holders.text);
            say(self, "waiting", &json!({ "holders": holders.json }), &text);
            pending().await
        };
        tokio::select! {
            biased;
            done = wait => done,
            never = named => never,
        }
    }

    /// The lock was not free in time. Returns the exit code for that.
    pub(crate) fn busy(&self, lock: &Lock, holders: &Holders) -> u8 {
        let code = lock.busy_code();
        let is_outer = lock.outer_tools().iter().any(|tool| holders.has(tool));
        let under = if is_outer { ", under which this already runs" } else { "" };
        let text = format!("{} is held by {}{under}", printable(&lock.name), holders.text);
        let say = if lock.busy_ok { Self::note } else { Self::warn };
        say(self, "busy", &json!({ "code": code, "holders": holders.json }), &text);
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
