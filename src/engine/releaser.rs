//! The releaser: gives back in the background what nobody waits for any more.
//!
//! 1. Whoever may have got a lock from Redis and cannot keep it leaves a job here.
//! 2. A job is repeated until the server answers it, or Redis itself has freed the lock.
//! 3. An acquire that was never answered may run late. If it was sent on an older connection than
//!    its release, "not found" is no answer: it may come yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::entry::{Table, Turn};
use crate::engine::tenure::Tenure;
use crate::keys::{Keys, TenureId};
use crate::wire::{Acquire, Commands, Fault, Release};

/// Locks in one release script.
const BATCH: usize = 128;

const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Whether the server found the lock that was given back; the fault if it never answered.
pub(crate) type Outcome = Result<bool, Fault>;

/// Something to be made true in Redis.
pub(crate) struct Job {
    keys: Arc<Keys>,
    id: TenureId,
    what: What,
    /// When Redis will have done it by itself.
    until: Instant,
    /// It may have been done already by a request that was not answered.
    maybe_done: bool,
    /// Goes to the next caller with the first answer, or with the first failure.
    turn: Option<Turn>,
    told: Option<oneshot::Sender<Outcome>>,
    due: Instant,
    pause: Duration,
}

enum What {
    /// The lock is given back, whoever of us had it.
    Release,
    /// As a release; the acquire may have been sent on this connection, and may still be on its way.
    Ghost { sent_on: u64 },
    /// The hold count in Redis is that of the tenure.
    Count(Arc<Tenure>),
    /// Our client does not stand in the lock's line, if nobody of us waits for it by then. Not
    /// repeated: it could drive out somebody who has come since, and the line has a TTL.
    LeaveLine,
}

impl Job {
    fn new(keys: &Arc<Keys>, id: TenureId, what: What, until: Instant) -> Self {
        Self {
            keys: Arc::clone(keys),
            id,
            what,
            until,
            maybe_done: false,
            turn: None,
            told: None,
            due: Instant::now(),
            pause: SHORTEST_PAUSE,
        }
    }

    /// Gives a tenure back, and then its turn. An unanswered renewal may have let the server keep it
    /// for longer than we believe.
    pub(crate) fn release(tenure: &Tenure, turn: Option<Turn>) -> Self {
        let until = Instant::now() + tenure.at_least(tenure.lease);
        let job = Self::new(&tenure.keys, tenure.id, What::Release, until);
        Self { turn, ..job }
    }

    /// Tells those who wait for a lock that was lost without a release: a release that finds nothing does so. The
    /// waiters of other kinds look by themselves three times within `claim_timeout`.
    pub(crate) fn tell_of_loss(tenure: &Tenure) -> Option<Self> {
        tenure.keys.is_plain().then(|| Self::release(tenure, None))
    }

    /// Clears away what an unanswered acquire may have done, or may do yet.
    pub(crate) fn ghost(acquire: &Acquire, sent_on: u64) -> Self {
        let Acquire { keys, id, lease, .. } = acquire;
        Self::new(keys, *id, What::Ghost { sent_on }, Instant::now() + *lease)
    }

    /// Gives up the place of a caller that waited for itself, and what it may have been granted.
    pub(crate) fn leave_queue(keys: &Arc<Keys>, id: TenureId) -> Self {
        Self::new(keys, id, What::Release, Instant::now() + LONGEST_PAUSE * 10)
    }

    /// Gives up our client's place in the line, which costs the others their patience.
    pub(crate) fn leave_line(keys: &Arc<Keys>) -> Self {
        Self::new(keys, TenureId(0), What::LeaveLine, Instant::now())
    }

    /// Has Redis told the hold count.
    pub(crate) fn count(tenure: &Arc<Tenure>) -> Self {
        let what = What::Count(Arc::clone(tenure));
        Self::new(&tenure.keys, tenure.id, what, tenure.deadline())
    }

    /// Has the outcome told, after a first try that failed like this.
    pub(crate) fn telling(mut self, fault: &Fault) -> (Self, oneshot::Receiver<Outcome>) {
        let (told, outcome) = oneshot::channel();
        self.told = Some(told);
        self.maybe_done = fault.is_open();
        (self, outcome)
    }

