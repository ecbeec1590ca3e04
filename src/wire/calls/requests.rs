//! What callers ask most: an acquire, alone or together with others.

use std::sync::Arc;

use tokio::time::Instant;

use crate::meters;
use crate::wire::calls::gathering::{Answered, Batch, Gathering};
use crate::wire::calls::questions::refused_for_one;
use crate::wire::calls::{Acquire, Acquired};
use crate::wire::commands::Commands;
use crate::wire::fault::Fault;

/// Handles an acquire whose caller has left: it was answered, or is never sent (`None`).
type Orphanage = Arc<dyn Fn(&Acquire, Option<Answer>) + Send + Sync>;

/// The answer to an acquire, with what its caller has to know of the request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The time before the request was sent.
    pub(crate) sent: Instant,
    /// The connection on which it was sent.
    pub(crate) sent_on: u64,
    pub(crate) result: Result<Acquired, Fault>,
}

/// The acquires of a client.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) acquires: Arc<Gathering<Acquires<64>>>,
    pub(crate) singles: Arc<Gathering<Acquires<1>>>,
}

impl Requests {
    pub(crate) fn new(
        commands: &Commands,
        orphaned: impl Fn(&Acquire, Option<Answer>) + Send + Sync + 'static,
    ) -> Self {
        let orphaned: Orphanage = Arc::new(orphaned);
        let singles = Acquires { commands: commands.clone(), orphaned: Arc::clone(&orphaned) };
        let acquires = Acquires { commands: commands.clone(), orphaned };
        Self {
            acquires: Arc::new(Gathering::new(acquires)),
            singles: Arc::new(Gathering::new(singles)),
        }
    }

    /// Gathers requests forever.
    pub(crate) async fn run(self) {
        tokio::join!(self.acquires.run(), self.singles.run());
    }
}

/// Acquires that share a batch of at most `N`, of plain locks; or with an `N` of one, those that are sent alone, each as one
/// script call.
pub(crate) struct Acquires<const N: usize> {
    commands: Commands,
    orphaned: Orphanage,
}

impl<const N: usize> Batch for Acquires<N> {
    type Question = Acquire;
    type Answer = Answer;
    const MOST: usize = N;
    const STRAIGHT: usize = if N == 1 { 64 } else { 1 };
    const WINDOW: usize = 64;

    async fn send(&self, questions: &[Acquire]) -> Vec<Answer> {
        if N > 1 {
            meters::batch("acquire", questions.len());
        }
        let sent = Instant::now();
        let (sent_on, results) = match self.commands.acknowledged(&questions[0].keys) {
            Ok(mut connection) => {
                let mut results = match questions {
                    // A lone question uses the script that also puts the caller in line if the lock is not free.
                    [question] => connection.acquire(question).await.map(|answer| vec![Ok(answer)]),
                    questions => connection.acquire_each(questions).await,
                };
                // The server refuses the whole request if the user may not access one of its keys.
                if refused_for_one(&results, questions.len()) {
                    let mut singly = Vec::with_capacity(questions.len());
                    for question in questions {
                        singly.push(connection.acquire(question).await);
                    }
                    results = Ok(singly);
                }
                (connection.generation(), results)
            }
            Err(fault) => (0, Err(fault)),
        };
        let answer = |result| Answer { sent, sent_on, result };
        each(results, questions.len()).into_iter().map(answer).collect()
    }

    fn orphan(&self, Answered { question, answer }: Answered<Self>) {
        (self.orphaned)(&question, Some(answer));
    }

    /// The caller relies on this task to clean up after its request. If the request was a sign of life, the place in line is
    /// given up.
    fn unsent(&self, question: Acquire) {
        (self.orphaned)(&question, None);
    }
}

/// If the batch failed, each request in it failed.
fn each<A>(results: Result<Vec<Result<A, Fault>>, Fault>, asked: usize) -> Vec<Result<A, Fault>> {
    results.unwrap_or_else(|fault| (0..asked).map(|_| Err(fault.clone())).collect())
}
