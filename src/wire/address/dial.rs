//! How the stream under a connection is opened: over a socket to the server's address, or by a function to a server in
//! this process (the feature `streams`).

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use crate::wire::address::Login;
use crate::wire::fault::Fault;

/// A new connection.
pub(crate) struct Dialled {
    pub(crate) conn: MultiplexedConnection,
    pub(crate) login: Login,
    /// Ends the connection when its last user is gone. Over a socket, the `redis` crate does that.
    #[cfg(feature = "streams")]
    pub(crate) driver: Option<std::sync::Arc<tokio_util::task::AbortOnDropHandle<()>>>,
}

/// The source of streams.
#[derive(Clone, Default)]
pub(crate) struct Dialler {
    /// In place of sockets.
    #[cfg(feature = "streams")]
    dial: Option<Dial>,
}

impl Dialler {
    pub(crate) fn over_sockets() -> Self {
        Self::default()
    }

    pub(crate) async fn dial(
        &self,
        client: &Client,
        login: Login,
        config: AsyncConnectionConfig,
    ) -> Result<Dialled, Fault> {
        #[cfg(feature = "streams")]
        if let Some(dial) = &self.dial {
            return streams::dialled(dial, client, login, config).await;
        }
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Dialled {
            conn: connecting.await.map_err(Fault::connecting)?,
            login,
            #[cfg(feature = "streams")]
            driver: None,
        })
    }
}

#[cfg(feature = "streams")]
pub use streams::{Dial, Stream};

#[cfg(feature = "streams")]
mod streams {
    use std::io;
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use redis::aio::MultiplexedConnection;
    use redis::{AsyncConnectionConfig, Client, ConnectionAddr};
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_util::task::AbortOnDropHandle;

    use crate::wire::address::Login;
    use crate::wire::address::dial::{Dialled, Dialler};
    use crate::wire::fault::Fault;

    /// A stream of bytes.
    pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

    impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

    /// Opens one stream to the server at this host and port.
    pub type Dial =
        Arc<dyn Fn(&str, u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

    impl Dialler {
        pub(crate) fn over(dial: &Dial) -> Self {
            Self { dial: Some(dial.clone()) }
        }
    }

    pub(super) async fn dialled(
        dial: &Dial,
        client: &Client,
        login: Login,
        config: AsyncConnectionConfig,
    ) -> Result<Dialled, Fault> {
        let info = client.get_connection_info();
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            let unreachable = io::Error::from(io::ErrorKind::NetworkUnreachable);
            return Err(Fault::connecting(unreachable.into()));
        };
        let stream = dial(host, *port).await.map_err(|error| Fault::connecting(error.into()))?;
        let connecting =
            MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
        let (conn, driver) = connecting.await.map_err(Fault::connecting)?;
        let driver = Some(Arc::new(AbortOnDropHandle::new(tokio::spawn(driver))));
        Ok(Dialled { conn, login, driver })
    }
}
