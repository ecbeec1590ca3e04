//! How an acquire or a release goes to the server: at once, or in a batch with others of the same moment. `requests.rs` says how
//! many acquires share a batch, `engine/releaser/job_requests.rs` how many releases; `engine/caller/attempt.rs` says which acquires go
//! alone. Renewals share requests in `engine/watchdog.rs`.
//!
//! 1. If nothing is gathered, whoever asks sends the request at once, on its own task. The task that reads the connection
//!    passes the answer on.
//! 2. At most `straight` requests that were sent at once are in flight. Further requests gather. The task of the
//!    gathering sends them in their order of arrival, as `company.rs` says. It never has more than `window` batches in flight.
//! 3. A request belongs to the gathering, never to its caller. A dropped caller strands no other, and a grant to it is
//!    reported as an orphan ([`Batch::orphan`]). A release has no caller: all of its answers go that way.
//! 4. A gathering limits its requests in flight. Otherwise the last of ten thousand answers would come after its caller's
//!    response timeout. The caller would ask again, and the server would only ever answer too late.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::mutex::Mutex;
use crate::pause::sleep_until_if;
use crate::wakers::guarded;
use crate::wire::calls::company::Company;
use crate::wire::fault::Fault;

/// A queue that had to have room for more requests than this gives it back when it is empty.
const MOST_ROOM: usize = 1_024;

/// How many requests share a batch, and how many are in flight.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The most questions in one request. More than a few dozen would gain little, and make the first wait for the
    /// last.
    pub(crate) most: usize,
    /// With this many requests in flight that were sent at once, later ones gather.
    pub(crate) straight: usize,
    /// The most batches in flight.
    pub(crate) window: usize,
}

/// A kind of request that can share a batch.
pub(crate) trait Batch: Send + Sync + 'static {
    type Question: Send + Sync;
    type Answer: Send;

    /// Sends all of these questions in one request.
    fn send(&self, questions: &[Self::Question]) -> impl Future<Output = Vec<Self::Answer>> + Send;

    /// Sends a question at once, from the task of whoever asks. `then` gets it back with its answer; with `None` if it was not tried, so
    /// that the task of the gathering has to send it.
    fn send_alone(
        &self,
        question: Self::Question,
        then: impl FnOnce(Self::Question, Option<Self::Answer>) + Send + 'static,
    ) {
        then(question, None);
    }

    /// Handles a question that has no caller, or whose caller has left: it was answered, or is never sent (`None`).
    fn orphan(&self, question: Self::Question, answer: Option<Self::Answer>);
}

/// A question and its answer.
pub(crate) struct Answered<F: Batch> {
    pub(crate) question: F::Question,
    pub(crate) answer: F::Answer,
}

/// Who waits for the answer to a question; `None`: nobody ever did.
type Caller<F> = Option<oneshot::Sender<Answered<F>>>;

/// The requests of one kind.
pub(crate) struct Gathering<F: Batch> {
    batch: F,
    state: Mutex<State<F>>,
    /// Wakes the sender: there may be enough for a batch.
    changed: Notify,
}

struct State<F: Batch> {
    limits: Limits,
    closed: bool,
    /// Requests that were sent at once, and are not answered yet.
    alone: usize,
    /// Batches that the task of the gathering has sent.
    batches: usize,
    waiting: VecDeque<Pending<F>>,
    company: Company,
}

impl<F: Batch> State<F> {
    /// Whether the next batch can go now.
    fn is_ready(&self) -> bool {
        let Limits { most, window, .. } = self.limits;
        self.batches < window && self.company.is_enough(self.waiting.len(), most)
    }
}

struct Pending<F: Batch> {
    question: F::Question,
    caller: Caller<F>,
}

