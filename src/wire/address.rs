//! The address of the server, and how the client makes one connection to it.

mod dial;
#[cfg(feature = "tls")]
mod encryption;
mod hello;

use std::fmt;
use std::time::Duration;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, ServerError, Value, cmd, pipe,
};
use tokio::time::{Instant, timeout};

use crate::config::{Config, longest_lease};
use crate::credentials::Credentials;
use crate::error::{Error, Result, Source, said};
use crate::wire::fault::{self, Fault};
use crate::wire::node::Node;
use crate::wire::passwords::Password;
use crate::wire::socket::{Broken, Halves, Hear, OnEnd, Socket};

pub(crate) use hello::{Expected, Hello};

use dial::Dialler;

/// A server, with everything that the client needs to connect to it.
#[derive(Clone)]
pub(crate) struct Address {
    info: ConnectionInfo,
    /// The one of the URL.
    password: Option<Password>,
    dialler: Dialler,
    config: Config,
}

/// The answer to `SELECT` of a number that is too great, and of any number but 0 on a node of a cluster of Redis.
const NO_DATABASE: &str = "DB index";
const ONE_DATABASE: &str = "SELECT is not allowed";

const UNVERIFIED: &str = "#insecure is not accepted: the server must be verified";

/// The URL without user, password and query: safe for logs. A server may have named the host.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => write!(f, "redis://{}", Node::new(host, *port)),
            ConnectionAddr::TcpTls { host, port, .. } => {
                write!(f, "rediss://{}", Node::new(host, *port))
            }
            ConnectionAddr::Unix(path) => write!(f, "redis+unix://{}", path.display()),
            _ => f.write_str("redis"),
        }?;
        write!(f, "/{}", self.info.redis_settings().db())
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
        Self::of(understood(url)?, config)
    }

    /// The server of a client of the redis crate.
    ///
    /// # Errors
    /// [`Error::Config`] if the address cannot be reached as that client reaches it.
    #[cfg(feature = "redis-1")]
    pub(crate) fn given(info: &ConnectionInfo, config: &Config) -> Result<Self> {
        match info.addr() {
            ConnectionAddr::TcpTls { .. } if cfg!(not(feature = "tls")) => {
                return Err(Error::config(
                    "the address is encrypted: it needs the feature `tls` of parklock",
                ));
            }
            ConnectionAddr::TcpTls { insecure: true, .. } => return Err(Error::config(UNVERIFIED)),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { tls_params: Some(_), .. } if config.tls.is_none() => {
                return Err(Error::config(
                    "the certificates of a redis::Client cannot be read: give them to Config::tls",
                ));
            }
            _ => {}
        }
        Self::of(info.clone(), config)
    }

    fn of(info: ConnectionInfo, config: &Config) -> Result<Self> {
        let dialler = Dialler::of(info.addr(), config)?;
        let settings = info.redis_settings();
        let has_own = settings.username().is_some() || settings.password().is_some();
        if config.credentials.is_some() && has_own {
            return Err(Error::config(
                "credentials are set, so the URL or the redis::Client must not have a user or a password",
            ));
        }
        let password = settings.password().map(Password::new);
        Ok(Self { info, password, dialler, config: config.clone() })
    }

    /// The database number.
    pub(crate) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.config.connect_timeout
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.config.response()
    }

    /// Opens one connection, and greets the server.
    pub(crate) async fn connect(&self, hear: Hear, on_end: OnEnd) -> Result<Dialled, Fault> {
        let (login, user, password) = match &self.config.credentials {
            None => {
                let settings = self.info.redis_settings();
                let login = Login { password: self.password.clone(), renew_at: None };
                let owned = |word: Option<&str>| word.map(str::to_owned);
                (login, owned(settings.username()), owned(settings.password()))
            }
            Some(provider) => {
                let credentials = provider.ask().await.map_err(no_credentials)?;
                let login = Login::of(&credentials);
                (login, credentials.user, Some(credentials.password))
            }
        };
        let halves = self.dial().await.map_err(Fault::connecting)?;
        let socket = Socket::new(halves, self.response_timeout(), hear, on_end);
        let hello = self.greet(&socket, user.as_deref(), password.as_deref()).await?;
        Ok(Dialled { socket, hello, login })
    }

    async fn dial(&self) -> Result<Halves, Broken> {
        let address = self.info.addr();
        #[cfg(feature = "streams")]
        if let Some(dial) = &self.config.dial {
            return dial::over(dial, address).await;
        }
        self.dialler.dial(address).await
    }

    /// A connection for a few requests. Nobody listens to it.
    pub(crate) async fn connect_for_once(&self) -> Result<Dialled, Fault> {
        self.connect(Box::new(|_| {}), Box::new(|| {})).await
    }

    /// Says who the client is, which protocol it speaks and which database it means, in one piece.
    async fn greet(
        &self,
        socket: &Socket,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Hello, Fault> {
        // RESP3, since pushes and replies share a connection.
        let mut hello = cmd("HELLO");
        hello.arg(3);
        // A user without a password: the server knows whether it needs one.
        if user.is_some() || password.is_some() {
            let (user, password) = (user.unwrap_or("default"), password.unwrap_or_default());
            hello.arg("AUTH").arg(user).arg(password);
        }
        let (mut pipe, database) = (pipe(), self.database());
        if database != 0 {
            pipe.cmd("SELECT").arg(database);
        }
        self.describe(&mut pipe);
        // Two requests at once: a server that takes no more clients answers the first one alone, and closes.
        let (hello, others) = tokio::join!(socket.ask(&hello), socket.ask_each(&pipe));
        let hello = hello.map_err(Fault::connecting)?;
        if let Value::ServerError(error) = &hello {
            return Err(Fault::refused_at_first(error));
        }
        let (hello, others) = (Hello::read(&hello)?, others.map_err(Fault::connecting)?);
        match others.first() {
            // A sentinel has no databases. Whoever uses the connection says what is wrong with a sentinel.
            Some(Value::ServerError(error)) if database != 0 && hello.is_sentinel().is_err() => {
                Err(self.not_selected(error, &hello))
            }
            _ => Ok(hello),
        }
    }

    /// The server has refused the database of the URL.
    fn not_selected(&self, error: &ServerError, hello: &Hello) -> Fault {
        let database = self.database();
        if fault::says(error, ONE_DATABASE) {
            return Fault::Config(format!(
                "{self}: the cluster has no database {database}: nodes have several with Valkey 9 or later \
                 (`cluster-databases` says how many), else only 0"
            ));
        }
        if fault::says(error, NO_DATABASE) {
            let setting = if hello.is_node() { "cluster-databases" } else { "databases" };
            return Fault::Config(format!(
                "{self}: the server has no database {database} (its setting `{setting}` says how many it has)"
            ));
        }
        Fault::refused_at_first(error)
    }

    /// What `CLIENT LIST` shows. A user that may not do this gets a connection without a name.
    fn describe(&self, pipe: &mut Pipeline) {
        for (field, value) in
            [("LIB-NAME", env!("CARGO_PKG_NAME")), ("LIB-VER", env!("CARGO_PKG_VERSION"))]
        {
            pipe.cmd("CLIENT").arg("SETINFO").arg(field).arg(value);
        }
        if let Some(app) = &self.config.describe {
            pipe.cmd("CLIENT").arg("SETNAME").arg(format!("{}:{app}", env!("CARGO_PKG_NAME")));
        }
    }

    /// Sends new credentials on a live connection. If the server refuses them, the connection keeps the previous ones.
    pub(crate) async fn authenticate(&self, socket: &Socket) -> Result<Login, Fault> {
        let Some(provider) = &self.config.credentials else { return Ok(Login::default()) };
        let limit = self.connect_timeout();
        let late = || Fault::NotSent(said(format!("no credentials within {limit:?}")));
        let asked = timeout(limit, provider.ask()).await.map_err(|_| late())?;
        let credentials = asked.map_err(no_credentials)?;
        let login = Login::of(&credentials);
        let mut auth = cmd("AUTH");
        credentials.user.iter().for_each(|user| _ = auth.arg(user));
        auth.arg(&credentials.password);
        match socket.log_in(&auth).await.transpose() {
            Some(answer) => fault::answered(answer).map(|_| login),
            None => Err(Fault::Permission(said("the server has refused the credentials"))),
        }
    }
}

