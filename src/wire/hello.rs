//! What a server says of itself when it is greeted.

use redis::Value;

use crate::error::said;
use crate::wire::fault::Fault;
use crate::wire::replies::strange;

/// What a client takes a server for.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// The only one. If it is a node of a cluster, this is the URL to connect to instead.
    Alone(String),
    /// A node of a cluster.
    Node,
}

/// The version from which a server has channels that belong to a slot.
const SHARDED: u32 = 7;

/// The answer to HELLO.
#[derive(Debug)]
pub(crate) struct Hello {
    is_primary: bool,
    mode: String,
    version: u32,
}

impl Hello {
    pub(crate) fn read(answer: Option<&Value>) -> Result<Self, Fault> {
        let Some(Value::Map(fields)) = answer else {
            return Err(strange(&answer));
        };
        let field = |name| {
            let found = fields.iter().find(|(key, _)| word(key) == Some(name));
            found.and_then(|(_, value)| word(value))
        };
        let version = field("version").and_then(|version| version.split('.').next()?.parse().ok());
        Ok(Self {
            is_primary: field("role") == Some("master"),
            mode: field("mode").unwrap_or_default().to_owned(),
            version: version.unwrap_or(0),
        })
    }

    /// Whether it can be believed: only a primary can, and only one of the kind that the URL says.
    pub(crate) fn accepted(&self, expected: &Expected) -> Result<(), Fault> {
        match (expected, self.mode.as_str()) {
            (Expected::Alone(url), "cluster") => Err(Fault::Config(format!(
                "the server is a node of a cluster: connect to {url} instead"
            ))),
            (Expected::Alone(_), "sentinel") => Err(Fault::Config(
                "the server is a sentinel: connect to the primary that it watches".to_owned(),
            )),
            _ if !self.is_primary => Err(Fault::Distrusted(said("the server is a replica"))),
            _ => Ok(()),
        }
    }

    /// Whether it has channels that belong to a slot.
    pub(crate) fn is_sharded(&self) -> bool {
        self.version >= SHARDED
    }
}

fn word(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(fields: &[(&str, &str)]) -> Hello {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = fields.iter().map(|(name, value)| (text(name), text(value)));
        Hello::read(Some(&Value::Map(fields.collect()))).unwrap()
    }

    fn alone() -> Expected {
        Expected::Alone("redis-cluster://h:1".to_owned())
    }

    #[test]
    fn only_a_primary_is_accepted() {
        let primary = hello(&[("role", "master"), ("mode", "standalone"), ("version", "6.2.14")]);
        assert!(primary.accepted(&alone()).is_ok() && !primary.is_sharded());
        for other in [hello(&[("role", "replica"), ("mode", "cluster")]), hello(&[])] {
            assert!(matches!(other.accepted(&Expected::Node), Err(Fault::Distrusted(_))));
        }
        assert!(Hello::read(Some(&Value::Nil)).is_err() && Hello::read(None).is_err());
    }

    #[test]
    fn a_node_of_a_cluster_is_no_server_of_its_own() {
        let node = hello(&[("role", "master"), ("mode", "cluster"), ("version", "7.0.15")]);
        assert!(node.accepted(&Expected::Node).is_ok() && node.is_sharded());
        let refused = node.accepted(&alone());
        assert!(matches!(refused, Err(Fault::Config(why)) if why.contains("redis-cluster://h:1")));
        let sentinel = hello(&[("mode", "sentinel"), ("version", "9.1.2")]);
        assert!(matches!(sentinel.accepted(&alone()), Err(Fault::Config(_))));
        assert!(sentinel.is_sharded());
    }
}
