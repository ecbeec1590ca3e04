//! What the log says while a server grants nothing: one warning after a second, and one when that is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::fault::Fault;
use crate::wire::node::Node;

/// A shorter outage is not worth a warning: callers ride it out.
pub(crate) const LONG_OUTAGE: Duration = Duration::from_secs(1);

/// The outage of one server, if there is one.
#[derive(Default)]
pub(crate) struct Outage {
    is_on: AtomicBool,
    state: Mutex<Option<State>>,
}

struct State {
    since: Instant,
    is_said: bool,
    /// The server answers, and too few replicas acknowledge. Then an answer without a grant is no sign that it is over.
    answers: bool,
}

impl Outage {
    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().expect("no panic under this lock")
    }

    /// A request for a lock has failed, at this node of a cluster or at the only server.
    pub(crate) fn fails(&self, node: Option<&Node>, fault: &Fault) {
        let (now, answers) = (Instant::now(), matches!(fault, Fault::Unacknowledged(_)));
        let mut state = self.state();
        // Under the mutex: otherwise an answer could clear it in between, and the state would stay.
        self.is_on.store(true, Ordering::SeqCst);
        let state = state.get_or_insert(State { since: now, is_said: false, answers });
        state.answers = answers;
        if !state.is_said && now - state.since >= LONG_OUTAGE {
            state.is_said = true;
            tracing::warn!(
                ?node,
                ?fault,
                "no request for a lock has succeeded for a second: the client tries again"
            );
        }
    }

    /// A request for a lock was answered.
    pub(crate) fn answered(&self, node: Option<&Node>, is_grant: bool) {
        // Usually there is no outage, and no mutex to lock.
        if !self.is_on.load(Ordering::SeqCst) {
            return;
        }
        let mut state = self.state();
        if !is_grant && state.as_ref().is_some_and(|state| state.answers) {
            return;
        }
        self.is_on.store(false, Ordering::SeqCst);
        if let Some(State { since, is_said: true, .. }) = state.take() {
            let after = since.elapsed();
            tracing::warn!(?node, ?after, "requests for locks succeed again");
        }
    }
}
