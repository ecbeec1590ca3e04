//! Redirections: how a node of a cluster refuses a request, and where to send it instead ([Redis cluster
//! specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/)). `commands.rs` follows
//! them.

use crate::slot::Slot;

/// A cluster node's answer to a request that it does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The node `to` has the slot now.
    Moved { slot: Slot, to: String },
    /// The slot is moving to the node `to`, and all keys of the request have moved there, or do not exist. Only this
    /// one request should be sent there.
    Ask { to: String },
    /// The slot is moving to another node, and the keys of the request are at both.
    TryAgain,
    /// No node has the slot, or the cluster has no majority.
    Down,
    /// The keys lie in several slots: no node would ever run the request.
    CrossSlot,
}

impl Redirect {
    /// The redirection in the whole answer of a node, if it begins with one of these codes.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let slot = |word: Option<&str>| word?.parse().ok().and_then(Slot::new);
        match words.next()? {
            "MOVED" => {
                Some(Self::Moved { slot: slot(words.next())?, to: words.next()?.to_owned() })
            }
            "ASK" => slot(words.next()).and(words.next()).map(|to| Self::Ask { to: to.to_owned() }),
            "TRYAGAIN" => Some(Self::TryAgain),
            "CLUSTERDOWN" => Some(Self::Down),
            "CROSSSLOT" => Some(Self::CrossSlot),
            _ => None,
        }
    }
}
