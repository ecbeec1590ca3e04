//! Why a question to a server has no answer, and the exit code for it.

use std::fmt;
use std::time::Duration;

use parklock::operator;
use redis::{ErrorKind, RedisError};

use crate::exit;

/// How long connecting to a server may take.
pub(crate) const CONNECTING: Duration = Duration::from_secs(10);
/// How long a server has for an answer.
pub(crate) const ANSWERING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) why: String,
    /// The server has answered, with an error.
    pub(crate) is_answer: bool,
}

impl Failure {
    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Self { code: exit::USAGE, why: why.into(), is_answer: false }
    }

    pub(crate) fn config(why: impl Into<String>) -> Self {
        Self { code: exit::CONFIG, ..Self::usage(why) }
    }

    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self { code: exit::UNAVAILABLE, ..Self::usage(why) }
    }

    /// Says which server it is about.
    pub(crate) fn of_server(self, address: &str) -> Self {
        Self { why: format!("{address}: {}", self.why), ..self }
    }

    /// Whether the server refuses this user.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code == exit::PERMISSION
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<parklock::Error> for Failure {
    fn from(error: parklock::Error) -> Self {
        Self { code: exit::of_error(&error), why: error.to_string(), is_answer: false }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let refused = matches!(error.code(), Some("NOPERM" | "NOAUTH" | "WRONGPASS"))
            || error.kind() == ErrorKind::AuthenticationFailed;
        let code = match error.kind() {
            _ if refused => exit::PERMISSION,
            ErrorKind::InvalidClientConfig => exit::CONFIG,
            _ => exit::UNAVAILABLE,
        };
        // The error's own text would quote the URL, with its password.
        let why = if code == exit::CONFIG {
            format!("the URL is invalid ({})", error.category())
        } else if error.is_timeout() {
            format!("no answer within {ANSWERING:?}")
        } else {
            let said = operator::shown(&error.to_string());
            match operator::hint(&said, error.kind() != ErrorKind::Parse) {
                Some(hint) => format!("{hint} ({said})"),
                None => said,
            }
        };
        Self { code, why, is_answer: error.code().is_some() }
    }
}
