//! How the stream under a connection is opened: over a socket to the server's address, or in the project's own
//! simulation (`cfg(parklock_sim)`) by a function.

#[cfg(not(parklock_sim))]
mod over_sockets;
#[cfg(parklock_sim)]
mod simulated;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::wire::address::Login;
use crate::wire::fault::Fault;
use crate::wire::socket::Socket;

#[cfg(not(parklock_sim))]
pub(crate) use over_sockets::Dialler;
#[cfg(parklock_sim)]
pub(crate) use simulated::Dialler;
#[cfg(parklock_sim)]
pub use simulated::{Dial, Stream};

/// A new connection.
pub(crate) struct Dialled {
    pub(crate) conn: Socket,
    pub(crate) login: Login,
}

/// Logs in over this stream.
async fn logged_in(
    client: &Client,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: AsyncConnectionConfig,
) -> Result<Socket, Fault> {
    let settings = client.get_connection_info().redis_settings();
    let made = MultiplexedConnection::new_with_config(settings, stream, config).await;
    let (conn, driver) = made.map_err(Fault::connecting)?;
    Ok(Socket::new(conn, driver))
}
