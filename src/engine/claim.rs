//! A question put to Redis: may this client have the lock?

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::engine::releaser::Job;
use crate::engine::tenure::{Grant, deadline};
use crate::keys::Keys;
use crate::wire::{Acquire, Acquired, Fault, Line, Manner};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) keys: &'a Arc<Keys>,
    pub(crate) lease: Duration,
    pub(crate) manner: Manner,
    /// The owner field of a tenure that is offered in exchange.
    pub(crate) offered: Option<&'a str>,
}

/// The answer to an attempt.
pub(crate) enum Attempt {
    Granted(Grant),
    /// Held by somebody else for so long; `None`: the key has no TTL.
    Held(Option<Duration>),
    /// Free, but another client is to have it first.
    Reserved,
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
pub(crate) async fn attempt(engine: &Engine, question: Question<'_>) -> Result<Attempt, Fault> {
    let Question { keys, lease, manner, offered } = question;
    let mut line = engine.commands.line()?;
    let open_on = Some(line.generation());
    let mut claim = Claim { engine, keys, field: engine.next_field(), lease, open_on };
    let sent = Instant::now();
    let acquire = Acquire {
        keys,
        field: &claim.field,
        lease,
        client: &engine.client,
        manner,
        line_ttl: engine.line_ttl(),
    };
    let answer = ask(&mut line, acquire, offered).await;
    claim.settle(answer, sent)
}

async fn ask(
    line: &mut Line<'_>,
    acquire: Acquire<'_>,
    offered: Option<&str>,
) -> Result<Acquired, Fault> {
    match offered {
        None => line.acquire(acquire).await,
        Some(old) => line.exchange(old, acquire).await,
    }
}

impl Claim<'_> {
    fn settle(&mut self, answer: Result<Acquired, Fault>, sent: Instant) -> Result<Attempt, Fault> {
        let until = deadline(sent, self.lease);
        let attempt = match answer {
            // So late that it is over already: the drop gives it back.
            Ok(Acquired::Granted(_)) if Instant::now() >= until => {
                return Err(Fault::late("the grant arrived when its lease was over"));
            }
            Ok(Acquired::Granted(number)) => {
                let field = std::mem::take(&mut self.field);
                Ok(Attempt::Granted(Grant { field, number, deadline: until }))
            }
            Ok(Acquired::Held(ttl)) => Ok(Attempt::Held(ttl)),
            Ok(Acquired::Reserved) => Ok(Attempt::Reserved),
            Err(fault) if fault.is_open() => return Err(fault),
            Err(fault) => Err(fault),
        };
        self.open_on = None;
        attempt
    }
}
