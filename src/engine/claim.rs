//! A question put to Redis: may this client have the lock?

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::engine::entry::Turn;
use crate::engine::releaser::Job;
use crate::engine::tenure::{Grant, deadline};
use crate::keys::Keys;
use crate::wire::{Acquired, Fault};

/// The answer to an attempt.
pub(crate) enum Attempt {
    Granted(Grant),
    /// Held by somebody else for so long; `None`: the key has no TTL.
    Held(Option<Duration>),
}

/// An attempt on its way. Dropped without an answer, it gives back what it may have got.
struct Claim<'a> {
    engine: &'a Engine,
    keys: &'a Arc<Keys>,
    field: String,
    lease: Duration,
    /// The connection on which it was sent, until it is answered.
    open_on: Option<u64>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(sent_on) = self.open_on {
            self.engine.later(Job::ghost(self.keys, &self.field, sent_on, self.lease));
        }
    }
}

/// Tries once.
///
/// # Cancel safety
/// If the future is dropped, what Redis may have granted is given back in the background.
pub(crate) async fn attempt(
    engine: &Engine,
    turn: &Turn,
    lease: Duration,
) -> Result<Attempt, Fault> {
    let keys = &turn.entry().keys;
    let mut line = engine.commands.line()?;
    let field = engine.next_field();
    let open_on = Some(line.generation());
    let mut claim = Claim { engine, keys, field, lease, open_on };
    let sent = Instant::now();
    let answer = line.acquire(keys, &claim.field, lease).await;
    claim.settle(answer, sent)
}

impl Claim<'_> {
    fn settle(&mut self, answer: Result<Acquired, Fault>, sent: Instant) -> Result<Attempt, Fault> {
        let until = deadline(sent, self.lease);
        match answer {
            // So late that it is over already: the drop gives it back.
            Ok(Acquired::Granted(_)) if Instant::now() >= until => {
                Err(Fault::late("the grant arrived when its lease was over"))
            }
            Ok(Acquired::Granted(number)) => {
                self.open_on = None;
                let field = std::mem::take(&mut self.field);
                Ok(Attempt::Granted(Grant { field, number, deadline: until }))
            }
            Ok(Acquired::Held(ttl)) => {
                self.open_on = None;
                Ok(Attempt::Held(ttl))
            }
            Err(fault) => {
                if !fault.is_open() {
                    self.open_on = None;
                }
                Err(fault)
            }
        }
    }
}
