//! What a URL points to: one server, or the nodes through which a cluster is found.

use crate::error::{Error, Result};

/// What a URL points to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One server: the URL as it is.
    Single,
    /// A cluster: one URL for each of the nodes that were named.
    Cluster(Vec<String>),
}

impl Target {
    /// # Errors
    /// [`Error::Config`] if it looks like the URL of a cluster and is not one. It is not quoted: it may hold a password.
    pub(crate) fn of(url: &str) -> Result<Self> {
        let schemes = [("redis-cluster://", "redis"), ("rediss-cluster://", "rediss")];
        let cluster =
            schemes.iter().find_map(|(begin, of_one)| Some((url.strip_prefix(begin)?, *of_one)));
        let Some((rest, scheme)) = cluster else { return Ok(Self::Single) };
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = tail.split(['?', '#']).next().unwrap_or_default();
        if !matches!(path, "" | "/" | "/0") {
            return Err(Error::config("a cluster has no databases: the URL must not name one"));
        }
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let user = if authority.contains('@') { format!("{user}@") } else { String::new() };
        let options = &tail[path.len()..];
        let seed = |host: &str| match host {
            "" => Err(Error::config("the URL of a cluster names a node without a host")),
            host => Ok(format!("{scheme}://{user}{host}/{options}")),
        };
        hosts.split(',').map(seed).collect::<Result<_>>().map(Self::Cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(url: &str) -> Vec<String> {
        match Target::of(url).unwrap() {
            Target::Cluster(seeds) => seeds,
            Target::Single => panic!("{url} is a cluster"),
        }
    }

    #[test]
    fn a_cluster_is_named_by_some_of_its_nodes() {
        assert_eq!(seeds("redis-cluster://a"), ["redis://a/"]);
        assert_eq!(seeds("redis-cluster://a:7000,b:7001"), ["redis://a:7000/", "redis://b:7001/"]);
        assert_eq!(
            seeds("rediss-cluster://user:p%40ss@a:1,[::1]:2/"),
            ["rediss://user:p%40ss@a:1/", "rediss://user:p%40ss@[::1]:2/"]
        );
        assert_eq!(seeds("redis-cluster://:secret@a/0?x=1"), ["redis://:secret@a/?x=1"]);
        assert_eq!(seeds("redis-cluster://u:p@s@a"), ["redis://u:p@s@a/"], "cut at the last one");
    }

    #[test]
    fn every_other_url_is_of_one_server() {
        for url in ["redis://a,b", "rediss://a", "redis+unix:///x", "", "cluster", "redis-clust://"]
        {
            assert_eq!(Target::of(url).unwrap(), Target::Single, "{url}");
        }
    }

    #[test]
    fn a_cluster_without_a_node_or_with_a_database_is_refused_and_not_quoted() {
        for url in [
            "redis-cluster://",
            "redis-cluster://:secret@",
            "redis-cluster://:secret@a,",
            "redis-cluster://:secret@a,,b",
            "redis-cluster://:secret@a/1",
        ] {
            let error = Target::of(url).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
