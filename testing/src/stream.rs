//! The client's end of a connection.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use parklock_simulated_server::Conn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::process::Process;

/// What has arrived for the client.
#[derive(Debug, Default)]
struct Inbox {
    bytes: VecDeque<u8>,
    reader: Option<Waker>,
    /// The server's side has ended.
    ended: bool,
}

/// The server's handle of a client's end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Near(Arc<Mutex<Inbox>>);

impl Near {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deliver(&self, bytes: &[u8]) {
        self.inbox().bytes.extend(bytes);
        self.wake();
    }

    pub(crate) fn end(&self) {
        self.inbox().ended = true;
        self.wake();
    }

    fn wake(&self) {
        let reader = self.inbox().reader.take();
        reader.into_iter().for_each(Waker::wake);
    }
}

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
