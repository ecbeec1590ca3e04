//! The task of one term: it announces the leader, and finally releases the lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::error::Result;
use crate::failures::Failures;
use crate::fleet::changes::Leading;
use crate::fleet::term::Term;
use crate::guards::Guard;

/// How soon a leader announces itself again if the server could not be reached, or refused for now.
const AGAIN: Duration = Duration::from_secs(1);

/// The task of one term. It has the guard.
pub(crate) struct Reign {
    pub(crate) leading: Leading,
    pub(crate) engine: Arc<Engine>,
    pub(crate) term: Term,
    /// Cancelled when the program gives the lock up, before the term ends.
    pub(crate) stepped_down: CancellationToken,
    pub(crate) who: Arc<str>,
}

impl Reign {
    pub(crate) async fn run(self, guard: Guard, told: oneshot::Sender<Result<()>>) {
        tokio::select! {
            biased;
            () = self.term.ended() => {}
            () = self.announces() => {}
        }
        let Self { leading, engine, term, stepped_down, who: _ } = self;
        tracing::info!(name = &*term.hold.name(), token = %term.token(), "stopped leading");
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
    async fn announces(&self) {
        let lease = self.engine.config.watchdog_timeout;
        let again = lease / 3;
        let name = self.term.hold.name();
        let mut failures = Failures::of_lock("announce the leader to observers", &name);
        loop {
            let said = self.engine.announce(&self.term.hold, &self.who, lease * 2).await;
            match &said {
                Ok(_) => failures.succeeds(),
                Err(error) => failures.fails(error),
            }
            let is_transient = said.is_err_and(|error| error.is_transient());
            sleep(if is_transient { AGAIN.min(again) } else { again }).await;
        }
    }
}
