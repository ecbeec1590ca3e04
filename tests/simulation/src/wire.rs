//! One end of a connection: the stream that a client reads and writes. What is written waits here until the world
//! takes it; what the world delivers waits here until the client reads it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use parklock::streams::Dial;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// What a connection's client and the world both see of it.
#[derive(Default)]
struct State {
    inbox: VecDeque<u8>,
    reader: Option<Waker>,
    outbox: Vec<u8>,
    /// Why there is no more to read after the inbox.
    end: Option<End>,
    /// The client has let go of the stream.
    dropped: bool,
}

/// How the other side goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Closed,
    Reset,
}

/// The world's handle of a client's end.
#[derive(Clone, Default)]
pub struct Near(Arc<Mutex<State>>);

impl Near {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the client has written since the last time, and whether it has closed the stream.
    pub fn take(&self) -> (Vec<u8>, bool) {
        let mut state = self.state();
        (std::mem::take(&mut state.outbox), state.dropped)
    }

    pub fn deliver(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.end.is_none() {
            state.inbox.extend(bytes);
            wake(state);
        }
    }

    pub fn end(&self, how: End) {
        let mut state = self.state();
        state.end.get_or_insert(how);
        wake(state);
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// The client's end.
struct Stream(Near);

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        if state.inbox.is_empty() {
            return match state.end {
                None => {
                    state.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
                Some(End::Closed) => Poll::Ready(Ok(())),
                Some(End::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            };
        }
        let read = state.inbox.read(buffer.initialize_unfilled())?;
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
        let mut state = self.0.state();
        if state.end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        state.outbox.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.state().dropped = true;
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.state().dropped = true;
    }
}

/// A connection that a client has asked for.
pub struct Dialled {
    pub near: Near,
    /// To which server.
    pub host: String,
    answer: oneshot::Sender<io::Result<()>>,
}

impl Dialled {
    pub fn accept(self) -> Near {
        let _ = self.answer.send(Ok(()));
        self.near
    }

    pub fn refuse(self) {
        let _ = self.answer.send(Err(io::ErrorKind::ConnectionRefused.into()));
    }
}

/// The connections that a process has asked for and the world has not seen yet.
#[derive(Clone, Default)]
pub struct Dialling(Arc<Mutex<Vec<Dialled>>>);

impl Dialling {
    pub fn take(&self) -> Vec<Dialled> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the library is given to connect with.
    pub fn dial(&self) -> Dial {
        let dialling = self.clone();
        Dial(Arc::new(move |host: &str, _| {
            let (near, (answer, answered)) = (Near::default(), oneshot::channel());
            let dialled = Dialled { near: near.clone(), host: host.to_owned(), answer };
            dialling.0.lock().unwrap_or_else(PoisonError::into_inner).push(dialled);
            async move {
                let stream = Stream(near);
                match answered.await {
                    Ok(answer) => answer.map(|()| Box::new(stream) as Box<_>),
                    Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
                }
            }
            .boxed()
        }))
    }
}
