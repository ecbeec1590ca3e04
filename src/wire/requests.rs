//! The two requests that callers make most, alone or together: acquire and release.

use std::sync::Arc;
use std::time::Instant;

use crate::wire::calls::{Acquire, Acquired, Release};
use crate::wire::coalesce::{Answer, Flight, Gathering, Landed};
use crate::wire::commands::Commands;
use crate::wire::fault::Fault;

/// What becomes of an acquire whose caller has gone: called with the request, and the connection on
/// which it was sent.
type Orphanage = Box<dyn Fn(Acquire, u64) + Send + Sync>;

/// The acquires and releases of a client.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) acquires: Arc<Gathering<Acquires>>,
    pub(crate) releases: Arc<Gathering<Releases>>,
}

impl Requests {
    pub(crate) fn new(
        commands: &Commands,
        orphaned: impl Fn(Acquire, u64) + Send + Sync + 'static,
    ) -> Self {
        let acquires = Acquires { commands: commands.clone(), orphaned: Box::new(orphaned) };
        let releases = Releases { commands: commands.clone() };
        Self {
            acquires: Arc::new(Gathering::new(acquires)),
            releases: Arc::new(Gathering::new(releases)),
        }
    }

    /// Gathers, for ever.
    pub(crate) async fn run(self) {
        tokio::join!(self.acquires.run(), self.releases.run());
    }
}

/// Acquires that fly together.
pub(crate) struct Acquires {
    commands: Commands,
    orphaned: Orphanage,
}

impl Flight for Acquires {
    type Question = Acquire;
    type Answer = Acquired;

    async fn fly(&self, questions: &[Acquire]) -> Vec<Answer<Acquired>> {
        let sent = Instant::now();
        let (sent_on, results) = match self.commands.connection() {
            Ok(mut connection) => {
                (connection.generation(), connection.acquire_all(questions).await)
            }
            Err(fault) => (0, Err(fault)),
        };
        answers(sent, sent_on, results, questions.len())
    }

    fn orphan(&self, Landed { question, answer }: Landed<Self>) {
        match answer.result {
            Ok(Acquired::Granted(_)) => (self.orphaned)(question, answer.sent_on),
            Err(fault) if fault.is_open() => (self.orphaned)(question, answer.sent_on),
            _ => {}
        }
    }
}

/// Releases that fly together.
pub(crate) struct Releases {
    commands: Commands,
}

impl Flight for Releases {
    type Question = Release;
    type Answer = bool;

    async fn fly(&self, questions: &[Release]) -> Vec<Answer<bool>> {
        let sent = Instant::now();
        let results = match self.commands.connection() {
            Ok(mut connection) => connection.release(questions).await,
            Err(fault) => Err(fault),
        };
        answers(sent, 0, results, questions.len())
    }

    /// Who goes before its release was answered has left it to the background.
    fn orphan(&self, _: Landed<Self>) {}
}

/// A failure of the flight is a failure of everybody on it.
fn answers<A>(
    sent: Instant,
    sent_on: u64,
    results: Result<Vec<Result<A, Fault>>, Fault>,
    asked: usize,
) -> Vec<Answer<A>> {
    let answer = |result| Answer { sent, sent_on, result };
    match results {
        Ok(results) => results.into_iter().map(answer).collect(),
        Err(fault) => (0..asked).map(|_| answer(Err(fault.clone()))).collect(),
    }
}
