//! Follows redirections (`MOVED`, `ASK`): a node of a cluster that does not run a request names the node that does
//! ([Redis cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/)).
//! `fault.rs` parses the answer, and `connection.rs` sends the request again. `subscriber/channel_link.rs` follows the redirections of channels.
//!
//! 1. It follows at most five hops. It records each hop before it sends the request there, for the owner of what the request
//!    may take. `ASKING` and the request are sent in one piece.
//! 2. `MOVED`, `ASK`, `TRYAGAIN` and `CLUSTERDOWN` as the whole answer mean that the request did not run. Nothing else is sent
//!    again elsewhere.

use std::sync::Arc;

use tokio::time::timeout;

use crate::wire::cluster::Cluster;
use crate::wire::fault::{Fault, Redirect};
use crate::wire::node::Node;
use crate::wire::shard::Shard;

/// How often one request is redirected. More redirections mean that two nodes disagree.
pub(crate) const MOST_HOPS: usize = 5;

/// Where a redirected request goes next.
pub(crate) struct Hop {
    pub(crate) shard: Arc<Shard>,
    /// Only this one request should go there. It has to ask for that (`ASKING`).
    pub(crate) is_asking: bool,
}

/// Follows the redirection in the answer of a node: corrects the map, and waits for the connection to the node that
/// the answer names. Any other fault is returned as it is.
pub(crate) async fn next_hop(
    cluster: &Cluster,
    answering: &Shard,
    fault: Fault,
) -> Result<Hop, Fault> {
    let Fault::Redirected(redirect, _) = &fault else { return Err(fault) };
    let node = |to: &str| {
        let answering = answering.node.as_ref();
        answering.and_then(|node| Node::redirected(to, node)).ok_or_else(|| fault.clone())
    };
    let (next, is_asking) = match redirect {
        Redirect::Moved { slot, to } => {
            let next = node(to)?;
            cluster.moved(*slot, next.clone());
            (next, false)
        }
        Redirect::Ask { to } => (node(to)?, true),
        Redirect::Down => {
            cluster.unserved();
            return Err(fault);
        }
        Redirect::TryAgain | Redirect::CrossSlot => return Err(fault),
    };
    let shard = cluster.shard(&next);
    // The request did not run, so it may wait a little before it is sent again.
    let _ = timeout(cluster.response_timeout, shard.up()).await;
    Ok(Hop { shard, is_asking })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::Config;
    use crate::error::said;
    use crate::slot::Slot;
    use crate::wire::address::Addresses;
    use crate::wire::cluster::Crew;

    /// A call that waits for nothing else must not wait for a new node for as long as a connection may take.
    #[tokio::test(start_paused = true)]
    async fn a_redirected_request_waits_for_its_new_node_no_longer_than_for_an_answer() {
        let answer = Duration::from_millis(100);
        let config = Config::default().response_timeout(answer).connect_timeout(answer * 50);
        let addresses = Addresses::new(&["redis://127.0.0.1:7000".to_owned()], &config).unwrap();
        // Its links never connect.
        let crew = Crew { spawn: Box::new(std::mem::forget), stop: CancellationToken::new() };
        let cluster = Cluster::new(addresses, &config, crew, Arc::new(|_| ()));
        let answering = cluster.shard(&Node::new("127.0.0.1", 7000));
        let (slot, to) = (Slot::new(5).unwrap(), "127.0.0.1:7001".into());
        let moved = Fault::Redirected(Redirect::Moved { slot, to }, said("MOVED"));
        let asked = Instant::now();
        let hop = next_hop(&cluster, &answering, moved).await.unwrap();
        assert_eq!(hop.shard.node, Some(Node::new("127.0.0.1", 7001)));
        assert!(asked.elapsed() <= answer * 2, "{:?}", asked.elapsed());
    }
}
