//! Connections for an operator's questions: one to each server that has locks. The library's connections are separate.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use parklock::operator::{self, Password, Space, Target, Watched};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo, Pipeline, ProtocolVersion, RedisError, TlsCertificates, Value, cmd, pipe,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::args::{Realm, TlsFiles};
use crate::failure::{ANSWERING, CONNECTING, Failure};
use crate::{exit, stderr};

/// A server that has locks: a primary.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) address: String,
    /// Its database, and whether it is a node of a cluster.
    pub(crate) space: Space,
    /// Whether its channels belong to slots.
    pub(crate) is_sharded: bool,
    info: ConnectionInfo,
    /// No failure shows it.
    _password: Option<Password>,
    conn: MultiplexedConnection,
}

impl Server {
    /// Asks all questions at once. A single answer may be a refusal. If the cluster is down, it refuses all of them,
    /// and the call fails.
    pub(crate) async fn ask(&self, questions: &Pipeline) -> Result<Vec<Value>, Failure> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let mut conn = self.conn.clone();
        let answers: Vec<Value> = if matches!(self.space, Space::Cluster(_)) {
            // While a slot moves, a key may lie at either node, and the new one answers only after ASKING.
            let mut asked = pipe();
            for question in questions.cmd_iter() {
                asked.cmd("ASKING").add_command(question.clone());
            }
            let answers = conn.send_packed_commands(&asked, 0, asked.len()).await?;
            answers.into_iter().skip(1).step_by(2).collect()
        } else {
            conn.send_packed_commands(questions, 0, questions.len()).await?
        };
        if answers.iter().any(is_of_cluster_that_is_down) {
            let why = "the cluster is down: some of its slots are not served";
            return Err(Failure { is_answer: true, ..Failure::unavailable(why) });
        }
        Ok(answers)
    }

    /// The server's clock: the time since 1970.
    pub(crate) async fn clock(&self) -> Result<Duration, Failure> {
        let told = self.query(&["TIME"]).await?;
        time(Some(told)).ok_or_else(|| Failure::unavailable("the server's TIME is no time"))
    }

    /// The subcommand of PUBSUB that counts the clients that listen to a lock's channel.
    pub(crate) fn counts_listeners(&self) -> &'static str {
        if self.is_sharded { "SHARDNUMSUB" } else { "NUMSUB" }
    }

    /// Asks one question.
    pub(crate) async fn query<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, Failure> {
        Ok(cmd(words[0]).arg(&words[1..]).query_async(&mut self.conn.clone()).await?)
    }

    /// A section of INFO. Empty if the user may not ask for it.
    pub(crate) async fn info(&self, section: &str) -> Result<Info, Failure> {
        Ok(Info(self.query_if_allowed(&["INFO", section]).await?))
    }

    /// A setting, if the user may ask for it.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>, Failure> {
        let pair: Vec<String> = self.query_if_allowed(&["CONFIG", "GET", name]).await?;
        Ok(pair.into_iter().nth(1))
    }

    /// Asks one question. The answer is empty if the user may not ask it.
    async fn query_if_allowed<T>(&self, words: &[&str]) -> Result<T, Failure>
    where
        T: FromRedisValue + Default,
    {
        match self.query(words).await {
            Err(failure) if failure.is_refusal() => Ok(T::default()),
            answer => answer,
        }
    }

    /// Another connection to the same server.
    pub(crate) async fn again(&self) -> Result<MultiplexedConnection, Failure> {
        open(self.info.clone(), AsyncConnectionConfig::new()).await
    }

    /// The same, for one that receives messages.
    pub(crate) async fn listen(
        &self,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Failure> {
        let settings = self.info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        open(self.info.clone().set_redis_settings(settings), config).await
    }

    /// The same server, but each answer has to come within this time.
    fn within(mut self, patience: Duration) -> Self {
        self.conn.set_response_timeout(patience);
        self
    }

    async fn connect(info: ConnectionInfo, in_cluster: bool) -> Result<Self, Failure> {
        let password = info.redis_settings().password().map(Password::new);
        let address = address(&info);
        let conn = open(info.clone(), AsyncConnectionConfig::new()).await;
        let conn = conn.map_err(|failure| failure.of_server(&address))?;
        let database = info.redis_settings().db();
        let space = if in_cluster { Space::Cluster(database) } else { Space::Database(database) };
        Ok(Self { address, space, is_sharded: false, info, _password: password, conn })
    }
}

