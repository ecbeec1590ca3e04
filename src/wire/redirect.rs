//! Redirections: what a node of a cluster answers to a request that it does not run, and where to ask instead
//! ([Redis cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/)).
//! `commands.rs` follows them.

use crate::slot::Slot;

/// What a node of a cluster answers to a request that it does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// This node has the slot now.
    Moved { slot: Slot, to: String },
    /// The slot is on its way to this node, and all keys of the request are there by now, or nowhere. Only this
    /// one request is to be asked there.
    Ask { to: String },
    /// The slot is on its way to another node, and the keys of the request are at both.
    TryAgain,
    /// The slot is no node's, or the cluster has no majority.
    Down,
    /// The keys lie in several slots: no node would ever run it.
    CrossSlot,
}

impl Redirect {
    /// What the whole answer of a node says, if it begins as one of these.
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