    /// The lock as the release script wants it.
    pub(crate) fn request(&self) -> Release {
        Release { keys: Arc::clone(&self.keys), id: self.id }
    }

    /// Whether this answer, on this connection, settles the job.
    fn is_settled_by(&self, found: bool, generation: u64) -> bool {
        match self.what {
            // Who waits for itself asks as the same again and again: what was found may be an earlier
            // question's, and the late one is still to come.
            What::Ghost { sent_on } => sent_on == generation || found && !self.keys.is_queued(),
            What::Release | What::Count(_) | What::LeaveLine => true,
        }
    }

    fn settle(self, outcome: Outcome) {
        drop(self.turn);
        if let Some(told) = self.told {
            // Nobody may be waiting any more. Who finds nothing after a request that was not
            // answered, finds what that has done.
            let _ = told.send(outcome.map(|found| found || self.maybe_done));
        }
    }

    fn postpone(&mut self, now: Instant, outcome: &Outcome) {
        self.maybe_done |= outcome.as_ref().is_err_and(Fault::is_open);
        self.turn = None;
        self.due = now + self.pause.mul_f64(0.5 + fastrand::f64());
        // A ghost with a long lease is looked for more seldom as time goes by.
        let left = self.until.saturating_duration_since(now);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE.max(left / 32));
    }
}

/// The task that gives back.
pub(crate) struct Releaser {
    jobs: mpsc::UnboundedReceiver<Job>,
    commands: Commands,
    table: Arc<Table>,
    /// Attempts that may still turn into something to be given back.
    claims: TaskTracker,
    /// How long it may go on when the client has been closed.
    patience: Duration,
    /// What is still to be done, by the time at which it is due.
    open: BTreeMap<(Instant, u64), Job>,
    jobs_seen: u64,
    /// The newest connection on which the open jobs were tried.
    tried_on: u64,
}

impl Releaser {
    pub(crate) fn new(
        jobs: mpsc::UnboundedReceiver<Job>,
        commands: Commands,
        table: Arc<Table>,
        claims: TaskTracker,
        patience: Duration,
    ) -> Self {
        let open = BTreeMap::new();
        Self { jobs, commands, table, claims, patience, open, jobs_seen: 0, tried_on: 0 }
    }

    /// Runs until the client is closed or nobody is left who could send a job, and then does what
    /// it was sent by then. `stop` tells the others that nobody needs them any more.
    pub(crate) async fn run(mut self, closing: CancellationToken, stop: CancellationToken) {
        let _stop = stop.drop_guard();
        let patience = self.patience;
        // The server may be gone: then the leases do the rest.
        let out_of_time = async {
            closing.cancelled().await;
            sleep(patience).await;
        };
        tokio::select! {
            () = self.serve(&closing) => {}
            () = out_of_time => {}
        }
    }