async fn open(
    info: ConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Failure> {
    let config = config.set_connection_timeout(Some(CONNECTING));
    let config = config.set_response_timeout(Some(ANSWERING));
    Ok(Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// The answer to INFO: lines of names and values.
#[derive(Debug, Default)]
pub(crate) struct Info(String);

impl Info {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// The values of all fields whose names are this prefix followed by a digit.
    pub(crate) fn numbered(&self, prefix: &str) -> Vec<&str> {
        let is_numbered = |name: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let lines = self.0.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(name, _)| is_numbered(name)).map(|(_, value)| value.trim()).collect()
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The value of one answer, unless it is a refusal or has another type.
pub(crate) fn value<T: FromRedisValue>(answer: Option<Value>) -> Option<T> {
    match answer {
        None | Some(Value::ServerError(_)) => None,
        Some(answer) => redis::from_redis_value(answer).ok(),
    }
}

/// The same for a question whose answer says who holds or waits: a refusal is a failure, since the lock may be held. Two
/// refusals are none. A node of a cluster sends the tool to another one, which is asked as well. And a key may have got
/// another type since the tool asked for it.
pub(crate) fn needed<T: FromRedisValue>(answer: Option<Value>) -> Result<Option<T>, Failure> {
    match answer {
        Some(Value::ServerError(error))
            if !matches!(error.code(), "MOVED" | "ASK" | "WRONGTYPE") =>
        {
            Err(RedisError::from(error).into())
        }
        answer => Ok(value(answer)),
    }
}

/// The answer of TIME: the time since 1970.
pub(crate) fn time(answer: Option<Value>) -> Option<Duration> {
    let (seconds, micros) = value(answer)?;
    Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

/// The servers that have locks, and the ones among them that do not answer.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) servers: Vec<Server>,
    /// The primaries of a cluster that do not answer.
    pub(crate) missing: Vec<Missing>,
}

/// A primary of a cluster that does not answer.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) address: String,
    slots: Slots,
    pub(crate) failure: Failure,
}

type Slots = Vec<RangeInclusive<u16>>;

impl Reached {
    fn all(servers: Vec<Server>) -> Self {
        Self { servers, missing: Vec::new() }
    }

    /// Prints on stderr which servers do not answer.
    pub(crate) fn complain(&self) {
        self.missing
            .iter()
            .for_each(|missing| stderr::fail(missing.failure.code, &missing.failure.why));
    }

    /// The failure of the first server that does not answer, if there is one.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.missing.first().map(|missing| &missing.failure)
    }

    /// The same servers, but each answer has to come within this time.
    pub(crate) fn within(self, patience: Duration) -> Self {
        let servers = self.servers.into_iter().map(|server| server.within(patience)).collect();
        Self { servers, ..self }
    }

    /// The exit code of an answer that comes only from the servers that answer.
    pub(crate) fn code(&self) -> u8 {
        self.failure().map_or(exit::OK, |failure| failure.code)
    }

    /// # Errors
    /// If the server that has this key does not answer.
    fn need(self, key: &str) -> Result<Self, Failure> {
        let slot = operator::slot(key);
        let has_it = |missing: &&Missing| missing.slots.iter().any(|range| range.contains(&slot));
        match self.missing.iter().find(has_it) {
            Some(missing) => Err(missing.failure.clone()),
            None => Ok(self),
        }
    }
}

/// Whether this answer comes from a cluster that refuses every key, because it serves all slots or none.
fn is_of_cluster_that_is_down(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    error.code() == "CLUSTERDOWN" && error.details() == Some("The cluster is down")
}

/// Connects to the servers for a question about one lock. The server that has this lock has to answer.
pub(crate) async fn reach_for(
    url: &str,
    Realm { layout, namespaces }: &Realm,
    name: &str,
) -> Result<Reached, Failure> {
    let reached = reach(url).await?;
    let space = reached.servers.first().map_or(Space::Cluster(0), |server| server.space);
    let place = operator::place(*layout, "lock", (namespaces.name(), name), space)?;
    reached.need(&place.lock)
}

/// Connects to every server that has locks. In a cluster, at least one of them has to answer.
pub(crate) async fn reach(url: &str) -> Result<Reached, Failure> {
    if url.contains("#insecure") {
        return Err(Failure::config("#insecure is not accepted: the server must be verified"));
    }
    encrypt();
    match operator::servers(url)? {
        Target::Single => Ok(Reached::all(vec![alone(url).await?])),
        Target::Cluster(seeds) => cluster(&seeds).await,
        Target::Sentinel(named) => Ok(Reached::all(vec![watched(&named).await?])),
    }
}

/// The redis crate brings no cryptography of its own.
fn encrypt() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // This fails if the process has a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// A server's URL, with the certificates of the environment.
fn understood(url: &str) -> Result<ConnectionInfo, Failure> {
    let mut info = url.into_connection_info()?;
    let settings = info.redis_settings();
    // As the library does: the redis crate ignores a user without a password.
    if settings.username().is_some() && settings.password().is_none() {
        let settings = settings.clone().set_password("");
        info = info.set_redis_settings(settings);
    }
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(info);
    }
    let TlsFiles { authorities, identity } = TlsFiles::of_environment();
    let read = |variable: &str, file: PathBuf| {
        let unreadable =
            |error| Failure::config(format!("{variable}: {}: {error}", file.display()));
        fs::read(&file).map_err(unreadable)
    };
    let identity = identity.map(|(cert, key)| {
        let (client_cert, client_key) = (read("PARKLOCK_CERT", cert)?, read("PARKLOCK_KEY", key)?);
        Ok::<_, Failure>(ClientTlsConfig { client_cert, client_key })
    });
    let root_cert = authorities.map(|ca| usable(&read("PARKLOCK_CA", ca)?)).transpose()?;
    let certificates = TlsCertificates { client_tls: identity.transpose()?, root_cert };
    let unusable = |error| Failure::config(format!("the certificates cannot be used: {error}"));
    let client = Client::build_with_tls(info, certificates).map_err(unusable)?;
    Ok(client.get_connection_info().clone())
}

/// The certificates of a bundle that rustls can read, as the library takes them. The redis crate refuses a bundle with another one.
fn usable(bundle: &[u8]) -> Result<Vec<u8>, Failure> {
    let is_usable = |pem: &&str| {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
        certificate.is_ok_and(|certificate| RootCertStore::empty().add(certificate).is_ok())
    };
    let text = String::from_utf8_lossy(bundle);
    let usable: String =
        text.split_inclusive("-----END CERTIFICATE-----").filter(is_usable).collect();
    if usable.is_empty() {
        return Err(Failure::config(
            "the file of PARKLOCK_CA has no certificate in PEM that can be used",
        ));
    }
    Ok(usable.into_bytes())
}

async fn alone(url: &str) -> Result<Server, Failure> {
    let info = understood(url)?;
    // The redis crate chooses the database when it connects. A node of a cluster and a sentinel have none.
    let in_database_0 = info.redis_settings().clone().set_db(0);
    let server = Server::connect(info.clone().set_redis_settings(in_database_0), false).await?;
    // If it does not answer, the next question says so.
    match server.info("server").await.unwrap_or_default().get("redis_mode") {
        Some("cluster") => Err(Failure::config(
            "the server is a node of a cluster: write redis-cluster:// (with TLS: rediss-cluster://)",
        )),
        Some("sentinel") => Err(Failure::config(
            "the server is a sentinel: write redis-sentinel://host/service (with TLS: rediss-sentinel://)",
        )),
        _ if info.redis_settings().db() != 0 => Server::connect(info, false).await,
        _ => Ok(server),
    }
}

async fn watched(Watched { sentinels, service, primary }: &Watched) -> Result<Server, Failure> {
    let mut failure = Failure::unavailable("no sentinel answers");
    let info = understood(primary)?;
    // The sentinel with the greatest epoch knows of the latest failover.
    let mut newest: Option<(u64, String, u16)> = None;
    for sentinel in sentinels {
        match named_by(sentinel, service).await {
            Ok(named) => newest = newest.max(Some(named)),
            // A permanent error is more useful to report.
            Err(error) if failure.code == exit::UNAVAILABLE => failure = error,
            Err(_) => {}
        }
    }
    let Some((_, host, port)) = newest else { return Err(failure) };
    let addr = beside(info.addr(), &host, port);
    Server::connect(info.set_addr(addr), false).await
}

async fn named_by(sentinel: &str, service: &str) -> Result<(u64, String, u16), Failure> {
    let sentinel = Server::connect(understood(sentinel)?, false).await?;
    let unknown = || Failure::config(format!("unknown service: no sentinel watches {service:?}"));
    let told = sentinel.query(&["SENTINEL", "MASTER", service]).await;
    let told: HashMap<String, String> = told.map_err(|failure| match &failure.why {
        why if why.contains("No such master") => unknown(),
        why if why.contains("unknown command") => Failure::config(format!(
            "{} is not a sentinel: the URL of a single server begins with redis:// or rediss://",
            sentinel.address
        )),
        _ => failure,
    })?;
    let epoch = told.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    // While a sentinel leads a failover, its SENTINEL MASTER has the new epoch, but still the old address. So ask for
    // the address separately.
    let named: Option<(String, u16)> =
        sentinel.query(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]).await?;
    let (host, port) = named.ok_or_else(unknown)?;
    Ok((epoch, host, port))
}

