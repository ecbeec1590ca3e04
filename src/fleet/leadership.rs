//! The proof of leading, and the task that maintains it: it announces the leader, and finally releases the lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, Hold};
use crate::error::Result;
use crate::failures::Failures;
use crate::fleet::changes::{Candidacy, Leading};
use crate::fleet::term::Term;
use crate::guards::Guard;
use crate::log;
use crate::token::FencingToken;

/// How soon a leader announces itself again if the server could not be reached, or refused for now.
const AGAIN: Duration = Duration::from_secs(1);

/// The proof that this process leads, from [`Election::campaign`](crate::Election::campaign).
///
/// When it is dropped, the leader steps down in the background; the drop never blocks. Watch [`ended`](Self::ended): a
/// term that is over does not begin again, even if this value is kept. If the lease could not be renewed in time, keep
/// this value until the work has stopped. The lock stays with the old leader for [`Election::margin`] after such a term,
/// or until this value is dropped.
///
/// [`Election::margin`]: crate::Election::margin
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let leadership = client.election("doc:leadership").campaign().await?;
/// tokio::select! {
///     () = async { /* lead, with leadership.token() */ } => leadership.step_down().await?,
///     () = leadership.ended() => eprintln!("stop: another process may be leading"),
/// }
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[must_use = "the leader steps down as soon as this is dropped"]
#[clippy::has_significant_drop]
pub struct Leadership {
    term: Term,
    /// Cancelled when the user of this value gives the lock up.
    stepped_down: CancellationToken,
    given_back: oneshot::Receiver<Result<()>>,
}

impl Leadership {
    /// Begins a term, and a task that releases the lock when the term is over.
    pub(crate) fn begin(
        engine: &Arc<Engine>,
        guard: Guard,
        (candidacy, margin, who): (&Candidacy, Duration, &Arc<str>),
    ) -> Self {
        let term = Term::new(guard.hold(), margin);
        let stepped_down = CancellationToken::new();
        let (told, given_back) = oneshot::channel();
        let task = lead(
            Arc::clone(who),
            Arc::clone(engine),
            candidacy.begin(&term),
            term.clone(),
            stepped_down.clone(),
            guard,
            told,
        );
        log::info!(name = &*term.hold.name(), token = %term.token(), "began to lead");
        // The runtime that campaigned may stand still. Then the leader would not step down, and `close` would wait for it.
        engine.tasks.spawn_on(task, &engine.runtime);
        Self { term, stepped_down, given_back }
    }

    /// The term, to pass to code that needs it.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term.clone()
    }

    /// Same as [`Term::token`].
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.term.token()
    }

    /// Same as [`Term::is_leader`].
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term.is_leader()
    }

    /// Same as [`Term::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// Same as [`Term::ended`].
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// Same as [`Term::ended`].
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.term.ended()
    }

    /// Steps down, so that another candidate may lead at once, and reports the outcome.
    ///
    /// # Cancel safety
    /// From the first poll on, the leader steps down in any case.
    ///
    /// # Errors
    /// Same as [`Guard::unlock`](crate::Guard::unlock). [`Error::Lost`](crate::Error::Lost) if the lock was lost before, or the runtime on
    /// which the client was connected has ended.
    pub async fn step_down(self) -> Result<()> {
        self.give_up();
        self.given_back().await
    }

    /// Same as [`step_down`](Self::step_down), for a caller that has finished its work: it waits for the outcome no longer
    /// than `limit`. The task of the term goes on.
    pub(crate) async fn finish(self, limit: Duration) -> Result<()> {
        timeout(limit, self.step_down()).await.unwrap_or(Ok(()))
    }

    fn give_up(&self) {
        // Cancel first: if the term ended first, its task would keep the lock for the margin.
        self.stepped_down.cancel();
        self.term.end();
    }

    /// Waits until the lock of a term that is over is released.
    pub(crate) async fn given_back(mut self) -> Result<()> {
        let told = (&mut self.given_back).await;
        told.unwrap_or_else(|_| Err(self.term.hold.lost()))
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("term", &self.term).finish_non_exhaustive()
    }
}

/// The task of one term. It has the guard.
async fn lead(
    who: Arc<str>,
    engine: Arc<Engine>,
    leading: Leading,
    term: Term,
    stepped_down: CancellationToken,
    guard: Guard,
    told: oneshot::Sender<Result<()>>,
) {
    tokio::select! {
        biased;
        () = term.ended() => {}
        () = announce(&engine, &term.hold, &who) => {}
    }
    log::info!(name = &*term.hold.name(), token = %term.token(), "stopped leading");
    drop(leading);
    // From here on only the guard keeps the client alive: the last handle may be gone.
    drop(engine);
    // The work of a leader that could not renew its lease needs the margin to stop, even if Redis is back by now.
    tokio::select! {
        () = stepped_down.cancelled() => {}
        _ = guard.ended() => {}
        () = sleep(term.margin) => {}
    }
    let _ = told.send(guard.unlock().await); // fails if the leadership was dropped
}

/// Announces the leader to observers, and again before the server forgets it.
async fn announce(engine: &Engine, hold: &Hold, who: &str) {
    let lease = engine.config.watchdog_timeout;
    let again = lease / 3;
    let name = hold.name();
    let mut failures = Failures::of_lock("announce the leader to observers", &name);
    loop {
        let said = engine.announce(hold, who, lease * 2).await;
        match &said {
            Ok(_) => failures.succeeds(),
            Err(error) => failures.fails(error),
        }
        let is_transient = said.is_err_and(|error| error.is_transient());
        sleep(if is_transient { AGAIN.min(again) } else { again }).await;
    }
}
