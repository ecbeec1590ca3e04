//! A client, said piece by piece: its server and its settings.

use std::fmt;

use crate::client::Client;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::{Error, Result};
#[cfg(feature = "redis-1")]
use crate::wire::ConnectionInfo;
use crate::wire::Endpoint;

/// Makes a [`Client`]: see [`Client::builder`].
#[derive(Clone, Default)]
#[must_use = "it connects nothing by itself"]
pub struct ClientBuilder {
    endpoint: Option<Endpoint>,
    config: Config,
}

impl ClientBuilder {
    /// The server, the cluster or the sentinels: see [`Client::connect`].
    pub fn url(self, url: impl Into<String>) -> Self {
        Self { endpoint: Some(Endpoint::Url(url.into())), ..self }
    }

    /// The server of a `redis::Client` of the service (feature `redis-1`, for version 1 of the crate `redis`), in place of a
    /// URL: its address, its database, its user and its password.
    ///
    /// The client opens connections of its own: a `redis::Client` has none. So these are parklock's, and not taken over: the
    /// protocol, the settings of TCP, the name of the library, and the timeouts, which are in [`Config`].
    ///
    /// The server of an encrypted address is always verified (feature `tls`). If `Config::tls` is not set, it must have a
    /// certificate by a public authority.
    ///
    /// A `redis::cluster::ClusterClient` and a `redis::sentinel::SentinelClient` do not tell their settings. Use
    /// [`url`](Self::url) for a cluster and for a primary behind Sentinel.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let redis = redis::Client::open(url)?; // the service has it already
    ///
    /// let locks = parklock::Client::builder().redis_1(redis.get_connection_info()).connect().await?;
    /// locks.lock("doc:redis").lock().await?.unlock().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// These are an [`Error::Config`] of [`connect`](Self::connect): an address whose server is not to be verified (`#insecure`);
    /// an encrypted address without the feature `tls`; certificates (`redis::Client::build_with_tls`) without `Config::tls`,
    /// because they cannot be read; a user or a password beside [`Config::credentials`].
    #[cfg(feature = "redis-1")]
    pub fn redis_1(self, settings: &ConnectionInfo) -> Self {
        Self { endpoint: Some(Endpoint::Redis(Box::new(settings.clone()))), ..self }
    }

    /// How the client behaves. Default: [`Config::default`].
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Connects.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// Same as [`Client::connect_with`], and [`Error::Config`] if the builder has no server.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    pub async fn connect(self) -> Result<Client> {
        let (endpoint, config) = self.complete()?;
        Ok(Client { engine: Engine::connect(&endpoint, None, config).await? })
    }

    /// Makes the client without waiting for its first connection: see [`Client::connect_lazy`].
    ///
    /// # Errors
    /// Same as [`Client::connect_lazy`], and [`Error::Config`] if the builder has no server.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    pub fn connect_lazy(self) -> Result<Client> {
        let (endpoint, config) = self.complete()?;
        Ok(Client { engine: Engine::connect_lazy(&endpoint, config)? })
    }

    fn complete(self) -> Result<(Endpoint, Config)> {
        let endpoint =
            self.endpoint.ok_or_else(|| Error::config("the builder has no server: no URL"))?;
        Ok((endpoint, self.config))
    }
}

/// Keeps the password of the server out of logs.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}
