//! The address of the server, and how the client makes one connection to it.

mod dial;
mod hello;

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, Value, cmd,
};
use tokio::time::{Instant, timeout};

use crate::config::{Config, longest_lease};
use crate::credentials::Credentials;
use crate::error::{Error, Result, Source, said};
use crate::wire::fault::{self, Fault};
use crate::wire::node::Node;
use crate::wire::passwords::{Password, shown};

pub(crate) use dial::Dialled;
#[cfg(feature = "streams")]
pub use dial::{Dial, Stream};
pub(crate) use hello::{Expected, Hello};

use dial::Dialler;

/// The heartbeat detects a peer that vanished silently. These two settings also free the socket.
const KEEPALIVE: Duration = Duration::from_secs(15);
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// How many requests may queue for the socket before their senders wait.
const QUEUE: usize = 1024;

/// A server, with everything that the client needs to connect to it.
pub(crate) struct Address {
    client: Client,
    /// The one of the URL.
    password: Option<Password>,
    dialler: Dialler,
    config: Config,
}

/// The URL without user, password and query: safe for logs. A server may have named the host.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.client.get_connection_info();
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => write!(f, "redis://{}:{port}", shown(host)),
            ConnectionAddr::TcpTls { host, port, .. } => {
                write!(f, "rediss://{}:{port}", shown(host))
            }
            ConnectionAddr::Unix(path) => write!(f, "redis+unix://{}", path.display()),
            _ => f.write_str("redis"),
        }?;
        write!(f, "/{}", info.redis_settings().db())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl Address {
    /// # Errors
    /// [`Error::Config`] if the URL cannot be parsed. The error does not quote the URL, which may contain a password.
    pub(crate) fn new(url: &str, config: &Config) -> Result<Self> {
        Self::of(understood(url)?, Dialler::over_sockets(), config)
    }

    fn of(info: ConnectionInfo, dialler: Dialler, config: &Config) -> Result<Self> {
        let settings = info.redis_settings();
        let has_own = settings.username().is_some() || settings.password().is_some();
        if config.credentials.is_some() && has_own {
            return Err(Error::config(
                "credentials are set, so the URL must not have a user or a password",
            ));
        }
        let password = settings.password().map(Password::new);
        Ok(Self {
            client: open(prepared(info), config)?,
            password,
            dialler,
            config: config.clone(),
        })
    }

    /// What this server is expected to be, with the URLs that it may require instead.
    pub(crate) fn alone(&self) -> Expected {
        let url = self.to_string();
        let url = url.trim_end_matches("/0");
        let renamed = |scheme: &str| {
            let (plain, encrypted) = (format!("redis-{scheme}://"), format!("rediss-{scheme}://"));
            url.replacen("redis://", &plain, 1).replacen("rediss://", &encrypted, 1)
        };
        let sentinel = format!("{}/<service>", renamed("sentinel"));
        Expected::Alone { cluster: renamed("cluster"), sentinel }
    }

    /// The database number.
    pub(crate) fn database(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }

    /// The same address, reached over streams that `dial` opens.
    #[cfg(feature = "streams")]
    pub(crate) fn over(self, dial: &Dial) -> Self {
        Self { dialler: Dialler::over(dial), ..self }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.config.connect_timeout
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.config.response()
    }

    /// Opens one connection. It calls `push` with each push of the server, on the connection's own task: `push` must
    /// not block.
    pub(crate) async fn connect(
        &self,
        push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Dialled, Fault> {
        let push = move |info| {
            push(info);
            Ok::<(), std::convert::Infallible>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout()))
            .set_response_timeout(Some(self.response_timeout()))
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(push);
        let mut dialled = self.dial(config).await?;
        if let Some(app) = &self.config.describe {
            // A user that may not do this gets a connection without a name.
            let mut name = cmd("CLIENT");
            name.arg("SETNAME").arg(format!("{}:{app}", env!("CARGO_PKG_NAME")));
            dialled.conn.send_packed_command(&name).await.map_err(Fault::connecting)?;
        }
        Ok(dialled)
    }

    async fn dial(&self, config: AsyncConnectionConfig) -> Result<Dialled, Fault> {
        let Some(provider) = &self.config.credentials else {
            let login = Login { password: self.password.clone(), renew_at: None };
            return self.dialler.dial(&self.client, login, config).await;
        };
        let credentials = provider.ask().await.map_err(no_credentials)?;
        let login = Login::of(&credentials);
        self.dialler.dial(&self.client_of(credentials)?, login, config).await
    }

    fn client_of(&self, credentials: Credentials) -> Result<Client, Fault> {
        let info = self.client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone().set_password(credentials.password);
        if let Some(user) = credentials.user {
            settings = settings.set_username(user);
        }
        let client = open(info.set_redis_settings(settings), &self.config);
        client.map_err(|error| Fault::NotSent(said(error.to_string())))
    }

    /// Sends new credentials on a live connection. If the server refuses them, the connection keeps the previous ones.
    pub(crate) async fn authenticate(
        &self,
        conn: &mut MultiplexedConnection,
    ) -> Result<Login, Fault> {
        let Some(provider) = &self.config.credentials else { return Ok(Login::default()) };
        let limit = self.connect_timeout();
        let late = || Fault::NotSent(said(format!("no credentials within {limit:?}")));
        let asked = timeout(limit, provider.ask()).await.map_err(|_| late())?;
        let credentials = asked.map_err(no_credentials)?;
        let login = Login::of(&credentials);
        let mut auth = cmd("AUTH");
        credentials.user.iter().for_each(|user| _ = auth.arg(user));
        auth.arg(&credentials.password);
        match conn.send_packed_command(&auth).await.map_err(Fault::answering)? {
            Value::ServerError(error) => Err(fault::entry(&error)),
            _ => Ok(login),
        }
    }
}

