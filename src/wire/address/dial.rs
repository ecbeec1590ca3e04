//! How the stream under a connection is opened: over a socket to the server's address, or by a function to a server in
//! this process (the feature `streams`).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::ConnectionAddr;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use crate::config::Config;
use crate::error::Result;
#[cfg(feature = "streams")]
use crate::streams::Dial;
#[cfg(feature = "tls")]
use crate::wire::address::encryption::Encryption;
use crate::wire::socket::{Broken, Halves};

/// The heartbeat detects a peer that vanished silently. These two settings also free the socket.
const KEEPALIVE: Duration = Duration::from_secs(15);
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// The source of streams.
#[derive(Clone)]
pub(crate) struct Dialler {
    #[cfg(feature = "tls")]
    tls: Option<Encryption>,
}

impl Dialler {
    /// Dials servers at such an address.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the certificates cannot be used.
    #[cfg(feature = "tls")]
    pub(super) fn of(address: &ConnectionAddr, config: &Config) -> Result<Self> {
        let tls = match (address, &config.tls) {
            (ConnectionAddr::TcpTls { .. }, tls) => Some(Encryption::new(tls.as_ref())?),
            (_, Some(_)) => {
                let why = "tls is set, but the address is not an encrypted one (rediss://)";
                return Err(crate::error::Error::config(why));
            }
            (_, None) => None,
        };
        Ok(Self { tls })
    }

    /// Dials servers at such an address.
    #[cfg(not(feature = "tls"))]
    pub(super) fn of(_: &ConnectionAddr, _: &Config) -> Result<Self> {
        Ok(Self {})
    }

    pub(super) async fn dial(
        &self,
        address: &ConnectionAddr,
    ) -> std::result::Result<Halves, Broken> {
        match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let addresses: Vec<_> = lookup_host((&**host, *port)).await?.collect();
                if addresses.is_empty() {
                    return Err(impossible("the host has no address").into());
                }
                // All at once: one of them may lead nowhere.
                let is_plain = matches!(address, ConnectionAddr::Tcp(..));
                let attempts = addresses.into_iter();
                let attempts = attempts.map(|at| Box::pin(self.connect(at, host, is_plain)));
                Ok(select_ok(attempts).await?.0)
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Ok(halves(tokio::net::UnixStream::connect(path).await?.into_split()))
            }
            _ => Err(impossible("no such address on this system").into()),
        }
    }

    async fn connect(&self, address: SocketAddr, host: &str, is_plain: bool) -> io::Result<Halves> {
        let stream = TcpStream::connect(address).await?;
        // The Nagle algorithm would hold a request back until the server has acknowledged the one before.
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        if is_plain {
            return Ok(halves(stream.into_split()));
        }
        self.encrypt(host, stream).await
    }

    #[cfg(feature = "tls")]
    async fn encrypt(&self, host: &str, stream: TcpStream) -> io::Result<Halves> {
        let tls = self.tls.as_ref().ok_or_else(|| impossible("no certificates"))?;
        Ok(halves(tokio::io::split(tls.encrypted(host, stream).await?)))
    }

    #[cfg(not(feature = "tls"))]
    async fn encrypt(&self, _: &str, _: TcpStream) -> io::Result<Halves> {
        Err(impossible("it needs the feature `tls`"))
    }
}

/// The same with a function that opens streams to servers at a host and a port.
#[cfg(feature = "streams")]
pub(super) async fn over(
    Dial(open): &Dial,
    address: &ConnectionAddr,
) -> std::result::Result<Halves, Broken> {
    let ConnectionAddr::Tcp(host, port) = address else {
        return Err(impossible("a stream leads to a host and a port").into());
    };
    Ok(halves(tokio::io::split(open(host, *port).await?)))
}

fn impossible(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

fn halves<R, W>((reads, writes): (R, W)) -> Halves
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    (Box::new(reads), Box::new(writes))
}
