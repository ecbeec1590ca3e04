//! The servers that store the locks: one, or those of a cluster.

use std::sync::Arc;

use crate::keys::Keys;
use crate::slot::Slot;
use crate::wire::cluster::Cluster;
use crate::wire::fault::Fault;
use crate::wire::shard::Shard;

/// The servers that store the locks.
#[derive(Clone)]
pub(crate) enum Servers {
    One(Arc<Shard>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// The server that has this lock.
    pub(crate) fn shard(&self, keys: &Keys) -> Result<Arc<Shard>, Fault> {
        self.shard_of(keys.slot)
    }

    /// The server that has this slot of a cluster, or the only one.
    pub(crate) fn shard_of(&self, slot: Option<Slot>) -> Result<Arc<Shard>, Fault> {
        match (self, slot) {
            (Self::One(shard), _) => Ok(Arc::clone(shard)),
            (Self::Cluster(cluster), Some(slot)) => cluster.owner(slot),
            (Self::Cluster(_), None) => unreachable!("in a cluster every name has a slot"),
        }
    }
}
