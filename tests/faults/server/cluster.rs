//! Nodes of a cluster, which this library does not support: every refusal of theirs is a clear one, and no lock is held
//! twice for it.
//!
//! The keys of a lock lie in one slot, but the counter of the tokens lies in a slot of its own, so that a node refuses a
//! grant with CROSSSLOT. There is one name whose lock lies in that slot too: it shows what becomes of a lock whose slot
//! moves or goes away.

use std::time::Duration;

use parklock::{Client, Config, Ended, Error};

use crate::common::port::Port;
use crate::common::{Admin, Server, eventually};
use crate::scene::*;

/// The name whose lock lies in the slot of the counter, because its hash tag is the counter's key.
const BESIDE: &str = COUNTER;

/// A node, with a port for the others of its cluster; nothing if the server's version has no such setting.
struct Node {
    server: Server,
    admin: Admin,
    bus: Port,
}

impl Node {
    async fn start() -> Option<Self> {
        if is_version_6() {
            eprintln!("LEFT OUT: version 6 cannot be told which port its cluster is to use");
            return None;
        }
        let bus = Port::reserve();
        let setup = Server::builder().set("cluster-enabled", "yes");
        let setup = setup.set("cluster-port", &bus.number().to_string());
        let server = setup.set("cluster-require-full-coverage", "no").start().await;
        let admin = server.admin().await;
        Some(Self { server, admin, bus })
    }

    /// A node that has all slots.
    async fn whole() -> Option<Self> {
        let node = Self::start().await?;
        node.admin.cmd::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        node.is_up().await;
        Some(node)
    }

