//! The handle of an installed fault: whether it happened, and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::wait::timeout;
use super::latch::Latch;

const PATIENCE: Duration = Duration::from_secs(30);

/// An installed fault. It stays, with or without this handle, until it is lifted.
#[derive(Debug, Clone)]
pub struct Fault(Arc<State>);

#[derive(Debug)]
struct State {
    what: String,
    fired: watch::Sender<usize>,
    lifted: Latch,
}

impl Fault {
    pub(super) fn new(what: String) -> Self {
        Self(Arc::new(State { what, fired: watch::Sender::new(0), lifted: Latch::default() }))
    }

    /// How often it has taken effect so far; counted just before anybody can see the effect.
    pub fn fired(&self) -> usize {
        *self.0.fired.borrow()
    }

    /// Waits until it has taken effect at least once; panics if that takes long.
    pub async fn happened(&self) {
        self.happened_times(1).await;
    }

    pub async fn happened_times(&self, times: usize) {
        let mut fired = self.0.fired.subscribe();
        let enough = timeout(PATIENCE, fired.wait_for(|fired| *fired >= times)).await;
        assert!(enough.is_ok(), "only {} of {times} times: {}", self.fired(), self.0.what);
    }

    /// Ends the fault: what it holds goes its way, also on connections whose client has gone, and nothing further is
    /// struck.
    pub fn lift(&self) {
        self.0.lifted.set();
    }

    pub(super) fn is_lifted(&self) -> bool {
        self.0.lifted.is_set()
    }

    pub(super) fn fire(&self) {
        self.0.fired.send_modify(|fired| *fired += 1);
    }

    /// Takes effect by keeping the caller here.
    pub(super) async fn hold(&self) {
        self.fire();
        self.0.lifted.wait().await;
    }
}
