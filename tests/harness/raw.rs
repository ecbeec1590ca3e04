//! A client without a library: bytes out, bytes in, exactly.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::SOON;
use crate::common::{Proxy, timeout};

pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) async fn to(proxy: &Proxy) -> Self {
        Self::connect(proxy.port()).await.expect("the proxy listens")
    }

    pub(crate) async fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await;
        stream.map(Self)
    }

    /// Sends inline commands, one a line.
    pub(crate) async fn say(&mut self, lines: &[&str]) {
        let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(text.as_bytes()).await;
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("an open connection");
    }

    /// Expects exactly these bytes next, however they come.
    pub(crate) async fn hear(&mut self, expected: &str) {
        let mut heard = vec![0; expected.len()];
        let read = timeout(SOON, self.0.read_exact(&mut heard)).await;
        read.unwrap_or_else(|_| panic!("nothing like {expected:?}")).expect("an open connection");
        assert_eq!(String::from_utf8_lossy(&heard), expected);
    }

    /// What a single read gives; nothing at the end of the stream.
    pub(crate) async fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut heard = vec![0; 64 * 1024];
        let length = timeout(SOON, self.0.read(&mut heard)).await.expect("something")?;
        heard.truncate(length);
        Ok(heard)
    }

    /// Leaves as a process that ends: what it sent is under way, then FIN.
    pub(crate) fn leave(self) {}

    /// Leaves with an RST.
    pub(crate) fn vanish(self) {
        self.0.set_zero_linger().expect("SO_LINGER");
    }

    /// Expects the connection to be reset, not merely closed.
    pub(crate) async fn is_reset(&mut self) {
        let error = self.read().await.expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
