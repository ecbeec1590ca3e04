//! A tenure that ends with its client's session (`Config::session`): as long as the client does not hear itself, the tenure is
//! *suspended*. Nobody may believe in it then, but it is not lost: the next beat or the next renewal says more. `wire/session.rs` says which
//! beats count, and why.

use std::time::Duration;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::lifetime::deadline;
use crate::engine::entry::tenure::{State, Tenure};

impl Tenure {
    /// Whether its client has connected anew since the last request by which it counts: it has to be renewed.
    pub(crate) fn is_of_former_connection(&self) -> bool {
        let state = self.state();
        let confirmed = state.lifetime.confirmed();
        state.session.as_ref().is_some_and(|session| session.has_begun_since(confirmed))
    }
}

impl State {
    /// Until when the client believes in it: its lease may last longer.
    pub(super) fn believed_until(&self) -> Instant {
        self.believed_until_before(Duration::ZERO)
    }

    /// The same, so much earlier. Of a patience no more than a third: it may be shorter than the margin of a lease.
    pub(super) fn believed_until_before(&self, margin: Duration) -> Instant {
        let earlier = |end: Instant, margin| end.checked_sub(margin).unwrap_or(end);
        let lease = earlier(self.lifetime.deadline(), margin);
        let Some(session) = &self.session else { return lease };
        let (confirmed, patience) = (self.lifetime.confirmed(), session.patience());
        match session.proved(confirmed) {
            Some(beat) => lease.min(earlier(deadline(beat, patience), margin.min(patience / 3))),
            // It was granted, and no beat proves it yet.
            None => lease.min(confirmed),
        }
    }

    pub(super) fn is_suspended(&self, now: CompactInstant) -> bool {
        self.session.is_some() && self.believed_until() <= now.instant()
    }
}
