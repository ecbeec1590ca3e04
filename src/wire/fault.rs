//! Faults: what a client may believe after a failed request.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use redis::{ServerError, Value};
use tokio::time::timeout;

use crate::error::{Error, Source, said};
use crate::slot::Slot;
use crate::wire::passwords::shown;
use crate::wire::socket::Broken;

/// Why a request failed, classified by what may have happened to it.
#[derive(Clone)]
pub(crate) enum Fault {
    /// There was no connection to send the request on: it did not run.
    NotSent(Source),
    /// The request was sent, and no answer came: it may have run, or may still run.
    Unanswered(Source),
    /// The server refused the request for now: it did not run.
    Refused(Source),
    /// The server is not the primary that it was taken for, or not yet. So it refused the request, or its answer is not
    /// believed.
    Distrusted(Source),
    /// The server denies this user permission.
    Permission(Source),
    /// A key has another type.
    WrongType,
    /// Other callers use the name for this kind.
    Conflict(Source),
    /// The caller asked for more permits than there are.
    Permits(Source),
    /// The latch is not set.
    Unset,
    /// The server does not know the script: it did not run.
    NoScript,
    /// It ran, but too few replicas had the writes in time. What it granted must not be believed, and has to be
    /// released.
    Unacknowledged(Source),
    /// A cluster wants the request to be sent elsewhere, or later: it did not run.
    Redirected(Redirect, Source),
    /// Part of the script ran: it emptied a key of a migrating slot, and could not access the key again.
    HalfRun(Source),
    /// A release ran, and has found a hold or not. Its line is not done: the release has to be sent once more.
    Unfinished { found: bool },
    /// The server is not what the URL says.
    Config(String),
    /// The client was closed.
    Closed,
}

/// What the log says of it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(source) => write!(f, "not sent: {source}"),
            Self::Unanswered(source) => write!(f, "no answer: {source}"),
            Self::Refused(source) => write!(f, "refused: {source}"),
            Self::Distrusted(source) => write!(f, "not a primary: {source}"),
            Self::Permission(source) => write!(f, "not permitted: {source}"),
            Self::Conflict(source) | Self::Permits(source) | Self::Redirected(_, source) => {
                source.fmt(f)
            }
            Self::Unacknowledged(source) => write!(f, "not acknowledged: {source}"),
            Self::HalfRun(source) => write!(f, "stopped half-way: {source}"),
            Self::WrongType => f.write_str("the key has another type"),
            Self::Unset => f.write_str("the latch is not set"),
            Self::NoScript => f.write_str("the server forgot a script"),
            Self::Unfinished { .. } => f.write_str("the line is not done"),
            Self::Config(reason) => f.write_str(reason),
            Self::Closed => f.write_str("the client is closed"),
        }
    }
}

/// The same: a log line shows nothing of how a fault is stored.
impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A cluster node's answer to a request that it does not run.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The node `to` has the slot now.
    Moved { slot: Slot, to: String },
    /// The slot is moving to the node `to`, and all keys of the request have moved there, or do not exist. Only this
    /// one request should be sent there.
    Ask { to: String },
    /// The slot is moving to another node, and the keys of the request are at both.
    TryAgain,
    /// No node has the slot, or the cluster has no majority.
    Down,
    /// The keys lie in several slots: no node would ever run the request.
    CrossSlot,
}

/// Without the node: the source of the fault names it, as far as it may be shown.
impl fmt::Debug for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Moved { .. } => "Moved",
            Self::Ask { .. } => "Ask",
            Self::TryAgain => "TryAgain",
            Self::Down => "Down",
            Self::CrossSlot => "CrossSlot",
        })
    }
}

/// Makes a fault of its source.
type Maker = fn(Source) -> Fault;

