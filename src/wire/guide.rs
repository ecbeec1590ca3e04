//! The guide: the task that keeps the map of a cluster.
//!
//! It asks one node at a time, at most five times a second, however many requests were redirected.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::error::said;
use crate::wire::cluster::{Cluster, ask_for_map};
use crate::wire::fault::Fault;
use crate::wire::map::SlotMap;
use crate::wire::subscriber::Subscriber;

/// The pause between two maps.
const APART: Duration = Duration::from_millis(200);

/// How long a connected node may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// When to ask again while a server cannot be reached.
const IN_TROUBLE: Duration = Duration::from_millis(500);

/// When to ask again if nothing happens, plus or minus a third.
const AT_LEAST: Duration = Duration::from_secs(60);

/// The task that keeps the map.
pub(crate) struct Guide {
    cluster: Arc<Cluster>,
}

impl Guide {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// Gets the first map, so that a caller learns at once why there is none.
    pub(crate) async fn start(&self) -> Result<(), Fault> {
        self.cluster.adopt(self.ask().await?);
        Ok(())
    }

    /// Maintains the map until `stop`, and reports each change to the subscriber.
    pub(crate) async fn run(self, subscriber: Subscriber, stop: CancellationToken) {
        let telling = async {
            let mut map = self.cluster.map();
            loop {
                let newest = Arc::clone(&map.borrow_and_update());
                subscriber.follow(newest);
                if map.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let keeping = async { tokio::join!(self.keep(), telling) };
        stop.run_until_cancelled(keeping).await;
    }

    async fn keep(&self) {
        let mut is_known = true;
        loop {
            let asked = Instant::now();
            let next = if is_known && !self.cluster.is_troubled() {
                AT_LEAST.mul_f64(2.0 / 3.0 + fastrand::f64() * 2.0 / 3.0)
            } else {
                IN_TROUBLE
            };
            tokio::select! {
                () = self.cluster.stale.notified() => {}
                () = sleep_until(asked + next) => {}
            }
            sleep_until(asked + APART).await;
            is_known = match self.ask().await {
                Ok(map) => {
                    self.cluster.adopt(map);
                    true
                }
                Err(fault) => {
                    tracing::warn!(?fault, "no node of the cluster returns a map of its slots");
                    false
                }
            };
        }
    }

    /// Asks the connected nodes in any order, then the other known nodes, then those of the URL.
    async fn ask(&self) -> Result<SlotMap, Fault> {
        let mut connected = self.cluster.connections();
        fastrand::shuffle(&mut connected);
        for (node, conn) in &mut connected {
            // A node that hangs must not keep the others from being asked.
            if let Ok(Ok(map)) = timeout(PATIENCE, ask_for_map(conn, node)).await {
                return Ok(map);
            }
        }
        let known = Arc::clone(&self.cluster.map().borrow());
        let strangers =
            known.nodes().into_iter().filter(|node| connected.iter().all(|(c, _)| c != *node));
        let mut strangers: Vec<_> = strangers.cloned().collect();
        fastrand::shuffle(&mut strangers);
        let seeds = self.cluster.seeds().iter().filter(|seed| !strangers.contains(seed));
        let strangers: Vec<_> = strangers.iter().chain(seeds).cloned().collect();
        let mut failed = Fault::NotSent(said("no node of the cluster is known"));
        for node in &strangers {
            match self.cluster.ask_stranger(node).await {
                Ok(map) => return Ok(map),
                // A permanent error is more useful to report.
                Err(fault) if failed.is_passing() => failed = fault,
                Err(_) => {}
            }
        }
        Err(failed)
    }
}
