//! The proxy's own thread: accepts connections and carries them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::net::{Shutdown, shutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::select;
use tokio::sync::{mpsc, oneshot};

use super::super::port;
use super::link::Link;
use super::net::Net;

/// Open or close the door, and say when it is done.
type Order = (bool, oneshot::Sender<()>);

/// The door of a proxy: one thread with a runtime of its own, so that a test which blocks its runtime, or stops its
/// clock, does not stop the network with it.
#[derive(Debug)]
pub(super) struct Door {
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub(super) fn new(net: Arc<Net>, at: SocketAddr, server: SocketAddr) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let thread = thread::spawn(move || runtime.block_on(Keeper { net, at, server }.run(inbox)));
        Self { orders: Some(orders), thread: Some(thread) }
    }

    /// Connections are accepted, or refused, when this returns.
    pub(super) async fn set_open(&self, open: bool) {
        let (done, answer) = oneshot::channel();
        let orders = self.orders.as_ref().expect("taken only on drop");
        orders.send((open, done)).expect("the thread runs");
        answer.await.expect("the thread answers");
    }
}

impl Drop for Door {
    /// Without orders the thread ends, and with its runtime every connection.
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Keeper {
    net: Arc<Net>,
    at: SocketAddr,
    server: SocketAddr,
}

impl Keeper {
    async fn run(self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        let mut listener = None;
        loop {
            select! {
                order = inbox.recv() => {
                    // The old one goes first: two listeners cannot share the port.
                    if let Some(open) = listener.take() {
                        close(open);
                    }
                    let Some((open, done)) = order else { return };
                    listener = open.then(|| port::listen(self.at));
                    let _ = done.send(());
                }
                client = accept(listener.as_ref()) => self.admit(client),
            }
        }
    }

    fn admit(&self, client: TcpStream) {
        let (net, link, server) = (Arc::clone(&self.net), self.net.join(), self.server);
        tokio::spawn(async move { carry(&net, &link, client, server).await });
    }
}

/// A process that another test starts has copies of all sockets until it runs its own program. Dropped here, the
/// socket would listen until then.
fn close(listener: TcpListener) {
    shutdown(&listener, Shutdown::Both).expect("a socket that listens");
}

async fn carry(net: &Net, link: &Link, client: TcpStream, server: SocketAddr) {
    let Ok(server) = TcpStream::connect(server).await else {
        return link.reject(client);
    };
    // A slice must leave at once, and nobody's latency shall be measured with Nagle's.
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("TCP_NODELAY");
    }
    link.run(net, (client, server)).await;
}

/// Waits for ever while nobody listens, or when the kernel has nothing to give.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    if let Some(listener) = listener {
        loop {
            if let Ok((client, _)) = listener.accept().await {
                return client;
            }
        }
    }
    std::future::pending().await
}
