//! What a server reports about itself in its greeting.

use redis::Value;

use crate::error::said;
use crate::wire::fault::Fault;
use crate::wire::replies::{named, strange};

/// What the client expects a server to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expected {
    /// The only server.
    Alone,
    /// The primary that sentinels name.
    Watched,
    /// A node of a cluster. See [`Config::plain_channels`](crate::Config::plain_channels).
    Node { plain_channels: bool },
}

/// A major and a minor version.
type Version = (u32, u32);

/// The scripts use commands that older servers do not have.
const OLDEST: Version = (6, 2);

/// The version from which a server has channels that belong to a slot.
const SHARDED: Version = (7, 0);

/// The answer to HELLO.
#[derive(Debug)]
pub(crate) struct Hello {
    is_primary: bool,
    mode: String,
    /// `None`: the server does not say.
    version: Option<Version>,
}

impl Hello {
    pub(crate) fn read(answer: &Value) -> Result<Self, Fault> {
        if !matches!(answer, Value::Map(_)) {
            return Err(strange(&answer));
        }
        let field = |name| named(answer, name);
        let version = field("version").and_then(|version| {
            let mut numbers = version.split('.').map(|number| number.parse().ok());
            Some((numbers.next()??, numbers.next()??))
        });
        Ok(Self {
            is_primary: field("role") == Some("master"),
            mode: field("mode").unwrap_or_default().to_owned(),
            version,
        })
    }

    /// Whether the server can be trusted: it must be a primary, and of the kind that the URL says.
    pub(crate) fn accepted(&self, expected: Expected) -> Result<(), Fault> {
        match (expected, self.mode.as_str()) {
            (Expected::Alone, "cluster") => Err(Fault::Config(
                "the server is a node of a cluster: write redis-cluster:// (with TLS: rediss-cluster://)".to_owned(),
            )),
            (Expected::Alone, "sentinel") => Err(Fault::Config(
                "the server is a sentinel: write redis-sentinel://host:port/<service> (with TLS: rediss-sentinel://)"
                    .to_owned(),
            )),
            (Expected::Watched, "cluster") => {
                Err(Fault::Config("the sentinels watch a node of a cluster".to_owned()))
            }
            _ => match self.version {
                Some((major, minor)) if (major, minor) < OLDEST => Err(Fault::Config(format!(
                    "the server has version {major}.{minor}: parklock needs Redis 6.2 or later, or Valkey"
                ))),
                _ if !self.is_primary => Err(Fault::Distrusted(said("the server is a replica"))),
                _ => Ok(()),
            },
        }
    }

    pub(crate) fn is_sentinel(&self) -> Result<(), Fault> {
        match self.mode.as_str() {
            "sentinel" => Ok(()),
            _ => Err(Fault::Config("the server is not a sentinel".to_owned())),
        }
    }

    /// Whether it is a node of a cluster.
    pub(crate) fn is_node(&self) -> bool {
        self.mode == "cluster"
    }

    /// Whether it has channels that belong to a slot.
    pub(crate) fn is_sharded(&self) -> bool {
        self.version >= Some(SHARDED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(fields: &[(&str, &str)]) -> Hello {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = fields.iter().map(|(name, value)| (text(name), text(value)));
        Hello::read(&Value::Map(fields.collect())).unwrap()
    }

    fn node_of_cluster() -> Expected {
        Expected::Node { plain_channels: false }
    }

    #[test]
    fn only_a_primary_is_accepted() {
        let primary = hello(&[("role", "master"), ("mode", "standalone"), ("version", "6.2.14")]);
        assert!(primary.accepted(Expected::Alone).is_ok() && !primary.is_sharded());
        for other in [hello(&[("role", "replica"), ("mode", "cluster")]), hello(&[])] {
            assert!(matches!(other.accepted(node_of_cluster()), Err(Fault::Distrusted(_))));
        }
        assert!(Hello::read(&Value::Nil).is_err());
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_at_once() {
        let server = |version| hello(&[("role", "master"), ("version", version)]);
        for version in ["5.0.14", "6.0.20", "6.1.240"] {
            let refused = server(version).accepted(Expected::Alone);
            assert!(matches!(refused, Err(Fault::Config(why)) if why.contains("6.2 or later")));
        }
        for version in ["6.2.0", "7.0.15", "255.255.255", "unstable", ""] {
            assert!(server(version).accepted(Expected::Alone).is_ok(), "{version}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_is_no_server_of_its_own() {
        let node = hello(&[("role", "master"), ("mode", "cluster"), ("version", "7.0.15")]);
        assert!(node.accepted(node_of_cluster()).is_ok() && node.is_sharded());
        let refused = node.accepted(Expected::Alone);
        assert!(matches!(refused, Err(Fault::Config(why)) if why.contains("redis-cluster://")));
        let sentinel = hello(&[("mode", "sentinel"), ("version", "9.1.2")]);
        let refused = sentinel.accepted(Expected::Alone);
        assert!(matches!(refused, Err(Fault::Config(why)) if why.contains("redis-sentinel://")));
        assert!(sentinel.is_sentinel().is_ok() && node.is_sentinel().is_err());
        assert!(sentinel.is_sharded());
    }
}
