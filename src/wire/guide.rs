//! The guide: the task that keeps the map of a cluster.
//!
//! It asks one node at a time, at most five times a second, however many requests were redirected.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::error::said;
use crate::log;
use crate::wire::cluster::{Cluster, SlotMap, ask_for_map};
use crate::wire::fault::Fault;
use crate::wire::node::Node;
use crate::wire::socket::Socket;
use crate::wire::subscriber::Subscriber;

/// The pause between two maps.
const APART: Duration = Duration::from_millis(200);

/// How long a connected node may take to answer. When the guide asks unconnected nodes first, each of them has this
/// time too, and twice as long at each further attempt.
const PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PATIENCE: Duration = Duration::from_secs(8);

/// When to ask again while a server cannot be reached.
const IN_TROUBLE: Duration = Duration::from_millis(500);

/// When to ask again if nothing happens, plus or minus a third.
const AT_LEAST: Duration = Duration::from_secs(60);

impl Cluster {
    /// Gets the first map, so that a caller learns at once why there is none.
    pub(crate) async fn get_map(&self) -> Result<(), Fault> {
        self.adopt(self.ask(None).await?);
        Ok(())
    }

    /// The guide: maintains the map until `stop`, and reports each change to the subscriber.
    pub(crate) async fn keep_map(self: Arc<Self>, subscriber: Subscriber, stop: CancellationToken) {
        let telling = async {
            let mut map = self.map();
            loop {
                let newest = Arc::clone(&map.borrow_and_update());
                subscriber.follow(newest);
                if map.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let keeping = async { tokio::join!(self.guide(), telling) };
        stop.run_until_cancelled(keeping).await;
    }

    async fn guide(&self) {
        let (mut is_known, mut is_doubted, mut strangers_first) = (true, false, false);
        let mut patience = PATIENCE;
        loop {
            let asked = Instant::now();
            let next = if is_known && !self.is_troubled() {
                AT_LEAST.mul_f64(2.0 / 3.0 + fastrand::f64() * 2.0 / 3.0)
            } else {
                IN_TROUBLE
            };
            tokio::select! {
                () = self.stale.notified() => {}
                () = sleep_until(asked + next) => {}
            }
            sleep_until(asked + APART).await;
            // A connected node may be cut off from the others. Then its map names nodes that no longer serve, and no answer
            // corrects that map. So if such a map did not end the doubt, the guide asks nodes first that the client
            // does not use, every other time.
            let was_doubted = std::mem::replace(&mut is_doubted, self.takes_doubt());
            strangers_first = is_doubted && was_doubted && !strangers_first;
            patience = if is_doubted { patience } else { PATIENCE };
            let limit = strangers_first.then_some(patience);
            if strangers_first {
                patience = (patience * 2).min(LONGEST_PATIENCE);
            }
            is_known = match self.ask(limit).await {
                Ok(map) => {
                    self.adopt(map);
                    true
                }
                Err(fault) => {
                    if is_known {
                        log::warn!(%fault, "no node of the cluster returns a map of its slots");
                    }
                    false
                }
            };
        }
    }

    /// Asks one node after the other, until one returns a map. With a limit it asks strangers first, and each stranger
    /// has that long to answer.
    async fn ask(&self, limit: Option<Duration>) -> Result<SlotMap, Fault> {
        let mut failed = Fault::NotSent(said("no node of the cluster is known"));
        for (node, socket) in self.nodes(limit.is_some()) {
            // A node that hangs must not keep the others from being asked.
            let asked = match socket {
                Some(socket) => {
                    Fault::unless_in(PATIENCE, &node, ask_for_map(&socket, &node)).await
                }
                None => self.ask_stranger(&node, limit).await,
            };
            match asked {
                Ok(map) => return Ok(map),
                // A permanent error is more useful to report.
                Err(fault) if failed.is_passing() => failed = fault,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    /// The nodes in the order in which to ask them, each with its connection. A stranger is a node of the map or of the URL
    /// that this client has not used yet.
    fn nodes(&self, strangers_first: bool) -> Vec<(Node, Option<Socket>)> {
        let mut used = self.links();
        fastrand::shuffle(&mut used);
        let map = Arc::clone(&self.map().borrow());
        let mut strangers: Vec<(Node, Option<Socket>)> = Vec::new();
        for node in map.nodes().into_iter().chain(&self.addresses.seeds) {
            if used.iter().chain(&strangers).all(|(known, _)| known != node) {
                strangers.push((node.clone(), None));
            }
        }
        fastrand::shuffle(&mut strangers);
        // It may take long to find out that these are still not reachable. So they come last.
        let (connected, lost) = used.into_iter().partition(|(_, socket)| socket.is_some());
        match strangers_first {
            true => [strangers, connected, lost].concat(),
            false => [connected, strangers, lost].concat(),
        }
    }
}
