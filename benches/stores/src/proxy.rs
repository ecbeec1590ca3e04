//! A link to a server that can be cut without a word: then no byte passes, and neither side is told.

use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Leads to one server, or to each of several. Dropped, it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    is_cut: Arc<AtomicBool>,
    _links: JoinSet<()>,
}

impl Proxy {
    /// To the servers at these addresses, with commas between them.
    pub async fn to(address: &str) -> Result<Self> {
        let (is_cut, mut links, mut ours) = (Arc::default(), JoinSet::new(), Vec::new());
        for server in address.split(',') {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            ours.push(listener.local_addr()?.to_string());
            links.spawn(accept(listener, server.to_owned(), Arc::clone(&is_cut)));
        }
        Ok(Self { address: ours.join(","), is_cut, _links: links })
    }

    /// What a client is to connect to in place of the servers.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }
}

async fn accept(listener: TcpListener, server: String, is_cut: Arc<AtomicBool>) {
    let mut links = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        links.spawn(join(client, server.clone(), Arc::clone(&is_cut)));
    }
}

async fn join(client: TcpStream, server: String, is_cut: Arc<AtomicBool>) {
    silent_if_cut(&is_cut).await;
    // Otherwise the client's connection ends as any broken one does.
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(pass(from_client, to_server, &is_cut), pass(from_server, to_client, &is_cut));
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_cut: &AtomicBool) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !is_cut.load(Relaxed) && to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    silent_if_cut(is_cut).await;
}

/// Keeps what the caller has open for as long as the link is there. A side that closes its end of a cut link is not
/// heard on the other.
async fn silent_if_cut(is_cut: &AtomicBool) {
    if is_cut.load(Relaxed) {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SILENCE: Duration = Duration::from_millis(50);

    /// Both ends of a connection that leads through a proxy.
    async fn connected() -> Result<(TcpStream, Proxy, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let proxy = Proxy::to(&listener.local_addr()?.to_string()).await?;
        let client = TcpStream::connect(proxy.address()).await?;
        let (server, _) = listener.accept().await?;
        Ok((client, proxy, server))
    }

    #[tokio::test]
    async fn bytes_pass_and_a_client_that_closes_is_heard() -> Result<()> {
        let (mut client, _proxy, mut server) = connected().await?;
        client.write_all(b"lock").await?;
        drop(client);
        let mut heard = String::new();
        server.read_to_string(&mut heard).await?;
        assert_eq!(heard, "lock");
        Ok(())
    }

    #[tokio::test]
    async fn nothing_is_heard_through_a_cut_link_not_even_its_end() -> Result<()> {
        let (mut client, proxy, mut server) = connected().await?;
        proxy.cut();
        client.write_all(b"lock").await?;
        drop(client);
        let mut byte = [0];
        assert!(timeout(SILENCE, server.read(&mut byte)).await.is_err());
        drop(proxy);
        assert_eq!(timeout(SILENCE, server.read(&mut byte)).await??, 0);
        Ok(())
    }
}
