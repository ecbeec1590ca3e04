//! Connections over streams in place of sockets, for parklock-testing and the simulation.

use std::sync::Arc;
use std::{fmt, io};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Open = dyn Fn(&str, u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync;

/// Opens one stream to the server at this host and port.
#[derive(Clone)]
pub struct Dial(pub Arc<Open>);

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}