/// The codes of an error of the server, and what it says instead of a code, in this order.
const CODES: [(&str, Maker); 18] = [
    ("NOPERM", Fault::Permission),
    ("NOAUTH", Fault::Permission),
    ("WRONGPASS", Fault::Permission),
    ("can't run this command", Fault::Permission),
    ("ACL failure", Fault::Permission),
    ("No permissions", Fault::Permission),
    ("has no permissions", Fault::Permission),
    ("can't access at least one of the keys", Fault::Permission),
    // Behind the permissions: a release that could not tell the line about it says what it may not do.
    ("HALFRUN", Fault::HalfRun),
    ("CONFLICT", Fault::Conflict),
    ("PERMITS", Fault::Permits),
    ("UNSET", |_| Fault::Unset),
    ("NOSCRIPT", |_| Fault::NoScript),
    ("WRONGTYPE", |_| Fault::WrongType),
    ("READONLY", Fault::Distrusted),
    ("LOADING", Fault::Distrusted),
    ("MASTERDOWN", Fault::Distrusted),
    ("invalid password", Fault::Permission),
];

/// A failure at this server.
#[derive(Debug, thiserror::Error)]
#[error("{server}: {source}")]
struct AtServer {
    server: String,
    source: Source,
}

/// A failure, with what it usually means.
#[derive(Debug, thiserror::Error)]
#[error("{hint} ({source})")]
struct Hinted {
    hint: &'static str,
    source: Source,
}

impl Fault {
    /// The fault for an error text of the server, which may be a whole answer or one entry of a batch. The whole text says
    /// which fault it is, whatever may be shown of it.
    pub(crate) fn from_text(text: &str) -> Self {
        let source = said(shown(text));
        // What follows was in the request: names that a user has chosen.
        let text = text.split("with args beginning with").next().unwrap_or_default();
        if text.contains("non local key") {
            return Self::HalfRun(source);
        }
        if let Some(redirect) = Redirect::of(text) {
            return Self::Redirected(redirect, source);
        }
        match CODES.iter().find(|(code, _)| has(text, code)) {
            Some((_, fault)) => fault(source),
            None => Self::Refused(source),
        }
    }

    /// Limits the time for asking this server. Whatever it says afterwards counts as not asked.
    pub(crate) async fn unless_in<T>(
        limit: Duration,
        server: &impl fmt::Display,
        asked: impl Future<Output = Result<T, Self>>,
    ) -> Result<T, Self> {
        let late = || Self::NotSent(said(format!("{server} did not answer in {limit:?}")));
        timeout(limit, asked).await.unwrap_or_else(|_| Err(late()))
    }

    /// The fault of a request that was sent on a live connection, and has no answer.
    pub(crate) fn answering(broken: Broken) -> Self {
        match broken {
            Broken::Unsent => Self::NotSent(source(broken)),
            broken => Self::Unanswered(source(broken)),
        }
    }

    /// The fault of an attempt to connect: nothing relevant can have run.
    pub(crate) fn connecting(broken: Broken) -> Self {
        let hint = match &broken {
            Broken::Garbage(_) => Some(NOT_REDIS),
            Broken::Closed => Some(FULL),
            Broken::Io(error) if DROPPED.contains(&error.kind()) => Some(FULL),
            _ => None,
        };
        Self::NotSent(hinted(hint, source(broken)))
    }

    /// The fault of a greeting that the server has refused.
    pub(crate) fn refused_at_first(error: &ServerError) -> Self {
        let text = raw(error);
        match Self::from_text(&text) {
            Self::Permission(source) => Self::Permission(hinted(hint(&text), source)),
            _ => Self::NotSent(hinted(hint(&text), said(shown(&text)))),
        }
    }

    /// An answer that came too late to be believed.
    pub(crate) fn late(words: &str) -> Self {
        Self::Unanswered(said(words))
    }

    /// The same fault, whose text names the server.
    pub(crate) fn of(self, server: &impl fmt::Display) -> Self {
        let named = |source| Arc::new(AtServer { server: server.to_string(), source }) as Source;
        match self {
            Self::NotSent(source) => Self::NotSent(named(source)),
            Self::Unanswered(source) => Self::Unanswered(named(source)),
            Self::Permission(source) => Self::Permission(named(source)),
            Self::Refused(source) => Self::Refused(named(source)),
            Self::Distrusted(source) => Self::Distrusted(named(source)),
            other => other,
        }
    }

