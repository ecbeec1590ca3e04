//! One node of a cluster: where it listens.

use std::fmt;
use std::sync::Arc;

use crate::wire::passwords::shown;

/// A host and a port, which identify a node here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Node {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The node that a redirection names: `host:port`. An IPv6 address has no brackets there. Without a host, it is the
    /// host of the node that answered.
    pub(crate) fn redirected(text: &str, answering: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(answering.told(host, port.parse().ok()?))
    }

    /// A node as this node names it.
    pub(crate) fn told(&self, host: &str, port: u16) -> Self {
        // The address on which a node listens says nothing about how others reach it.
        let is_ours = matches!(host, "" | "0.0.0.0" | "::");
        Self { host: if is_ours { Arc::clone(&self.host) } else { host.into() }, port }
    }
}

/// What may be shown of it: a server may have named it.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (shown(&self.host), self.port);
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_a_node() {
        let us = Node::new("10.0.0.1", 7000);
        let told = |text: &str| Node::redirected(text, &us);
        assert_eq!(told("10.0.0.2:7001"), Some(Node::new("10.0.0.2", 7001)));
        assert_eq!(told(":7001"), Some(Node::new("10.0.0.1", 7001)), "the same host");
        assert_eq!(told("::1:7001"), Some(Node::new("::1", 7001)), "IPv6 has no brackets there");
        assert_eq!(told("redis-1.local:7001"), Some(Node::new("redis-1.local", 7001)));
        for nonsense in ["", "10.0.0.2", "10.0.0.2:", "10.0.0.2:x", "10.0.0.2:70000"] {
            assert_eq!(told(nonsense), None, "{nonsense}");
        }
    }
}
