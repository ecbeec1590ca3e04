//! Where a client connects to, and what a URL refers to: one server, some nodes of a cluster, or the sentinels of a primary.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, Result};

/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26_379;

/// Where a client connects to, as its maker says it.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Url(String),
    /// The server of a client of the redis crate.
    #[cfg(feature = "redis-1")]
    Redis(Box<redis::ConnectionInfo>),
}

/// What a URL refers to.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "operator"), allow(unreachable_pub, reason = "that feature exports it"))]
pub enum Target {
    /// One server: the URL as it is.
    Single,
    /// A cluster: one URL for each of the nodes that were named.
    Cluster(Vec<String>),
    /// The primary of a service that sentinels watch.
    Sentinel(Watched),
}

/// The primary of a service, by the sentinels that watch it.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "operator"), allow(unreachable_pub, reason = "that feature exports it"))]
pub struct Watched {
    /// One URL for each sentinel that was named.
    pub sentinels: Vec<String>,
    /// The sentinels' name for the service that they watch.
    pub service: String,
    /// The URL of the primary, but with the host of the first sentinel.
    pub primary: String,
}

/// A URL with several hosts. The `url` crate supports only one host.
struct Hosts<'a> {
    /// The scheme of the corresponding URL with one host.
    scheme: &'static str,
    /// User and password, with their `@`.
    user: String,
    hosts: Vec<&'a str>,
    path: &'a str,
    /// What follows the path.
    options: &'a str,
}

impl<'a> Hosts<'a> {
    /// `None`: the URL has none of these schemes.
    fn of(url: &'a str, schemes: &[(&str, &'static str)]) -> Option<Self> {
        let begins = |(begin, of_one): &(&str, _)| Some((url.strip_prefix(begin)?, *of_one));
        let (rest, scheme) = schemes.iter().find_map(begins)?;
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = tail.split(['?', '#']).next().unwrap_or_default();
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let (hosts, options) = (hosts.split(',').collect(), &tail[path.len()..]);
        Some(Self { scheme, user, hosts, path, options })
    }
}

impl Target {
    /// # Errors
    /// [`Error::Config`] if it looks like the URL of a cluster or of sentinels but is malformed. The error does not
    /// quote the URL, which may contain a password.
    pub(crate) fn of(url: &str) -> Result<Self> {
        let clusters = [("redis-cluster://", "redis"), ("rediss-cluster://", "rediss")];
        if let Some(hosts) = Hosts::of(url, &clusters) {
            return cluster(&hosts).map(Self::Cluster);
        }
        let sentinels = [
            ("redis-sentinel://", "redis"),
            ("rediss-sentinel://", "rediss"),
            ("redis+sentinel://", "redis"),
            ("rediss+sentinel://", "rediss"),
        ];
        match Hosts::of(url, &sentinels) {
            Some(hosts) => watched(&hosts).map(Self::Sentinel),
            None => Ok(Self::Single),
        }
    }
}

fn cluster(url: &Hosts<'_>) -> Result<Vec<String>> {
    let Hosts { scheme, user, hosts, path, options } = url;
    let path = if matches!(*path, "" | "/0") { "/" } else { path };
    let seed = |host: &&str| match *host {
        "" => Err(Error::config("the URL of a cluster names a node without a host")),
        host => Ok(format!("{scheme}://{user}{host}{path}{options}")),
    };
    hosts.iter().map(seed).collect()
}

fn watched(url: &Hosts<'_>) -> Result<Watched> {
    let Hosts { scheme, user, hosts, path, options } = url;
    let options = Options::of(options)?;
    let (service, database) = service_and_database(path, options.service)?;
    let credentials = match (&options.username, &options.password) {
        (None, None) => String::new(),
        (Some(_), None) => {
            return Err(Error::config("sentinelUsername needs a sentinelPassword"));
        }
        (name, Some(password)) => {
            format!("{}:{}@", encoded(name.as_deref().unwrap_or_default()), encoded(password))
        }
    };
    let host = |host: &&str| match *host {
        "" => Err(Error::config("the URL of sentinels names a sentinel without a host")),
        host if has_port(host) => Ok(host.to_owned()),
        host => Ok(format!("{host}:{SENTINEL_PORT}")),
    };
    let hosts = hosts.iter().map(host).collect::<Result<Vec<_>>>()?;
    let sentinel = |host: &String| format!("{scheme}://{credentials}{host}/");
    let primary = format!("{scheme}://{user}{}/{database}{}", hosts[0], options.others);
    Ok(Watched { sentinels: hosts.iter().map(sentinel).collect(), service, primary })
}

/// The options of a URL: those for sentinels, and the others.
#[derive(Default)]
struct Options {
    service: Option<String>,
    username: Option<String>,
    password: Option<String>,
    /// The other options, with the separators before and between them.
    others: String,
}

impl Options {
    fn of(text: &str) -> Result<Self> {
        let (query, fragment) = text.split_at(text.find('#').unwrap_or(text.len()));
        let (mut options, mut others) = (Self::default(), Vec::new());
        for option in query.trim_start_matches('?').split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "sentinelMasterId" => options.service = Some(decoded(value)?),
                "sentinelUsername" => options.username = Some(decoded(value)?),
                "sentinelPassword" => options.password = Some(decoded(value)?),
                _ => others.push(option),
            }
        }
        let mark = if others.is_empty() { "" } else { "?" };
        options.others = format!("{mark}{}{fragment}", others.join("&"));
        Ok(options)
    }
}