    async fn serve(&mut self, closing: &CancellationToken) {
        while !closing.is_cancelled() {
            let (due, connected) = (self.next_due(), self.next_connection());
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => self.put(job),
                    None => break,
                },
                () = due => {}
                () = connected => self.hasten(),
                () = closing.cancelled() => {}
            }
            self.work().await;
        }
        self.claims.close();
        self.finish().await;
    }

    /// Does what is left, and what comes of the attempts that are still on their way.
    async fn finish(&mut self) {
        loop {
            self.work().await;
            if self.claims.is_empty() && self.open.is_empty() && self.jobs.is_empty() {
                return;
            }
            let (due, claims) = (self.next_due(), self.claims.clone());
            let connected = self.next_connection();
            tokio::select! {
                Some(job) = self.jobs.recv() => self.put(job),
                () = due => {}
                () = connected => self.hasten(),
                () = claims.wait(), if !claims.is_empty() => {}
            }
        }
    }

    fn put(&mut self, job: Job) {
        self.jobs_seen += 1;
        self.open.insert((job.due, self.jobs_seen), job);
    }

    fn gather(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            self.put(job);
        }
    }

    /// Until the first of the open jobs is due, if there is any.
    fn next_due(&self) -> impl Future<Output = ()> + use<> {
        let due = self.open.first_key_value().map(|((due, _), _)| *due);
        async move {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Until there is a connection on which nothing that is open was tried.
    fn next_connection(&self) -> impl Future<Output = ()> + use<> {
        let (commands, tried_on) = (self.commands.clone(), self.tried_on);
        let open = !self.open.is_empty();
        async move {
            if !open {
                std::future::pending::<()>().await;
            }
            commands.newer_than(tried_on).await;
        }
    }

    /// Has everything done at once. A job that found no connection sleeps for up to a second and a half. By then the
    /// next connection may have come and gone, while others wait for a lock that nobody holds.
    fn hasten(&mut self) {
        let now = Instant::now();
        for ((_, number), mut job) in std::mem::take(&mut self.open) {
            job.due = now;
            self.open.insert((now, number), job);
        }
    }

    /// Does what is due: first what others may wait for.
    async fn work(&mut self) {
        if let Ok(connection) = self.commands.connection() {
            self.tried_on = connection.generation();
        }
        self.gather();
        let (mut releases, mut others) = (Vec::new(), Vec::new());
        for job in self.due(Instant::now()) {
            match job.what {
                What::Release | What::Ghost { .. } => releases.push(job),
                What::Count(_) | What::LeaveLine => others.push(job),
            }
        }
        while !releases.is_empty() {
            let batch = releases.split_off(releases.len().saturating_sub(BATCH));
            self.release(batch).await;
        }
        let mut leaving = Vec::new();
        for job in others {
            match &job.what {
                What::Count(tenure) => {
                    let outcome = self.count(tenure).await;
                    self.judge(job, outcome, 0);
                }
                _ => leaving.push(job),
            }
        }
        for batch in leaving.chunks(BATCH) {
            self.leave_lines(batch).await;
        }
    }

    fn due(&mut self, now: Instant) -> Vec<Job> {
        let later = self.open.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.open, later).into_values().collect()
    }

    async fn release(&mut self, batch: Vec<Job>) {
        let (generation, outcomes) = self.ask(&batch).await;
        for (job, outcome) in batch.into_iter().zip(outcomes) {
            self.judge(job, outcome, generation);
        }
    }

    /// The outcome for each job, and the connection on which they were asked for.
    async fn ask(&self, batch: &[Job]) -> (u64, Vec<Outcome>) {
        let releases: Vec<_> = batch.iter().map(Job::request).collect();
        let (generation, answer) = match self.commands.connection() {
            Ok(mut connection) => (connection.generation(), connection.release(&releases).await),
            Err(fault) => (0, Err(fault)),
        };
        let failed = |fault: Fault| batch.iter().map(|_| Err(fault.clone())).collect();
        (generation, answer.unwrap_or_else(failed))
    }

    async fn leave_lines(&self, batch: &[Job]) {
        let stands = |keys: &Keys| self.table.find(keys.id()).filter(|entry| entry.is_lined_up());
        let left: Vec<_> =
            batch.iter().map(|job| &*job.keys).filter(|keys| stands(keys).is_none()).collect();
        if left.is_empty() {
            return;
        }
        if let Ok(mut connection) = self.commands.connection() {
            // Unanswered, it is left to the line's TTL.
            let _ = connection.leave_lines(&left).await;
        }
        // Who lined up while we asked may have been driven out: it has to line up again.
        for entry in left.into_iter().filter_map(stands) {
            entry.gate.open(false);
        }
    }

    async fn count(&self, tenure: &Arc<Tenure>) -> Outcome {
        if tenure.is_over() {
            return Ok(true);
        }
        let mut connection = self.commands.connection()?;
        let ttl = tenure.at_least(Duration::ZERO);
        // Idle, it is about to have its next holder.
        connection.count(&tenure.keys, tenure.id, tenure.holds().max(1), ttl).await
    }

    fn judge(&mut self, mut job: Job, outcome: Outcome, generation: u64) {
        let now = Instant::now();
        match outcome {
            Ok(found) if job.is_settled_by(found, generation) => job.settle(Ok(found)),
            outcome if now >= job.until => job.settle(outcome),
            outcome => {
                job.postpone(now, &outcome);
                self.put(job);
            }
        }
    }
}
