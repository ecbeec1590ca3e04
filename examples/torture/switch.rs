//! Stands before the servers as a virtual address does: clients always connect here, whoever is the primary.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::common::port::{self, Port};

/// Forwards each connection to the server that was the target when it came.
#[derive(Debug)]
pub struct Switch {
    port: Port,
    route: Arc<Mutex<Route>>,
}

#[derive(Debug)]
struct Route {
    target: SocketAddr,
    /// Ends the connections to this target.
    cut: CancellationToken,
    open: TaskTracker,
}

impl Route {
    fn to(target: SocketAddr) -> Self {
        Self { target, cut: CancellationToken::new(), open: TaskTracker::new() }
    }
}

impl Switch {
    /// Has a thread of its own, as the proxies have, which lives as long as the process.
    pub fn to(target: SocketAddr) -> Self {
        let (port, route) = (Port::reserve(), Arc::new(Mutex::new(Route::to(target))));
        let (address, shared) = (port.address(), Arc::clone(&route));
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (ready, listening) = std::sync::mpsc::channel();
        thread::spawn(move || {
            runtime.block_on(async move {
                let listener = port::listen(address);
                let _ = ready.send(());
                accept(listener, &shared).await;
            });
        });
        listening.recv().expect("the thread listens");
        Self { port, route }
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// New connections go there; the old ones are closed when this returns.
    pub async fn point_at(&self, target: SocketAddr) {
        let old = std::mem::replace(&mut *held(&self.route), Route::to(target));
        old.cut.cancel();
        old.open.close();
        old.open.wait().await;
    }
}

async fn accept(listener: TcpListener, route: &Mutex<Route>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let route = held(route);
        let (target, cut) = (route.target, route.cut.clone());
        route.open.spawn(async move {
            let _ = cut.run_until_cancelled(carry(client, target)).await;
        });
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

fn held(route: &Mutex<Route>) -> MutexGuard<'_, Route> {
    route.lock().unwrap_or_else(PoisonError::into_inner)
}