impl<F: Batch> Gathering<F> {
    pub(crate) fn new(batch: F, limits: Limits) -> Self {
        let state = State {
            limits,
            closed: false,
            alone: 0,
            batches: 0,
            waiting: VecDeque::new(),
            company: Company::default(),
        };
        Self { batch, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Sends a question, alone or with others, and waits for its answer.
    ///
    /// # Cancel safety
    /// A question that was not sent yet is never sent. In any case it is an orphan: see [`Batch::orphan`].
    ///
    /// Not an `async fn`: the question is on its way when this returns.
    pub(crate) fn ask(
        self: &Arc<Self>,
        question: F::Question,
    ) -> impl Future<Output = Result<Answered<F>, Fault>> + Send + use<'_, F> {
        let (told, answered) = oneshot::channel();
        let mut wait = Wait { batch: &self.batch, answered };
        self.enter(Pending { question, caller: Some(told) });
        async move { (&mut wait.answered).await.map_err(|_| Fault::Closed) }
    }

    /// Sends a question without a caller, alone or with others. It is an orphan when it is answered.
    pub(crate) fn put(self: &Arc<Self>, question: F::Question) {
        self.enter(Pending { question, caller: None });
    }

    fn enter(self: &Arc<Self>, pending: Pending<F>) {
        match self.goes_alone() {
            true => self.send_alone(pending),
            false => self.queue(pending),
        }
    }

    /// Whether a request may go at once, since few are in flight. While the task of the gathering sends, it may still have an
    /// earlier one to send: then no later one goes before it.
    fn goes_alone(&self) -> bool {
        let mut state = self.state.lock();
        let is_first = state.batches == 0 && state.waiting.is_empty();
        let goes = is_first && state.alone < state.limits.straight && !state.closed;
        if goes {
            state.alone += 1;
            state.company.goes(1);
        }
        goes
    }

    fn send_alone(self: &Arc<Self>, Pending { question, caller }: Pending<F>) {
        let gathering = Arc::clone(self);
        self.batch.send_alone(question, move |question, answer| {
            gathering.landed(1, |state| state.alone -= 1);
            match answer {
                Some(answer) => tell(&gathering.batch, caller, Answered { question, answer }),
                None => gathering.queue(Pending { question, caller }),
            }
        });
    }

    fn queue(&self, pending: Pending<F>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            // The task is gone, and there will be no answer. A caller learns that when its question is dropped.
            if pending.caller.is_none() {
                self.batch.orphan(pending.question, None);
            }
            return;
        }
        let is_first = state.waiting.is_empty();
        if is_first {
            state.company.first_comes(Instant::now());
        }
        state.waiting.push_back(pending);
        let news = is_first || state.is_ready();
        drop(state);
        if news {
            self.changed.notify_one();
        }
    }

    /// So many requests are no longer in flight.
    fn landed(&self, many: usize, change: impl FnOnce(&mut State<F>)) {
        let mut state = self.state.lock();
        state.company.lands(many);
        change(&mut state);
        let is_ready = state.is_ready();
        drop(state);
        if is_ready {
            self.changed.notify_one();
        }
    }

    /// Sends batches forever. When this ends, no caller is left waiting.
    pub(crate) async fn run(&self) {
        let _closing = Closing(self);
        let mut batches = FuturesUnordered::new();
        loop {
            tokio::select! {
                (waiting_for, on_their_way) = self.boarding() => {
                    // Tokio stops a future whose task has done much work in one poll. If it stops several futures of one
                    // task, it wakes them in the reverse order. Without `unconstrained`, a later request could then be
                    // sent before an earlier one.
                    let carried = carry(&self.batch, waiting_for, on_their_way);
                    batches.push(unconstrained(carried));
                }
                Some(()) = batches.next() => {}
            }
        }
    }

    async fn boarding(&self) -> (Vec<Pending<F>>, OnItsWay<'_, F>) {
        loop {
            let until = match self.board(Instant::now()) {
                Ok(waiting_for) => {
                    let many = waiting_for.len();
                    return (waiting_for, OnItsWay { gathering: self, many });
                }
                Err(until) => until,
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep_until_if(until) => {}
            }
        }
    }

    /// The callers whose batch is sent now, or the latest time at which it is sent.
    fn board(&self, now: Instant) -> Result<Vec<Pending<F>>, Option<Instant>> {
        let mut state = self.state.lock();
        let Limits { most, window, .. } = state.limits;
        if state.batches >= window {
            return Err(None);
        }
        let goes_at = state.company.goes_at(state.waiting.len(), most);
        if goes_at.is_none_or(|at| now < at) {
            return Err(goes_at);
        }
        let many = state.waiting.len().min(most);
        state.batches += 1;
        state.company.goes(many);
        let boarded = state.waiting.drain(..many).collect();
        if state.waiting.is_empty() && state.waiting.capacity() > MOST_ROOM {
            state.waiting = VecDeque::new();
        }
        Ok(boarded)
    }
}

struct Closing<'a, F: Batch>(&'a Gathering<F>);

impl<F: Batch> Drop for Closing<'_, F> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}