    /// Whether the request may have run, or may still run.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Self::Unanswered(_) | Self::HalfRun(_))
    }

    /// Whether an acquire that failed like this may have taken the lock, or may still take it.
    pub(crate) fn may_hold(&self) -> bool {
        self.may_have_run() || matches!(self, Self::Unacknowledged(_))
    }

    /// Whether a request that its caller has sent itself was not tried: the lock is elsewhere, the server has forgotten the
    /// script, or there is no connection, or no room on it. A task of the client then makes the first attempt.
    pub(crate) fn was_not_tried(&self) -> bool {
        matches!(self, Self::NoScript | Self::Redirected(..) | Self::NotSent(_))
    }

    /// Whether retrying may help.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NotSent(_)
            | Self::Unanswered(_)
            | Self::HalfRun(_)
            | Self::Refused(_)
            | Self::Distrusted(_)
            | Self::Unacknowledged(_)
            | Self::Unfinished { .. }
            | Self::NoScript => true,
            Self::Redirected(redirect, _) => *redirect != Redirect::CrossSlot,
            _ => false,
        }
    }

    /// The fault as the error of a call that gives up now. `Commands::explained` names the kinds of a conflict, and the
    /// latch.
    pub(crate) fn into_error(self, key: &str) -> Error {
        match self {
            Self::Unanswered(source) | Self::HalfRun(source) => Error::Indeterminate { source },
            Self::NotSent(source)
            | Self::Refused(source)
            | Self::Distrusted(source)
            | Self::Unacknowledged(source) => Error::Unavailable { source },
            Self::Redirected(Redirect::CrossSlot, source) => Error::config(source.to_string()),
            Self::Redirected(_, source) => Error::Unavailable { source },
            Self::Config(reason) => Error::config(reason),
            Self::NoScript | Self::Unfinished { .. } => {
                Error::Unavailable { source: said(self.to_string()) }
            }
            Self::Permission(source) => Error::Permission { source },
            Self::WrongType => conflict(key, "value of another type"),
            Self::Conflict(source) => {
                let said = source.to_string();
                conflict(key, said.rsplit("CONFLICT ").next().unwrap_or(&said).trim())
            }
            Self::Permits(source) => {
                let (asked, of) = permits(&source.to_string());
                Error::InvalidPermits { asked, of }
            }
            Self::Unset => Error::Unset { name: String::new() },
            Self::Closed => Error::Closed,
        }
    }

    /// The fault as the error of a release that Redis has not confirmed. The release may have run, and the client
    /// repeats it for as long as the lock may still be held.
    pub(crate) fn into_unconfirmed(self) -> Error {
        match self {
            Self::Unanswered(source)
            | Self::HalfRun(source)
            | Self::NotSent(source)
            | Self::Refused(source)
            | Self::Distrusted(source)
            | Self::Unacknowledged(source)
            | Self::Redirected(_, source) => Error::Indeterminate { source },
            Self::Closed => {
                let source = said("the client was closed before redis confirmed the release");
                Error::Indeterminate { source }
            }
            fault => fault.into_error(""),
        }
    }

    /// The fault as the error of a call that has ridden it out until its limit. Which of its many requests was not
    /// answered tells the caller nothing: Redis was away, and the client cleans up.
    pub(crate) fn into_outage(self) -> Error {
        match self.into_error("") {
            Error::Indeterminate { source } => Error::Unavailable { source },
            error => error,
        }
    }
}

/// Whether the text of an error has this. A code begins the text, or a part of it: before version 7, the error of a
/// command within a script has its code after the place in the script. Other words may be anywhere.
fn has(text: &str, words: &str) -> bool {
    let is_code = words.bytes().all(|byte| byte.is_ascii_uppercase());
    text.match_indices(words).any(|(at, _)| {
        let before = &text[..at];
        let before = before.strip_suffix('-').unwrap_or(before);
        let is_first = matches!(before.trim(), "" | "ERR");
        !is_code || is_first || before.ends_with(": ")
    })
}

