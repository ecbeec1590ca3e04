//! A TCP port that stays ours, whether somebody listens on it or not; and hosts of our own, whose ports are all ours.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use tokio::net::{TcpListener, TcpSocket};

use super::child;

/// A free loopback port, kept by a socket that is bound and never listens.
///
/// While nobody listens, a connection is refused, and no other process gets the port: the kernel lets a
/// second socket bind it only if both ask for `SO_REUSEADDR`, as we and redis-server do and as no search for a free
/// port will. So a server can be killed and started again on it, without a race and without retries.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _keeper: Option<TcpSocket>,
}

/// A network namespace that `ip netns` made, with an address.
#[derive(Debug, Clone)]
pub struct Host {
    pub name: String,
    pub address: Ipv4Addr,
}

impl Host {
    /// A command of this program there. Each program becomes the next one: the process is the same.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = child::command("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program);
        command
    }
}

impl Port {
    pub fn reserve() -> Self {
        let keeper = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let address = keeper.local_addr().expect("a bound socket has an address");
        Self { address, _keeper: Some(keeper) }
    }

    /// Any port of a host of our own, which nobody else has.
    pub fn at(host: &Host, number: u16) -> Self {
        Self { address: SocketAddr::from((host.address, number)), _keeper: None }
    }

    /// One, and the one ten thousand further on, which a node of a cluster uses for its bus.
    pub fn reserve_pair() -> (Self, Self) {
        loop {
            let port = Self::reserve();
            // The kernel gives those who ask for any port one of the lower half of its range: beyond it, each port is of
            // one pair only.
            if port.number() < 37_000 {
                continue;
            }
            let Some(bus) = port.number().checked_add(10_000) else { continue };
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, bus));
            if let Ok(keeper) = try_bound(address) {
                return (port, Self { address, _keeper: Some(keeper) });
            }
        }
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
    try_bound(address).expect("a loopback port")
}

fn try_bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
