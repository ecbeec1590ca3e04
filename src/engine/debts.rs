//! What a client may owe to Redis: whatever it may have got there, and has to give back.
//!
//! 1. A debt is counted before the request is sent that may cause it. It lives in the value that has
//!    to give back: the acquire on its way, then the tenure, then the releaser's job.
//! 2. It ends when the server has said that nothing is left, or when Redis has freed the lock by itself.
//! 3. A client that is closed waits until it owes nothing.

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::wire::Fault;

/// One thing that may have to be given back.
pub(crate) type Debt = TaskTrackerToken;

/// The debts of one client.
#[derive(Clone, Default)]
pub(crate) struct Debts(TaskTracker);

impl Debts {
    /// Counts a debt, before the request is sent that may cause it.
    ///
    /// # Errors
    /// [`Fault::Closed`] if the client is closed: then the request must not be sent.
    pub(crate) fn incur(&self) -> Result<Debt, Fault> {
        // First the token, then the look. Both, and `close`, change or read one atomic: either `close`
        // came first and is seen here, or the token came first and is waited for.
        let debt = self.0.token();
        if self.is_closed() { Err(Fault::Closed) } else { Ok(debt) }
    }

    /// Counts something that only gives back, which a client that is closed does too.
    pub(crate) fn tidying(&self) -> Debt {
        self.0.token()
    }

    /// Incurs no more debts.
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
