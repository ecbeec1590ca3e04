//! A TCP port that stays ours, whether somebody listens on it or not.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// A free loopback port, kept by a socket that is bound and never listens.
///
/// While nobody listens, a connection is refused, and no other process gets the port: the kernel lets a
/// second socket bind it only if both ask for `SO_REUSEADDR`, as we and redis-server do and as no search for a free
/// port will. So a server can be killed and started again on it, without a race and without retries.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _keeper: TcpSocket,
}

impl Port {
    pub fn reserve() -> Self {
        let keeper = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let address = keeper.local_addr().expect("a bound socket has an address");
        Self { address, _keeper: keeper }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

/// Listens on an address that a [`Port`] keeps.
pub fn listen(address: SocketAddr) -> TcpListener {
    bound(address).listen(1024).expect("the port is reserved")
}

fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("SO_REUSEADDR");
    socket.bind(address).expect("a loopback port");
    socket
}
