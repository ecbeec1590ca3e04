//! How the stream under a connection is opened: over a socket to the server's address, or in the project's own
//! simulation (`cfg(parklock_sim)`) by a function.

use redis::aio::MultiplexedConnection;
#[cfg(not(parklock_sim))]
use redis::{AsyncConnectionConfig, Client};

use crate::wire::address::Login;
#[cfg(not(parklock_sim))]
use crate::wire::fault::Fault;

/// A new connection.
pub(crate) struct Dialled {
    pub(crate) conn: MultiplexedConnection,
    pub(crate) login: Login,
    /// Ends the connection when its last user is gone. Over a socket, the `redis` crate does that.
    #[cfg(parklock_sim)]
    pub(crate) driver: std::sync::Arc<tokio_util::task::AbortOnDropHandle<()>>,
}

/// The source of streams.
#[cfg(not(parklock_sim))]
#[derive(Clone)]
pub(crate) struct Dialler;

#[cfg(not(parklock_sim))]
impl Dialler {
    pub(crate) fn over_sockets() -> Self {
        Self
    }

    pub(crate) async fn dial(
        &self,
        client: &Client,
        login: Login,
        config: AsyncConnectionConfig,
    ) -> Result<Dialled, Fault> {
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Dialled { conn: connecting.await.map_err(Fault::connecting)?, login })
    }
}

#[cfg(parklock_sim)]
pub(crate) use simulated::Dialler;
#[cfg(parklock_sim)]
pub use simulated::{Dial, Stream};

#[cfg(parklock_sim)]
mod simulated {
    use std::io;
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use redis::aio::MultiplexedConnection;
    use redis::{AsyncConnectionConfig, Client, ConnectionAddr};
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_util::task::AbortOnDropHandle;

    use crate::wire::address::Login;
    use crate::wire::address::dial::Dialled;
    use crate::wire::fault::Fault;

    /// A stream of bytes.
    pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

    impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

    /// Opens one stream to the server at this host and port.
    pub type Dial =
        Arc<dyn Fn(&str, u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

    /// The source of streams. By default there is none, since the simulation has no network.
    #[derive(Clone)]
    pub(crate) struct Dialler(pub(crate) Option<Dial>);

    impl Dialler {
        pub(crate) fn over_sockets() -> Self {
            Self(None)
        }

        pub(crate) async fn dial(
            &self,
            client: &Client,
            login: Login,
            config: AsyncConnectionConfig,
        ) -> Result<Dialled, Fault> {
            let dial = self.0.as_ref().ok_or_else(unreachable)?;
            let ConnectionAddr::Tcp(host, port) = client.get_connection_info().addr() else {
                return Err(unreachable());
            };
            let stream =
                dial(host, *port).await.map_err(|error| Fault::connecting(error.into()))?;
            let settings = client.get_connection_info().redis_settings();
            let (conn, driver) = MultiplexedConnection::new_with_config(settings, stream, config)
                .await
                .map_err(Fault::connecting)?;
            let driver = Arc::new(AbortOnDropHandle::new(tokio::spawn(driver)));
            Ok(Dialled { conn, login, driver })
        }
    }

    fn unreachable() -> Fault {
        Fault::connecting(io::Error::from(io::ErrorKind::NetworkUnreachable).into())
    }
}