/// The wait for an answer. Its drop handles an answer that has just arrived.
struct Wait<'a, F: Batch> {
    batch: &'a F,
    answered: oneshot::Receiver<Answered<F>>,
}

impl<F: Batch> Drop for Wait<'_, F> {
    fn drop(&mut self) {
        // Close it first: a later answer finds no receiver, and the sender makes it an orphan.
        self.answered.close();
        if let Ok(Answered { question, answer }) = self.answered.try_recv() {
            self.batch.orphan(question, Some(answer));
        }
    }
}

/// Counts a batch as in flight, until it is dropped.
struct OnItsWay<'a, F: Batch> {
    gathering: &'a Gathering<F>,
    /// How many requests are in it.
    many: usize,
}

impl<F: Batch> Drop for OnItsWay<'_, F> {
    fn drop(&mut self) {
        self.gathering.landed(self.many, |state| state.batches -= 1);
    }
}

/// Tells a caller the answer, if the caller is still there. If the waker of one caller panics, others still get their answers.
fn tell<F: Batch>(batch: &F, caller: Caller<F>, answered: Answered<F>) {
    guarded(|| {
        let sent = match caller {
            Some(caller) => caller.send(answered),
            None => Err(answered),
        };
        if let Err(Answered { question, answer }) = sent {
            batch.orphan(question, Some(answer));
        }
    });
}