    async fn is_up(&self) {
        let up = async || {
            let info: String = self.admin.cmd(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
        };
        eventually(SOON, "the cluster is up", up).await;
    }

    async fn id(&self) -> String {
        self.admin.cmd(&["CLUSTER", "MYID"]).await
    }

    /// Joins the cluster of another node, which has all slots, and waits until both know it.
    async fn join(&self, other: &Self) {
        let (port, bus) = (other.server.port().to_string(), other.bus.number().to_string());
        self.admin.cmd::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
        let met = async || {
            let points = self.admin.try_cmd::<()>(&["GET", COUNTER]).await;
            let nodes: String = other.admin.cmd(&["CLUSTER", "NODES"]).await;
            points.is_err_and(|error| error.code() == Some("MOVED"))
                && nodes.contains(&self.id().await)
        };
        eventually(SOON, "the nodes have met", met).await;
        self.is_up().await;
    }

    async fn client(&self, config: Config) -> Client {
        client(&self.server.url(), config).await
    }

    async fn slot(&self) -> String {
        self.admin.cmd::<u16>(&["CLUSTER", "KEYSLOT", COUNTER]).await.to_string()
    }

    async fn set_slot(&self, words: &[&str]) {
        let slot = self.slot().await;
        let words = [&["CLUSTER", "SETSLOT", &slot], words].concat();
        self.admin.cmd::<()>(&words).await;
    }
}

/// That a call was told that the server refuses for now, and with which word.
fn is_refused<T: std::fmt::Debug>(answer: Result<T, Error>, word: &str) {
    match answer {
        Err(Error::Unavailable { source }) if source.to_string().contains(word) => {}
        other => panic!("not {word}: {other:?}"),
    }
}

/// A lease that a test can wait for, and a patience that is over sooner.
fn hasty() -> Config {
    brisk().ride_out(Duration::from_secs(1))
}

/// F46, F48: what the README says, "not supported yet", is said by each call too, and no key is written.
#[tokio::test]
async fn a_cluster_is_refused_in_clear_words() {
    let Some(node) = Node::whole().await else { return };
    let client = node.client(hasty()).await;
    let lock = client.lock("a");
    for answer in [
        soon(lock.try_lock()).await,
        soon(lock.lock()).await.map(Some),
        soon(lock.try_lock_for(LONG)).await,
    ] {
        is_refused(answer, "CROSSSLOT");
    }
    let several = client.multi_lock(["a", "b"]);
    is_refused(soon(several.try_lock()).await, "CROSSSLOT");
    is_refused(soon(several.lock()).await, "CROSSSLOT");
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(node.admin.keys().await, Vec::<String>::new());
}

/// F47: nobody serves the slot, at first, for a while, and for longer than a lease.
#[tokio::test]
async fn a_slot_that_nobody_serves_is_unavailable_and_its_holder_loses_by_the_deadline() {
    let Some(node) = Node::start().await else { return };
    let (hasty, patient) = (node.client(hasty()).await, node.client(brisk().ride_out(LONG)).await);
    let lock = hasty.lock(BESIDE);
    is_refused(soon(lock.try_lock()).await, "CLUSTERDOWN");
    is_refused(soon(lock.lock()).await, "CLUSTERDOWN");
    is_refused(soon(lock.is_locked()).await, "CLUSTERDOWN");

    // A patient caller gets the lock when a node serves the slot.
    let waiter = waiting(patient.lock(BESIDE));
    node.admin.cmd::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let guard = granted(waiter).await;
    is_held_once(&node.admin, BESIDE).await;

    // Not served for less than a lease: nothing is lost.
    let slot = node.slot().await;
    let before = deadline(&guard);
    node.admin.cmd::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
    is_refused(soon(lock.try_lock()).await, "CLUSTERDOWN");
    node.admin.cmd::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await;
    node.is_up().await;
    is_renewed(&guard).await;
    assert!(deadline(&guard) > before);
    is_held_once(&node.admin, BESIDE).await;

    // For longer: lost by the deadline, whatever the node still has.
    node.admin.cmd::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    assert!(!guard.is_valid());
    assert_err!(soon(guard.unlock()).await, Error::Lost);
    node.admin.cmd::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await;
    granted(waiting(patient.lock(BESIDE))).await.unlock().await.unwrap();
}

/// F46: a slot moves to another node with the lock in it. Nobody follows it there: the old node's clients are refused,
/// the holder loses by its deadline, and until then the new node has it as held, once.
#[tokio::test]
async fn a_slot_that_moves_takes_its_lock_along_and_nobody_holds_it_twice() {
    let (Some(old), Some(new)) = (Node::whole().await, Node::start().await) else { return };
    new.join(&old).await;
    let (old_id, new_id) = (old.id().await, new.id().await);
    let (holder, other) = (old.client(brisk()).await, old.client(hasty()).await);
    let there = new.client(hasty()).await;
    let guard = holder.lock(BESIDE).lock().await.unwrap();

    // While it moves, some of the keys being there and some not.
    new.set_slot(&["IMPORTING", &old_id]).await;
    old.set_slot(&["MIGRATING", &new_id]).await;
    is_refused(soon(other.lock(BESIDE).try_lock()).await, "TRYAGAIN");
    is_refused(soon(there.lock(BESIDE).try_lock()).await, "MOVED");
    is_renewed(&guard).await;

    // When the keys have gone.
    let (port, lock) = (new.server.port().to_string(), key(BESIDE));
    let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS", COUNTER, &lock];
    assert_eq!(old.admin.cmd::<String>(&words).await, "OK");
    is_refused(soon(other.lock(BESIDE).try_lock()).await, "ASK");
    is_refused(soon(other.lock(BESIDE).is_locked()).await, "ASK");

    // When the slot has gone.
    new.set_slot(&["NODE", &new_id]).await;
    old.set_slot(&["NODE", &new_id]).await;
    is_refused(soon(other.lock(BESIDE).try_lock()).await, "MOVED");
    is_refused(soon(other.lock(BESIDE).lock()).await, "MOVED");
    if there.lock(BESIDE).try_lock().await.unwrap().is_some() {
        assert!(!guard.is_valid(), "two hold it");
    }
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    assert!(soon(guard.unlock()).await.is_err());
    let next = granted(waiting(there.lock(BESIDE))).await;
    is_held_once(&new.admin, BESIDE).await;
    next.unlock().await.unwrap();
}
