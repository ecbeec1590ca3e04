//! Which reply answers which request: in order, messages aside.

use std::collections::VecDeque;

use super::judge::Strike;
use super::resp::{self, Garbled};

/// The commands that are confirmed once for each channel, in RESP3 by pushes, and by no other reply.
const CONFIRMED: [&[u8]; 6] =
    [b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe"];
const MESSAGES: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];

/// The requests that the server has still to answer.
#[derive(Debug, Default)]
pub(super) struct Pairing(VecDeque<Awaited>);

#[derive(Debug)]
struct Awaited {
    confirmation: Option<&'static [u8]>,
    frames: usize,
    strikes: Vec<Strike>,
}

/// Whose the next frames from the server are.
pub(super) enum Arrival {
    Reply(Vec<Strike>),
    Message,
}

impl Pairing {
    /// A request of so many words goes out.
    pub(super) fn sent(&mut self, command: &[u8], words: usize, strikes: Vec<Strike>) {
        let confirmation = CONFIRMED.into_iter().find(|name| command.eq_ignore_ascii_case(name));
        // An UNSUBSCRIBE of everything has an unknown number of confirmations: the first stands for all.
        let frames = if confirmation.is_some() { words.saturating_sub(1).max(1) } else { 1 };
        self.0.push_back(Awaited { confirmation, frames, strikes });
    }

    /// Takes the next reply, all frames of it, or the next message; `None` while it is not whole.
    pub(super) fn next(
        &mut self,
        bytes: &[u8],
        subscribed: bool,
    ) -> Result<Option<(usize, Arrival)>, Garbled> {
        let Some(length) = resp::replies(bytes, 1)? else {
            return Ok(None);
        };
        let (kind, head) = resp::head(&bytes[..length]);
        let confirmed = self.0.front().filter(|front| front.confirmation == Some(head));
        let frames = confirmed.map(|front| front.frames);
        if frames.is_none() && is_push(kind, head, subscribed) {
            return Ok(Some((length, Arrival::Message)));
        }
        // The confirmations of one request come in a row: the server runs nothing between them.
        let whole = resp::replies(bytes, frames.unwrap_or(1))?;
        Ok(whole.map(|length| (length, Arrival::Reply(self.answered()))))
    }

    fn answered(&mut self) -> Vec<Strike> {
        self.0.pop_front().map(|answered| answered.strikes).unwrap_or_default()
    }
}

/// RESP3 marks its pushes; in RESP2 a subscriber's messages are arrays like any other.
fn is_push(kind: u8, head: &[u8], subscribed: bool) -> bool {
    let unsolicited = || MESSAGES.contains(&head) || CONFIRMED.contains(&head);
    kind == b'>' || (kind == b'*' && subscribed && unsolicited())
}
