//! An acquire that was never answered, as after its caller was dropped: it may have run, or may still run. `attempt.rs`
//! makes the ghost, and `backlog.rs` decides when it is settled.

use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::debts::Debt;
use crate::keys::{Keys, TenureId};
use crate::meters;
use crate::wire::Acquire;

/// What the releaser has to know of an unanswered acquire, to release what it may have been granted.
pub(crate) struct Ghost {
    pub(crate) keys: Arc<Keys>,
    pub(crate) id: TenureId,
    /// The connection on which it was sent.
    pub(crate) sent_on: u64,
    /// By this time Redis itself has freed what it may have granted.
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
