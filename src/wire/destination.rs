//! Where a link leads: to one fixed server, or to the current primary.

use std::sync::Arc;

use crate::wire::address::{Address, Expected};
use crate::wire::fault::Fault;
use crate::wire::node::Node;
use crate::wire::sentinels::Sentinels;

/// Where a link leads.
#[derive(Clone)]
pub(crate) enum Destination {
    Fixed(Arc<Address>),
    /// The primary that these sentinels watch.
    Primary(Arc<Sentinels>),
    /// Any one of these sentinels.
    Sentinel(Arc<Sentinels>),
}

/// Where the link leads now.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) address: Arc<Address>,
    /// The address of the primary when it was last asked for.
    node: Option<Node>,
}

impl Destination {
    /// What the client expects to find there.
    pub(crate) fn expected(&self) -> Expected {
        match self {
            Self::Fixed(_) => Expected::Alone,
            Self::Primary(_) | Self::Sentinel(_) => Expected::Watched,
        }
    }

    /// Asks for the address again; each connection does so.
    pub(crate) async fn find(&self) -> Result<Found, Fault> {
        match self {
            Self::Fixed(address) => Ok(Found { address: Arc::clone(address), node: None }),
            Self::Primary(sentinels) => {
                let node = sentinels.primary().await?;
                Ok(Found { address: Arc::new(sentinels.primaries.of(&node)), node: Some(node) })
            }
            Self::Sentinel(sentinels) => {
                Ok(Found { address: Arc::new(sentinels.any()), node: None })
            }
        }
    }

    /// Waits until the link has to lead elsewhere; forever, if it never will.
    pub(crate) async fn left(&self, found: Option<&Found>) {
        match (self, found.and_then(|found| found.node.as_ref())) {
            (Self::Primary(sentinels), Some(node)) => sentinels.left(node).await,
            _ => std::future::pending().await,
        }
    }
}
