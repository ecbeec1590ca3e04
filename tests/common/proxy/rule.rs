//! A rule says which traffic a fault strikes; its last word says how.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::judge::{Stage, Verb};
use super::net::Net;

/// What a connection is used for, as far as it has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Has only shaken hands so far: HELLO, AUTH, CLIENT, SELECT, PING.
    Fresh,
    Command,
    /// Has sent a SUBSCRIBE of any kind.
    Subscriber,
    /// A replica that fetches the primary's stream, which is not framed.
    Replica,
}

#[derive(Debug)]
pub(super) enum Target {
    Everything,
    Command(String),
    Script(String),
    Message,
}

/// Which requests, with their replies, a fault strikes. Without further words: each one, on each connection.
///
/// The *reply* of a SUBSCRIBE is all of its confirmations; that of a [message](super::Proxy::messages) is the message.
#[must_use = "a rule does nothing before it is given a fault"]
pub struct Rule {
    pub(super) target: Target,
    pub(super) class: Option<Class>,
    pub(super) part: Vec<u8>,
    pub(super) window: Range<usize>,
    net: Arc<Net>,
}

impl Rule {
    pub(super) fn new(net: Arc<Net>, target: Target) -> Self {
        Self { target, class: None, part: Vec::new(), window: 0..usize::MAX, net }
    }

    /// Only on connections of this class.
    pub fn class(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// Only where the request (or message) contains these bytes, such as a key.
    pub fn about(mut self, part: &str) -> Self {
        self.part = part.as_bytes().to_vec();
        self
    }

    /// Only the `n`-th one that fits, counted from 1, from now on, over all connections.
    pub fn nth(mut self, n: usize) -> Self {
        self.window = n - 1..n;
        self
    }

    /// Only the first `n` that fit.
    pub fn first(mut self, n: usize) -> Self {
        self.window = 0..n;
        self
    }

    /// Harms nothing: for counting.
    pub fn count(self) -> Fault {
        self.install(Stage::Request, Verb::Pass)
    }

    /// Keeps the request for `base` and up to `jitter` more, and what follows it on the connection behind it.
    pub fn delay_request(self, base: Duration, jitter: Duration) -> Fault {
        self.install(Stage::Request, Verb::Delay { base, jitter })
    }

    pub fn delay_reply(self, base: Duration, jitter: Duration) -> Fault {
        self.install(Stage::Reply, Verb::Delay { base, jitter })
    }

    /// Keeps the request until the fault is lifted. It reaches the server then even if its client has gone meanwhile:
    /// that makes a ghost.
    pub fn hold_request(self) -> Fault {
        self.install(Stage::Request, Verb::Hold)
    }

    /// The server has run it, the client does not know until the fault is lifted.
    pub fn hold_reply(self) -> Fault {
        self.install(Stage::Reply, Verb::Hold)
    }

    /// Resets the connection; the server never sees the request.
    pub fn cut_before(self) -> Fault {
        self.install(Stage::Request, Verb::Cut { after: 0 })
    }

    /// Lets the server run it, discards the reply and resets the connection.
    pub fn cut_after(self) -> Fault {
        self.install(Stage::Reply, Verb::Cut { after: 0 })
    }

    /// Resets the connection after so many bytes of the reply.
    pub fn cut_within(self, bytes: usize) -> Fault {
        self.install(Stage::Reply, Verb::Cut { after: bytes })
    }

    /// Removes the reply from the stream, and only it: a client that sends further requests on this connection takes
    /// each later reply for the one before. For a stream that stalls in order, hold the reply.
    pub fn swallow_reply(self) -> Fault {
        self.install(Stage::Reply, Verb::Swallow)
    }

    /// Delivers the reply in pieces of so many bytes, a millisecond apart.
    pub fn slice_reply(self, bytes: usize) -> Fault {
        self.install(Stage::Reply, Verb::Slice { bytes })
    }

    fn install(self, stage: Stage, verb: Verb) -> Fault {
        let net = Arc::clone(&self.net);
        net.judge().install(self, stage, verb)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = String::from_utf8_lossy(&self.part);
        write!(
            f,
            "{:?} class {:?} about {part:?} number {:?}",
            self.target, self.class, self.window
        )
    }
}