/// Parses `/service/3`, `/service`, `/3` or nothing. A word that is not a number is the service.
fn service_and_database(path: &str, named: Option<String>) -> Result<(String, String)> {
    let words: Vec<_> = path.split('/').filter(|word| !word.is_empty()).collect();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let (service, database) = match words.as_slice() {
        [] => (None, "0"),
        [database] if is_number(database) => (None, *database),
        [service] => (Some(decoded(service)?), "0"),
        [service, database] if is_number(database) => (Some(decoded(service)?), *database),
        _ => {
            return Err(Error::config(
                "the path of a URL of sentinels is /service or /service/database",
            ));
        }
    };
    let service = match (service, named) {
        (Some(one), Some(other)) if one != other => {
            return Err(Error::config(
                "the URL names two services: in its path and as sentinelMasterId",
            ));
        }
        (service, named) => service.or(named).filter(|service| !service.is_empty()),
    };
    let unnamed =
        || Error::config("the URL of sentinels names no service: redis-sentinel://host/service");
    Ok((service.ok_or_else(unnamed)?, database.to_owned()))
}

fn has_port(host: &str) -> bool {
    // The colons of an IPv6 address are in brackets.
    host.rsplit(']').next().is_some_and(|rest| rest.contains(':'))
}

fn decoded(text: &str) -> Result<String> {
    let malformed = || Error::config("the URL of sentinels has a % that begins no encoded byte");
    let is_byte = |code: &str| {
        code.get(..2).is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    if !text.split('%').skip(1).all(is_byte) {
        return Err(malformed());
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| malformed())?;
    Ok(decoded.into_owned())
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(url: &str) -> Vec<String> {
        match Target::of(url).unwrap() {
            Target::Cluster(seeds) => seeds,
            other => panic!("{url} is a cluster, not {other:?}"),
        }
    }

    fn watched(url: &str) -> Watched {
        match Target::of(url).unwrap() {
            Target::Sentinel(watched) => watched,
            other => panic!("{url} is of sentinels, not {other:?}"),
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
        let numbered = ["redis://a:7000/3?x=1", "redis://b/3?x=1"];
        assert_eq!(seeds("redis-cluster://a:7000,b/3?x=1"), numbered);
        assert_eq!(seeds("redis-cluster://u:p@s@a"), ["redis://u:p@s@a/"], "cut at the last one");
    }

    #[test]
    fn a_primary_is_named_by_its_sentinels_and_its_service() {
        let plain = watched("redis-sentinel://a,b:1,[::1],[::2]:3/mymaster");
        let hosts = ["a:26379", "b:1", "[::1]:26379", "[::2]:3"];
        assert_eq!(plain.sentinels, hosts.map(|host| format!("redis://{host}/")));
        assert_eq!((&*plain.service, &*plain.primary), ("mymaster", "redis://a:26379/0"));
        for (url, scheme) in [
            ("rediss-sentinel://a/m/3", "rediss"),
            ("redis+sentinel://a/m/3", "redis"),
            ("rediss+sentinel://a/m/3/", "rediss"),
            ("redis-sentinel://a/3?sentinelMasterId=m", "redis"),
            ("redis-sentinel://a/m/3?sentinelMasterId=m", "redis"),
        ] {
            let watched = watched(url);
            assert_eq!(watched.service, "m", "{url}");
            assert_eq!(watched.primary, format!("{scheme}://a:26379/3"), "{url}");
            assert_eq!(watched.sentinels, [format!("{scheme}://a:26379/")], "{url}");
        }
        assert_eq!(watched("redis-sentinel://a?sentinelMasterId=7").service, "7");
        assert_eq!(watched("redis-sentinel://a/7/0").service, "7");
        assert_eq!(watched("redis-sentinel://a/my%2Dmaster").service, "my-master");
    }

    #[test]
    fn sentinels_and_their_primary_have_passwords_of_their_own() {
        let one = watched("redis-sentinel://app:p%40ss@a,b/m?sentinelPassword=s:e/c%40&x=1");
        assert_eq!(one.primary, "redis://app:p%40ss@a:26379/0?x=1");
        assert_eq!(one.sentinels[1], "redis://:s%3Ae%2Fc%40@b:26379/");
        let both = watched("redis-sentinel://a/m?sentinelUsername=u%3A&x=1&sentinelPassword=p#f");
        assert_eq!(both.sentinels, ["redis://u%3A:p@a:26379/"]);
        assert_eq!(both.primary, "redis://a:26379/0?x=1#f");
    }

    #[test]
    fn every_other_url_is_of_one_server() {
        for url in ["redis://a,b", "rediss://a", "redis+unix:///x", "", "cluster", "redis-clust://"]
        {
            assert_eq!(Target::of(url).unwrap(), Target::Single, "{url}");
        }
    }

    #[test]
    fn a_malformed_url_of_several_hosts_is_refused_and_not_quoted() {
        for url in [
            "redis-cluster://",
            "redis-cluster://:secret@",
            "redis-cluster://:secret@a,",
            "redis-cluster://:secret@a,,b",
            "redis-sentinel://:secret@/m",
            "redis-sentinel://:secret@a,/m",
            "redis-sentinel://:secret@a",
            "redis-sentinel://:secret@a/3",
            "redis-sentinel://:secret@a/m/x",
            "redis-sentinel://:secret@a/m/1/2",
            "redis-sentinel://:secret@a/m?sentinelMasterId=other",
            "redis-sentinel://a/m?sentinelPassword=%secret",
            "redis-sentinel://a/m?sentinelPassword=%+5secret",
            "redis-sentinel://:secret@a/m?sentinelUsername=u",
        ] {
            let error = Target::of(url).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
