//! What callers ask most: an acquire, alone or together with others.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::meters;
use crate::wire::calls::gathering::{Batch, Gathering, Limits};
use crate::wire::calls::questions::refused_for_one;
use crate::wire::calls::{Acquire, Acquired};
use crate::wire::commands::Commands;
use crate::wire::fault::Fault;

/// The most batches of one kind in flight.
const WINDOW: usize = 64;

/// Handles an acquire whose caller has left: it was answered, or is never sent (`None`).
type Orphanage = Arc<dyn Fn(&Acquire, Option<Answer>) + Send + Sync>;

/// The answer to an acquire, with what its caller has to know of the request.
#[derive(Debug)]
pub(crate) struct Answer<A = Acquired> {
    /// The time before the request was sent.
    pub(crate) sent: Instant,
    /// The connection on which it was sent.
    pub(crate) sent_on: u64,
    pub(crate) result: Result<A, Fault>,
}

/// Acquires that share a script call with others of one family, or are sent alone. Those whose caller has left are handed over.
#[derive(Clone)]
pub(crate) struct Acquires {
    commands: Commands,
    orphaned: Orphanage,
    is_shared: bool,
}

/// The acquires of a client.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) plain: Arc<Gathering<Acquires>>,
    /// Of fair locks, read-write locks and semaphores.
    pub(crate) in_line: Arc<Gathering<Acquires>>,
    pub(crate) singles: Arc<Gathering<Acquires>>,
    pub(crate) together: Arc<Gathering<Together>>,
}

impl Requests {
    pub(crate) fn new(
        commands: &Commands,
        orphaned: impl Fn(&Acquire, Option<Answer>) + Send + Sync + 'static,
    ) -> Self {
        let (commands, orphaned) = (commands.clone(), Arc::new(orphaned));
        let acquires = Acquires { commands, orphaned, is_shared: false };
        let gathered = |most, straight| {
            let limits = Limits { most, straight, window: WINDOW };
            let acquires = Acquires { is_shared: most > 1, ..acquires.clone() };
            Arc::new(Gathering::new(acquires, limits))
        };
        let (plain, in_line, singles) = (gathered(64, 1), gathered(16, 1), gathered(1, 64));
        let limits = Limits { most: 1, straight: 0, window: WINDOW };
        Self {
            plain,
            in_line,
            singles,
            together: Arc::new(Gathering::new(Together(acquires), limits)),
        }
    }

    /// Gathers requests forever.
    pub(crate) async fn run(self) {
        let Self { plain, in_line, singles, together } = &self;
        tokio::join!(plain.run(), in_line.run(), singles.run(), together.run());
    }
}

impl Batch for Acquires {
    type Question = Acquire;
    type Answer = Answer;

    async fn send(&self, questions: &[Acquire]) -> Vec<Answer> {
        if self.is_shared {
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
                    let each = questions.iter().map(async |question| {
                        // Boxed: no other batch needs the space for it.
                        Box::pin(connection.again().acquire(question)).await
                    });
                    results = Ok(join_all(each).await);
                }
                (connection.peer().generation(), results)
            }
            Err(fault) => (0, Err(fault)),
        };
        let answer = |result| Answer { sent, sent_on, result };
        result_of_each(results, questions.len()).into_iter().map(answer).collect()
    }

    fn send_alone(
        &self,
        question: Acquire,
        then: impl FnOnce(Acquire, Option<Answer>) + Send + 'static,
    ) {
        let sent = Instant::now();
        let connection = match self.commands.acknowledged(&question.keys) {
            Ok(connection) if connection.is_acknowledged() || question.takes_two_calls() => {
                return then(question, None);
            }
            Ok(connection) => connection,
            Err(fault) => {
                return then(question, Some(Answer { sent, sent_on: 0, result: Err(fault) }));
            }
        };
        connection.acquire_then(question, move |question, result, sent_on| {
            let is_answer = !result.as_ref().is_err_and(Fault::was_not_tried);
            then(question, is_answer.then_some(Answer { sent, sent_on, result }));
        });
    }

    fn orphan(&self, question: Acquire, answer: Option<Answer>) {
        (self.orphaned)(&question, answer);
    }
}

/// Acquires of several plain locks in one step, all of them or none. The answer has the index of the lock that it is about.
pub(crate) struct Together(Acquires);

impl Batch for Together {
    type Question = Vec<Acquire>;
    type Answer = Answer<(usize, Result<Acquired, Fault>)>;

    async fn send(&self, questions: &[Vec<Acquire>]) -> Vec<Self::Answer> {
        let (sent, acquires) = (Instant::now(), &questions[0]);
        let (sent_on, result) = match self.0.commands.acknowledged(&acquires[0].keys) {
            Ok(mut connection) => {
                let answer = connection.acquire_all(acquires).await;
                (connection.peer().generation(), answer)
            }
            Err(fault) => (0, Err(fault)),
        };
        vec![Answer { sent, sent_on, result }]
    }

    fn orphan(&self, question: Vec<Acquire>, answer: Option<Self::Answer>) {
        let of_one = |Answer { sent, sent_on, result }: &Self::Answer| {
            let result = match result {
                Ok((_, Ok(acquired))) => Ok(*acquired),
                // The server refused one of them, so it granted none.
                Ok((_, Err(_))) => Ok(Acquired::Contended),
                Err(fault) => Err(fault.clone()),
            };
            Answer { sent: *sent, sent_on: *sent_on, result }
        };
        for acquire in &question {
            (self.0.orphaned)(acquire, answer.as_ref().map(of_one));
        }
    }
}

/// The results for so many requests of a batch. If the batch failed, each of them failed.
pub(crate) fn result_of_each<A>(
    results: Result<Vec<Result<A, Fault>>, Fault>,
    asked: usize,
) -> Vec<Result<A, Fault>> {
    results.unwrap_or_else(|fault| (0..asked).map(|_| Err(fault.clone())).collect())
}
