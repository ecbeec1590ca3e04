//! Streams of the simulation.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::wire::address::Login;
use crate::wire::address::dial::{Dialled, logged_in};
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
        let stream = dial(host, *port).await.map_err(|error| Fault::connecting(error.into()))?;
        Ok(Dialled { conn: logged_in(client, stream, config).await?, login })
    }
}

fn unreachable() -> Fault {
    Fault::connecting(io::Error::from(io::ErrorKind::NetworkUnreachable).into())
}
