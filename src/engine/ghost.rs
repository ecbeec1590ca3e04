//! A ghost: an acquire that got no answer, or whose grant must not be believed. Its caller may have gone, or asks again under
//! another owner field. The acquire may have run, or may still run, so what it may have been granted has to be released. (A
//! caller that exists, but is not polled, is a matter for `unpolled.rs`.)
//!
//! 1. A request goes on without its caller. `Job::for_orphan` in `job.rs` releases what the answer grants. If there is no
//!    answer, the request becomes a ghost, whether its caller is there or not.
//! 2. The releaser repeats the release of a ghost until `Job::is_settled_by` says that nothing can come any more.
//! 3. `listener.rs` releases a grant that comes by message for a caller that has gone.
//! 4. When the last waiting caller of an entry goes, `Visit::look_after` in `entry/visit.rs` gives up its place in line.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::debts::Debt;
use crate::keys::{Keys, TenureId};
use crate::meters;
use crate::wire::Acquire;

/// For how long, at least, the releaser tries to give up a place in line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What the releaser has to know of an unanswered acquire, to release what it may have been granted.
pub(crate) struct Ghost {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    /// The connection on which it was sent.
    pub(crate) sent_on: u64,
    /// By this time Redis itself has freed what it granted before the ghost was made. Then the releaser gives up, unless a place
    /// in line may be left.
    pub(crate) until: Instant,
    pub(crate) debt: Debt,
}

impl Ghost {
    pub(crate) fn new(acquire: &Acquire, sent_on: u64) -> Self {
        let Acquire { keys, id, lease, debt, .. } = acquire;
        let until = Instant::now() + *lease;
        meters::ghost();
        Self { keys: Arc::clone(keys), id: *id, sent_on, until, debt: debt.clone() }
    }
}
