//! What a sentinel knows.

/// Where the primary of a service is, as one sentinel has heard.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The name of the service.
    pub service: String,
    /// Where its primary is.
    pub host: String,
    /// The primary's port.
    pub port: u16,
    /// How many failovers there have been.
    pub epoch: u64,
}

/// A sentinel's own knowledge.
#[derive(Clone, Debug)]
pub(crate) struct Sentinel {
    pub(crate) id: String,
    pub(crate) watched: Watched,
    /// The address that it describes: that of the old primary, as long as this sentinel leads the failover.
    pub(crate) described: (String, u16),
    /// The other sentinels.
    pub(crate) others: Vec<(String, u16)>,
}
