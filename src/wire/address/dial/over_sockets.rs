//! Streams over sockets.

use std::io;

use futures_util::future::select_ok;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};

use crate::wire::address::Login;
use crate::wire::address::dial::{Dialled, logged_in};
use crate::wire::fault::Fault;
use crate::wire::socket::Socket;

/// The source of streams.
#[derive(Clone)]
pub(crate) struct Dialler;

impl Dialler {
    pub(crate) fn over_sockets() -> Self {
        Self
    }

    /// The caller limits how long this takes.
    pub(crate) async fn dial(
        &self,
        client: &Client,
        login: Login,
        config: AsyncConnectionConfig,
    ) -> Result<Dialled, Fault> {
        let info = client.get_connection_info();
        let conn = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = tcp(host, *port, info.tcp_settings()).await.map_err(failed)?;
                logged_in(client, stream, config).await?
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(failed)?;
                logged_in(client, stream, config).await?
            }
            // Over TLS the `redis` crate opens the stream, and keeps it.
            _ => {
                let made = client.get_multiplexed_async_connection_with_config(&config).await;
                Socket::driven_elsewhere(made.map_err(Fault::connecting)?)
            }
        };
        Ok(Dialled { conn, login })
    }
}

fn failed(error: io::Error) -> Fault {
    Fault::connecting(error.into())
}

/// Tries all addresses of the host side by side.
async fn tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let attempts = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (stream, _) = select_ok(attempts).await?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}
