//! Primaries and replicas, and how one becomes the other.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use parklock::Client;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::common::port::{self, Port};
use crate::common::{Admin, Proxy, Server, eventually};
use crate::scene::*;

/// An address that leads to one server and then to another, as a host name does when its record changes. What is
/// connected stays where it is.
pub(crate) struct Route {
    port: Port,
    to: Arc<Mutex<SocketAddr>>,
}

impl Route {
    pub(crate) fn to(server: &Server) -> Self {
        let (port, to) = (Port::reserve(), Arc::new(Mutex::new(server.address())));
        leads(port.address(), Arc::clone(&to));
        Self { port, to }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn change(&self, server: &Server) {
        *self.to.lock().expect("no panic under it") = server.address();
    }

    pub(crate) async fn client(&self) -> Client {
        client(&format!("redis://{}", self.address()), patient()).await
    }
}

/// The address of a server that is down leads to another one from now on.
pub(crate) fn has_the_address_of(other: &Server, down: &Server) {
    leads(down.address(), Arc::new(Mutex::new(other.address())));
}

fn leads(from: SocketAddr, to: Arc<Mutex<SocketAddr>>) {
    let listener = port::listen(from);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let target = *to.lock().expect("no panic under it");
            tokio::spawn(async move {
                let mut server = TcpStream::connect(target).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
}

pub(crate) async fn replica_of(server: &Server, through: &Proxy) -> Server {
    let replica = Server::builder().replica_of(through.port()).start().await;
    let admin = replica.admin().await;
    let counter = async || admin.keys().await == [COUNTER];
    server.admin().await.cmd::<()>(&["SETNX", COUNTER, "1"]).await;
    eventually(SOON, "the replica follows", counter).await;
    replica
}

pub(crate) async fn is_replica(admin: &Admin) -> bool {
    admin.info("replication", "role").await.as_deref() == Some("slave")
}

/// Makes it a replica of a server that is not there: it keeps its data.
pub(crate) async fn demote(admin: &Admin) {
    admin.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert!(is_replica(admin).await);
}

pub(crate) async fn promote(admin: &Admin) {
    admin.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(!is_replica(admin).await);
}
