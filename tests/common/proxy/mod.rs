//! A proxy that understands RESP and breaks exactly what it is told to.
//!
//! It stands between clients and a server, or between a replica and its primary. A test names the traffic, then the
//! fault, asserts first that the fault happened, and only then what became of it:
//!
//! ```ignore
//! let proxy = Proxy::before(&server).await;
//! proxy.name_script("acquire", include_str!("../lua/line/acquire.lua"));
//! let lost = proxy.script("acquire").nth(1).cut_after();
//! // .. the library, connected to proxy.url() ..
//! lost.happened().await;
//! ```
//!
//! 1. Order is kept within each direction of each connection, as TCP keeps it: what follows a held or late frame waits
//!    behind it.
//! 2. Every fault that strikes a request is applied, in the order of installation; nothing follows a cut.
//! 3. A client that hangs up does not take back what it sent.

pub mod dice;
mod fault;
mod judge;
mod latch;
mod link;
mod listener;
mod names;
mod net;
mod pairing;
pub mod resp;
mod rule;
mod scripts;
mod way;

use std::net::SocketAddr;
use std::sync::Arc;

pub use fault::Fault;
pub use rule::{Class, Rule};

use super::port::Port;
use super::site::Front;
use listener::Door;
use names::Names;
use net::Net;
use rule::Target;

/// Dropped, it closes its ports and every connection.
#[derive(Debug)]
pub struct Proxy {
    /// One before each server.
    doors: Vec<Door>,
    net: Arc<Net>,
    ports: Vec<Port>,
    url: String,
}

impl Proxy {
    /// Listens on ports of its own and forwards to the servers, also after those were started again. What nodes of a
    /// cluster and sentinels say of where servers are, it turns into where it listens itself.
    pub async fn before(front: &impl Front) -> Self {
        Self::before_with(front, fastrand::u64(..)).await
    }

    /// With the seed of an earlier run, for the same jitter.
    pub async fn before_with(front: &impl Front, seed: u64) -> Self {
        let mut proxy = Self::before_all(&front.addresses(), seed).await;
        proxy.url = front.url_at(&proxy.addresses());
        proxy
    }

    /// The same before one server that is known by its address alone.
    pub async fn seeded(server: SocketAddr, seed: u64) -> Self {
        Self::before_all(&[server], seed).await
    }

    async fn before_all(servers: &[SocketAddr], seed: u64) -> Self {
        // Of five digits each, as many as those that stand for them.
        let ports: Vec<_> = servers.iter().map(|_| Port::reserve()).collect();
        let here = || ports.iter().map(Port::number);
        let names = servers.iter().map(SocketAddr::port).zip(here());
        let net = Arc::new(Net::new(seed, Names::new(names)));
        eprintln!("the proxy on port {} has the seed {seed}", ports[0].number());
        let mut doors = Vec::new();
        for (port, server) in ports.iter().zip(servers) {
            let door = Door::new(Arc::clone(&net), port.address(), *server);
            door.set_open(true).await;
            doors.push(door);
        }
        let url = format!("redis://{}", ports[0].address());
        Self { doors, net, ports, url }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(Port::address).collect()
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Where it listens for the first of the servers.
    pub fn port(&self) -> u16 {
        self.ports[0].number()
    }

    /// Calls `name` every script whose text is or contains `part`, however it is run. A name may be given to several
    /// scripts, and a script may have several names.
    pub fn name_script(&self, name: &str, part: &str) {
        self.net.judge().scripts.name(name, part);
    }

    /// Names what asks for a native lock: `acquire` is each such request. A plain lock that is thought to be free has a
    /// script of its own; what waits in line or gives back a tenure in the same step is also a `wait` or an `exchange`.
    pub fn name_acquires(&self) {
        let (take, acquire) = (
            include_str!("../../../lua/line/take.lua"),
            include_str!("../../../lua/line/acquire.lua"),
        );
        for (name, text) in
            [("acquire", take), ("acquire", acquire), ("wait", acquire), ("exchange", acquire)]
        {
            self.name_script(name, text);
        }
    }

    /// Calls what writes a hold count a `count`. A renewal is one too: a test that counts them has long leases.
    pub fn name_counts(&self) {
        self.name_script("count", include_str!("../../../lua/lock/renew.lua"));
    }

    /// Every request, of whatever connection.
    pub fn everything(&self) -> Rule {
        self.rule(Target::Everything)
    }

    /// Requests by their first word: `GET`, `SUBSCRIBE`, `EVALSHA`.
    pub fn command(&self, name: &str) -> Rule {
        self.rule(Target::Command(name.to_owned()))
    }

    /// Runs of a script that was [named](Self::name_script), by EVALSHA or EVAL.
    pub fn script(&self, name: &str) -> Rule {
        self.rule(Target::Script(name.to_owned()))
    }

    /// Pushes that answer no request: what was published. Faults of the reply strike them.
    pub fn messages(&self) -> Rule {
        self.rule(Target::Message)
    }

    /// Keeps the connections of a class (or all: `None`) open and forwards nothing, not even their end, until lifted.
    /// Then all that was kept arrives, as when a network heals. It has happened when something was kept.
    pub fn blackhole(&self, class: impl Into<Option<Class>>) -> Fault {
        self.net.blackhole(class.into())
    }

    /// Refuses new connections; those that are open go on.
    pub async fn refuse(&self) {
        for door in &self.doors {
            door.set_open(false).await;
        }
    }

    pub async fn accept_again(&self) {
        for door in &self.doors {
            door.set_open(true).await;
        }
    }

    /// Resets all connections of a class (or all: `None`), held traffic included; how many. They are closed when this
    /// returns.
    pub async fn reset(&self, class: impl Into<Option<Class>>) -> usize {
        let links = self.net.links(class.into());
        links.iter().for_each(|link| link.doom());
        for link in &links {
            link.closed().await;
        }
        links.len()
    }

    /// How many connections of a class (or all: `None`) are open.
    pub fn connections(&self, class: impl Into<Option<Class>>) -> usize {
        self.net.links(class.into()).len()
    }

    fn rule(&self, target: Target) -> Rule {
        Rule::new(Arc::clone(&self.net), target)
    }
}
