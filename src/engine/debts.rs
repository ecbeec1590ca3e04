//! What a client may owe to Redis: everything that it may have been granted, and has to release.
//!
//! 1. The client counts a debt before it sends the request that may cause it. The debt lives in the value that has to
//!    release the lock: the acquire in flight, then the tenure, then the releaser's job.
//! 2. A debt ends when the server has answered that nothing is left, or when Redis has freed the lock by itself.
//! 3. A closed client waits until it owes nothing.

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::wire::Fault;

/// One lock that may have to be released.
pub(crate) type Debt = TaskTrackerToken;

/// The debts of one client.
#[derive(Clone, Default)]
pub(crate) struct Debts(TaskTracker);

impl Debts {
    /// Counts a debt before the request that may cause it is sent.
    ///
    /// # Errors
    /// [`Fault::Closed`] if the client is closed: then the request must not be sent.
    pub(crate) fn incur(&self) -> Result<Debt, Fault> {
        // Take the token first, and check second. This and `close` use one atomic: if `close` came first, it is visible
        // here; if the token came first, `close` waits for it.
        let debt = self.0.token();
        if self.is_closed() { Err(Fault::Closed) } else { Ok(debt) }
    }

    /// Counts a job that only releases. A closed client still does such jobs.
    pub(crate) fn tidying(&self) -> Debt {
        self.0.token()
    }

    /// Allows no more debts.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the client is closed and owes nothing.
    pub(crate) async fn settled(&self) {
        self.0.wait().await;
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_closed_client_waits_for_every_debt_and_incurs_no_more() {
        let debts = Debts::default();
        let (first, second) = (debts.incur().unwrap(), debts.incur().unwrap());
        debts.close();
        assert!(matches!(debts.incur(), Err(Fault::Closed)));
        drop(first);
        assert!(debts.settled().now_or_never().is_none());
        let tidying = debts.tidying();
        drop(second);
        assert!(debts.settled().now_or_never().is_none());
        drop(tidying);
        debts.settled().await;
    }

    #[tokio::test]
    async fn a_client_that_is_open_is_never_settled() {
        let debts = Debts::default();
        drop(debts.incur().unwrap());
        assert!(debts.settled().now_or_never().is_none());
    }
}