async fn carry<F: Batch>(batch: &F, waiting_for: Vec<Pending<F>>, air: OnItsWay<'_, F>) {
    // A caller that left while it waited needs no answer, and must not be granted a lock.
    let has_left = |caller: &Caller<F>| caller.as_ref().is_some_and(oneshot::Sender::is_closed);
    let (gone, staying): (Vec<_>, Vec<_>) =
        waiting_for.into_iter().partition(|pending| has_left(&pending.caller));
    gone.into_iter().for_each(|pending| batch.orphan(pending.question, None));
    let (questions, callers): (Vec<_>, Vec<_>) =
        staying.into_iter().map(|pending| (pending.question, pending.caller)).unzip();
    if questions.is_empty() {
        return;
    }
    let answers = batch.send(&questions).await;
    drop(air);
    for ((question, caller), answer) in questions.into_iter().zip(callers).zip(answers) {
        tell(batch, caller, Answered { question, answer });
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::wire::calls::company::LONGEST_WAIT;

    /// Answers each number with its double, and counts the questions.
    #[derive(Default)]
    struct Doubling {
        batches: Mutex<Vec<usize>>,
        orphans: Mutex<Vec<(u64, Option<u64>)>>,
        held: tokio::sync::Mutex<()>,
        /// Questions that callers have sent themselves, and what is done with the answers; `None`: callers cannot.
        alone: Mutex<Option<Vec<Lone>>>,
    }

    type Lone = (u64, Box<dyn FnOnce(u64, Option<u64>) + Send>);

    impl Batch for Doubling {
        type Question = u64;
        type Answer = u64;

        async fn send(&self, questions: &[u64]) -> Vec<u64> {
            self.batches.lock().push(questions.len());
            let _released = self.held.lock().await;
            questions.iter().map(|question| question * 2).collect()
        }

        fn send_alone(&self, question: u64, then: impl FnOnce(u64, Option<u64>) + Send + 'static) {
            match &mut *self.alone.lock() {
                Some(alone) => alone.push((question, Box::new(then))),
                None => then(question, None),
            }
        }

        fn orphan(&self, question: u64, answer: Option<u64>) {
            self.orphans.lock().push((question, answer));
        }
    }

    type Doublings = Arc<Gathering<Doubling>>;

    const LIMITS: Limits = Limits { most: 64, straight: 1, window: 4 };

    fn gathering() -> Doublings {
        let gathering = Arc::new(Gathering::new(Doubling::default(), LIMITS));
        let runs = Arc::clone(&gathering);
        tokio::spawn(async move { runs.run().await });
        gathering
    }

    /// So many batches are in flight that only one more may be sent, and so many requests that the next ones have to gather.
    fn many_on_their_way(gathering: &Doublings) -> Vec<OnItsWay<'_, Doubling>> {
        let (batches, many) = (LIMITS.window - 1, LIMITS.most);
        let mut state = gathering.state.lock();
        state.batches = batches;
        state.company.goes(batches * many);
        (0..batches).map(|_| OnItsWay { gathering, many }).collect()
    }

    fn ask(gathering: &Doublings, question: u64) -> tokio::task::JoinHandle<u64> {
        let gathering = Arc::clone(gathering);
        let asked = async move { gathering.ask(question).await.unwrap().answer };
        tokio::spawn(asked)
    }

    /// Lets all tasks run that can. The runtime has one thread.
    async fn settle() {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    /// Callers send their own requests. Returns the first of them.
    fn take_alone(gathering: &Doublings) -> Lone {
        gathering.batch.alone.lock().as_mut().unwrap().remove(0)
    }

    #[tokio::test]
    async fn a_request_goes_alone_only_if_no_other_is_on_its_way() {
        let gathering = gathering();
        *gathering.batch.alone.lock() = Some(Vec::new());
        let first = ask(&gathering, 1);
        settle().await;
        assert_eq!(ask(&gathering, 2).await.unwrap(), 4, "it is gathered");
        assert_eq!(*gathering.batch.batches.lock(), [1]);
        let (question, then) = take_alone(&gathering);
        then(question, Some(question * 2));
        assert_eq!(first.await.unwrap(), 2);
        let third = ask(&gathering, 3);
        settle().await;
        let (question, then) = take_alone(&gathering);
        then(question, Some(question * 2));
        assert_eq!(third.await.unwrap(), 6);
        assert_eq!(*gathering.batch.batches.lock(), [1]);
    }

    #[tokio::test]
    async fn a_request_that_could_not_go_alone_is_gathered() {
        let gathering = gathering();
        *gathering.batch.alone.lock() = Some(Vec::new());
        let asked = ask(&gathering, 1);
        settle().await;
        let (question, then) = take_alone(&gathering);
        then(question, None);
        assert_eq!(asked.await.unwrap(), 2);
        assert_eq!(*gathering.batch.batches.lock(), [1]);
        assert_eq!(gathering.state.lock().alone, 0);
    }

    #[tokio::test]
    async fn the_answer_to_a_request_that_went_alone_is_an_orphan_without_its_caller() {
        let gathering = gathering();
        *gathering.batch.alone.lock() = Some(Vec::new());
        let gone = ask(&gathering, 1);
        settle().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let (question, then) = take_alone(&gathering);
        then(question, Some(question * 2));
        assert_eq!(*gathering.batch.orphans.lock(), [(1, Some(2))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_window_waits_for_an_answer() {
        let gathering = gathering();
        let mut others = many_on_their_way(&gathering);
        let full: Vec<_> = (0..LIMITS.most as u64).map(|n| ask(&gathering, n)).collect();
        let held = gathering.batch.held.lock().await;
        settle().await;
        assert_eq!(gathering.batch.batches.lock().len(), 1);
        let last: Vec<_> = (0..LIMITS.most as u64).map(|n| ask(&gathering, n)).collect();
        settle().await;
        assert_eq!(gathering.batch.batches.lock().len(), 1);
        drop(others.pop());
        settle().await;
        assert_eq!(gathering.batch.batches.lock().len(), 2);
        drop((held, others));
        for asked in full.into_iter().chain(last) {
            asked.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_gathering_that_has_ended() {
        let gathering = Arc::new(Gathering::new(Doubling::default(), LIMITS));
        let runs = Arc::clone(&gathering);
        let running = tokio::spawn(async move { runs.run().await });
        let _others = many_on_their_way(&gathering);
        let gathered = Arc::clone(&gathering);
        let waiting = tokio::spawn(async move { gathered.ask(1).await.map(drop) });
        settle().await;
        running.abort();
        assert!(matches!(waiting.await.unwrap(), Err(Fault::Closed)));
        assert!(matches!(gathering.ask(2).await.map(drop), Err(Fault::Closed)));
        assert!(!gathering.goes_alone());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_for_an_answer_share_a_batch() {
        let gathering = gathering();
        let others = many_on_their_way(&gathering);
        let asked: Vec<_> = (0..10).map(|question| ask(&gathering, question)).collect();
        settle().await;
        assert!(gathering.batch.batches.lock().is_empty());
        drop(others);
        for (question, asked) in (0..).zip(asked) {
            assert_eq!(asked.await.unwrap(), question * 2);
        }
        assert_eq!(*gathering.batch.batches.lock(), [10]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_go_as_soon_as_as_many_wait_as_are_in_flight() {
        let gathering = gathering();
        let held = gathering.batch.held.lock().await;
        let mut asked = Vec::new();
        for question in 0..6 {
            asked.push(ask(&gathering, question));
            settle().await;
        }
        assert_eq!(*gathering.batch.batches.lock(), [1, 1, 1, 3]);
        drop(held);
        for (question, asked) in (0..).zip(asked) {
            assert_eq!(asked.await.unwrap(), question * 2);
        }
    }

    /// The server may never answer those in flight.
    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_company_for_a_while_only() {
        let gathering = gathering();
        let _others = many_on_their_way(&gathering);
        let asked = Instant::now();
        assert_eq!(ask(&gathering, 1).await.unwrap(), 2);
        assert!(asked.elapsed() >= LONGEST_WAIT, "it waits, in vain");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_does_not_wait_for_an_answer() {
        let gathering = gathering();
        let _others = many_on_their_way(&gathering);
        let asked: Vec<_> =
            (0..LIMITS.most as u64).map(|question| ask(&gathering, question)).collect();
        for asked in asked {
            asked.await.unwrap();
        }
        assert_eq!(*gathering.batch.batches.lock(), [LIMITS.most]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_goes_while_it_gathers_is_not_sent_and_strands_nobody() {
        let gathering = gathering();
        let others = many_on_their_way(&gathering);
        let (gone, stays) = (ask(&gathering, 1), ask(&gathering, 2));
        settle().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        drop(others);
        assert_eq!(stays.await.unwrap(), 4);
        assert_eq!(*gathering.batch.batches.lock(), [1]);
        assert_eq!(*gathering.batch.orphans.lock(), [(1, None)]);
    }

    #[tokio::test]
    async fn a_question_without_a_caller_is_sent_and_its_answer_an_orphan() {
        let gathering = gathering();
        let held = gathering.batch.held.lock().await;
        (1..=5).for_each(|question| gathering.put(question));
        settle().await;
        drop(held);
        settle().await;
        assert_eq!(gathering.batch.batches.lock().iter().sum::<usize>(), 5);
        let mut orphans = std::mem::take(&mut *gathering.batch.orphans.lock());
        orphans.sort_unstable();
        assert_eq!(orphans, [1, 2, 3, 4, 5].map(|question| (question, Some(question * 2))));
    }

    #[tokio::test]
    async fn an_answer_that_nobody_waits_for_is_an_orphan() {
        let gathering = gathering();
        let held = gathering.batch.held.lock().await;
        let (gone, stays) = (ask(&gathering, 1), ask(&gathering, 2));
        settle().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        drop(held);
        assert_eq!(stays.await.unwrap(), 4);
        assert_eq!(*gathering.batch.orphans.lock(), [(1, Some(2))]);
    }

    #[tokio::test]
    async fn an_answer_that_arrives_while_its_caller_goes_is_an_orphan_too() {
        let gathering = gathering();
        let mut asked = Box::pin(gathering.ask(1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(asked.as_mut().poll(&mut context).is_pending());
        settle().await;
        assert_eq!(*gathering.batch.batches.lock(), [1]);
        drop(asked);
        assert_eq!(*gathering.batch.orphans.lock(), [(1, Some(2))]);
    }

    /// Sends each question alone through a channel, as a connection does. Nobody answers.
    struct Sending(tokio::sync::mpsc::Sender<u64>);

    impl Batch for Sending {
        type Question = u64;
        type Answer = ();

        async fn send(&self, questions: &[u64]) -> Vec<()> {
            self.0.send(questions[0]).await.unwrap();
            std::future::pending().await
        }

        fn orphan(&self, _: u64, _: Option<()>) {}
    }

    #[tokio::test]
    async fn many_requests_are_sent_in_their_order() {
        let (sender, mut sent) = tokio::sync::mpsc::channel(1_000);
        let limits = Limits { most: 1, straight: 0, window: 1_000 };
        let gathering = Arc::new(Gathering::new(Sending(sender), limits));
        let tickets: Vec<_> = (0..600).map(|question| gathering.ask(question)).collect();
        let runs = Arc::clone(&gathering);
        let running = tokio::spawn(async move { runs.run().await });
        let mut order = Vec::new();
        sent.recv_many(&mut order, 1).await;
        while order.len() < tickets.len() {
            sent.recv_many(&mut order, 1_000).await;
        }
        running.abort();
        assert_eq!(order, (0..600).collect::<Vec<_>>());
    }
}