fn conflict(key: &str, kind: &str) -> Error {
    Error::Conflict { key: key.to_owned(), kind: kind.to_owned(), asked: String::new() }
}

impl Redirect {
    /// The redirection in the whole answer of a node, if it begins with one of these codes.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let slot = |word: Option<&str>| word?.parse().ok().and_then(Slot::new);
        match words.next()? {
            "MOVED" => {
                Some(Self::Moved { slot: slot(words.next())?, to: words.next()?.to_owned() })
            }
            "ASK" => slot(words.next()).and(words.next()).map(|to| Self::Ask { to: to.to_owned() }),
            "TRYAGAIN" => Some(Self::TryAgain),
            "CLUSTERDOWN" => Some(Self::Down),
            "CROSSSLOT" => Some(Self::CrossSlot),
            _ => None,
        }
    }
}

/// How a stream fails that the server has closed.
const DROPPED: [ErrorKind; 4] = [
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionAborted,
    ErrorKind::ConnectionReset,
    ErrorKind::UnexpectedEof,
];

/// What a new connection usually means that is closed at once.
const FULL: &str =
    "the server closed the new connection: does it have as many clients as its maxclients allows?";

/// What a new connection means whose answers cannot be read.
pub(crate) const NOT_REDIS: &str = "what answers there is not Redis";

/// What it means that a new connection is refused with this text.
pub(crate) fn hint(refusal: &str) -> Option<&'static str> {
    let speaks_no_resp3 = refusal.contains("NOPROTO")
        || refusal.contains("unknown command") && refusal.contains("HELLO");
    if speaks_no_resp3 {
        Some("the server, or a proxy before it, does not know HELLO 3, and parklock needs RESP3")
    } else if refusal.contains("max number of clients") {
        Some(FULL)
    } else if refusal.contains("NOAUTH") {
        Some("the server wants a password: redis://:password@host, or redis://user:password@host")
    } else if refusal.contains("WRONGPASS") || refusal.contains("invalid password") {
        Some(
            "the user or the password is wrong; in a URL, special characters of a password are percent-encoded",
        )
    } else {
        None
    }
}

/// What may be shown of an error.
fn source(broken: Broken) -> Source {
    let text = broken.to_string();
    let shown = shown(&text);
    if shown == text { Arc::new(broken) } else { said(shown) }
}

/// An error, with what it usually means.
fn hinted(hint: Option<&'static str>, source: Source) -> Source {
    match hint {
        Some(hint) => Arc::new(Hinted { hint, source }),
        None => source,
    }
}

/// An error of the server within a reply.
pub(crate) fn entry(error: &ServerError) -> Fault {
    Fault::from_text(&raw(error))
}

/// The answer to a request on a live connection. An error of the server is a fault.
pub(crate) fn answered(answer: Result<Value, Broken>) -> Result<Value, Fault> {
    match answer.map_err(Fault::answering)? {
        Value::ServerError(error) => Err(entry(&error)),
        value => Ok(value),
    }
}

/// Whether the server has answered: then it is alive, even if it says that it is busy or broken.
pub(crate) fn alive<T>(answer: Result<T, Fault>) -> Result<(), Fault> {
    match answer {
        Ok(_) | Err(Fault::Refused(_)) => Ok(()),
        Err(fault) => Err(fault),
    }
}

