//! A port of the loopback interface, for clients that need one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::process::Process;
use crate::stream::Stream;

/// It listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Port {
    pub(crate) fn open(process: &Process) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let accepting = accept(TcpListener::from_std(listener)?, process.clone());
        Ok(Self { address, task: tokio::spawn(accepting).abort_handle() })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The connections end with this future.
async fn accept(listener: TcpListener, process: Process) {
    let mut open = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        open.spawn(serve(socket, process.clone()));
        while open.try_join_next().is_some() {}
    }
}

/// A server that refuses its clients closes the connection at once.
async fn serve(mut socket: TcpStream, process: Process) -> io::Result<()> {
    socket.set_nodelay(true)?;
    copy_bidirectional(&mut socket, &mut Stream::open(&process)?).await?;
    Ok(())
}