fn no_credentials(source: Source) -> Fault {
    Fault::NotSent(said(format!("no credentials: {source}")))
}

/// A new connection.
pub(crate) struct Dialled {
    pub(crate) socket: Socket,
    pub(crate) hello: Hello,
    pub(crate) login: Login,
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
    /// The address of the first of them.
    like: Address,
    /// The servers that the URL names.
    pub(crate) seeds: Vec<Node>,
}

impl Addresses {
    /// The addresses of the nodes of these URLs. The URLs differ only in the node.
    ///
    /// # Errors
    /// Same as [`Address::new`].
    pub(crate) fn new(urls: &[String], config: &Config) -> Result<Self> {
        let seed = |url: &String| node(understood(url)?.addr());
        let seeds = urls.iter().map(seed).collect::<Result<_>>()?;
        let first = urls.first().ok_or_else(|| Error::config("the URL names no server"))?;
        Ok(Self { like: Address::new(first, config)?, seeds })
    }

    /// The database number.
    pub(crate) fn database(&self) -> i64 {
        self.like.database()
    }

    /// How to reach the one at this node.
    pub(crate) fn of(&self, node: &Node) -> Address {
        let (host, port) = (node.host.to_string(), node.port);
        let addr = match self.like.info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Address { info: self.like.info.clone().set_addr(addr), ..self.like.clone() }
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

/// `rediss://` is read as `redis://`: the redis crate knows it only with TLS of its own, which parklock does not use.
pub(crate) fn understood(url: &str) -> Result<ConnectionInfo> {
    let plain = url.strip_prefix("rediss://").map(|rest| format!("redis://{rest}"));
    let info = plain.as_deref().unwrap_or(url).into_connection_info();
    let info = info.map_err(|error| malformed(url, &error))?;
    match info.addr() {
        ConnectionAddr::Tcp(..) if plain.is_some() && cfg!(not(feature = "tls")) => {
            Err(Error::config("rediss:// needs the feature `tls` of parklock"))
        }
        ConnectionAddr::Tcp(..) if plain.is_some() && url.contains('#') => {
            Err(Error::config(UNVERIFIED))
        }
        ConnectionAddr::Tcp(host, port) if plain.is_some() => {
            let (host, port) = (host.clone(), *port);
            let addr = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
            Ok(info.set_addr(addr))
        }
        _ => Ok(info),
    }
}

fn malformed(url: &str, error: &redis::RedisError) -> Error {
    if let Some(reason) = what_is_wrong(url) {
        return Error::config(reason);
    }
    // The client's description of the error is a constant; its detail might quote the URL.
    let reason = error.category();
    Error::config(format!(
        "the URL is not one of redis://, rediss://, redis+unix://, redis-cluster://, rediss-cluster://, \
         redis-sentinel:// and rediss-sentinel:// ({reason})"
    ))
}

/// What is wrong with a URL of the right scheme. A password with a `/` of its own ends the host too soon.
fn what_is_wrong(url: &str) -> Option<&'static str> {
    let rest = ["redis://", "rediss://"].iter().find_map(|scheme| url.strip_prefix(scheme))?;
    let (rest, _) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit(']').next().and_then(|rest| Some(rest.rsplit_once(':')?.1));
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        Some(
            "the port of the URL is not a number up to 65535; if that is part of a password, percent-encode its special characters",
        )
    } else if !database.is_empty() && database.parse::<i64>().is_err() {
        Some("the database of the URL, which follows the host, is not a number")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_or_a_database_that_is_no_number_is_named() {
        for url in ["redis://h:x", "redis://u:p@h:70000/3", "rediss://[::1]:x/", "redis://:pa/ss@h"]
        {
            let error = address(url).unwrap_err().to_string();
            assert!(error.contains("the port of the URL"), "{url}: {error}");
        }
        for url in ["redis://h/db", "redis://h:1/0/1", "rediss://u:p@h/x?a=b"] {
            let error = address(url).unwrap_err().to_string();
            assert!(error.contains("the database of the URL"), "{url}: {error}");
        }
        for url in ["http://h:x", "redis://[::1", "h:x"] {
            let error = address(url).unwrap_err().to_string();
            assert!(error.contains("the URL is not one of"), "{url}: {error}");
        }
    }

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
        let other = addresses.of(&Node::new("b", 7001));
        assert_eq!(other.to_string(), "redis://b:7001/0");
        let ipv6 = addresses.of(&Node::new("::1", 6379));
        assert_eq!(ipv6.to_string(), "redis://[::1]:6379/0");
        let settings = other.info.redis_settings();
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