fn raw(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

/// What may be shown of an error of the server.
pub(crate) fn words(error: &ServerError) -> String {
    shown(&raw(error))
}

/// Whether an error of the server says this.
pub(crate) fn says(error: &ServerError, words: &str) -> bool {
    error.details().is_some_and(|details| details.contains(words))
}

/// How many permits the caller asked for, and how many there are, from the error of a script: `PERMITS 3 of 2`.
fn permits(said: &str) -> (u32, u32) {
    let numbers = said.rsplit("PERMITS ").next().unwrap_or(said);
    let mut numbers = numbers.split(' ').filter_map(|word| word.trim().parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_code_is_found_behind_the_place_in_a_script() {
        let hidden = "ERR Error running script (call to f_ab): @user_script:1: \
                      @user_script: 1: -READONLY You can't write against a read only replica.";
        assert!(matches!(Fault::from_text(hidden), Fault::Distrusted(_)));
        let wrong = "ERR Error running script: WRONGTYPE Operation against a key";
        assert!(matches!(Fault::from_text(wrong), Fault::WrongType));
        let denied = "ERR The user executing the script can't run this command or subcommand";
        assert!(matches!(Fault::from_text(denied), Fault::Permission(_)));
        let full =
            "ERR Error running script: -OOM command not allowed when used memory > 'maxmemory'";
        assert!(matches!(Fault::from_text(full), Fault::Refused(_)));
        let half = "HALFRUN @user_script: 7: WRONGTYPE Operation against a key";
        assert!(matches!(Fault::from_text(half), Fault::HalfRun(_)));
    }

    /// The server quotes the request, in which a user has chosen the name.
    #[test]
    fn a_name_in_the_text_of_an_error_is_no_code() {
        for name in ["NOSCRIPT", "CONFLICT", "non local key", "a: -READONLY"] {
            let unknown = format!(
                "ERR unknown command 'EVALSHA', with args beginning with: 'f00' '1' 'lock:{{{name}}}' "
            );
            let fault = Fault::from_text(&unknown);
            assert!(matches!(fault, Fault::Refused(_)), "{name}: {fault:?}");
        }
        let user = "WRONGPASS user NOSCRIPT is disabled";
        assert!(matches!(Fault::from_text(user), Fault::Permission(_)));
    }

    #[test]
    fn a_node_of_a_cluster_says_where_to_ask() {
        let redirect = |text: &str| match Fault::from_text(text) {
            Fault::Redirected(redirect, _) => Some(redirect),
            _ => None,
        };
        let (slot, to) = (Slot::new(3999).unwrap(), "127.0.0.1:6381".to_owned());
        assert_eq!(
            redirect("MOVED 3999 127.0.0.1:6381"),
            Some(Redirect::Moved { slot, to: to.clone() })
        );
        assert_eq!(redirect("ASK 3999 127.0.0.1:6381"), Some(Redirect::Ask { to }));
        assert_eq!(
            redirect("TRYAGAIN Multiple keys request during rehashing"),
            Some(Redirect::TryAgain)
        );
        assert_eq!(redirect("CLUSTERDOWN Hash slot not served"), Some(Redirect::Down));
        assert_eq!(
            redirect("CROSSSLOT Keys in request don't hash to the same slot"),
            Some(Redirect::CrossSlot)
        );
        for text in ["MOVED", "MOVED 99999 h:1", "MOVED 1", "ERR MOVED 1 h:1", "ASK x h:1"] {
            assert_eq!(redirect(text), None, "{text}");
        }
        assert!(Fault::from_text("TRYAGAIN x").is_passing());
        assert!(!Fault::from_text("TRYAGAIN x").may_have_run(), "it did not run");
        let half =
            "ERR Error running script: Script attempted to access a non local key in a cluster";
        assert!(Fault::from_text(half).may_have_run(), "a part of it ran");
        let crossed = Fault::from_text("CROSSSLOT x");
        assert!(!crossed.is_passing());
        assert!(matches!(crossed.into_error(""), Error::Config { .. }));
    }

    #[test]
    fn only_an_unanswered_request_may_have_run() {
        assert!(Fault::Unanswered(said("late")).may_have_run());
        assert!(!Fault::NotSent(said("down")).may_have_run());
        assert!(!Fault::Refused(said("OOM")).may_have_run());
    }

    #[test]
    fn a_call_that_rode_out_an_outage_says_unavailable() {
        let outage = Fault::Unanswered(said("late")).into_outage();
        assert!(matches!(outage, Error::Unavailable { .. }));
        let once = Fault::Unanswered(said("late")).into_error("");
        assert!(matches!(once, Error::Indeterminate { .. }));
    }
}