async fn cluster(seeds: &[String]) -> Result<Reached, Failure> {
    let mut failure = Failure::unavailable("no node of the cluster answers");
    for seed in seeds {
        let info = understood(seed)?;
        match connect_all(&info).await {
            Ok(reached) => return Ok(reached),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Connects to the primaries that this node knows.
async fn connect_all(seed: &ConnectionInfo) -> Result<Reached, Failure> {
    let nodes = nodes(seed).await?;
    let reach_node = async |((host, port), slots): ((String, u16), Slots)| {
        let info = seed.clone().set_addr(beside(seed.addr(), &host, port));
        let address = address(&info);
        let connected = match host.as_str() {
            // As in the library, this is no address.
            "?" => Err(Failure::unavailable(format!(
                "{address}: the cluster does not say where it is"
            ))),
            _ => connect_node(info).await,
        };
        connected.map_err(|failure| Missing { address, slots, failure })
    };
    let mut reached = Reached::all(Vec::new());
    for connected in join_all(nodes.into_iter().map(reach_node)).await {
        match connected {
            Ok(server) => reached.servers.push(server),
            Err(missing) => reached.missing.push(missing),
        }
    }
    let nobody = || Failure::unavailable(format!("{}: the node knows no slots", address(seed)));
    if reached.servers.is_empty() {
        return Err(reached.failure().cloned().unwrap_or_else(nobody));
    }
    Ok(reached)
}

async fn connect_node(info: ConnectionInfo) -> Result<Server, Failure> {
    let server = Server::connect(info, true).await?;
    let version = server.info("server").await;
    let version = version.map_err(|failure| failure.of_server(&server.address))?;
    let major = version.get("redis_version").and_then(|version| version.split('.').next());
    // Valkey reports itself as Redis 7.2 here.
    let is_sharded =
        major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 7);
    Ok(Server { is_sharded, ..server })
}

/// The primaries of all slots.
async fn nodes(seed: &ConnectionInfo) -> Result<BTreeMap<(String, u16), Slots>, Failure> {
    let server = Server::connect(seed.clone(), true).await?;
    let slots: Vec<Vec<Value>> = server.query(&["CLUSTER", "SLOTS"]).await?;
    let primary = |range: Vec<Value>| {
        let mut range = range.into_iter();
        let (first, last): (u16, u16) = (value(range.next())?, value(range.next())?);
        let node: Vec<Value> = value(range.next())?;
        let mut node = node.into_iter();
        let host: Option<String> = value(node.next());
        let port: u16 = value(node.next())?;
        // A node without a host is the node that answers.
        let host = host.filter(|host| !host.is_empty());
        Some(((host.unwrap_or_else(|| host_of(seed.addr())), port), first..=last))
    };
    let mut nodes = BTreeMap::<_, Slots>::new();
    for (node, range) in slots.into_iter().filter_map(primary) {
        nodes.entry(node).or_default().push(range);
    }
    Ok(nodes)
}

fn host_of(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}

/// Another server, reached in the same way.
fn beside(addr: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_owned();
    match addr {
        ConnectionAddr::TcpTls { tls_params, .. } => {
            let tls_params = tls_params.clone();
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

fn address(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{host}:{port}")
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        _ => "redis".to_owned(),
    }
}