fn no_credentials(source: Source) -> Fault {
    Fault::NotSent(said(format!("no credentials: {source}")))
}

/// The credentials that a connection has sent.
#[derive(Clone, Default)]
pub(crate) struct Login {
    /// Answers to that connection do not show it.
    #[allow(dead_code, reason = "its existence counts")]
    password: Option<Password>,
    /// When to replace them: after three quarters of their validity.
    pub(crate) renew_at: Option<Instant>,
}

impl Login {
    fn of(credentials: &Credentials) -> Self {
        let renewed = |time: Duration| Instant::now() + time.min(longest_lease()) * 3 / 4;
        let password = Some(Password::new(&credentials.password));
        Self { password, renew_at: credentials.valid_for.map(renewed) }
    }
}

/// How to reach several servers: the nodes of a cluster, the sentinels, or the servers that become the primary in turn.
/// The client reaches all of them as the URL says, whatever one server says about another.
pub(crate) struct Addresses {
    info: ConnectionInfo,
    dialler: Dialler,
    config: Config,
    /// The servers that the URL names.
    pub(crate) seeds: Vec<Node>,
}

impl Addresses {
    /// The addresses of the nodes of these URLs. The URLs differ only in the node.
    ///
    /// # Errors
    /// Same as [`Address::new`].
    pub(crate) fn new(urls: &[String], config: &Config) -> Result<Self> {
        let infos = urls.iter().map(|url| understood(url)).collect::<Result<Vec<_>>>()?;
        let seeds = infos.iter().map(|info| node(info.addr())).collect::<Result<_>>()?;
        let first = infos.into_iter().next();
        let info = first.ok_or_else(|| Error::config("the URL names no server"))?;
        let dialler = Dialler::over_sockets();
        let addresses = Self { info, dialler, config: config.clone(), seeds };
        for seed in &addresses.seeds {
            addresses.of(seed)?;
        }
        Ok(addresses)
    }

    /// The database number.
    pub(crate) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// The same servers, reached over streams that `dial` opens.
    #[cfg(feature = "streams")]
    pub(crate) fn over(self, dial: &Dial) -> Self {
        Self { dialler: Dialler::over(dial), ..self }
    }

    /// # Errors
    /// Same as [`Address::new`].
    pub(crate) fn of(&self, node: &Node) -> Result<Address> {
        let (host, port) = (node.host.to_string(), node.port);
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Address::of(self.info.clone().set_addr(addr), self.dialler.clone(), &self.config)
    }
}

fn node(addr: &ConnectionAddr) -> Result<Node> {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Ok(Node::new(host, *port))
        }
        _ => Err(Error::config("the servers of this URL must be reached over TCP")),
    }
}

fn understood(url: &str) -> Result<ConnectionInfo> {
    if cfg!(not(feature = "tls")) && url.starts_with("rediss:") {
        return Err(Error::config("rediss:// needs the feature `tls` of parklock"));
    }
    verified(url.into_connection_info().map_err(|error| malformed(&error))?)
}

