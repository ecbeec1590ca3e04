//! The client's end of a connection.

use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use parklock_simulated_server::Conn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::near::Near;
use crate::process::Process;

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Stream {
    near: Near,
    conn: Conn,
    process: Process,
}

impl Stream {
    pub(crate) fn open(process: &Process) -> io::Result<Self> {
        let near = Near::default();
        let accepted = process.call({
            let near = near.clone();
            |host| host.accept(near)
        });
        let conn = accepted.ok_or(io::ErrorKind::ConnectionRefused)?;
        Ok(Self { near, conn, process: process.clone() })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inbox = self.near.inbox();
        if inbox.bytes.is_empty() {
            if inbox.ended {
                return Poll::Ready(Ok(()));
            }
            inbox.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let read = inbox.bytes.read(buffer.initialize_unfilled())?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.near.inbox().ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let (conn, request) = (self.conn, bytes.to_vec());
        self.process.call(move |host| host.receive(conn, request));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.leave();
        Poll::Ready(Ok(()))
    }
}

impl Stream {
    fn leave(&self) {
        let conn = self.conn;
        self.process.send(move |host| host.leave(conn));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.leave();
    }
}