fn malformed(error: &redis::RedisError) -> Error {
    // The client's description of the error is a constant; its detail might quote the URL.
    let reason = error.category();
    Error::config(format!(
        "the URL is not one of redis://, rediss://, redis+unix://, redis-cluster://, rediss-cluster://, \
         redis-sentinel:// and rediss-sentinel:// ({reason})"
    ))
}

fn verified(info: ConnectionInfo) -> Result<ConnectionInfo> {
    match info.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            Err(Error::config("#insecure is not accepted: the server must be verified"))
        }
        _ => Ok(info),
    }
}

/// RESP3, since pushes and replies share a connection; no Nagle algorithm, which would double the latency.
fn prepared(info: ConnectionInfo) -> ConnectionInfo {
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    info.set_redis_settings(redis).set_tcp_settings(tcp)
}

#[cfg(feature = "tls")]
fn open(info: ConnectionInfo, config: &Config) -> Result<Client> {
    use redis::{ClientTlsConfig, TlsCertificates};
    use rustls::crypto::{CryptoProvider, ring};

    if CryptoProvider::get_default().is_none() {
        // This fails if another task was quicker: then the process has a provider already.
        let _ = ring::default_provider().install_default();
    }
    let encrypted = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    let client = match config.tls.clone() {
        Some(_) if !encrypted => {
            return Err(Error::config("tls is set, but the URL is not a rediss:// one"));
        }
        Some(tls) if tls.ca.as_ref().is_some_and(|ca| !is_certificate(ca)) => {
            return Err(Error::config("the CA of tls is not a certificate in PEM"));
        }
        Some(tls) => {
            let client_tls = tls.identity.map(|identity| ClientTlsConfig {
                client_cert: identity.certificate,
                client_key: identity.key,
            });
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: tls.ca })
        }
        None => Client::open(info),
    };
    client.map_err(|error| Error::config(format!("the certificates cannot be used: {error}")))
}

/// Refuses a file without any certificate: the TLS library would make an authority of it that trusts nobody.
#[cfg(feature = "tls")]
fn is_certificate(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("BEGIN CERTIFICATE")
}

#[cfg(not(feature = "tls"))]
fn open(info: ConnectionInfo, _config: &Config) -> Result<Client> {
    Client::open(info).map_err(|error| malformed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Result<Address> {
        Address::new(url, &Config::default())
    }

    #[test]
    fn a_url_is_shown_without_its_user_part() {
        let address = address("redis://user:secret@localhost:7000/3").unwrap();
        assert_eq!(address.to_string(), "redis://localhost:7000/3");
        assert!(!format!("{address:?}").contains("secret"));
    }

    #[test]
    fn unix_sockets_are_understood() {
        let address = address("redis+unix:///run/redis.sock?db=2&pass=secret").unwrap();
        assert_eq!(address.to_string(), "redis+unix:///run/redis.sock/2");
    }

    #[test]
    fn the_nodes_of_a_cluster_are_reached_as_its_url_says() {
        let urls = ["redis://user:secret@a:7000/", "redis://user:secret@[::1]/"].map(String::from);
        let addresses = Addresses::new(&urls, &Config::default()).unwrap();
        assert_eq!(addresses.seeds, [Node::new("a", 7000), Node::new("::1", 6379)]);
        let other = addresses.of(&Node::new("b", 7001)).unwrap();
        assert_eq!(other.to_string(), "redis://b:7001/0");
        let Expected::Alone { cluster, sentinel } = other.alone() else { panic!("it is alone") };
        assert_eq!(cluster, "redis-cluster://b:7001");
        assert_eq!(sentinel, "redis-sentinel://b:7001/<service>");
        let settings = other.client.get_connection_info().redis_settings();
        assert_eq!(settings.username(), Some("user"));
        assert!(!format!("{other:?}").contains("secret"));
    }

    #[test]
    fn a_malformed_url_is_refused_and_not_quoted() {
        for url in
            ["", "localhost", "http://user:secret@localhost", "redis://:secret@:x/", "redis://h/db"]
        {
            let error = address(url).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn encryption_is_never_given_up_silently() {
        let error = address("rediss://localhost/#insecure").unwrap_err();
        let why = if cfg!(feature = "tls") { "verified" } else { "feature" };
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(address("rediss://localhost").is_ok(), cfg!(feature = "tls"));
    }
}
